//! Owns names of objects and of Service ports. Knows nothing of the objects themselves.

use nft_ir::L4Proto;
use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// Name of a Service.
pub type ServiceName = ObjectName;

/// Name of an EndpointSlice (not of the Service that it belongs to).
pub type SliceName = ObjectName;

impl ObjectName {
    /// From its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What identifies a port of a Service: the Service, the port's name (may be empty) and its protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePortName {
    /// The Service.
    pub service: ServiceName,
    /// `spec.ports[].name`.
    pub port: Arc<str>,
    /// `spec.ports[].protocol`.
    pub protocol: L4Proto,
}

impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

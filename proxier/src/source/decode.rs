//! Owns the step from Kubernetes objects to the core's [`Change`]s; knows nothing of watches, files or the kernel.
//!
//! Nothing that an object says can fail more than itself: an entry that is no good (an address, a port, a range) is left
//! out and named in a [`Rejected`]; the rest of the object counts.

mod endpoint_slice;
mod intern;
mod node;
mod service;
mod service_cidr;
#[cfg(test)]
mod tests;

pub(crate) use endpoint_slice::HEADLESS_LABEL;
pub(crate) use service::PROXY_NAME_LABEL;

use intern::Interner;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proxier_core::Change;
use proxier_core::model::{Cidr, ServiceName, SliceName, parse_addr};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// What an object says, as far as it makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// What is now so; `None` if the object is not about this node, or too broken to have a name.
    pub change: Option<Change>,
    /// The entries that were left out.
    pub rejected: Vec<Rejected>,
}

/// An entry of an object that was left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {value:?}: {reason}; left out")]
pub struct Rejected {
    /// The object.
    pub object: ObjectKey,
    /// Path of the field within it, such as `spec.externalIPs[1]`.
    pub field: String,
    /// What it holds.
    pub value: String,
    /// Why that is no good.
    pub reason: String,
}

/// What identifies an object of the kinds that matter here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKey {
    /// A Service.
    Service(ServiceName),
    /// An EndpointSlice.
    EndpointSlice(SliceName),
    /// A Node, by name.
    Node(Arc<str>),
    /// A ServiceCIDR, by name.
    ServiceCidr(Arc<str>),
}

impl ObjectKey {
    /// The change that says that the object is gone.
    pub fn gone(self) -> Change {
        match self {
            Self::Service(name) => Change::Service(name, None),
            Self::EndpointSlice(name) => Change::EndpointSlice(name, None),
            Self::Node(_) => Change::Node(None),
            Self::ServiceCidr(name) => Change::ServiceCidr(name, Vec::new()),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "Service {name}"),
            Self::EndpointSlice(name) => write!(f, "EndpointSlice {name}"),
            Self::Node(name) => write!(f, "Node {name}"),
            Self::ServiceCidr(name) => write!(f, "ServiceCIDR {name}"),
        }
    }
}

/// A kind of object that this proxier reads.
pub trait Kind {
    /// What identifies this object.
    fn key(&self, decoder: &mut Decoder) -> ObjectKey;
    /// What this object says.
    fn decode(&self, decoder: &mut Decoder) -> Decoded;
}

/// Reads objects. Keeps one copy of each name that many objects repeat (nodes, zones, ports, namespaces).
#[derive(Debug)]
pub struct Decoder {
    node_name: Arc<str>,
    external_ips: bool,
    bind_address: Option<IpAddr>,
    names: Interner,
}

impl Decoder {
    /// For a node of this name. Without `external_ips` (feature gate `AllowServiceExternalIPs`) `spec.externalIPs` counts
    /// as empty.
    pub fn new(node_name: impl Into<Arc<str>>, external_ips: bool) -> Self {
        Self { node_name: node_name.into(), external_ips, bind_address: None, names: Interner::default() }
    }

    /// With this for the Node's address of its family, and its primary one, whatever the Node says (`bindAddress`).
    #[must_use]
    pub fn bind_address(mut self, addr: Option<IpAddr>) -> Self {
        self.bind_address = addr;
        self
    }

    /// A Service; `None` in the change if it is not ours to serve.
    pub fn service(&mut self, service: &Service) -> Decoded {
        let key = self.service_key(&service.metadata);
        service::decode(self, key, service)
    }

    /// An EndpointSlice; `None` in the change if it is not ours to serve.
    pub fn endpoint_slice(&mut self, slice: &EndpointSlice) -> Decoded {
        let key = self.slice_key(&slice.metadata);
        endpoint_slice::decode(self, key, slice)
    }

    /// A Node; no change at all if it is another than this node.
    pub fn node(&mut self, node: &Node) -> Decoded {
        node::decode(self, node)
    }

    /// A ServiceCIDR.
    pub fn service_cidr(&mut self, cidr: &ServiceCIDR) -> Decoded {
        service_cidr::decode(self, cidr)
    }

    fn object_name(&mut self, metadata: &ObjectMeta) -> ServiceName {
        let namespace = metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        ServiceName {
            namespace: self.names.intern(namespace.unwrap_or("default")),
            name: metadata.name.as_deref().unwrap_or_default().into(),
        }
    }

    fn service_key(&mut self, metadata: &ObjectMeta) -> ServiceName {
        self.object_name(metadata)
    }

    fn slice_key(&mut self, metadata: &ObjectMeta) -> SliceName {
        self.object_name(metadata)
    }
}

impl Kind for Service {
    fn key(&self, decoder: &mut Decoder) -> ObjectKey {
        ObjectKey::Service(decoder.service_key(&self.metadata))
    }

    fn decode(&self, decoder: &mut Decoder) -> Decoded {
        decoder.service(self)
    }
}

impl Kind for EndpointSlice {
    fn key(&self, decoder: &mut Decoder) -> ObjectKey {
        ObjectKey::EndpointSlice(decoder.slice_key(&self.metadata))
    }

    fn decode(&self, decoder: &mut Decoder) -> Decoded {
        decoder.endpoint_slice(self)
    }
}

impl Kind for Node {
    fn key(&self, _decoder: &mut Decoder) -> ObjectKey {
        ObjectKey::Node(self.metadata.name.as_deref().unwrap_or_default().into())
    }

    fn decode(&self, decoder: &mut Decoder) -> Decoded {
        decoder.node(self)
    }
}

impl Kind for ServiceCIDR {
    fn key(&self, _decoder: &mut Decoder) -> ObjectKey {
        ObjectKey::ServiceCidr(self.metadata.name.as_deref().unwrap_or_default().into())
    }

    fn decode(&self, decoder: &mut Decoder) -> Decoded {
        decoder.service_cidr(self)
    }
}

/// Collects what is left out of one object. A slice may hold 100,000 bad endpoints: past [`Rejections::MOST`] they are
/// only counted.
#[derive(Debug)]
struct Rejections {
    object: ObjectKey,
    named: Vec<Rejected>,
    more: usize,
}

impl Rejections {
    const MOST: usize = 16;

    const fn of(object: ObjectKey) -> Self {
        Self { object, named: Vec::new(), more: 0 }
    }

    fn add(&mut self, field: impl fmt::Display, value: impl fmt::Display, reason: impl fmt::Display) {
        if self.named.len() == Self::MOST {
            self.more += 1;
            return;
        }
        self.named.push(Rejected {
            object: self.object.clone(),
            field: field.to_string(),
            value: value.to_string(),
            reason: reason.to_string(),
        });
    }

    fn into_vec(mut self) -> Vec<Rejected> {
        if self.more > 0 {
            let value = self.more.to_string();
            self.named.push(Rejected {
                object: self.object,
                field: "…".to_owned(),
                value,
                reason: "so many more entries of this object are no good".to_owned(),
            });
        }
        self.named
    }

    /// The addresses of a list, each once, without those that are none and those that `objection` names.
    fn addrs<'a>(
        &mut self,
        field: &str,
        texts: impl IntoIterator<Item = &'a str>,
        objection: fn(IpAddr) -> Option<&'static str>,
    ) -> Vec<IpAddr> {
        let mut addrs = Vec::new();
        for (at, text) in texts.into_iter().enumerate() {
            match parse_addr(text.trim()) {
                Err(error) => self.add(format_args!("{field}[{at}]"), text, error),
                Ok(addr) => match objection(addr) {
                    Some(reason) => self.add(format_args!("{field}[{at}]"), text, reason),
                    None if addrs.contains(&addr) => {}
                    None => addrs.push(addr),
                },
            }
        }
        addrs
    }

    /// The prefixes of a list, each once, without those that are none.
    fn cidrs(&mut self, field: &str, texts: &[String]) -> Vec<Cidr> {
        let mut cidrs = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            match Cidr::parse(text.trim()) {
                Err(error) => self.add(format_args!("{field}[{at}]"), text, error),
                Ok(cidr) if cidrs.contains(&cidr) => {}
                Ok(cidr) => cidrs.push(cidr),
            }
        }
        cidrs
    }
}

/// Why an address can be neither an endpoint nor an external IP (Kubernetes' `ValidateEndpointIP`).
fn endpoint_objection(addr: IpAddr) -> Option<&'static str> {
    let link_local = match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local { Some("may not be a link-local address") } else { frontend_objection(addr) }
}

/// Why an address cannot be one that clients dial.
fn frontend_objection(addr: IpAddr) -> Option<&'static str> {
    if addr.is_unspecified() {
        Some("may not be the unspecified address")
    } else if addr.is_loopback() {
        Some("may not be a loopback address")
    } else if addr.is_multicast() {
        Some("may not be a multicast address")
    } else if matches!(addr, IpAddr::V4(v4) if v4.is_broadcast()) {
        Some("may not be the broadcast address")
    } else {
        None
    }
}

/// A port number, or why it is none.
fn port_number(number: i32) -> Result<NonZeroU16, &'static str> {
    u16::try_from(number).ok().and_then(NonZeroU16::new).ok_or("a port is a number from 1 to 65535")
}

/// A protocol; absent means TCP, as the API server's defaulting does.
fn protocol(text: Option<&str>) -> Result<nft_ir::L4Proto, &'static str> {
    match text {
        None | Some("" | "TCP") => Ok(nft_ir::L4Proto::Tcp),
        Some("UDP") => Ok(nft_ir::L4Proto::Udp),
        Some("SCTP") => Ok(nft_ir::L4Proto::Sctp),
        Some(_) => Err("a protocol is TCP, UDP or SCTP"),
    }
}

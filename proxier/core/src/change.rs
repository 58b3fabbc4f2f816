//! Owns the only input vocabulary of the core. Knows nothing of where changes come from.

use crate::model::{Cidr, EndpointSlice, HostAddress, Node, Service, ServiceName, SliceName};
use std::sync::Arc;

/// Something that is now so. `None` means that the object is gone, or is not ours to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A Service.
    Service(ServiceName, Option<Arc<Service>>),
    /// An EndpointSlice.
    EndpointSlice(SliceName, Option<Arc<EndpointSlice>>),
    /// The Node object of this node.
    Node(Option<Arc<Node>>),
    /// A ServiceCIDR object: its name and its prefixes.
    ServiceCidr(Arc<str>, Vec<Cidr>),
    /// All addresses of this host's interfaces in the namespace of the proxier, loopback included.
    HostAddresses(Vec<HostAddress>),
}

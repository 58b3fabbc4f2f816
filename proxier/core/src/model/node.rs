//! Owns this node: as the API describes it, and the addresses that its machine really has. Knows nothing of the
//! interfaces beyond their names.

use super::Cidr;
use std::net::IpAddr;
use std::sync::Arc;

/// The Node object of the node that this proxier runs for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Primary addresses: the first InternalIP (else ExternalIP), then the first of the other family.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<Cidr>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// Carries the taint `ToBeDeletedByClusterAutoscaler`.
    pub to_be_deleted: bool,
}

/// An address of this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddress {
    /// The address.
    pub addr: IpAddr,
    /// The interface that has it.
    pub link: Arc<str>,
}

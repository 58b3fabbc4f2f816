//! Owns what the health check of a Service says about this node. Knows nothing of HTTP.

use crate::model::{Cluster, ServiceName};
use nft_ir::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

/// What a Service's `healthCheckNodePort` is to say in a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// `spec.healthCheckNodePort`.
    pub port: NonZeroU16,
    /// Distinct addresses of *ready* endpoints on this node. A load balancer takes the node out while only terminating ones
    /// are left, though those still serve.
    pub local_endpoints: usize,
}

/// The health check of a Service, if it has one and an address of the family.
pub fn health_check(
    cluster: &Cluster,
    node: &str,
    service: &ServiceName,
    family: Family,
) -> Option<HealthCheck> {
    let object = cluster.service(service)?;
    let port = object.health_check_node_port?;
    object.cluster_ips.iter().find(|ip| Family::of(ip) == family)?;
    let ready: BTreeSet<IpAddr> = cluster
        .slices(service)
        .filter(|slice| slice.family == family)
        .flat_map(|slice| &slice.endpoints)
        .filter(|endpoint| endpoint.ready && endpoint.node.as_deref() == Some(node))
        .map(|endpoint| endpoint.addr)
        .collect();
    Some(HealthCheck { port, local_endpoints: ready.len() })
}

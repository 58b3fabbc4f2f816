//! Owns a Service as this node sees it. Knows nothing of its endpoints.

use super::{Cidr, ServiceName};
use nft_ir::L4Proto;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// `spec.internalTrafficPolicy` or `spec.externalTrafficPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TrafficPolicy {
    /// Every endpoint of the cluster.
    #[default]
    Cluster,
    /// Only endpoints of this node.
    Local,
}

/// `spec.sessionAffinity: ClientIP` with its time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Affinity {
    /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`, 1 to 86,400 s.
    pub timeout: Duration,
}

/// One of `spec.ports`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// `name`, empty if there is none.
    pub name: Arc<str>,
    /// `protocol`.
    pub protocol: L4Proto,
    /// `port`.
    pub port: NonZeroU16,
    /// `nodePort`; `None` for 0.
    pub node_port: Option<NonZeroU16>,
}

/// A Service that this proxier serves: not headless, not ExternalName, not labelled for another proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: ServiceName,
    /// `metadata.creationTimestamp` in seconds since 1970; 0 if there is none. The older of two claimants wins.
    pub created: i64,
    /// `spec.clusterIPs`, at most one a family.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip` with `ipMode` VIP.
    pub load_balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges`; empty: everybody.
    pub source_ranges: Vec<Cidr>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.internalTrafficPolicy`.
    pub internal_policy: TrafficPolicy,
    /// `spec.externalTrafficPolicy`.
    pub external_policy: TrafficPolicy,
    /// `spec.sessionAffinity`.
    pub affinity: Option<Affinity>,
    /// `spec.healthCheckNodePort`, only for type LoadBalancer with external policy Local.
    pub health_check_node_port: Option<NonZeroU16>,
}

//! Owns whom the task that syncs tells what it has done; knows nothing of what that is.

use crate::events::Events;
use crate::health::{Health, ServiceHealthServers};
use crate::metrics::Metrics;
use crate::node_port_proxy::NodePortProxy;

/// Those who show to the outside what the task that syncs has done.
#[derive(Debug)]
pub struct Reports {
    /// `/healthz`, `/livez`.
    pub health: Health,
    /// The health check servers of Services.
    pub service_health: ServiceHealthServers,
    /// NodePorts on loopback.
    pub node_port_proxy: NodePortProxy,
    /// `/metrics`.
    pub metrics: Metrics,
    /// Kubernetes Events.
    pub events: Events,
}

//! Owns whom the task that syncs tells what it has done; knows nothing of what that is.

use crate::events::Events;
use crate::health::{Health, ServiceHealthServers};
use crate::metrics::Metrics;

/// Those who show to the outside what the task that syncs has done.
#[derive(Debug)]
pub struct Reports {
    /// `/healthz`, `/livez`.
    pub health: Health,
    /// The health check servers of Services.
    pub service_health: ServiceHealthServers,
    /// `/metrics`.
    pub metrics: Metrics,
    /// Kubernetes Events.
    pub events: Events,
}

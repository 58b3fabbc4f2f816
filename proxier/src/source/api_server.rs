//! Owns the Kubernetes API server as a source: what is watched, with which selectors, and when the first state is whole;
//! knows nothing of what is made of the changes.
//!
//! There is no local copy of the objects: each watch event is decoded and passed on at once. Kept are only the names that
//! each watch has delivered, so that after a new list what has vanished meanwhile can be named.

mod connection;
mod delivered;
mod follow;
#[cfg(test)]
mod tests;

pub use connection::{Connection, ConnectionError};

use super::decode::{HEADLESS_LABEL, PROXY_NAME_LABEL};
use super::{Decoder, SourceEvent};
use delivered::{Delivered, Part};
use follow::{Follow, Outage};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tracing::warn;

/// Which objects are wanted, and how long their first delivery is waited for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Name of this node.
    pub node_name: Arc<str>,
    /// Whether `spec.externalIPs` counts (feature gate `AllowServiceExternalIPs`).
    pub external_ips: bool,
    /// The Node's address of its family, whatever the Node says (`bindAddress`).
    pub bind_address: Option<IpAddr>,
    /// How long to wait, once Nodes have been listed, for this Node to have addresses. Without them the proxier starts all
    /// the same.
    pub node_addresses: Duration,
    /// How long to wait then for its podCIDRs; `None` where nobody needs them. Without them the proxier cannot start.
    pub pod_cidrs: Option<Duration>,
    /// How long to wait then for ServiceCIDRs. A cluster without that API goes without.
    pub service_cidrs: Duration,
}

impl Wanted {
    /// Upstream's waits: 30 s for the Node's addresses, and 5 minutes for its podCIDRs if they are needed.
    pub fn new(node_name: impl Into<Arc<str>>, needs_pod_cidrs: bool) -> Self {
        Self {
            node_name: node_name.into(),
            external_ips: true,
            bind_address: None,
            node_addresses: Duration::from_secs(30),
            pod_cidrs: needs_pod_cidrs.then(|| Duration::from_secs(300)),
            service_cidrs: Duration::from_secs(2),
        }
    }
}

/// Why the API server could not be a source.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiServerError {
    /// `detectLocalMode: NodeCIDR`, and the Node got no podCIDRs in time.
    #[error("Node {node}: spec.podCIDRs: still empty after {waited:?}; detectLocalMode NodeCIDR needs them")]
    NoPodCidrs {
        /// The Node.
        node: Arc<str>,
        /// How long was waited.
        waited: Duration,
    },
}

/// Follows the API server until nobody listens any more. It may be away, at the start as well as later: what was said
/// stays, and it is tried again with a growing pause of at most 30 s.
pub async fn run(client: Client, wanted: Wanted, events: Sender<SourceEvent>) -> Result<(), ApiServerError> {
    let delivered = Delivered::new();
    let outage = Outage::new();
    let follow = |part| Follow {
        decoder: Decoder::new(wanted.node_name.clone(), wanted.external_ips)
            .bind_address(wanted.bind_address),
        events: events.clone(),
        part,
        delivered: delivered.clone(),
        outage: outage.clone(),
    };
    let services = watcher::Config::default()
        .labels(&format!("!{PROXY_NAME_LABEL}"))
        .fields("spec.clusterIP!=None")
        .streaming_lists();
    let slices = watcher::Config::default().labels(&format!("!{HEADLESS_LABEL}")).streaming_lists();
    let node = watcher::Config::default().fields(&format!("metadata.name={}", wanted.node_name));
    let follow_all = async {
        tokio::join!(
            follow(Part::Services).run(Api::<Service>::all(client.clone()), services),
            follow(Part::EndpointSlices).run(Api::<EndpointSlice>::all(client.clone()), slices),
            follow(Part::Node).run(Api::<Node>::all(client.clone()), node),
            follow(Part::ServiceCidrs)
                .run(Api::<ServiceCIDR>::all(client.clone()), watcher::Config::default()),
        );
    };
    let initial = async {
        let whole = first_delivery(&delivered, &wanted).await;
        if whole.is_ok() {
            // A closed channel is noticed by the watches as well.
            let _ = events.send(SourceEvent::Synced).await;
        }
        whole
    };
    tokio::pin!(follow_all);
    tokio::select! {
        () = &mut follow_all => return Ok(()),
        () = events.closed() => return Ok(()),
        whole = initial => whole?,
    }
    tokio::select! {
        () = follow_all => {}
        () = events.closed() => {}
    }
    Ok(())
}

/// Waits until Services, EndpointSlices and Nodes have been listed, without limit; then for the rest, within limits.
async fn first_delivery(delivered: &Delivered, wanted: &Wanted) -> Result<(), ApiServerError> {
    for part in [Part::Services, Part::EndpointSlices, Part::Node] {
        delivered.wait_for(part).await;
    }
    if tokio::time::timeout(wanted.node_addresses, delivered.wait_for(Part::NodeAddresses)).await.is_err() {
        warn!(
            "Node {}: no addresses after {:?}; starting without them",
            wanted.node_name, wanted.node_addresses
        );
    }
    if let Some(waited) = wanted.pod_cidrs
        && tokio::time::timeout(waited, delivered.wait_for(Part::PodCidrs)).await.is_err()
    {
        return Err(ApiServerError::NoPodCidrs { node: wanted.node_name.clone(), waited });
    }
    let _ = tokio::time::timeout(wanted.service_cidrs, delivered.wait_for(Part::ServiceCidrs)).await;
    Ok(())
}

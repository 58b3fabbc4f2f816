//! Owns NodePorts on loopback: a TCP proxy in user space on `127.0.0.1` and `[::1]`, where `nodePortAddresses` names loopback.
//! Knows nothing of which endpoints a Service has, or why.
//!
//! The kernel does not translate packets to loopback, as upstream's nftables mode does not. Upstream has this proxy behind an
//! alpha gate that is off; here it serves wherever loopback is named (`localhost`, 127.0.0.0/8, ::1/128; `all` does not name
//! it) unless that gate, `KubeProxyNFTablesLocalhostNodePorts`, or `iptables.localhostNodePorts` is set to false. UDP and SCTP
//! are not proxied: nobody listens, so the kernel refuses them, without counting.

mod connection;
mod target;
#[cfg(test)]
mod tests;

use crate::http_server::listen;
use crate::metrics::Metrics;
use nft_ir::Family;
use proxier_core::model::ServicePortName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use target::Target;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, error};

/// How long to wait before a port that could not be listened on is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// A Service port with a NodePort, in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNodePort {
    /// The Service port.
    pub name: ServicePortName,
    /// Its NodePort.
    pub port: NonZeroU16,
    /// Endpoints that external traffic may go to, at least one.
    pub endpoints: Arc<[SocketAddr]>,
    /// `sessionAffinity: ClientIP` with its time-out.
    pub affinity: Option<Duration>,
}

type Wanted = BTreeMap<Family, Arc<[LocalNodePort]>>;

/// The proxy. Its listeners and their connections end when this is dropped.
#[derive(Debug)]
pub struct NodePortProxy {
    wanted: watch::Sender<Wanted>,
}

impl NodePortProxy {
    /// Starts without a listener; must be called within a runtime.
    pub fn start(metrics: Metrics) -> Self {
        let wanted = watch::Sender::new(Wanted::new());
        let proxy = Listeners { metrics, open: BTreeMap::new(), failing: BTreeSet::new() };
        tokio::spawn(proxy.run(wanted.subscribe()));
        Self { wanted }
    }

    /// All that is to be served in this family from now on. Returns at once. A port that goes takes its connections along; a
    /// port that stays keeps them, whatever its endpoints are now.
    pub fn publish(&self, family: Family, ports: impl Into<Arc<[LocalNodePort]>>) {
        let ports = ports.into();
        self.wanted.send_modify(|wanted| {
            wanted.insert(family, ports);
        });
    }
}

type Key = (Family, NonZeroU16, ServicePortName);

struct Listeners {
    metrics: Metrics,
    open: BTreeMap<Key, Listener>,
    /// Those that were logged.
    failing: BTreeSet<Key>,
}

struct Listener {
    target: Arc<Target>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The task owns its connections.
        self.task.abort();
    }
}

impl Listeners {
    async fn run(mut self, mut wanted: watch::Receiver<Wanted>) {
        loop {
            let now = wanted.borrow_and_update().clone();
            let again = self.reconcile(&now).await;
            let retry =
                async { if again { tokio::time::sleep(RETRY).await } else { std::future::pending().await } };
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = retry => {}
            }
        }
    }

    /// Closes first, since a port may go from one Service to another. Whether something could not be opened.
    async fn reconcile(&mut self, wanted: &Wanted) -> bool {
        let mut targets: BTreeMap<Key, &LocalNodePort> = BTreeMap::new();
        for (family, ports) in wanted {
            targets.extend(ports.iter().map(|port| ((*family, port.port, port.name.clone()), port)));
        }
        let leaving: Vec<Key> = self.open.keys().filter(|key| !targets.contains_key(*key)).cloned().collect();
        for mut listener in leaving.into_iter().filter_map(|key| self.open.remove(&key)) {
            listener.task.abort();
            // It ended by the abort just now; its port is free then.
            let _ = (&mut listener.task).await;
        }
        self.failing.retain(|key| targets.contains_key(key));
        let mut failed = false;
        for (key, port) in targets {
            match self.open.get(&key) {
                Some(listener) => listener.target.set(port.endpoints.clone(), port.affinity),
                None => failed |= !self.open(key, port),
            }
        }
        for family in wanted.keys() {
            let open = self.open.keys().filter(|(of, ..)| of == family).count();
            self.metrics.localhost_listeners(*family, open);
        }
        failed
    }

    /// Whether it listens now.
    fn open(&mut self, key: Key, port: &LocalNodePort) -> bool {
        let addr = SocketAddr::new(loopback(key.0), key.1.get());
        match listen(addr, true) {
            Ok(listener) => {
                let target = Arc::new(Target::new(port.endpoints.clone(), port.affinity));
                let task = tokio::spawn(connection::serve(listener, target.clone()));
                self.failing.remove(&key);
                self.open.insert(key, Listener { target, task });
                debug!("{addr}: listening for Service port {}", port.name);
                true
            }
            Err(cause) => {
                self.metrics.localhost_listener_failed(key.0);
                if self.failing.insert(key) {
                    error!(
                        "{addr}: cannot listen for Service port {}: {cause}; trying again in {RETRY:?}",
                        port.name
                    );
                }
                false
            }
        }
    }
}

const fn loopback(family: Family) -> IpAddr {
    match family {
        Family::Ip => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Family::Ip6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}

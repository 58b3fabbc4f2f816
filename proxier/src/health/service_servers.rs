//! Owns the health check servers of Services (`healthCheckNodePort`): which listen where, and what they answer; knows
//! nothing of how endpoints are counted.
//!
//! A listener is a task, not a thread, so that a thousand of them cost little.

use super::proxy_server::json;
use super::{Health, Moment};
use crate::events::{Events, Notice};
use crate::http_server::listen;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use nft_ir::Family;
use proxier_core::model::ServiceName;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::debug;

/// How long to wait before a server that could not listen tries again.
const RETRY: Duration = Duration::from_secs(5);

/// Tells load balancers how many endpoints stand behind this node.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// A Service with a health check, in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHealth {
    /// The Service.
    pub service: ServiceName,
    /// `spec.healthCheckNodePort`.
    pub port: NonZeroU16,
    /// Distinct addresses of its ready endpoints on this node.
    pub local_endpoints: usize,
}

/// Where the servers of one family listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// On all addresses of the family.
    Any,
    /// On these.
    On(Vec<IpAddr>),
}

/// What is to be served, by family.
type Wanted = BTreeMap<Family, (Arc<[ServiceHealth]>, Listen)>;

/// The servers. They end when this is dropped.
#[derive(Debug)]
pub struct ServiceHealthServers {
    wanted: watch::Sender<Wanted>,
}

impl ServiceHealthServers {
    /// Starts with no server; must be called within a runtime. `node_name` stands in the Events about ports that are taken.
    pub fn start(node_name: Arc<str>, health: Health, events: Events) -> Self {
        let wanted = watch::Sender::new(Wanted::new());
        let servers = Servers { node_name, health, events, open: BTreeMap::new(), failing: BTreeSet::new() };
        tokio::spawn(servers.run(wanted.subscribe()));
        Self { wanted }
    }

    /// All that is to be served in this family from now on. Returns at once: ports are opened and closed meanwhile; a
    /// server whose port and addresses stay is left alone.
    pub fn publish(&self, family: Family, services: impl Into<Arc<[ServiceHealth]>>, listen: Listen) {
        let services = services.into();
        self.wanted.send_if_modified(|wanted| {
            let now = (services, listen);
            if wanted.get(&family) == Some(&now) {
                return false;
            }
            wanted.insert(family, now);
            true
        });
    }
}

/// What identifies a server, and where it listens.
type Key = (Family, ServiceName, NonZeroU16);

struct Servers {
    node_name: Arc<str>,
    health: Health,
    events: Events,
    open: BTreeMap<Key, Server>,
    /// Those that the cluster has been told of.
    failing: BTreeSet<Key>,
}

struct Server {
    local_endpoints: Arc<AtomicUsize>,
    listeners: BTreeMap<SocketAddr, JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Connections that are still open are told that there is nothing here.
        self.local_endpoints.store(0, Ordering::Relaxed);
        for listener in self.listeners.values() {
            listener.abort();
        }
    }
}

impl Servers {
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
        let mut targets = BTreeMap::new();
        for (family, (services, listen)) in wanted {
            for service in services.iter() {
                let key = (*family, service.service.clone(), service.port);
                targets.insert(key, (service.local_endpoints, addrs(*family, listen, service.port)));
            }
        }
        let mut closing = Vec::new();
        for (key, server) in &mut self.open {
            let wanted = targets.get(key).map(|(_, addrs)| addrs);
            let leaving: Vec<_> = server
                .listeners
                .keys()
                .filter(|addr| wanted.is_none_or(|wanted| !wanted.contains(addr)))
                .copied()
                .collect();
            closing.extend(leaving.iter().filter_map(|addr| server.listeners.remove(addr)));
        }
        for listener in &closing {
            listener.abort();
        }
        for listener in closing {
            // It ended by the abort just now; its port is free then.
            let _ = listener.await;
        }
        self.open.retain(|key, _| targets.contains_key(key));
        self.failing.retain(|key| targets.contains_key(key));
        let mut failed = false;
        for (key, (local_endpoints, addrs)) in targets {
            failed |= !self.serve(key, local_endpoints, addrs);
        }
        failed
    }

    /// Whether it listens everywhere that it should.
    fn serve(&mut self, key: Key, local_endpoints: usize, addrs: BTreeSet<SocketAddr>) -> bool {
        let server = self
            .open
            .entry(key.clone())
            .or_insert_with(|| Server { local_endpoints: Arc::default(), listeners: BTreeMap::new() });
        server.local_endpoints.store(local_endpoints, Ordering::Relaxed);
        let mut failure = None;
        for addr in addrs {
            if server.listeners.contains_key(&addr) {
                continue;
            }
            match listen(addr, true) {
                Ok(listener) => {
                    let answerer = Answerer {
                        service: key.1.clone(),
                        local_endpoints: server.local_endpoints.clone(),
                        health: self.health.clone(),
                    };
                    let router = Router::new().fallback(answer).with_state(answerer);
                    let task = tokio::spawn(async move {
                        if let Err(error) = axum::serve(listener, router).await {
                            debug!("{addr}: {error}");
                        }
                    });
                    server.listeners.insert(addr, task);
                }
                Err(error) => failure = Some(format!("{addr}: {error}")),
            }
        }
        let Some(error) = failure else {
            self.failing.remove(&key);
            return true;
        };
        if self.failing.insert(key.clone()) {
            let (_, service, port) = &key;
            self.events.tell(Notice::service_health_failed(&self.node_name, service, port.get(), &error));
        }
        false
    }
}

fn addrs(family: Family, listen: &Listen, port: NonZeroU16) -> BTreeSet<SocketAddr> {
    let any: IpAddr = match family {
        Family::Ip => Ipv4Addr::UNSPECIFIED.into(),
        Family::Ip6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    match listen {
        Listen::Any => BTreeSet::from([SocketAddr::new(any, port.get())]),
        Listen::On(addrs) => addrs
            .iter()
            .filter(|addr| Family::of(addr) == family)
            .map(|addr| SocketAddr::new(*addr, port.get()))
            .collect(),
    }
}

#[derive(Clone)]
struct Answerer {
    service: ServiceName,
    local_endpoints: Arc<AtomicUsize>,
    health: Health,
}

/// The answer to any request. Its form is upstream's: load balancers of clouds are made for it.
async fn answer(State(answerer): State<Answerer>) -> Response<Body> {
    let local_endpoints = answerer.local_endpoints.load(Ordering::Relaxed);
    let healthy = answerer.health.verdict(Moment::now()).healthy;
    let status =
        if local_endpoints > 0 && healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (namespace, name) = (json!(&*answerer.service.namespace), json!(&*answerer.service.name));
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace},\n\t\t\"name\": {name}\n\t}},\n\t\"localEndpoints\": \
         {local_endpoints},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
    );
    let mut response = json(status, body);
    response.headers_mut().insert(WEIGHT, HeaderValue::from(local_endpoints));
    response
}

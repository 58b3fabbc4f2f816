//! Owns what health and metrics learn from the task that syncs: it turns its steps into their words. Knows nothing of
//! programming the kernel.

use crate::health::{Listen, Moment, ServiceHealth};
use crate::metrics::{PolicyKind, SyncKind};
use crate::node_port_proxy::LocalNodePort;
use crate::reports::Reports;
use crate::sync::{Error, Observe, Report};
use nft_ir::{Family, L4Proto};
use proxier_core::engine::Engine;
use proxier_core::health::health_check;
use proxier_core::model::{ServiceName, ServicePortName, TrafficPolicy};
use proxier_core::policy::node_port_addresses::{ServedOn, served_on};
use proxier_core::view::{Exposure, Frontend, ServicePortView};
use proxier_core::{Change, NodePortAddresses, Settings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;

/// Tells health, metrics and the Services' health checks what the task that syncs does.
#[derive(Debug)]
pub struct Observer {
    reports: Reports,
    settings: Settings,
    /// Triggers before this were not ours to serve in time.
    started: Duration,
    service_changes: usize,
    endpoint_changes: usize,
    /// Causes of EndpointSlice changes that are not in the kernel yet, since 1970.
    triggers: Vec<(Family, Duration)>,
    /// Health checks by family, in the order of [`Family::ALL`].
    checks: [BTreeMap<ServiceName, ServiceHealth>; 2],
    listens: [Option<Listen>; 2],
    /// NodePorts on loopback by family, where they are asked for.
    local_node_ports: [BTreeMap<ServiceName, Vec<LocalNodePort>>; 2],
    disturbed: bool,
    first_sync: Option<oneshot::Sender<()>>,
}

impl Observer {
    /// An observer that has seen nothing.
    pub fn new(reports: Reports, settings: Settings) -> Self {
        Self {
            reports,
            settings,
            started: since_1970(),
            service_changes: 0,
            endpoint_changes: 0,
            triggers: Vec::new(),
            checks: Default::default(),
            listens: [None, None],
            local_node_ports: Default::default(),
            disturbed: false,
            first_sync: None,
        }
    }

    /// Tells when the first sync has ended well.
    #[must_use]
    pub fn tell_first_sync(mut self, to: oneshot::Sender<()>) -> Self {
        self.first_sync = Some(to);
        self
    }

    fn families(&self) -> impl Iterator<Item = (usize, Family)> + use<> {
        let families = self.settings.families.clone();
        Family::ALL.into_iter().enumerate().filter(move |(_, family)| families.contains(family))
    }

    fn pending(&self) {
        self.reports.metrics.service_changes_pending(self.service_changes);
        self.reports.metrics.endpoint_changes_pending(self.endpoint_changes);
    }

    /// A sync is to come.
    fn queue(&self) {
        for (_, family) in self.families() {
            self.reports.health.queued(family, Moment::now());
            self.reports.metrics.queued(family);
        }
    }

    /// Counts of ready local endpoints, of the Services that the sync looked at.
    fn publish_checks(&mut self, report: &Report, engine: &Engine) {
        let cluster = engine.cluster();
        for (index, family) in self.families() {
            let served = served_on(
                &self.settings.node_port_addresses,
                family,
                cluster.node(),
                cluster.host_addresses(),
            );
            let listen = match served {
                ServedOn::Every => Listen::Any,
                ServedOn::These(addresses) => Listen::On(addresses),
            };
            let mut changed = self.listens[index].as_ref() != Some(&listen);
            let checks = &mut self.checks[index];
            for name in &report.services {
                let check = health_check(cluster, &self.settings.node_name, name, family).map(|check| {
                    ServiceHealth {
                        service: name.clone(),
                        port: check.port,
                        local_endpoints: check.local_endpoints,
                    }
                });
                changed |= checks.get(name) != check.as_ref();
                match check {
                    Some(check) => checks.insert(name.clone(), check),
                    None => checks.remove(name),
                };
            }
            if changed {
                let all: Vec<ServiceHealth> = checks.values().cloned().collect();
                self.reports.service_health.publish(family, all, listen.clone());
                self.listens[index] = Some(listen);
            }
        }
    }

    /// NodePorts of the Services that the sync looked at, in the families whose loopback is named.
    fn publish_local_node_ports(&mut self, report: &Report, engine: &Engine) {
        for (index, family) in self.families() {
            if !self.serves_loopback(family) {
                continue;
            }
            let all = &mut self.local_node_ports[index];
            let mut changed = false;
            for service in &report.services {
                let views = engine.views_of(service).iter().filter(|((_, of), _)| *of == family);
                let ports: Vec<LocalNodePort> =
                    views.filter_map(|((name, _), view)| local_node_port(name, view)).collect();
                let before = if ports.is_empty() {
                    all.remove(service).unwrap_or_default()
                } else {
                    all.insert(service.clone(), ports.clone()).unwrap_or_default()
                };
                changed |= before != ports;
            }
            if changed {
                let ports: Vec<LocalNodePort> = all.values().flatten().cloned().collect();
                self.reports.node_port_proxy.publish(family, ports);
            }
        }
    }

    fn serves_loopback(&self, family: Family) -> bool {
        self.settings.node_port_addresses.iter().any(|entry| {
            matches!(entry, NodePortAddresses::Cidr(cidr) if cidr.family() == family && cidr.addr().is_loopback())
        })
    }
}

/// The NodePort of a Service port, if it has one, speaks TCP, and there is an endpoint for traffic from outside.
fn local_node_port(name: &ServicePortName, view: &ServicePortView) -> Option<LocalNodePort> {
    let port = view.frontends.iter().find_map(|frontend| match frontend.frontend {
        Frontend::NodePort { protocol: L4Proto::Tcp, port, .. } => Some(port),
        _ => None,
    })?;
    let endpoints = match view.external_policy {
        TrafficPolicy::Cluster => &view.cluster,
        TrafficPolicy::Local => &view.local,
    };
    (!endpoints.is_empty()).then(|| LocalNodePort {
        name: name.clone(),
        port,
        endpoints: endpoints.iter().map(|to| SocketAddr::new(to.addr, to.port.get())).collect(),
        affinity: view.affinity.map(|affinity| affinity.timeout),
    })
}

impl Observe for Observer {
    fn queued(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Service(..) => {
                    self.service_changes += 1;
                    self.reports.metrics.service_changes(1);
                }
                Change::EndpointSlice(_, slice) => {
                    self.endpoint_changes += 1;
                    self.reports.metrics.endpoint_changes(1);
                    let trigger = slice.as_ref().and_then(|slice| Some((slice.family, slice.trigger_time?)));
                    self.triggers.extend(trigger.filter(|(_, time)| *time > self.started));
                }
                Change::Node(node) => self.reports.health.node(node.as_deref()),
                Change::ServiceCidr(..) | Change::HostAddresses(_) => {}
            }
        }
        self.pending();
        self.queue();
    }

    fn synced(&mut self, took: Duration, report: &Report, engine: &Engine) {
        let metrics = &self.reports.metrics;
        let now = since_1970();
        for (family, trigger) in self.triggers.drain(..) {
            metrics.programmed(family, now.saturating_sub(trigger));
        }
        for (index, family) in self.families() {
            let kind = if report.full { SyncKind::Full } else { SyncKind::Partial };
            metrics.sync_finished(family, took, kind);
            metrics.synced(family);
            metrics.elements_written(family, report.elements[index]);
            // Each was a transaction that the kernel refused.
            report.held.iter().for_each(|_| metrics.sync_failed(family));
            if self.disturbed {
                metrics.repaired(family);
            }
            for (policy, exposure) in
                [(PolicyKind::Internal, Exposure::Internal), (PolicyKind::External, Exposure::External)]
            {
                metrics.no_local_endpoints(family, policy, engine.lacking_local(family, exposure));
            }
            self.reports.health.synced(family, Moment::now());
        }
        self.disturbed = false;
        (self.service_changes, self.endpoint_changes) = (0, 0);
        self.pending();
        self.publish_checks(report, engine);
        self.publish_local_node_ports(report, engine);
        if let Some(to) = self.first_sync.take() {
            // Nobody may want to know.
            let _ = to.send(());
        }
    }

    fn failed(&mut self, took: Duration, _error: &Error) {
        // What failed waits, even if no object changed: a repair, or what the kernel refused at first.
        self.queue();
        for (_, family) in self.families() {
            self.reports.metrics.sync_finished(family, took, SyncKind::Full);
            self.reports.metrics.sync_failed(family);
        }
    }

    fn sweep_failed(&mut self, _error: &Error) {
        for (_, family) in self.families() {
            self.reports.metrics.cleanup_failed(family);
        }
    }

    fn disturbed(&mut self) {
        self.disturbed = true;
        self.queue();
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

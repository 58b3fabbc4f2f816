//! Owns the metrics of this program: kube-proxy's under their own names, and a few more; knows nothing of HTTP or of what
//! is measured.
//!
//! A metric without an observation has no series, as upstream.

mod about;
mod labels;
mod process;
mod server;
#[cfg(test)]
mod tests;

pub use about::About;
pub use server::{Debug, router};

use crate::health::{Health, Moment};
use k8s_openapi::jiff::Timestamp;
use labels::{CodeLabel, FamilyLabel, PolicyLabels, ProtocolLabels};
use nft_ir::{Family as NftFamily, L4Proto};
use process::Process;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much a sync covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncKind {
    /// Everything.
    Full,
    /// What had changed.
    Partial,
}

/// Which traffic policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// `internalTrafficPolicy`.
    Internal,
    /// `externalTrafficPolicy`.
    External,
}

/// Everything that is measured. Clones share it.
#[derive(Clone)]
pub struct Metrics(Arc<Shared>);

struct Shared {
    registry: Registry,
    health: Option<Health>,
    sync: PerFamily<Histogram>,
    sync_full: PerFamily<Histogram>,
    sync_partial: PerFamily<Histogram>,
    last_synced: PerFamily<FloatGauge>,
    last_queued: PerFamily<FloatGauge>,
    programming: PerFamily<Histogram>,
    endpoint_changes: Counter,
    endpoint_changes_pending: Gauge,
    service_changes: Counter,
    service_changes_pending: Gauge,
    no_local_endpoints: Family<PolicyLabels, Gauge>,
    sync_failures: PerFamily<Counter>,
    cleanup_failures: PerFamily<Counter>,
    healthz: Family<CodeLabel, Counter>,
    livez: Family<CodeLabel, Counter>,
    conntrack: PerFamily<Histogram>,
    flows_deleted: PerFamily<Counter>,
    localhost_listeners: PerFamily<Gauge>,
    localhost_failures: PerFamily<Counter>,
    localhost_rejected: Family<ProtocolLabels, Counter>,
    elements_written: PerFamily<Counter>,
    repairs: PerFamily<Counter>,
    staleness: PerFamily<FloatGauge>,
}

type PerFamily<M> = Family<FamilyLabel, M, fn() -> M>;

type FloatGauge = Gauge<f64, AtomicU64>;

impl Metrics {
    /// All of them, at rest. With `health` the age of the oldest change that waits is shown. `version` is the Kubernetes
    /// version to report.
    pub fn new(version: &str, health: Option<Health>) -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let (major, minor) = major_minor(version);
        let shared = Shared {
            sync: add(
                r,
                "kubeproxy_sync_proxy_rules_duration_seconds",
                "SyncProxyRules latency in seconds",
                durations,
            ),
            sync_full: add(
                r,
                "kubeproxy_sync_full_proxy_rules_duration_seconds",
                "SyncProxyRules latency in seconds for full resyncs",
                durations,
            ),
            sync_partial: add(
                r,
                "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                "SyncProxyRules latency in seconds for partial resyncs",
                durations,
            ),
            last_synced: add(
                r,
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                "The last time proxy rules were successfully synced",
                FloatGauge::default,
            ),
            last_queued: add(
                r,
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
                "The last time a sync of proxy rules was queued",
                FloatGauge::default,
            ),
            programming: add(
                r,
                "kubeproxy_network_programming_duration_seconds",
                "In Cluster Network Programming Latency in seconds",
                programming_durations,
            ),
            endpoint_changes: one(
                r,
                "kubeproxy_sync_proxy_rules_endpoint_changes",
                "Cumulative proxy rules Endpoint changes",
            ),
            endpoint_changes_pending: one(
                r,
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                "Pending proxy rules Endpoint changes",
            ),
            service_changes: one(
                r,
                "kubeproxy_sync_proxy_rules_service_changes",
                "Cumulative proxy rules Service changes",
            ),
            service_changes_pending: one(
                r,
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                "Pending proxy rules Service changes",
            ),
            // A gauge in spite of its name, as upstream.
            no_local_endpoints: one(
                r,
                "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
                "Number of services with a Local traffic policy and no endpoints",
            ),
            sync_failures: add(
                r,
                "kubeproxy_sync_proxy_rules_nftables_sync_failures",
                "Cumulative proxy nftables sync failures",
                Counter::default,
            ),
            cleanup_failures: add(
                r,
                "kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
                "Cumulative proxy nftables cleanup failures",
                Counter::default,
            ),
            healthz: one(r, "kubeproxy_proxy_healthz", "Cumulative proxy healthz HTTP status"),
            livez: one(r, "kubeproxy_proxy_livez", "Cumulative proxy livez HTTP status"),
            conntrack: add(
                r,
                "kubeproxy_conntrack_reconciler_sync_duration_seconds",
                "ReconcileConntrackFlowsLatency latency in seconds",
                durations,
            ),
            flows_deleted: add(
                r,
                "kubeproxy_conntrack_reconciler_deleted_entries",
                "Cumulative conntrack flows deleted by conntrack reconciler",
                Counter::default,
            ),
            localhost_listeners: add(
                r,
                "kubeproxy_nftables_localhost_nodeport_listeners",
                "Number of listeners that serve NodePorts on loopback",
                Gauge::default,
            ),
            localhost_failures: add(
                r,
                "kubeproxy_nftables_localhost_nodeport_listener_creation_failures",
                "Cumulative failures to listen for NodePorts on loopback",
                Counter::default,
            ),
            localhost_rejected: one(
                r,
                "kubeproxy_nftables_localhost_nodeport_rejected_packets",
                "Packets to NodePorts on loopback that were rejected",
            ),
            elements_written: add(
                r,
                "proxier_elements_written",
                "Cumulative set and map elements added or deleted in the kernel",
                Counter::default,
            ),
            repairs: add(
                r,
                "proxier_foreign_change_repairs",
                "Cumulative repairs after somebody else changed this program's tables",
                Counter::default,
            ),
            staleness: add(
                r,
                "proxier_staleness_seconds",
                "How long the oldest change that is not in the kernel yet has waited; 0 when none does",
                FloatGauge::default,
            ),
            health,
            registry: {
                let build = Info::new(vec![
                    ("major", major),
                    ("minor", minor),
                    ("git_version", version.to_owned()),
                    ("git_commit", String::new()),
                    ("git_tree_state", String::new()),
                    ("build_date", String::new()),
                    ("go_version", String::new()),
                    ("compiler", "rustc".to_owned()),
                    ("platform", format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)),
                ]);
                r.register(
                    "kubernetes_build",
                    "The Kubernetes version that this program stands in for",
                    build,
                );
                let own = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
                r.register("proxier_build", "The version of this program", own);
                r.register_collector(Box::new(Process));
                registry
            },
        };
        Self(Arc::new(shared))
    }

    /// A sync of this family has ended, well or not, after this long.
    pub fn sync_finished(&self, family: NftFamily, took: Duration, kind: SyncKind) {
        let label = FamilyLabel::from(family);
        self.0.sync.get_or_create(&label).observe(took.as_secs_f64());
        let by_kind = match kind {
            SyncKind::Full => &self.0.sync_full,
            SyncKind::Partial => &self.0.sync_partial,
        };
        by_kind.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// A sync of this family has succeeded just now.
    pub fn synced(&self, family: NftFamily) {
        self.0.last_synced.get_or_create(&family.into()).set(unix_seconds());
    }

    /// A sync of this family has been asked for just now.
    pub fn queued(&self, family: NftFamily) {
        self.0.last_queued.get_or_create(&family.into()).set(unix_seconds());
    }

    /// A change of an EndpointSlice is in force this long after its cause.
    pub fn programmed(&self, family: NftFamily, latency: Duration) {
        self.0.programming.get_or_create(&family.into()).observe(latency.as_secs_f64());
    }

    /// So many more EndpointSlices were added, changed or removed.
    pub fn endpoint_changes(&self, more: u64) {
        self.0.endpoint_changes.inc_by(more);
    }

    /// So many changes of EndpointSlices wait for a sync.
    pub fn endpoint_changes_pending(&self, pending: usize) {
        self.0.endpoint_changes_pending.set(pending.try_into().unwrap_or(i64::MAX));
    }

    /// So many more Services were added, changed or removed.
    pub fn service_changes(&self, more: u64) {
        self.0.service_changes.inc_by(more);
    }

    /// So many changes of Services wait for a sync.
    pub fn service_changes_pending(&self, pending: usize) {
        self.0.service_changes_pending.set(pending.try_into().unwrap_or(i64::MAX));
    }

    /// So many Service ports have policy Local, endpoints somewhere and none here.
    pub fn no_local_endpoints(&self, family: NftFamily, policy: PolicyKind, ports: usize) {
        let labels = PolicyLabels { traffic_policy: policy, ip_family: family.into() };
        self.0.no_local_endpoints.get_or_create(&labels).set(ports.try_into().unwrap_or(i64::MAX));
    }

    /// The kernel has refused a transaction.
    pub fn sync_failed(&self, family: NftFamily) {
        self.0.sync_failures.get_or_create(&family.into()).inc();
    }

    /// The kernel has refused the removal of chains that nothing uses any more.
    pub fn cleanup_failed(&self, family: NftFamily) {
        self.0.cleanup_failures.get_or_create(&family.into()).inc();
    }

    /// `/healthz` was answered with this code.
    pub fn healthz(&self, code: u16) {
        self.0.healthz.get_or_create(&CodeLabel { code: code.to_string() }).inc();
    }

    /// `/livez` was answered with this code.
    pub fn livez(&self, code: u16) {
        self.0.livez.get_or_create(&CodeLabel { code: code.to_string() }).inc();
    }

    /// Flows were compared with the Services, which took this long and deleted so many.
    pub fn conntrack_reconciled(&self, family: NftFamily, took: Duration, deleted: u64) {
        self.0.conntrack.get_or_create(&family.into()).observe(took.as_secs_f64());
        self.0.flows_deleted.get_or_create(&family.into()).inc_by(deleted);
    }

    /// So many listeners serve NodePorts on loopback.
    pub fn localhost_listeners(&self, family: NftFamily, open: usize) {
        self.0.localhost_listeners.get_or_create(&family.into()).set(open.try_into().unwrap_or(i64::MAX));
    }

    /// A listener for a NodePort on loopback could not be opened.
    pub fn localhost_listener_failed(&self, family: NftFamily) {
        self.0.localhost_failures.get_or_create(&family.into()).inc();
    }

    /// The kernel has counted so many packets to NodePorts on loopback that it rejected, in all.
    pub fn localhost_rejected(&self, family: NftFamily, protocol: L4Proto, packets: u64) {
        let labels = ProtocolLabels { ip_family: family.into(), protocol: protocol.as_str().to_uppercase() };
        self.0.localhost_rejected.get_or_create(&labels).inner().store(packets, Ordering::Relaxed);
    }

    /// A transaction has added or deleted so many elements of sets and maps.
    pub fn elements_written(&self, family: NftFamily, elements: u64) {
        self.0.elements_written.get_or_create(&family.into()).inc_by(elements);
    }

    /// Somebody else's change of our tables has been undone.
    pub fn repaired(&self, family: NftFamily) {
        self.0.repairs.get_or_create(&family.into()).inc();
    }

    /// Everything in Prometheus' text form, version 0.0.4.
    pub fn scrape(&self) -> Result<String, fmt::Error> {
        if let Some(health) = &self.0.health {
            for family in health.verdict(Moment::now()).families {
                let waiting = family.waiting.unwrap_or_default().as_secs_f64();
                self.0.staleness.get_or_create(&family.family.into()).set(waiting);
            }
        }
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn add<M>(registry: &mut Registry, name: &str, help: &str, new: fn() -> M) -> PerFamily<M>
where
    PerFamily<M>: prometheus_client::registry::Metric + Clone,
{
    let family = PerFamily::new_with_constructor(new);
    registry.register(name, help, family.clone());
    family
}

fn one<M: prometheus_client::registry::Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// 1 ms, doubled fourteen times.
fn durations() -> Histogram {
    Histogram::new((0..15).map(|k| 0.001 * f64::from(1_u32 << k)))
}

/// Upstream's buckets: fine up to a minute, then coarser up to five.
fn programming_durations() -> Histogram {
    let seconds = (1..60).chain((60..120).step_by(5)).chain((120..=300).step_by(30));
    Histogram::new([0.25, 0.5].into_iter().chain(seconds.map(f64::from)))
}

fn unix_seconds() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}

/// `v1.37.2` → `1`, `37`.
fn major_minor(version: &str) -> (String, String) {
    let mut parts = version.trim_start_matches('v').split('.').map(str::to_owned);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

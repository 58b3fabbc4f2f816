//! Owns which configurations are valid; knows nothing of defaults (they have been filled in) or of what fields do.

use super::duration::GoDuration;
use super::feature_gates;
use super::v1alpha1::{Conntrack, KubeProxyConfiguration};
use proxier_core::model::{Cidr, parse_addr};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// What `nodePortAddresses` may say besides prefixes.
pub(super) const KEYWORDS: [&str; 3] = ["primary", "localhost", "all"];

/// A field whose value is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("KubeProxyConfiguration.{field}: {value:?}: {allowed}")]
pub struct Invalid {
    /// Path of the field, in the file's own names.
    pub field: String,
    /// What it holds.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

/// Everything that is wrong with a configuration. `healthz` and `metrics` say whether those servers are wanted: without
/// one its address does not matter.
pub(super) fn validate(config: &KubeProxyConfiguration, healthz: bool, metrics: bool) -> Vec<Invalid> {
    let mut found = Findings(Vec::new());
    for (name, value) in &config.feature_gates {
        if let Some(objection) = feature_gates::objection(name, *value) {
            found.add(&format!("featureGates.{name}"), value, objection);
        }
    }
    addresses(&mut found, config, healthz, metrics);
    logging(&mut found, config);
    modes(&mut found, config);
    detect_local(&mut found, config);
    node_port_addresses(&mut found, config.node_port_addresses.as_deref().unwrap_or_default());
    conntrack(&mut found, &config.conntrack);
    found.range("oomScoreAdj", config.oom_score_adj, -1000, 1000);
    found.range("clientConnection.burst", Some(config.client_connection.burst), 0, i32::MAX);
    found.positive("configSyncPeriod", config.config_sync_period);
    if !matches!(config.show_hidden_metrics_for_version.as_str(), "" | "1.36") {
        found.add("showHiddenMetricsForVersion", &config.show_hidden_metrics_for_version, "only \"1.36\"");
    }
    found.0
}

struct Findings(Vec<Invalid>);

impl Findings {
    fn add(&mut self, field: &str, value: impl fmt::Display, allowed: impl fmt::Display) {
        self.0.push(Invalid {
            field: field.to_owned(),
            value: value.to_string(),
            allowed: allowed.to_string(),
        });
    }

    fn range(&mut self, field: &str, value: Option<i32>, least: i32, most: i32) {
        let Some(value) = value.filter(|value| !(least..=most).contains(value)) else { return };
        if most == i32::MAX {
            self.add(field, value, format_args!("{least} or more"));
        } else {
            self.add(field, value, format_args!("{least} to {most}"));
        }
    }

    fn positive(&mut self, field: &str, value: GoDuration) {
        if value <= GoDuration::ZERO {
            self.add(field, value, "a duration above 0");
        }
    }

    fn not_negative(&mut self, field: &str, value: GoDuration) {
        if value < GoDuration::ZERO {
            self.add(field, value, "a duration of 0 or more");
        }
    }
}

fn addresses(found: &mut Findings, config: &KubeProxyConfiguration, healthz: bool, metrics: bool) {
    if parse_addr(&config.bind_address).is_err() {
        found.add("bindAddress", &config.bind_address, "an IP address");
    }
    for (field, address, wanted) in [
        ("healthzBindAddress", &config.healthz_bind_address, healthz),
        ("metricsBindAddress", &config.metrics_bind_address, metrics),
    ] {
        if wanted && socket_addr(address).is_none() {
            found.add(field, address, "IP:PORT with a port from 1 to 65535, or an IP address");
        }
    }
}

/// An address with a port, read as leniently as Kubernetes reads addresses.
pub(super) fn socket_addr(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    Some(SocketAddr::new(parse_addr(host).ok()?, port))
}

fn logging(found: &mut Findings, config: &KubeProxyConfiguration) {
    let logging = &config.logging;
    if !matches!(logging.format.as_str(), "text" | "json") {
        found.add("logging.format", &logging.format, "text or json");
    }
    found.positive("logging.flushFrequency", logging.flush_frequency);
    if logging.verbosity > i32::MAX.unsigned_abs() {
        found.add("logging.verbosity", logging.verbosity, format_args!("0 to {}", i32::MAX));
    }
    if logging.format == "json" && !logging.vmodule.is_empty() {
        found.add("logging.vmodule", logging.vmodule.len(), "only with logging.format text");
    }
    for (at, entry) in logging.vmodule.iter().enumerate() {
        if entry.file_pattern.is_empty() || entry.file_pattern.contains(['=', ',']) {
            let field = format!("logging.vmodule[{at}].filePattern");
            found.add(&field, &entry.file_pattern, "a pattern without \"=\" and \",\"");
        }
    }
}

fn modes(found: &mut Findings, config: &KubeProxyConfiguration) {
    if !matches!(config.mode.as_str(), "" | "iptables" | "ipvs" | "nftables") {
        found.add(
            "mode",
            &config.mode,
            "nftables, iptables or ipvs (all of them are served with nftables here)",
        );
    }
    found.range("iptables.masqueradeBit", config.iptables.masquerade_bit, 0, 31);
    found.range("nftables.masqueradeBit", config.nftables.masquerade_bit, 0, 31);
    let (iptables, ipvs, nftables) = (&config.iptables, &config.ipvs, &config.nftables);
    let (section, sync, min) = match config.mode.as_str() {
        "ipvs" => ("ipvs", ipvs.sync_period, ipvs.min_sync_period),
        "nftables" => ("nftables", nftables.sync_period, nftables.min_sync_period),
        _ => ("iptables", iptables.sync_period, iptables.min_sync_period),
    };
    found.positive(&format!("{section}.syncPeriod"), sync);
    found.not_negative(&format!("{section}.minSyncPeriod"), min);
    if min > sync {
        let field = format!("{section}.minSyncPeriod");
        found.add(&field, min, format_args!("at most {section}.syncPeriod, which is {sync}"));
    }
}

fn detect_local(found: &mut Findings, config: &KubeProxyConfiguration) {
    let detect = &config.detect_local;
    match config.detect_local_mode.as_str() {
        "" | "ClusterCIDR" => cluster_cidr(found, &config.cluster_cidr),
        "NodeCIDR" => {}
        "BridgeInterface" if detect.bridge_interface.is_empty() => {
            found.add("detectLocal.bridgeInterface", "", "a name, since detectLocalMode is BridgeInterface");
        }
        "InterfaceNamePrefix" if detect.interface_name_prefix.is_empty() => {
            let field = "detectLocal.interfaceNamePrefix";
            found.add(field, "", "a prefix, since detectLocalMode is InterfaceNamePrefix");
        }
        "BridgeInterface" | "InterfaceNamePrefix" => {}
        other => {
            let allowed = "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix";
            found.add("detectLocalMode", other, allowed);
        }
    }
}

fn cluster_cidr(found: &mut Findings, text: &str) {
    if text.is_empty() {
        return;
    }
    let allowed = "one prefix such as 10.244.0.0/16, or two of different families joined by a comma";
    let cidrs: Result<Vec<_>, _> = text.split(',').map(|part| Cidr::parse(part.trim())).collect();
    let is_good = match cidrs.as_deref() {
        Ok([_]) => true,
        Ok([a, b]) => a.family() != b.family(),
        _ => false,
    };
    if !is_good {
        found.add("clusterCIDR", text, allowed);
    }
}

fn node_port_addresses(found: &mut Findings, entries: &[String]) {
    let mut keywords = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate() {
        let field = format!("nodePortAddresses[{at}]");
        if KEYWORDS.contains(&entry.as_str()) {
            if !keywords.insert(entry) {
                found.add(&field, entry, "each of primary, localhost and all at most once");
            }
        } else if Cidr::parse(entry).is_err() {
            found.add(&field, entry, "a prefix such as 192.0.2.0/24, or primary, localhost or all");
        }
    }
}

fn conntrack(found: &mut Findings, conntrack: &Conntrack) {
    found.range("conntrack.maxPerCore", conntrack.max_per_core, 0, i32::MAX);
    found.range("conntrack.min", conntrack.min, 0, i32::MAX);
    for (field, value) in [
        ("conntrack.tcpEstablishedTimeout", conntrack.tcp_established_timeout.unwrap_or_default()),
        ("conntrack.tcpCloseWaitTimeout", conntrack.tcp_close_wait_timeout.unwrap_or_default()),
        ("conntrack.udpTimeout", conntrack.udp_timeout),
        ("conntrack.udpStreamTimeout", conntrack.udp_stream_timeout),
    ] {
        found.not_negative(field, value);
    }
}

/// The prefixes of `clusterCIDR`, which has been validated.
pub(super) fn cluster_cidrs(text: &str) -> Vec<Cidr> {
    text.split(',').filter_map(|part| Cidr::parse(part.trim()).ok()).collect()
}

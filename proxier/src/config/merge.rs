//! Owns what wins where flags and a file speak of the same; knows nothing of what the values do.

use super::defaults;
use super::duration::GoDuration;
use super::flags::Flags;
use super::v1alpha1::{KubeProxyConfiguration, VModule};

/// Flags that act beside a file. All others that were given with one are ignored, as upstream.
const BESIDE_A_FILE: [&str; 17] = [
    "config",
    "manifests",
    "conntrack-free-syn-sent",
    "hostname-override",
    "master",
    "cleanup",
    "init-only",
    "write-config-to",
    "version",
    "v",
    "vmodule",
    "logging-format",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
];

/// The flags that a file makes meaningless, of those that were given.
pub(super) fn overruled(flags: &Flags) -> Vec<&str> {
    flags.given.iter().map(|(name, _)| name.as_str()).filter(|flag| !BESIDE_A_FILE.contains(flag)).collect()
}

/// Lays the flags over a configuration that comes from no file.
pub(super) fn lay_over(flags: &Flags, config: &mut KubeProxyConfiguration) {
    config.feature_gates.extend(flags.basics.feature_gates.iter().cloned());
    set(&mut config.client_connection.kubeconfig, &flags.cluster.kubeconfig);

    let traffic = &flags.traffic;
    set(&mut config.mode, &traffic.proxy_mode);
    set(&mut config.bind_address, &traffic.bind_address);
    set(&mut config.cluster_cidr, &traffic.cluster_cidr);
    set(&mut config.detect_local_mode, &traffic.detect_local_mode);
    set(&mut config.detect_local.bridge_interface, &traffic.pod_bridge_interface);
    set(&mut config.detect_local.interface_name_prefix, &traffic.pod_interface_name_prefix);
    set_some(&mut config.node_port_addresses, &traffic.nodeport_addresses);
    set(&mut config.iptables.masquerade_all, &traffic.masquerade_all);
    set(&mut config.nftables.masquerade_all, &traffic.masquerade_all);
    set_some(&mut config.iptables.masquerade_bit, &traffic.iptables_masquerade_bit);
    set_some(&mut config.iptables.localhost_node_ports, &traffic.iptables_localhost_nodeports);
    periods(flags, config);

    let serving = &flags.serving;
    set(&mut config.healthz_bind_address, &serving.healthz_bind_address);
    set(&mut config.metrics_bind_address, &serving.metrics_bind_address);
    fill_port(&mut config.healthz_bind_address, serving.healthz_port);
    fill_port(&mut config.metrics_bind_address, serving.metrics_port);
    set(&mut config.bind_address_hard_fail, &serving.bind_address_hard_fail);
    set(&mut config.enable_profiling, &serving.profiling);
    set(&mut config.show_hidden_metrics_for_version, &serving.show_hidden_metrics_for_version);
    set_some(&mut config.oom_score_adj, &serving.oom_score_adj);

    let conntrack = &flags.conntrack;
    set_some(&mut config.conntrack.max_per_core, &conntrack.conntrack_max_per_core);
    set_some(&mut config.conntrack.min, &conntrack.conntrack_min);
    set_some(&mut config.conntrack.tcp_established_timeout, &conntrack.conntrack_tcp_timeout_established);
    set_some(&mut config.conntrack.tcp_close_wait_timeout, &conntrack.conntrack_tcp_timeout_close_wait);
    set(&mut config.conntrack.tcp_be_liberal, &conntrack.conntrack_tcp_be_liberal);
    set(&mut config.conntrack.udp_timeout, &conntrack.conntrack_udp_timeout);
    set(&mut config.conntrack.udp_stream_timeout, &conntrack.conntrack_udp_timeout_stream);

    let other = &flags.without_meaning;
    set(&mut config.config_sync_period, &other.config_sync_period);
    set(&mut config.client_connection.burst, &other.kube_api_burst);
    set(&mut config.client_connection.qps, &other.kube_api_qps);
    set(&mut config.client_connection.content_type, &other.kube_api_content_type);
    set_some(&mut config.ipvs.exclude_cidrs, &other.ipvs_exclude_cidrs);
    set(&mut config.ipvs.min_sync_period, &other.ipvs_min_sync_period);
    set(&mut config.ipvs.scheduler, &other.ipvs_scheduler);
    set(&mut config.ipvs.strict_arp, &other.ipvs_strict_arp);
    set(&mut config.ipvs.sync_period, &other.ipvs_sync_period);
    set(&mut config.ipvs.tcp_timeout, &other.ipvs_tcp_timeout);
    set(&mut config.ipvs.tcp_fin_timeout, &other.ipvs_tcpfin_timeout);
    set(&mut config.ipvs.udp_timeout, &other.ipvs_udp_timeout);
}

/// Upstream's period flags are named after iptables and count for nftables as well. Here, unlike in a file, 0 means 0.
pub(super) fn periods(flags: &Flags, config: &mut KubeProxyConfiguration) {
    let traffic = &flags.traffic;
    for (sync, min) in [
        (&mut config.iptables.sync_period, &mut config.iptables.min_sync_period),
        (&mut config.nftables.sync_period, &mut config.nftables.min_sync_period),
    ] {
        set(sync, &traffic.iptables_sync_period);
        set(min, &traffic.iptables_min_sync_period);
    }
}

/// Lays the flags that act beside a file over whatever the configuration is.
pub(super) fn lay_over_always(flags: &Flags, config: &mut KubeProxyConfiguration) {
    let logs = &flags.logs;
    set(&mut config.logging.format, &logs.logging_format);
    set(&mut config.logging.verbosity, &logs.verbosity);
    let from_flags = logs
        .vmodule
        .iter()
        .map(|(pattern, level)| VModule { file_pattern: pattern.clone(), verbosity: *level });
    config.logging.vmodule.splice(0..0, from_flags);
    let other = &flags.without_meaning;
    set(&mut config.logging.flush_frequency, &other.log_flush_frequency);
    set(&mut config.logging.options.text.split_stream, &other.log_text_split_stream);
    set(&mut config.logging.options.text.info_buffer_size, &other.log_text_info_buffer_size);
    set(&mut config.logging.options.json.split_stream, &other.log_json_split_stream);
    set(&mut config.logging.options.json.info_buffer_size, &other.log_json_info_buffer_size);
}

/// Which servers the deprecated port flags switch off: health, metrics.
pub(super) fn switched_off(flags: &Flags) -> (bool, bool) {
    let without_file = flags.basics.config.is_none();
    (
        without_file && flags.serving.healthz_port == Some(0),
        without_file && flags.serving.metrics_port == Some(0),
    )
}

/// How the program masquerades and how often it syncs, by the sections of the configuration as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) masquerade_bit: i32,
    pub(super) masquerade_all: bool,
    pub(super) sync_period: GoDuration,
    pub(super) min_sync_period: GoDuration,
}

const DEFAULT_BIT: i32 = 14;

/// Mode nftables: its own section. Any other mode: its section in the sense of nftables, unless `nftables` says otherwise.
/// `given` has no defaults filled in, `filled` has.
pub(super) fn in_force(given: &KubeProxyConfiguration, filled: &KubeProxyConfiguration) -> InForce {
    let nftables = &given.nftables;
    let (all, bit, sync, min) = match given.mode.as_str() {
        // Upstream waits a second between syncs unless told otherwise, because each is dear. Ours is not: only a wish counts.
        "nftables" => (false, None, filled.nftables.sync_period, given.nftables.min_sync_period),
        "ipvs" => {
            let (ipvs, min) = (&filled.ipvs, given.ipvs.min_sync_period);
            (given.iptables.masquerade_all, given.iptables.masquerade_bit, ipvs.sync_period, min)
        }
        _ => {
            let (iptables, min) = (&filled.iptables, given.iptables.min_sync_period);
            (iptables.masquerade_all, iptables.masquerade_bit, iptables.sync_period, min)
        }
    };
    InForce {
        // A file that upstream wrote says 14 in both sections, which is no wish.
        masquerade_bit: nftables
            .masquerade_bit
            .filter(|own| *own != DEFAULT_BIT)
            .or(bit)
            .unwrap_or(DEFAULT_BIT),
        masquerade_all: nftables.masquerade_all || all,
        sync_period: if nftables.sync_period.is_zero() { sync } else { nftables.sync_period },
        min_sync_period: if nftables.min_sync_period.is_zero() { min } else { nftables.min_sync_period },
    }
}

/// The configuration as upstream shows it: of the sections by mode only the active one has the values that all share. An
/// empty mode is nftables here. What `nftables` says otherwise than another mode's section stays, as it is in force.
pub(super) fn shown(
    given: &KubeProxyConfiguration,
    filled: &KubeProxyConfiguration,
    in_force: InForce,
) -> KubeProxyConfiguration {
    let mut shown = filled.clone();
    if shown.mode.is_empty() {
        "nftables".clone_into(&mut shown.mode);
        shown.nftables.masquerade_bit = Some(in_force.masquerade_bit);
        shown.nftables.masquerade_all = in_force.masquerade_all;
        shown.nftables.sync_period = in_force.sync_period;
        shown.nftables.min_sync_period = in_force.min_sync_period;
    }
    let mode = shown.mode.as_str();
    if mode == "nftables" {
        shown.nftables.min_sync_period = in_force.min_sync_period;
        shown.iptables.masquerade_all = false;
        if shown.node_port_addresses.as_ref().is_none_or(Vec::is_empty) {
            shown.node_port_addresses = Some(vec!["primary".to_owned()]);
        }
    } else {
        shown.nftables.sync_period = given.nftables.sync_period;
        shown.nftables.min_sync_period = given.nftables.min_sync_period;
    }
    if mode != "iptables" {
        (shown.iptables.sync_period, shown.iptables.min_sync_period) = (GoDuration::ZERO, GoDuration::ZERO);
    }
    if mode != "ipvs" {
        (shown.ipvs.sync_period, shown.ipvs.min_sync_period) = (GoDuration::ZERO, GoDuration::ZERO);
    }
    shown
}

/// As upstream, only an address without a port takes it.
fn fill_port(address: &mut String, port: Option<u16>) {
    if let Some(port) = port.filter(|port| *port != 0) {
        *address = defaults::with_port(address, port);
    }
}

fn set<T: Clone>(field: &mut T, flag: &Option<T>) {
    if let Some(value) = flag {
        field.clone_from(value);
    }
}

fn set_some<T: Clone>(field: &mut Option<T>, flag: &Option<T>) {
    if flag.is_some() {
        field.clone_from(flag);
    }
}

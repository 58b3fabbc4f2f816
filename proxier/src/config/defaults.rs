//! Owns the defaults of `KubeProxyConfiguration`, as Kubernetes 1.37 sets them; knows nothing of flags or validity.

use super::duration::GoDuration;
use super::v1alpha1::{API_VERSION, KIND, KubeProxyConfiguration, LoggingSplit};
use proxier_core::model::parse_addr;

/// Port of the health server.
const HEALTHZ_PORT: u16 = 10256;

/// Port of the metrics server.
const METRICS_PORT: u16 = 10249;

/// A configuration in which every field has its default.
pub fn defaults() -> KubeProxyConfiguration {
    let mut config = KubeProxyConfiguration::default();
    fill(&mut config);
    config
}

/// Gives every field that is absent, empty or zero its default, where it has one.
pub(super) fn fill(config: &mut KubeProxyConfiguration) {
    config.api_version = API_VERSION.to_owned();
    config.kind = KIND.to_owned();
    text(&mut config.bind_address, "0.0.0.0");
    let is_ipv6 = parse_addr(&config.bind_address).is_ok_and(|addr| addr.is_ipv6());
    let (any, loopback) = if is_ipv6 { ("::", "::1") } else { ("0.0.0.0", "127.0.0.1") };
    text(&mut config.healthz_bind_address, any);
    config.healthz_bind_address = with_port(&config.healthz_bind_address, HEALTHZ_PORT);
    text(&mut config.metrics_bind_address, loopback);
    config.metrics_bind_address = with_port(&config.metrics_bind_address, METRICS_PORT);
    text(&mut config.detect_local_mode, "ClusterCIDR");
    config.oom_score_adj.get_or_insert(-999);
    duration(&mut config.config_sync_period, 15 * 60);

    let client = &mut config.client_connection;
    text(&mut client.content_type, "application/vnd.kubernetes.protobuf");
    if client.qps == 0.0 {
        client.qps = 5.0;
    }
    if client.burst == 0 {
        client.burst = 10;
    }

    text(&mut config.logging.format, "text");
    duration(&mut config.logging.flush_frequency, 5);
    for LoggingSplit { info_buffer_size, .. } in
        [&mut config.logging.options.text, &mut config.logging.options.json]
    {
        text(info_buffer_size, "0");
    }

    config.iptables.masquerade_bit.get_or_insert(14);
    config.iptables.localhost_node_ports.get_or_insert(true);
    duration(&mut config.iptables.sync_period, 30);
    duration(&mut config.iptables.min_sync_period, 1);
    duration(&mut config.ipvs.sync_period, 30);
    config.nftables.masquerade_bit.get_or_insert(14);
    duration(&mut config.nftables.sync_period, 30);
    duration(&mut config.nftables.min_sync_period, 1);

    let conntrack = &mut config.conntrack;
    conntrack.max_per_core.get_or_insert(32_768);
    conntrack.min.get_or_insert(131_072);
    conntrack.tcp_established_timeout.get_or_insert(GoDuration::from_secs(24 * 3_600));
    conntrack.tcp_close_wait_timeout.get_or_insert(GoDuration::from_secs(3_600));
}

fn text(field: &mut String, default: &str) {
    if field.is_empty() {
        default.clone_into(field);
    }
}

fn duration(field: &mut GoDuration, seconds: i64) {
    if field.is_zero() {
        *field = GoDuration::from_secs(seconds);
    }
}

/// A bare address gets the port; what is no address stays as it is, for validation to name.
pub(super) fn with_port(address: &str, port: u16) -> String {
    match parse_addr(address) {
        Ok(addr) => std::net::SocketAddr::new(addr, port).to_string(),
        Err(_) => address.to_owned(),
    }
}

//! Owns which options are taken and have no meaning in this program; knows nothing of those that have one.

use super::defaults::defaults;
use super::v1alpha1::KubeProxyConfiguration;

/// The options that somebody has set and that mean nothing here.
pub(super) fn without_meaning(config: &KubeProxyConfiguration) -> Vec<&'static str> {
    let default = defaults();
    let client = (&config.client_connection, &default.client_connection);
    let logging = (&config.logging, &default.logging);
    [
        ("ipvs", config.ipvs != default.ipvs && config.mode != "ipvs"),
        ("ipvs (except its sync periods)", config.mode == "ipvs" && has_ipvs_options(config)),
        ("winkernel", config.winkernel != default.winkernel),
        ("windowsRunAsService", config.windows_run_as_service),
        ("portRange", !config.port_range.is_empty()),
        (
            "configSyncPeriod (a watch needs no resync)",
            config.config_sync_period != default.config_sync_period,
        ),
        ("clientConnection.qps, burst (a watch has no rate)", {
            (client.0.qps, client.0.burst) != (client.1.qps, client.1.burst)
        }),
        ("clientConnection.contentType, acceptContentTypes (objects come as JSON)", {
            client.0.content_type != client.1.content_type || !client.0.accept_content_types.is_empty()
        }),
        ("logging.flushFrequency (every line is written at once)", {
            logging.0.flush_frequency != logging.1.flush_frequency
        }),
        ("logging.options", logging.0.options != logging.1.options),
        ("showHiddenMetricsForVersion (no metric is hidden)", {
            !config.show_hidden_metrics_for_version.is_empty()
        }),
    ]
    .into_iter()
    .filter_map(|(name, is_set)| is_set.then_some(name))
    .collect()
}

fn has_ipvs_options(config: &KubeProxyConfiguration) -> bool {
    let ipvs = &config.ipvs;
    !ipvs.scheduler.is_empty()
        || ipvs.exclude_cidrs.as_ref().is_some_and(|cidrs| !cidrs.is_empty())
        || ipvs.strict_arp
        || [ipvs.tcp_timeout, ipvs.tcp_fin_timeout, ipvs.udp_timeout].iter().any(|timeout| !timeout.is_zero())
}

//! Owns the form of `KubeProxyConfiguration` in `kubeproxy.config.k8s.io/v1alpha1`; knows nothing of defaults, of what is
//! valid, or of what the fields do.

use super::duration::{GoDuration, duration_or_nanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// `apiVersion` of the file.
pub const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";

/// `kind` of the file.
pub const KIND: &str = "KubeProxyConfiguration";

/// The configuration as a file has it. Field names and types are Kubernetes'; what each does is in the documentation of
/// the same field there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are Kubernetes'; the names are the documentation")]
pub struct KubeProxyConfiguration {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    pub client_connection: ClientConnection,
    pub logging: Logging,
    pub hostname_override: String,
    pub bind_address: String,
    pub healthz_bind_address: String,
    pub metrics_bind_address: String,
    pub bind_address_hard_fail: bool,
    pub enable_profiling: bool,
    pub show_hidden_metrics_for_version: String,
    pub mode: String,
    pub iptables: IpTables,
    pub ipvs: Ipvs,
    pub nftables: NfTables,
    pub winkernel: WinKernel,
    pub detect_local_mode: String,
    pub detect_local: DetectLocal,
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    pub node_port_addresses: Option<Vec<String>>,
    pub oom_score_adj: Option<i32>,
    pub conntrack: Conntrack,
    pub config_sync_period: GoDuration,
    pub port_range: String,
    #[serde(skip_serializing_if = "is_false")]
    pub windows_run_as_service: bool,
}

/// `clientConnection`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct ClientConnection {
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    #[serde(serialize_with = "float", deserialize_with = "number")]
    pub qps: f32,
    pub burst: i32,
}

/// `logging`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct Logging {
    pub format: String,
    #[serde(deserialize_with = "duration_or_nanos")]
    pub flush_frequency: GoDuration,
    pub verbosity: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vmodule: Vec<VModule>,
    pub options: LoggingOptions,
}

/// `logging.vmodule[]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct VModule {
    pub file_pattern: String,
    pub verbosity: u32,
}

/// `logging.options`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct LoggingOptions {
    pub text: LoggingSplit,
    pub json: LoggingSplit,
}

/// `logging.options.text`, `logging.options.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct LoggingSplit {
    #[serde(skip_serializing_if = "is_false")]
    pub split_stream: bool,
    /// A Kubernetes quantity.
    #[serde(deserialize_with = "quantity")]
    pub info_buffer_size: String,
}

/// `iptables`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct IpTables {
    pub masquerade_bit: Option<i32>,
    pub masquerade_all: bool,
    pub localhost_node_ports: Option<bool>,
    pub sync_period: GoDuration,
    pub min_sync_period: GoDuration,
}

/// `ipvs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct Ipvs {
    pub sync_period: GoDuration,
    pub min_sync_period: GoDuration,
    pub scheduler: String,
    #[serde(rename = "excludeCIDRs")]
    pub exclude_cidrs: Option<Vec<String>>,
    #[serde(rename = "strictARP")]
    pub strict_arp: bool,
    pub tcp_timeout: GoDuration,
    pub tcp_fin_timeout: GoDuration,
    pub udp_timeout: GoDuration,
}

/// `nftables`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct NfTables {
    pub masquerade_bit: Option<i32>,
    pub masquerade_all: bool,
    pub sync_period: GoDuration,
    pub min_sync_period: GoDuration,
}

/// `winkernel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct WinKernel {
    pub network_name: String,
    pub source_vip: String,
    #[serde(rename = "enableDSR")]
    pub enable_dsr: bool,
    pub root_hns_endpoint_name: String,
    pub forward_health_check_vip: bool,
}

/// `detectLocal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct DetectLocal {
    pub bridge_interface: String,
    pub interface_name_prefix: String,
}

/// `conntrack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "as above")]
pub struct Conntrack {
    pub max_per_core: Option<i32>,
    pub min: Option<i32>,
    pub tcp_established_timeout: Option<GoDuration>,
    pub tcp_close_wait_timeout: Option<GoDuration>,
    pub tcp_be_liberal: bool,
    pub udp_timeout: GoDuration,
    pub udp_stream_timeout: GoDuration,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A whole number is written without a fraction, as Go does.
fn float<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
    if value.fract() == 0.0 && value.abs() < 1e9 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f32(*value)
    }
}

/// YAML may have it as an integer.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    #[expect(clippy::cast_possible_truncation, reason = "the field is a float32 in Kubernetes")]
    f64::deserialize(deserializer).map(|value| value as f32)
}

/// A quantity may be given as a text or a number; its meaning is only whether it is 0.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Quantity {
        Text(String),
        Number(u64),
    }
    Ok(match Quantity::deserialize(deserializer)? {
        Quantity::Text(text) => text,
        Quantity::Number(number) => number.to_string(),
    })
}

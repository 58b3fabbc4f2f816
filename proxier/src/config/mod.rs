//! Owns what an operator decides: flags, the configuration file, what wins, what is valid; knows nothing of what the
//! program does with it.

mod defaults;
mod duration;
mod feature_gates;
mod file;
mod flags;
mod ignored;
mod merge;
#[cfg(test)]
mod tests;
pub mod v1alpha1;
mod validate;
mod watch;

pub use defaults::defaults;
pub use duration::{GoDuration, GoDurationError};
pub use file::FileError;
pub use flags::Flags;
pub use validate::Invalid;
pub use watch::changed;

use crate::source::api_server::Connection;
use nft_ir::Family;
use proxier_core::model::{Cidr, parse_addr};
use proxier_core::{DetectLocal, NodePortAddresses, Settings};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use v1alpha1::KubeProxyConfiguration;

/// The Kubernetes version whose kube-proxy this program stands in for.
pub const KUBERNETES_VERSION: &str = "v1.37.2";

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is no good.
    #[error(transparent)]
    File(#[from] FileError),
    /// Fields hold values that are not allowed.
    #[error("failed validate: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Invalid>),
    /// `--hostname-override` or `hostnameOverride` is blank.
    #[error("{origin}: {value:?}: a node's name is not blank")]
    BlankNodeName {
        /// The flag or the field.
        origin: &'static str,
        /// What was given.
        value: String,
    },
    /// The host has no name to take for the node's.
    #[error("cannot tell the host's name: {0}; give the node's name with --hostname-override")]
    HostName(#[from] nix::errno::Errno),
}

/// What the program is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Print the version, all of it if so asked.
    PrintVersion {
        /// `--version=raw`.
        raw: bool,
    },
    /// Write the configuration to this file.
    WriteConfig(PathBuf),
    /// Remove all rules.
    CleanUp,
    /// Do what needs privileges, and no more.
    InitOnly,
    /// Serve.
    Run,
}

/// Conntrack settings of the kernel; `None` and 0 leave what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conntrack {
    /// Flows per CPU, and the least number; `None`: leave the limit.
    pub max: Option<ConntrackMax>,
    /// `nf_conntrack_tcp_timeout_established`.
    pub tcp_established: Option<Duration>,
    /// `nf_conntrack_tcp_timeout_close_wait`.
    pub tcp_close_wait: Option<Duration>,
    /// Set `nf_conntrack_tcp_be_liberal` to 1.
    pub tcp_be_liberal: bool,
    /// `nf_conntrack_udp_timeout`.
    pub udp: Option<Duration>,
    /// `nf_conntrack_udp_timeout_stream`.
    pub udp_stream: Option<Duration>,
}

/// What `nf_conntrack_max` follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConntrackMax {
    /// `conntrack.maxPerCore`, above 0.
    pub per_core: u32,
    /// `conntrack.min`.
    pub min: u32,
}

/// How and how much to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    /// `json` instead of `text`.
    pub json: bool,
    /// `-v`.
    pub verbosity: u32,
    /// Other levels for some modules: pattern of a module's name, level.
    pub vmodule: Vec<(String, u32)>,
}

/// Everything that an operator has decided, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The configuration as `/configz` and `--write-config-to` show it.
    pub shown: KubeProxyConfiguration,
    /// The file that it came from.
    pub file: Option<PathBuf>,
    /// What to do.
    pub action: Action,
    /// Name of this node, trimmed and in lower case.
    pub node_name: Arc<str>,
    /// `--manifests`: take objects from this folder instead of the API server.
    pub manifests: Option<PathBuf>,
    /// `--conntrack-free-syn-sent`: see [`Settings::free_syn_sent`].
    pub free_syn_sent: bool,
    /// The API server.
    pub connection: Connection,
    /// How pods of this node or cluster are told.
    pub detect_local: DetectLocal,
    /// `nodePortAddresses`, keywords replaced except `primary`.
    pub node_port_addresses: Vec<NodePortAddresses>,
    /// `bindAddress`, unless it is unspecified: the node's address of that family, and its primary family.
    pub bind_address: Option<IpAddr>,
    /// Masquerade everything that is sent to a ClusterIP.
    pub masquerade_all: bool,
    /// Bit of the packet mark, 0 to 31.
    pub masquerade_bit: u8,
    /// When to try again after a failed sync; twice of it is the time-out of `/healthz`.
    pub sync_period: Duration,
    /// Least time between two syncs; may be 0.
    pub min_sync_period: Duration,
    /// Where the health server listens; `None`: nowhere.
    pub healthz: Option<SocketAddr>,
    /// Where the metrics server listens; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Exit when one of these cannot listen.
    pub bind_hard_fail: bool,
    /// Serve `/debug`.
    pub profiling: bool,
    /// Whether `spec.externalIPs` counts.
    pub external_ips: bool,
    /// Kernel settings.
    pub conntrack: Conntrack,
    /// `oom_score_adj`.
    pub oom_score_adj: i32,
    /// Logs.
    pub logging: Logging,
    /// The Kubernetes version to report, such as `v1.37.2`.
    pub reported_version: String,
    /// What to tell the operator once, now that logging can begin.
    pub notices: Vec<String>,
}

impl Config {
    /// From flags, and the file that they name.
    pub fn load(flags: &Flags) -> Result<Self, ConfigError> {
        let mut notices = Vec::new();
        let file = flags.basics.config.clone();
        let mut given = if let Some(path) = &file {
            let (config, passed_over) = file::read(path)?;
            notices.extend(passed_over);
            let overruled = merge::overruled(flags);
            if !overruled.is_empty() {
                notices.push(format!("--config overrules --{}", overruled.join(", --")));
            }
            config
        } else {
            let mut config = KubeProxyConfiguration::default();
            merge::lay_over(flags, &mut config);
            config
        };
        merge::lay_over_always(flags, &mut given);
        let mut filled = given.clone();
        defaults::fill(&mut filled);
        if file.is_none() {
            merge::periods(flags, &mut filled);
        }
        let (no_healthz, no_metrics) = merge::switched_off(flags);
        let invalid = validate::validate(&filled, !no_healthz, !no_metrics);
        if !invalid.is_empty() {
            return Err(ConfigError::Invalid(invalid));
        }
        let mut config = Self::effective(flags, &given, &filled)?;
        config.healthz = config.healthz.filter(|_| !no_healthz);
        config.metrics = config.metrics.filter(|_| !no_metrics);
        notices.append(&mut config.notices);
        config.notices = notices;
        config.file = file;
        Ok(config)
    }

    fn effective(
        flags: &Flags,
        given: &KubeProxyConfiguration,
        filled: &KubeProxyConfiguration,
    ) -> Result<Self, ConfigError> {
        let in_force = merge::in_force(given, filled);
        let mut shown = merge::shown(given, filled, in_force);
        let node_name = node_name(flags, filled)?;
        if let Some(name) = &flags.basics.hostname_override {
            shown.hostname_override.clone_from(name);
        }
        let mut notices = Vec::new();
        if given.mode != "nftables" {
            let mode = if given.mode.is_empty() { "no mode" } else { &given.mode };
            notices.push(format!("{mode} is configured; this proxier always uses nftables"));
        }
        let without_meaning = ignored::without_meaning(filled);
        if !without_meaning.is_empty() {
            notices.push(format!("accepted, without meaning here: {}", without_meaning.join("; ")));
        }
        if filled.detect_local_mode == "ClusterCIDR" && filled.cluster_cidr.is_empty() {
            notices.push(
                "clusterCIDR is not set: traffic from outside of the cluster to a ClusterIP is not masqueraded".to_owned(),
            );
        }
        let conntrack = &filled.conntrack;
        let per_core = conntrack.max_per_core.unwrap_or_default().unsigned_abs();
        let kubeconfig = &filled.client_connection.kubeconfig;
        Ok(Self {
            file: None,
            action: action(flags),
            node_name,
            manifests: flags.basics.manifests.clone(),
            free_syn_sent: flags.basics.conntrack_free_syn_sent,
            connection: Connection {
                kubeconfig: (!kubeconfig.is_empty()).then(|| kubeconfig.into()),
                master: flags.cluster.master.clone().filter(|master| !master.is_empty()),
            },
            detect_local: detect_local(filled),
            node_port_addresses: node_port_addresses(filled),
            bind_address: parse_addr(&filled.bind_address).ok().filter(|addr| !addr.is_unspecified()),
            masquerade_all: in_force.masquerade_all,
            masquerade_bit: u8::try_from(in_force.masquerade_bit).unwrap_or(14),
            sync_period: in_force.sync_period.as_duration(),
            min_sync_period: in_force.min_sync_period.as_duration(),
            healthz: validate::socket_addr(&filled.healthz_bind_address),
            metrics: validate::socket_addr(&filled.metrics_bind_address),
            bind_hard_fail: filled.bind_address_hard_fail,
            profiling: filled.enable_profiling,
            external_ips: feature_gates::external_ips(&filled.feature_gates),
            conntrack: Conntrack {
                max: (per_core > 0).then(|| ConntrackMax {
                    per_core,
                    min: conntrack.min.unwrap_or_default().unsigned_abs(),
                }),
                tcp_established: conntrack.tcp_established_timeout.and_then(above_zero),
                tcp_close_wait: conntrack.tcp_close_wait_timeout.and_then(above_zero),
                tcp_be_liberal: conntrack.tcp_be_liberal,
                udp: above_zero(conntrack.udp_timeout),
                udp_stream: above_zero(conntrack.udp_stream_timeout),
            },
            oom_score_adj: filled.oom_score_adj.unwrap_or(-999),
            logging: Logging {
                json: filled.logging.format == "json",
                verbosity: filled.logging.verbosity,
                vmodule: filled
                    .logging
                    .vmodule
                    .iter()
                    .map(|entry| (entry.file_pattern.clone(), entry.verbosity))
                    .collect(),
            },
            reported_version: reported_version(flags),
            notices,
            shown,
        })
    }

    /// What the core has to know, on a machine that can serve these families.
    pub fn settings(&self, families: Vec<Family>) -> Settings {
        Settings {
            node_name: self.node_name.clone(),
            families,
            masquerade_all: self.masquerade_all,
            masquerade_bit: self.masquerade_bit,
            detect_local: self.detect_local.clone(),
            node_port_addresses: self.node_port_addresses.clone(),
            free_syn_sent: self.free_syn_sent,
        }
    }

    /// The configuration as `--write-config-to` writes it.
    pub fn to_yaml(&self) -> String {
        file::to_yaml(&self.shown)
    }

    /// Writes the configuration as upstream's `--write-config-to` does.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        file::write(path, &self.shown)
    }
}

fn action(flags: &Flags) -> Action {
    let basics = &flags.basics;
    match (basics.version.as_deref(), &basics.write_config_to) {
        (Some("raw"), _) => Action::PrintVersion { raw: true },
        (Some("true"), _) => Action::PrintVersion { raw: false },
        (_, Some(path)) => Action::WriteConfig(path.clone()),
        _ if basics.cleanup == Some(true) => Action::CleanUp,
        _ if basics.init_only == Some(true) => Action::InitOnly,
        _ => Action::Run,
    }
}

fn reported_version(flags: &Flags) -> String {
    let wanted = flags.basics.version.as_deref().filter(|version| version.starts_with('v'));
    wanted.unwrap_or(KUBERNETES_VERSION).to_owned()
}

fn node_name(flags: &Flags, config: &KubeProxyConfiguration) -> Result<Arc<str>, ConfigError> {
    let (origin, name) = match &flags.basics.hostname_override {
        Some(name) if !name.is_empty() => ("--hostname-override", name.clone()),
        _ if !config.hostname_override.is_empty() => ("hostnameOverride", config.hostname_override.clone()),
        _ => ("the host's name", nix::unistd::gethostname()?.to_string_lossy().into_owned()),
    };
    let trimmed = name.trim().to_lowercase();
    if trimmed.is_empty() {
        Err(ConfigError::BlankNodeName { origin, value: name })
    } else {
        Ok(trimmed.into())
    }
}

fn detect_local(config: &KubeProxyConfiguration) -> DetectLocal {
    match config.detect_local_mode.as_str() {
        "NodeCIDR" => DetectLocal::NodeCidr,
        "BridgeInterface" => DetectLocal::BridgeInterface(config.detect_local.bridge_interface.clone()),
        "InterfaceNamePrefix" => {
            DetectLocal::InterfaceNamePrefix(config.detect_local.interface_name_prefix.clone())
        }
        _ if config.cluster_cidr.is_empty() => DetectLocal::None,
        _ => DetectLocal::ClusterCidr(validate::cluster_cidrs(&config.cluster_cidr)),
    }
}

/// Prefixes of loopback count unless `iptables.localhostNodePorts` or the feature gate switches them off.
fn node_port_addresses(config: &KubeProxyConfiguration) -> Vec<NodePortAddresses> {
    let loopback = [host_prefix(Ipv4Addr::LOCALHOST, 8), host_prefix(Ipv6Addr::LOCALHOST, 128)];
    let all = [host_prefix(Ipv4Addr::UNSPECIFIED, 0), host_prefix(Ipv6Addr::UNSPECIFIED, 0)];
    let with_loopback = config.iptables.localhost_node_ports != Some(false)
        && feature_gates::localhost_node_ports(&config.feature_gates);
    let given = config.node_port_addresses.as_deref().unwrap_or_default();
    if given.is_empty() {
        return vec![NodePortAddresses::Primary];
    }
    let mut addresses = Vec::new();
    for entry in given {
        let entries = match entry.as_str() {
            "primary" => vec![NodePortAddresses::Primary],
            "localhost" => loopback.iter().flatten().copied().map(NodePortAddresses::Cidr).collect(),
            "all" => all.iter().flatten().copied().map(NodePortAddresses::Cidr).collect(),
            text => Cidr::parse(text).ok().map(NodePortAddresses::Cidr).into_iter().collect(),
        };
        for entry in entries {
            let is_loopback = matches!(entry, NodePortAddresses::Cidr(cidr) if cidr.addr().is_loopback());
            if (with_loopback || !is_loopback) && !addresses.contains(&entry) {
                addresses.push(entry);
            }
        }
    }
    addresses
}

fn host_prefix(addr: impl Into<IpAddr>, len: u8) -> Option<Cidr> {
    Cidr::new(addr.into(), len)
}

fn above_zero(duration: GoDuration) -> Option<Duration> {
    (duration > GoDuration::ZERO).then(|| duration.as_duration())
}

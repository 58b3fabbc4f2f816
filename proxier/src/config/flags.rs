//! Owns the command-line flags of `proxier run`, which are kube-proxy's and a few of our own; knows nothing of the
//! configuration file.

use super::duration::GoDuration;
use clap::Args;
use std::path::PathBuf;

/// Flags. Absent means not given, so that a default does not hide what a file says.
#[derive(Debug, Clone, Default, Args)]
pub struct Flags {
    #[command(flatten)]
    pub(super) basics: Basics,
    #[command(flatten)]
    pub(super) cluster: Cluster,
    #[command(flatten)]
    pub(super) traffic: Traffic,
    #[command(flatten)]
    pub(super) serving: Serving,
    #[command(flatten)]
    pub(super) conntrack: ConntrackFlags,
    #[command(flatten)]
    pub(super) logs: Logs,
    #[command(flatten)]
    pub(super) without_meaning: WithoutMeaning,
    /// The flags that stood on the command line, by their long names, and their values.
    #[arg(skip)]
    pub(super) given: Vec<(String, String)>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What to do")]
pub(super) struct Basics {
    /// Configuration file, KubeProxyConfiguration v1alpha1 as YAML or JSON. Every flag that has a field in it is then
    /// ignored, except --hostname-override and the logging flags
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Take Services, EndpointSlices, the Node and ServiceCIDRs from the YAML and JSON files of this folder, watched
    /// live, instead of an API server
    #[arg(long, value_name = "DIR")]
    pub(super) manifests: Option<PathBuf>,

    /// Delete TCP flows to endpoints that are gone while they still wait for their first answer, so that a client which
    /// dials on from the same port gets another endpoint; acts with --config as well
    #[arg(long)]
    pub(super) conntrack_free_syn_sent: bool,
    /// Name of this node; default: the host's name
    #[arg(long, value_name = "NAME")]
    pub(super) hostname_override: Option<String>,
    /// Write the whole configuration, defaults included, to this file and exit
    #[arg(long, value_name = "FILE")]
    pub(super) write_config_to: Option<PathBuf>,
    /// Remove all rules of this proxier and of kube-proxy (nftables, iptables, ipvs) and exit
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) cleanup: Option<bool>,
    /// Do only the setup that needs privileges (kernel settings, checks) and exit
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) init_only: Option<bool>,
    /// Print the version and exit; "raw" prints all of it; vX.Y.Z makes the program report that version
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "true|raw|vX.Y.Z")]
    pub(super) version: Option<String>,
    /// Feature gates, NAME=true or NAME=false, separated by commas
    #[arg(long, value_name = "GATES", value_delimiter = ',', value_parser = gate)]
    pub(super) feature_gates: Vec<(String, bool)>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct Cluster {
    /// Kubeconfig file; without it and without --master the credentials of the pod are used
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<String>,
    /// URL of the API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub(super) master: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Traffic")]
pub(super) struct Traffic {
    /// nftables, iptables or ipvs; all of them are served with nftables
    #[arg(long, value_name = "MODE")]
    pub(super) proxy_mode: Option<String>,
    /// The node's address, unless unspecified (0.0.0.0 or ::); nothing is bound on it
    #[arg(long, value_name = "IP")]
    pub(super) bind_address: Option<String>,
    /// Prefixes of the cluster's pods: one, or one of each family joined by a comma
    #[arg(long, value_name = "CIDRS")]
    pub(super) cluster_cidr: Option<String>,
    /// How local pods are told from other sources: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix
    #[arg(long, value_name = "MODE")]
    pub(super) detect_local_mode: Option<String>,
    /// Bridge of the local pods, for BridgeInterface
    #[arg(long, value_name = "NAME")]
    pub(super) pod_bridge_interface: Option<String>,
    /// How the local pods' interface names begin, for InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX")]
    pub(super) pod_interface_name_prefix: Option<String>,
    /// Local addresses that serve NodePorts: prefixes, or primary, localhost, all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) nodeport_addresses: Option<Vec<String>>,
    /// Masquerade everything that is sent to a ClusterIP
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) masquerade_all: Option<bool>,
    /// Bit of the packet mark that asks for masquerading, 0 to 31 [default: 14]
    #[arg(long, value_name = "BIT", allow_negative_numbers = true)]
    pub(super) iptables_masquerade_bit: Option<i32>,
    /// false: no NodePorts on loopback, whatever --nodeport-addresses says
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) iptables_localhost_nodeports: Option<bool>,
    /// After a failed sync, when to try again; twice of it is how long /healthz bears with a pending change
    #[arg(long, value_name = "DURATION")]
    pub(super) iptables_sync_period: Option<GoDuration>,
    /// Least time between two syncs
    #[arg(long, value_name = "DURATION")]
    pub(super) iptables_min_sync_period: Option<GoDuration>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Health, metrics, process")]
pub(super) struct Serving {
    /// Address of /healthz and /livez [default: 0.0.0.0:10256]
    #[arg(long, value_name = "IP:PORT")]
    pub(super) healthz_bind_address: Option<String>,
    /// Deprecated: 0 disables the health server; else the port of an address without one
    #[arg(long, value_name = "PORT")]
    pub(super) healthz_port: Option<u16>,
    /// Address of /metrics [default: 127.0.0.1:10249]
    #[arg(long, value_name = "IP:PORT")]
    pub(super) metrics_bind_address: Option<String>,
    /// Deprecated: 0 disables the metrics server; else the port of an address without one
    #[arg(long, value_name = "PORT")]
    pub(super) metrics_port: Option<u16>,
    /// Exit when the health or the metrics server cannot be started, instead of trying again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) bind_address_hard_fail: Option<bool>,
    /// Serve /debug on the metrics server
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) profiling: Option<bool>,
    /// The previous minor version, to show metrics that were hidden since
    #[arg(long, value_name = "VERSION")]
    pub(super) show_hidden_metrics_for_version: Option<String>,
    /// oom_score_adj of this process, -1000 to 1000 [default: -999]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) oom_score_adj: Option<i32>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Conntrack")]
pub(super) struct ConntrackFlags {
    /// Flows to track per CPU, 0 leaves the kernel's limit [default: 32768]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) conntrack_max_per_core: Option<i32>,
    /// Least number of flows to track [default: 131072]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) conntrack_min: Option<i32>,
    /// Time-out of established TCP flows, 0 leaves the kernel's [default: 24h]
    #[arg(long, value_name = "DURATION")]
    pub(super) conntrack_tcp_timeout_established: Option<GoDuration>,
    /// Time-out of TCP flows in CLOSE_WAIT, 0 leaves the kernel's [default: 1h]
    #[arg(long, value_name = "DURATION")]
    pub(super) conntrack_tcp_timeout_close_wait: Option<GoDuration>,
    /// Let TCP packets outside of the window pass
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) conntrack_tcp_be_liberal: Option<bool>,
    /// Time-out of UDP flows without an answer, 0 leaves the kernel's
    #[arg(long, value_name = "DURATION")]
    pub(super) conntrack_udp_timeout: Option<GoDuration>,
    /// Time-out of UDP flows with answers, 0 leaves the kernel's
    #[arg(long, value_name = "DURATION")]
    pub(super) conntrack_udp_timeout_stream: Option<GoDuration>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct Logs {
    /// How much to say: 0 what matters, 2 steps, 4 and more details
    #[arg(short = 'v', long = "v", value_name = "LEVEL")]
    pub(super) verbosity: Option<u32>,
    /// Other levels for some modules, PATTERN=LEVEL separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = vmodule)]
    pub(super) vmodule: Vec<(String, u32)>,
    /// text or json
    #[arg(long, value_name = "FORMAT")]
    pub(super) logging_format: Option<String>,
}

/// kube-proxy's flags that are taken and say nothing to this program; each is named in the log when it is used.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Accepted for kube-proxy's sake, without meaning here")]
pub(super) struct WithoutMeaning {
    #[arg(long, value_name = "DURATION")]
    pub(super) config_sync_period: Option<GoDuration>,
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) kube_api_burst: Option<i32>,
    #[arg(long, value_name = "TYPE")]
    pub(super) kube_api_content_type: Option<String>,
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) kube_api_qps: Option<f32>,
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) ipvs_exclude_cidrs: Option<Vec<String>>,
    #[arg(long, value_name = "DURATION")]
    pub(super) ipvs_min_sync_period: Option<GoDuration>,
    #[arg(long, value_name = "NAME")]
    pub(super) ipvs_scheduler: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) ipvs_strict_arp: Option<bool>,
    #[arg(long, value_name = "DURATION")]
    pub(super) ipvs_sync_period: Option<GoDuration>,
    #[arg(long, value_name = "DURATION")]
    pub(super) ipvs_tcp_timeout: Option<GoDuration>,
    #[arg(long, value_name = "DURATION")]
    pub(super) ipvs_tcpfin_timeout: Option<GoDuration>,
    #[arg(long, value_name = "DURATION")]
    pub(super) ipvs_udp_timeout: Option<GoDuration>,
    #[arg(long, value_name = "DURATION")]
    pub(super) log_flush_frequency: Option<GoDuration>,
    #[arg(long, value_name = "QUANTITY")]
    pub(super) log_json_info_buffer_size: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) log_json_split_stream: Option<bool>,
    #[arg(long, value_name = "QUANTITY")]
    pub(super) log_text_info_buffer_size: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", value_parser = go_bool)]
    pub(super) log_text_split_stream: Option<bool>,
}

/// What Go's `strconv.ParseBool` reads.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

fn gate(text: &str) -> Result<(String, bool), String> {
    let (name, value) = text.trim().split_once('=').ok_or("expected NAME=true or NAME=false")?;
    Ok((name.trim().to_owned(), go_bool(value.trim())?))
}

fn vmodule(text: &str) -> Result<(String, u32), String> {
    let (pattern, level) = text.split_once('=').ok_or("expected PATTERN=LEVEL")?;
    Ok((pattern.to_owned(), level.parse().map_err(|_| "the level is a number of 0 or more")?))
}

impl Flags {
    /// Notes which flags stood on the command line, by their long names, and their values.
    pub(crate) fn set_given(&mut self, given: Vec<(String, String)>) {
        self.given = given;
    }

    /// The flags that stood on the command line, with their values.
    pub fn given(&self) -> &[(String, String)] {
        &self.given
    }
}

//! Owns `proxier run`: what is started, in which order, and what ends it; knows nothing of objects or of the kernel.

use super::cleanup::{self, CleanupError};
use crate::config::{self, Action, Config, ConfigError, Conntrack, FileError, Flags};
use crate::conntrack_settings::Kernel;
use crate::events::{Events, Notice};
use crate::health::{self, Health, ServiceHealthServers};
use crate::http_server::{self, ListenError};
use crate::leftovers::{self, Scope};
use crate::logging::{self, LoggingError, Verbosity};
use crate::metrics::{self, About, Debug, Metrics};
use crate::node_port_proxy::NodePortProxy;
use crate::observer::Observer;
use crate::reports::Reports;
use crate::source::api_server::{ApiServerError, ConnectionError, Wanted};
use crate::source::manifests::ManifestsError;
use crate::source::{Decoder, SourceEvent, api_server, manifests};
use crate::sync::{self, FlowCleaner};
use kube::Client;
use netlink::address::{AddressError, AddressWatch};
use netlink::{Missing, Nft};
use nft_ir::Family;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use proxier_core::model::HostAddress;
use proxier_core::{DetectLocal, Settings};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

/// How many events of the source may wait to be taken.
const EVENTS: usize = 64;

/// How long to wait before the addresses of this host are listed again after a failure.
const ADDRESSES_AGAIN: Duration = Duration::from_secs(1);

/// How long to wait at the end for the cluster to be told why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long to wait before looking again for settings that the kernel does not have yet.
const SETTINGS_AGAIN: Duration = Duration::from_secs(5);

/// Why the program ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says what its source says")]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    ApiServer(#[from] ApiServerError),
    #[error(transparent)]
    Manifests(#[from] ManifestsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot start threads: {0}")]
    Runtime(std::io::Error),
    #[error(transparent)]
    Sync(#[from] sync::Error),
    #[error(transparent)]
    Addresses(#[from] AddressError),
    #[error(transparent)]
    CleanUp(#[from] CleanupError),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Missing(Vec<Missing>),
    #[error("nf_tables (Linux 5.13 or newer) cannot be used here: {0}")]
    Kernel(#[from] netlink::Error),
    #[error("the source of objects failed: {0}")]
    Source(#[from] tokio::task::JoinError),
}

/// Does what the flags ask for.
pub fn run(flags: &Flags) -> Result<(), RunError> {
    let config = Config::load(flags)?;
    match &config.action {
        Action::PrintVersion { raw } => {
            print_version(&config, *raw);
            return Ok(());
        }
        Action::WriteConfig(path) => return Ok(config.write(path)?),
        Action::CleanUp | Action::InitOnly | Action::Run => {}
    }
    let verbosity = logging::start(&config.logging)?;
    for notice in &config.notices {
        info!("{notice}");
    }
    debug!("configuration in force:\n{}", config.to_yaml());
    if config.action == Action::CleanUp {
        return Ok(cleanup::remove(Scope::All)?);
    }
    let families = families();
    look_for_what_is_missing(&families)?;
    let kernel = Kernel::running();
    let all_applied = kernel.apply(&config.conntrack);
    if config.action == Action::InitOnly {
        return Ok(());
    }
    adjust_oom_score(config.oom_score_adj);
    raise_file_limit();
    // Two threads: one serves packets' rules, the other answers probes while the first is busy.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?
        .block_on(async {
            if !all_applied {
                tokio::spawn(apply_later(kernel, config.conntrack.clone()));
            }
            serve(flags, &config, families, &verbosity).await
        })
}

async fn serve(
    flags: &Flags,
    config: &Config,
    families: Vec<Family>,
    verbosity: &Verbosity,
) -> Result<(), RunError> {
    let mut terminate = signals(SignalKind::terminate())?;
    let mut interrupt = signals(SignalKind::interrupt())?;
    let settings = config.settings(families);
    let client = match config.manifests {
        Some(_) => None,
        None => Some(config.connection.client().await?),
    };
    let reports = reports(config, &settings, client.clone());
    let told = reports.events.clone();
    let about = About::new(flags.given(), config.reported_version.as_str());
    let servers = servers(config, reports.health.clone(), reports.metrics.clone(), about, &told, verbosity);
    let (mut tasks, events) = start_source(config, client);
    reports.events.tell(Notice::starting());
    info!("node {}", settings.node_name);
    let options = sync::Options {
        settings: settings.clone(),
        min_sync_period: config.min_sync_period,
        sync_period: config.sync_period,
    };
    let addresses = watch_addresses(&mut tasks)?;
    let (first_sync, synced) = oneshot::channel();
    tokio::spawn(take_over(synced));
    let metrics = reports.metrics.clone();
    let flows = FlowCleaner::start(move |cleaned| {
        metrics.conntrack_reconciled(cleaned.family, cleaned.took, cleaned.deleted as u64);
    });
    let flows = flows.map_err(RunError::Runtime)?;
    let observer = Box::new(Observer::new(reports, settings).tell_first_sync(first_sync));
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM: ending; the rules stay"),
        _ = interrupt.recv() => info!("SIGINT: ending; the rules stay"),
        () = config::changed(flags, config, verbosity) => {
            info!("the configuration has changed: ending, to be started with it; the rules stay");
        }
        ended = sync::run(options, events, addresses, flows, observer) => ended?,
        failed = servers => {
            told.flush(LAST_WORDS).await;
            failed?;
        }
        Some(ended) = tasks.join_next() => ended??,
    }
    Ok(())
}

fn reports(config: &Config, settings: &Settings, client: Option<Client>) -> Reports {
    let health = Health::new(&settings.families, config.sync_period, client.is_some());
    let events = match client {
        Some(client) => Events::to_api_server(client, config.node_name.clone()),
        None => Events::log_only(),
    };
    let metrics = Metrics::new(&config.reported_version, Some(health.clone()));
    Reports {
        node_port_proxy: NodePortProxy::start(metrics.clone()),
        metrics,
        service_health: ServiceHealthServers::start(config.node_name.clone(), health.clone(), events.clone()),
        health,
        events,
    }
}

/// The health and the metrics server. Ends only if one of them cannot listen and that is to be fatal.
async fn servers(
    config: &Config,
    health: Health,
    metrics: Metrics,
    about: About,
    events: &Events,
    verbosity: &Verbosity,
) -> Result<(), ListenError> {
    let hard_fail = config.bind_hard_fail;
    let healthz = async {
        let Some(addr) = config.healthz else { return std::future::pending().await };
        let router = health::router(health, metrics.clone());
        http_server::serve("--healthz-bind-address", addr, router, hard_fail)
            .await
            .inspect_err(|error| events.tell(Notice::health_server_failed(error)))
    };
    let metrics = async {
        let Some(addr) = config.metrics else { return std::future::pending().await };
        let debug = config.profiling.then(|| Debug { verbosity: verbosity.clone() });
        let router = metrics::router(metrics.clone(), &config.shown, about, debug);
        http_server::serve("--metrics-bind-address", addr, router, hard_fail)
            .await
            .inspect_err(|error| events.tell(Notice::metrics_server_failed(error)))
    };
    tokio::try_join!(healthz, metrics).map(|((), ())| ())
}

/// Starts the source that the configuration names: the API server of this client, or the folder of manifests.
fn start_source(
    config: &Config,
    client: Option<Client>,
) -> (JoinSet<Result<(), RunError>>, Receiver<SourceEvent>) {
    let (sender, events) = channel(EVENTS);
    let mut source = JoinSet::new();
    if let Some(client) = client {
        let needs_pod_cidrs = config.detect_local == DetectLocal::NodeCidr;
        let wanted = Wanted {
            external_ips: config.external_ips,
            bind_address: config.bind_address,
            ..Wanted::new(config.node_name.clone(), needs_pod_cidrs)
        };
        source.spawn(async { Ok(api_server::run(client, wanted, sender).await?) });
    } else if let Some(dir) = config.manifests.clone() {
        let decoder =
            Decoder::new(config.node_name.clone(), config.external_ips).bind_address(config.bind_address);
        source.spawn(async { Ok(manifests::run(dir, decoder, sender).await?) });
    }
    (source, events)
}

/// Once our rules are in force, removes those that kube-proxy left: no packet meets neither.
///
/// Not in the transaction that makes ours, although the kernel would take that: it walks the NAT chains of one hook in turn, and
/// looks at each which generation of the ruleset is in force. A packet between the two would find ours not there yet, and theirs
/// gone.
async fn take_over(first_sync: oneshot::Receiver<()>) {
    if first_sync.await.is_err() {
        return;
    }
    let failures =
        tokio::task::spawn_blocking(|| leftovers::remove(Scope::KubeProxys)).await.unwrap_or_default();
    for failure in failures {
        warn!("kube-proxy's leftovers: {failure}");
    }
}

/// Puts the conntrack settings in force when the kernel has them: the first rule that tracks flows loads their module.
async fn apply_later(kernel: Kernel, settings: Conntrack) {
    loop {
        tokio::time::sleep(SETTINGS_AGAIN).await;
        if kernel.apply(&settings) {
            return;
        }
    }
}

/// Starts to listen for addresses of this host.
fn watch_addresses(
    tasks: &mut JoinSet<Result<(), RunError>>,
) -> Result<Receiver<Vec<HostAddress>>, RunError> {
    let (sender, addresses) = channel(1);
    let mut watch = AddressWatch::open()?;
    tasks.spawn(async move {
        loop {
            match watch.next().await {
                Ok(all) => {
                    let all = all.into_iter().map(|host| HostAddress { addr: host.addr, link: host.link });
                    if sender.send(all.collect()).await.is_err() {
                        return Ok(());
                    }
                }
                Err(error @ AddressError::Open(_)) => return Err(error.into()),
                Err(error) => {
                    warn!("{error}; trying again");
                    tokio::time::sleep(ADDRESSES_AGAIN).await;
                }
            }
        }
    });
    Ok(addresses)
}

fn signals(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(RunError::Signals)
}

/// The families that this host speaks; says once if IPv6 is not among them.
fn families() -> Vec<Family> {
    let without_ipv6 = match std::fs::read_to_string("/proc/net/if_inet6") {
        Err(_) => "has no IPv6",
        Ok(addresses) if addresses.is_empty() && is_ipv6_disabled() => {
            "has IPv6 disabled (sysctl net.ipv6.conf.all.disable_ipv6)"
        }
        Ok(_) => return Family::ALL.to_vec(),
    };
    info!("this host {without_ipv6}: serving IPv4 only; start again once that has changed");
    vec![Family::Ip]
}

/// No interface has an address, not even the loopback's, and none will get one.
fn is_ipv6_disabled() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6").is_ok_and(|text| text.trim() == "1")
}

/// Asks the kernel for all that the rules will need, without leaving anything behind.
fn look_for_what_is_missing(families: &[Family]) -> Result<(), RunError> {
    let mut nft = Nft::open()?;
    let mut missing: Vec<Missing> = Vec::new();
    for family in families {
        for one in nft.missing(*family)? {
            // A missing privilege is the same in both families, and said once.
            if !missing.iter().any(|other| other.to_string() == one.to_string()) {
                missing.push(one);
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(RunError::Missing(missing)) }
}

/// As upstream, a failure (no privilege) is no reason to stop.
fn adjust_oom_score(score: i32) {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        debug!("/proc/self/oom_score_adj: cannot write {score}: {error}");
    }
}

/// A Service with a health check takes a file, and each of its probes another.
fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        debug!("cannot raise the limit of open files from {soft} to {hard}: {error}");
    }
}

/// The first two words are kube-proxy's, for tools that read them.
fn print_version(config: &Config, raw: bool) {
    let own = env!("CARGO_PKG_VERSION");
    let mut text = format!("Kubernetes {} (proxier {own})\n", config.reported_version);
    if raw {
        text.clear();
        // A String takes every write.
        let _ = writeln!(
            text,
            "gitVersion: {}\nproxier: {own}\nplatform: {}/{}",
            config.reported_version,
            std::env::consts::OS,
            std::env::consts::ARCH
        );
    }
    // Nobody reads on if the pipe is closed.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

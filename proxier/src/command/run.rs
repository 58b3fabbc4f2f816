//! Owns `proxier run`: what is started, in which order, and what ends it; knows nothing of objects or of the kernel.

use crate::config::{Action, Config, ConfigError, FileError, Flags};
use crate::logging::{self, LoggingError};
use crate::source::api_server::{ApiServerError, ConnectionError, Wanted};
use crate::source::manifests::ManifestsError;
use crate::source::{Decoder, SourceEvent, api_server, manifests};
use nft_ir::Family;
use proxier_core::{DetectLocal, Settings};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv6Addr;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;
use tracing::{debug, info};

/// How many events of the source may wait to be taken.
const EVENTS: usize = 64;

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
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot start threads: {0}")]
    Runtime(std::io::Error),
    #[error("--{0} is not available in this build")]
    Unavailable(&'static str),
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
        Action::CleanUp => return Err(RunError::Unavailable("cleanup")),
        Action::InitOnly => return Err(RunError::Unavailable("init-only")),
        Action::Run => {}
    }
    logging::start(&config.logging)?;
    for notice in &config.notices {
        info!("{notice}");
    }
    debug!("configuration in force:\n{}", config.to_yaml());
    adjust_oom_score(config.oom_score_adj);
    // Two threads: one serves packets' rules, the other answers probes while the first is busy.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?
        .block_on(serve(&config))
}

async fn serve(config: &Config) -> Result<(), RunError> {
    let settings = config.settings(families());
    let mut terminate = signals(SignalKind::terminate())?;
    let mut interrupt = signals(SignalKind::interrupt())?;
    let (mut source, events) = start_source(config).await?;
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM: ending; the rules stay"),
        _ = interrupt.recv() => info!("SIGINT: ending; the rules stay"),
        () = follow(&settings, events) => {}
        Some(ended) = source.join_next() => ended??,
    }
    Ok(())
}

/// Starts the source that the configuration names.
async fn start_source(
    config: &Config,
) -> Result<(JoinSet<Result<(), RunError>>, Receiver<SourceEvent>), RunError> {
    let (sender, events) = channel(EVENTS);
    let mut source = JoinSet::new();
    if let Some(dir) = &config.manifests {
        let decoder = Decoder::new(config.node_name.clone(), config.external_ips);
        let dir = dir.clone();
        source.spawn(async { Ok(manifests::run(dir, decoder, sender).await?) });
    } else {
        let client = config.connection.client().await?;
        let needs_pod_cidrs = config.detect_local == DetectLocal::NodeCidr;
        let wanted = Wanted {
            external_ips: config.external_ips,
            ..Wanted::new(config.node_name.clone(), needs_pod_cidrs)
        };
        source.spawn(async { Ok(api_server::run(client, wanted, sender).await?) });
    }
    Ok((source, events))
}

/// Tells what the source says.
async fn follow(settings: &Settings, mut events: Receiver<SourceEvent>) {
    info!("node {}", settings.node_name);
    while let Some(event) = events.recv().await {
        match event {
            SourceEvent::Changes(changes) => debug!("{} changes", changes.len()),
            SourceEvent::Synced => info!("the first state is whole"),
            SourceEvent::Rejected(rejected) => {
                for rejected in rejected {
                    tracing::warn!("{rejected}");
                }
            }
        }
    }
}

fn signals(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(RunError::Signals)
}

/// The families that this kernel speaks. A kernel without IPv6 refuses its sockets.
fn families() -> Vec<Family> {
    let has_ipv6 = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    Family::ALL.into_iter().filter(|family| *family == Family::Ip || has_ipv6).collect()
}

/// As upstream, a failure (no privilege) is no reason to stop.
fn adjust_oom_score(score: i32) {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        debug!("/proc/self/oom_score_adj: cannot write {score}: {error}");
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

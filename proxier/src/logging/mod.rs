//! Owns what is logged and when: verbosity, per-module levels, the start of logging; knows nothing of who logs what.

mod format;

use crate::config::Logging;
use format::{Json, Klog};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tracing::Metadata;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// It has begun before.
    #[error("logging has begun already: {0}")]
    Twice(#[from] TryInitError),
}

/// Crates of this program; others say less.
const OWN: [&str; 4] = ["proxier", "proxier_core", "netlink", "nft_ir"];

/// Libraries that log what this program tells itself in its own words.
const DOUBLED: [&str; 2] = ["kube_client", "kube_runtime"];

/// Begins to log to standard error. The verbosity can be changed later.
pub fn start(logging: &Logging) -> Result<Verbosity, LoggingError> {
    let verbosity = Verbosity::new(logging);
    let levels = verbosity.clone();
    let filter = dynamic_filter_fn(move |metadata, _| levels.lets_pass(metadata));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = if logging.json {
        layer.event_format(Json).with_filter(filter).boxed()
    } else {
        layer.event_format(Klog).with_ansi(false).with_filter(filter).boxed()
    };
    tracing_subscriber::registry().with(layer).try_init()?;
    Ok(verbosity)
}

/// How much is logged. Clones share it.
#[derive(Debug, Clone)]
pub struct Verbosity {
    level: Arc<AtomicU32>,
    modules: Arc<[(String, u32)]>,
}

impl Verbosity {
    pub(crate) fn new(logging: &Logging) -> Self {
        Self { level: Arc::new(AtomicU32::new(logging.verbosity)), modules: logging.vmodule.clone().into() }
    }

    /// `-v` from now on.
    pub fn set(&self, level: u32) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// `-v` in force.
    pub fn get(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    fn lets_pass(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most(metadata.target())
    }

    /// The most detailed level that passes for this target. `-v` 2 brings debug, 4 trace, 6 that of the libraries as well.
    fn most(&self, target: &str) -> LevelFilter {
        let crate_name = target.split("::").next().unwrap_or_default();
        let module = target.rsplit("::").next().unwrap_or_default();
        let by_module = self.modules.iter().find(|(pattern, _)| matches(pattern, module));
        let level = by_module.map_or_else(|| self.get(), |(_, level)| *level);
        let is_own = OWN.contains(&crate_name);
        match level {
            _ if is_own && level >= 4 => LevelFilter::TRACE,
            _ if is_own && level >= 2 => LevelFilter::DEBUG,
            _ if is_own => LevelFilter::INFO,
            // Each try of each watch while the API server is away is an error to them.
            0..4 if DOUBLED.contains(&crate_name) => LevelFilter::OFF,
            0..4 => LevelFilter::WARN,
            4..6 => LevelFilter::INFO,
            _ => LevelFilter::TRACE,
        }
    }
}

/// Whether a `vmodule` pattern, with `*` and `?`, fits a module's name.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pattern_chars = pattern.chars();
    match pattern_chars.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = pattern_chars.as_str();
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
        }
        Some(wanted) => {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| wanted == '?' || wanted == c)
                && matches(pattern_chars.as_str(), chars.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbosity(level: u32, vmodule: &[(&str, u32)]) -> Verbosity {
        let vmodule = vmodule.iter().map(|(pattern, level)| ((*pattern).to_owned(), *level)).collect();
        Verbosity::new(&Logging { json: false, verbosity: level, vmodule })
    }

    #[test]
    fn levels_follow_the_verbosity() {
        for (level, target, most) in [
            (0, "proxier::sync", LevelFilter::INFO),
            (1, "proxier::sync", LevelFilter::INFO),
            (2, "proxier::sync", LevelFilter::DEBUG),
            (4, "proxier_core::engine", LevelFilter::TRACE),
            (0, "hyper::proto", LevelFilter::WARN),
            (0, "kube_client::client::builder", LevelFilter::OFF),
            (5, "kube_client::client::builder", LevelFilter::INFO),
            (9, "hyper::proto", LevelFilter::TRACE),
        ] {
            assert_eq!(verbosity(level, &[]).most(target), most, "{level} {target}");
        }
    }

    #[test]
    fn modules_have_their_own() {
        let verbosity = verbosity(0, &[("conn*", 4), ("sy?c", 2)]);
        assert_eq!(verbosity.most("proxier::conntrack"), LevelFilter::TRACE);
        assert_eq!(verbosity.most("proxier::sync"), LevelFilter::DEBUG);
        assert_eq!(verbosity.most("proxier::health"), LevelFilter::INFO);
        verbosity.set(2);
        assert_eq!((verbosity.get(), verbosity.most("proxier::health")), (2, LevelFilter::DEBUG));
    }
}

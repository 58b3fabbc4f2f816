//! Owns what `/flagz` and `/statusz` say of this process, to be read by people. Knows nothing of HTTP.

use k8s_openapi::jiff::Timestamp;
use std::fmt::Write as _;
use std::sync::Arc;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and \
                       is for debugging purposes only.";

/// This process: how it was called, and since when it runs.
#[derive(Debug, Clone)]
pub struct About {
    flags: Arc<[(String, String)]>,
    started: Timestamp,
    kubernetes_version: Arc<str>,
}

impl About {
    /// A process that starts now, with these flags and their values; `kubernetes_version` is the one to report.
    pub fn new(flags: impl Into<Arc<[(String, String)]>>, kubernetes_version: impl Into<Arc<str>>) -> Self {
        Self { flags: flags.into(), started: Timestamp::now(), kubernetes_version: kubernetes_version.into() }
    }

    /// The flags that were given, by name.
    pub(super) fn flagz(&self) -> String {
        let mut flags: Vec<_> = self.flags.iter().collect();
        flags.sort();
        let mut text = format!("\nkube-proxy flagz\n{WARNING}\n\n");
        text.extend(flags.into_iter().map(|(name, value)| format!("{name}={value}\n")));
        text
    }

    /// Start, versions, and what else this server answers.
    pub(super) fn statusz(&self, now: Timestamp, paths: &[&str]) -> String {
        let up = now.duration_since(self.started).as_secs().max(0);
        let mut text = format!("\nkube-proxy statusz\n{WARNING}\n\n");
        // A String takes every write.
        let _ = write!(
            text,
            "Started: {}\nUp: {} hr {} min {} sec\nBinary version: {}\nProxier version: {}\n\nPaths\n{}\n",
            self.started,
            up / 3600,
            up / 60 % 60,
            up % 60,
            self.kubernetes_version,
            env!("CARGO_PKG_VERSION"),
            paths.join("\n"),
        );
        text
    }
}

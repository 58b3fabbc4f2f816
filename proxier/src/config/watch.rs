//! Owns the watch on the configuration file; knows nothing of what the program does with a new configuration.

use super::{Config, Flags};
use crate::folder_watch::FolderWatch;
use crate::logging::Verbosity;
use std::path::Path;
use std::time::Duration;
use tracing::{error, info};

/// How often a folder that went away is looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Waits until the file says something else that cannot be put in force while the program runs. A new verbosity can, and
/// is. A file that is no good for now changes nothing. Without a file this waits for ever.
///
/// It is the content that counts: a file written in place, renamed over, or exchanged as kubelet does with a mounted
/// ConfigMap.
pub async fn changed(flags: &Flags, config: &Config, verbosity: &Verbosity) {
    let Some(file) = &config.file else { return std::future::pending().await };
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    loop {
        match FolderWatch::open(dir, |_| true) {
            Ok(mut watch) => {
                // What was written before the watch began counts as well.
                loop {
                    if is_other(flags, config, verbosity) {
                        return;
                    }
                    if watch.next().await.is_err() {
                        break;
                    }
                }
            }
            Err(cause) => error!("{}: cannot watch the folder: {cause}", dir.display()),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether the file asks for another configuration than the one in force.
fn is_other(flags: &Flags, config: &Config, verbosity: &Verbosity) -> bool {
    let new = match Config::load(flags) {
        Ok(new) => new,
        Err(cause) => {
            error!("the configuration has changed and is no good: {cause}; the one in force stays");
            return false;
        }
    };
    if new.logging.verbosity != verbosity.get() && !config.profiling {
        info!("logging.verbosity is {} now", new.logging.verbosity);
        verbosity.set(new.logging.verbosity);
    }
    let mut shown = new.shown;
    shown.logging.verbosity = config.shown.logging.verbosity;
    shown != config.shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use std::fs;
    use tempfile::TempDir;

    fn text(lines: &str) -> String {
        format!("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{lines}\n")
    }

    #[tokio::test]
    async fn only_another_content_counts() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("config.conf");
        fs::write(&file, text("mode: nftables")).unwrap();
        let args = ["proxier".to_owned(), format!("--config={}", file.display())];
        let Command::Run(flags) = Command::parse(args.map(Into::into)).unwrap() else {
            panic!("another command")
        };
        let config = Config::load(&flags).unwrap();
        let verbosity = Verbosity::new(&config.logging);
        let changed = changed(&flags, &config, &verbosity);
        tokio::pin!(changed);
        let is_changed = async |mut changed: std::pin::Pin<&mut _>| {
            tokio::time::timeout(Duration::from_millis(50), &mut changed).await.is_ok()
        };
        assert!(!is_changed(changed.as_mut()).await);
        fs::write(dir.path().join("other"), "x").unwrap();
        fs::write(&file, text("# the same\nmode: nftables")).unwrap();
        assert!(!is_changed(changed.as_mut()).await);
        fs::write(&file, text("mode: [")).unwrap();
        assert!(!is_changed(changed.as_mut()).await);
        fs::write(&file, text("mode: nftables\nlogging: {verbosity: 4}")).unwrap();
        assert!(!is_changed(changed.as_mut()).await);
        assert_eq!(verbosity.get(), 4);
        fs::write(dir.path().join("new"), text("mode: nftables\nclusterCIDR: 10.0.0.0/8")).unwrap();
        fs::rename(dir.path().join("new"), &file).unwrap();
        tokio::time::timeout(Duration::from_secs(10), changed).await.unwrap();
    }
}

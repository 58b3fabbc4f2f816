//! Owns `--manifests DIR`: objects from the files of a folder, watched live; knows nothing of an API server.
//!
//! Every `*.yaml`, `*.yml` and `*.json` of the folder counts, hidden ones excepted. A file that cannot be read or parsed
//! keeps what it said last, so a slip of the editor takes no Service down.

mod folder;
mod parse;
#[cfg(test)]
mod tests;

use super::{Decoder, SourceEvent};
use crate::folder_watch::{FolderWatch, Touched};
use folder::{Folder, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tracing::{error, info};

/// How often a folder that went away is looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Why a folder cannot be a source.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// The folder cannot be watched.
    #[error("--manifests {}: cannot watch this folder: {source}", dir.display())]
    Watch {
        /// The folder.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The folder cannot be listed.
    #[error("--manifests {}: cannot list this folder: {source}", dir.display())]
    List {
        /// The folder.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Tells what the folder's files say, then follows them. Ends when nobody listens any more.
///
/// Fails only at the start: a folder that goes away later keeps what it said, and is looked for each second.
pub async fn run(dir: PathBuf, decoder: Decoder, events: Sender<SourceEvent>) -> Result<(), ManifestsError> {
    let mut watch = open(&dir)?;
    let mut source = Source { dir, folder: Folder::new(decoder), seen: BTreeMap::new(), events };
    let Ok(()) = source.rescan(true).await? else { return Ok(()) };
    if source.events.send(SourceEvent::Synced).await.is_err() {
        return Ok(());
    }
    loop {
        let touched = tokio::select! {
            touched = watch.next() => touched,
            () = source.events.closed() => return Ok(()),
        };
        let outcome = match touched {
            Ok(Touched::Files(names)) => source.reread(names).await,
            Ok(Touched::Unknown) => match source.rescan(false).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    error!("{error}");
                    Ok(())
                }
            },
            Ok(Touched::FolderGone) => {
                error!("--manifests {}: the folder is gone; keeping what it said", source.dir.display());
                watch = match reopen(&source).await {
                    Some(watch) => watch,
                    None => return Ok(()),
                };
                info!("--manifests {}: the folder is back", source.dir.display());
                source.rescan(true).await.unwrap_or(Ok(()))
            }
            Err(cause) => {
                error!("--manifests {}: {cause}; opening the watch again", source.dir.display());
                watch = match reopen(&source).await {
                    Some(watch) => watch,
                    None => return Ok(()),
                };
                source.rescan(true).await.unwrap_or(Ok(()))
            }
        };
        if outcome.is_err() {
            return Ok(());
        }
    }
}

fn open(dir: &Path) -> Result<FolderWatch, ManifestsError> {
    FolderWatch::open(dir, is_manifest)
        .map_err(|source| ManifestsError::Watch { dir: dir.to_owned(), source })
}

/// Waits for the folder; `None` when nobody listens any more.
async fn reopen(source: &Source) -> Option<FolderWatch> {
    loop {
        if let Ok(watch) = open(&source.dir) {
            return Some(watch);
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = source.events.closed() => return None,
        }
    }
}

/// Nobody listens any more.
#[derive(Debug)]
struct Closed;

/// What tells one version of a file from the next: device, inode, size, time of the last change.
type Fingerprint = (u64, u64, u64, i64, i64);

struct Source {
    dir: PathBuf,
    folder: Folder,
    seen: BTreeMap<OsString, Fingerprint>,
    events: Sender<SourceEvent>,
}

impl Source {
    /// Reads every file whose fingerprint is new, or all of them; forgets those that are gone.
    async fn rescan(&mut self, all: bool) -> Result<Result<(), Closed>, ManifestsError> {
        let listed =
            list(&self.dir).map_err(|source| ManifestsError::List { dir: self.dir.clone(), source })?;
        let names = listed
            .iter()
            .filter(|(name, fingerprint)| all || self.seen.get(*name) != Some(fingerprint))
            .map(|(name, _)| name)
            .chain(self.seen.keys().filter(|name| !listed.contains_key(*name)))
            .cloned()
            .collect();
        Ok(self.reread(names).await)
    }

    /// Reads these files, and says in one event what is different now.
    async fn reread(&mut self, names: BTreeSet<OsString>) -> Result<(), Closed> {
        let mut update = Update::default();
        for name in names {
            let path = self.dir.join(&name);
            match fingerprint(&path) {
                Ok(fingerprint) => {
                    self.seen.insert(name.clone(), fingerprint);
                }
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    self.seen.remove(&name);
                    self.folder.remove(&name, &mut update);
                    continue;
                }
                Err(cause) => {
                    error!("{}: {cause}; keeping what it said last", path.display());
                    continue;
                }
            }
            // A big file takes a while: not on the thread that serves everybody.
            let file = path.clone();
            let read = tokio::task::spawn_blocking(move || parse::file(&file)).await;
            match read {
                Ok(Ok(objects)) => self.folder.put(&name, &objects, &mut update),
                Ok(Err(cause)) => error!("{}: {cause}; keeping what it said last", path.display()),
                Err(cause) => error!("{}: reading it failed: {cause}", path.display()),
            }
        }
        if !update.changes.is_empty() {
            self.events.send(SourceEvent::Changes(update.changes)).await.map_err(|_| Closed)?;
        }
        if !update.rejected.is_empty() {
            self.events.send(SourceEvent::Rejected(update.rejected)).await.map_err(|_| Closed)?;
        }
        Ok(())
    }
}

/// Whether a file of this name counts.
fn is_manifest(name: &OsStr) -> bool {
    let hidden = name.as_encoded_bytes().starts_with(b".");
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

fn list(dir: &Path) -> io::Result<BTreeMap<OsString, Fingerprint>> {
    let mut listed = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if is_manifest(&name)
            && let Ok(fingerprint) = fingerprint(&dir.join(&name))
        {
            listed.insert(name, fingerprint);
        }
    }
    Ok(listed)
}

fn fingerprint(path: &Path) -> io::Result<Fingerprint> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "this is a folder"));
    }
    Ok((metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

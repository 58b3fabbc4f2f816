//! Owns the watch on one folder; knows nothing of what its files say.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use tokio::io::unix::AsyncFd;

/// What has happened in the folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// These files were written, moved in, moved out or removed.
    Files(BTreeSet<OsString>),
    /// More than can be named: too many events at once, or a folder behind the files' links was exchanged, as kubelet does
    /// with a mounted ConfigMap.
    Unknown,
    /// The folder itself was removed or moved away.
    FolderGone,
}

/// A watch on the files of a folder whose names count.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    dir: PathBuf,
    counts: fn(&OsStr) -> bool,
    inotify: AsyncFd<Fd>,
}

impl FolderWatch {
    /// A file counts when its writer closes it, so that half of it is never read; a link counts at once.
    pub(crate) fn open(dir: &Path, counts: fn(&OsStr) -> bool) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        inotify.add_watch(
            dir,
            AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_MOVED_FROM
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE_SELF
                | AddWatchFlags::IN_ONLYDIR,
        )?;
        #[expect(
            deprecated,
            reason = "the safe form is sound here: Fd owns its descriptor and always names the same; the new one is unsafe"
        )]
        let inotify = AsyncFd::new(Fd(inotify))?;
        Ok(Self { dir: dir.to_owned(), counts, inotify })
    }

    /// Waits until something has happened that matters. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> io::Result<Touched> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let events = match ready.try_io(|fd| fd.get_ref().0.read_events().map_err(Into::into)) {
                Ok(events) => events?,
                Err(_would_block) => continue,
            };
            if let Some(touched) = self.touched(events) {
                return Ok(touched);
            }
        }
    }

    fn touched(&self, events: Vec<InotifyEvent>) -> Option<Touched> {
        let mut names = BTreeSet::new();
        let mut unknown = false;
        for event in events {
            let gone =
                AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_IGNORED;
            if event.mask.intersects(gone) {
                return Some(Touched::FolderGone);
            }
            let Some(name) = event.name else {
                unknown |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                continue;
            };
            if !(self.counts)(&name) {
                unknown |= event.mask.contains(AddWatchFlags::IN_MOVED_TO);
            } else if !event.mask.contains(AddWatchFlags::IN_CREATE) || is_complete(&self.dir.join(&name)) {
                names.insert(name);
            }
        }
        if unknown { Some(Touched::Unknown) } else { (!names.is_empty()).then_some(Touched::Files(names)) }
    }
}

/// Whether a name that has just appeared stands for a finished file: a symbolic link or a further hard link. A new file is
/// finished when it is closed.
fn is_complete(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink() || metadata.nlink() > 1)
}

/// tokio wants the number, nix lends the descriptor.
#[derive(Debug)]
struct Fd(Inotify);

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

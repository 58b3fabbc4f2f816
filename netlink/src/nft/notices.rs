//! Owns the waiting for notices within a tokio runtime. Knows nothing of what they say.

use super::{Generation, Monitor, Nft, Notice};
use crate::Error;
use std::io;
use tokio::io::{Interest, unix::AsyncFd};

/// A [`Monitor`] that a task can wait on.
#[derive(Debug)]
pub struct Notices {
    monitor: AsyncFd<Monitor>,
}

impl Notices {
    /// Begins to listen, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Those of [`Monitor::open`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    pub fn open() -> Result<Self, Error> {
        let monitor = Monitor::open()?;
        let failed = |source: io::Error| Error::Open { step: "epoll", source };
        // SAFETY: the monitor owns its descriptor and never replaces or closes it before it is dropped, which
        // `AsyncFd` does after it has deregistered it; nothing takes the monitor out of here, or lends it so that
        // another could be put in its place.
        #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
        let monitor = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
        Ok(Self { monitor: monitor.map_err(|error| failed(error.into()))? })
    }

    /// [`Monitor::pause`].
    ///
    /// # Errors
    /// Those of [`Monitor::pause`].
    pub fn pause(&mut self) -> Result<(), Error> {
        self.monitor.get_mut().pause()
    }

    /// [`Monitor::resume`].
    ///
    /// # Errors
    /// Those of [`Monitor::resume`].
    pub fn resume(&mut self, nft: &mut Nft, committed: Generation) -> Result<Vec<Notice>, Error> {
        self.monitor.get_mut().resume(nft, committed)
    }

    /// Waits until something happens, and returns all that has, in order; never nothing. Loses no notice when it
    /// is dropped while waiting.
    ///
    /// # Errors
    /// Those of [`Monitor::drain`].
    pub async fn next(&mut self) -> Result<Vec<Notice>, Error> {
        loop {
            let mut ready = self.monitor.readable_mut().await.map_err(Error::Receive)?;
            // Cleared before reading: what comes while reading makes it ready again.
            ready.clear_ready();
            let notices = ready.get_inner_mut().drain()?;
            if !notices.is_empty() {
                return Ok(notices);
            }
        }
    }
}

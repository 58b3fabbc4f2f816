//! Owns waiting for a descriptor in tokio; knows nothing of what is read from it.
#![allow(unsafe_code, reason = "tokio cannot check that a descriptor stays open; the type does")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;

/// A handle on which a tokio task waits until `socket` has something to read. It has a descriptor of its own, so it outlives
/// borrows of the socket.
///
/// # Errors
/// When no descriptor is left, or the reactor does not take it.
pub fn readable(socket: &impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    let own = socket.as_fd().try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` is open and names one open file description until it is dropped, and the `AsyncFd` owns it.
    unsafe { AsyncFd::register(own) }.map_err(|error| io::Error::other(error.to_string()))
}

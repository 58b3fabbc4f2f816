//! Owns one network namespace: its life, the threads that work in it, its sysctls. Knows nothing of what is wired
//! into it.

use std::fs::{self, File};
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::Error;
use crate::{userns, wire};

/// A network namespace without a name in the file system: the kernel ends it, and with it all of its links, when the
/// last clone of this value, the last thread and the last process in it are gone.
#[derive(Debug, Clone)]
pub struct Netns {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    fd: File,
}

impl Netns {
    /// A new namespace with its loopback up, IPv6 addresses usable at once, and no reverse path filter. The name is
    /// for messages and thread names only.
    pub fn new(name: &str) -> Result<Self, Error> {
        userns::privilege().map_err(|reason| Error::Privilege { reason })?;
        // A thread of its own makes it, so that no other thread of this process ever leaves its own namespace.
        let made = on_thread(name, || -> Result<Self, Error> {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| Error::Privilege { reason: format!("unshare(CLONE_NEWNET): {error}") })?;
            let fd = File::open("/proc/thread-self/ns/net")
                .map_err(|error| Error::os(name, "/proc/thread-self/ns/net", error))?;
            Ok(Self { inner: Arc::new(Inner { name: name.to_owned(), fd }) })
        })?;
        for (key, value) in [
            ("net/ipv6/conf/all/accept_dad", "0"),
            ("net/ipv6/conf/default/accept_dad", "0"),
            ("net/ipv6/conf/default/accept_ra", "0"),
            ("net/ipv6/conf/all/accept_redirects", "0"),
            ("net/ipv6/conf/default/accept_redirects", "0"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            ("net/ipv4/conf/all/send_redirects", "0"),
            ("net/ipv4/conf/default/send_redirects", "0"),
            ("net/ipv4/conf/all/accept_redirects", "0"),
            ("net/ipv4/conf/default/accept_redirects", "0"),
            // The kernel answers with few ICMP errors a second; tests ask for many.
            ("net/ipv4/icmp_ratelimit", "0"),
            ("net/ipv6/icmp/ratelimit", "0"),
            ("net/ipv4/icmp_msgs_per_sec", "1000000"),
            ("net/ipv4/icmp_msgs_burst", "1000000"),
        ] {
            made.set_sysctl(key, value)?;
        }
        for key in ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"] {
            // There only where br_netfilter is loaded.
            if made.sysctl(key).is_ok() {
                made.set_sysctl(key, "0")?;
            }
        }
        wire::up(&made, "lo")?;
        Ok(made)
    }

    /// The name that messages say.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Runs a closure on a new thread in this namespace, and waits for it. A panic in it goes on here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_thread(self.name(), || {
            self.enter();
            work()
        })
    }

    /// Starts a thread in this namespace; it keeps the namespace alive until it ends.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let this = self.clone();
        thread::Builder::new()
            .name(format!("{}/{name}", self.name()))
            .spawn(move || {
                this.enter();
                work()
            })
            .unwrap_or_else(|error| panic!("namespace {}: thread {name}: {error}", self.name()))
    }

    /// Runs a future to its end on a runtime of its own, on a new thread in this namespace.
    pub fn block_on<F: Future>(&self, future: impl FnOnce() -> F + Send) -> F::Output
    where
        F::Output: Send,
    {
        self.run(|| runtime().block_on(async { future().await }))
    }

    /// A sysctl of this namespace, by its path under `/proc/sys`, trimmed.
    pub fn sysctl(&self, key: &str) -> Result<String, Error> {
        self.run(|| fs::read_to_string(format!("/proc/sys/{key}")))
            .map(|text| text.trim().to_owned())
            .map_err(|error| Error::os(self.name(), format!("read sysctl {key}"), error))
    }

    /// Sets a sysctl of this namespace, by its path under `/proc/sys`.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        self.run(|| fs::write(format!("/proc/sys/{key}"), value))
            .map_err(|error| Error::os(self.name(), format!("sysctl {key}={value}"), error))
    }

    /// The descriptor that keeps this namespace, for a path such as `/proc/PID/fd/N`.
    pub fn raw_fd(&self) -> RawFd {
        self.inner.fd.as_raw_fd()
    }

    fn enter(&self) {
        setns(&self.inner.fd, CloneFlags::CLONE_NEWNET)
            .unwrap_or_else(|error| panic!("namespace {}: setns: {error}", self.name()));
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

/// A runtime for one thread: what runs on it stays in that thread's namespace.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("a runtime: {error}"))
}

fn on_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        thread::Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, work)
            .unwrap_or_else(|error| panic!("namespace {name}: thread: {error}"))
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))
    })
}

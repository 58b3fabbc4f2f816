//! Owns the kernel's conntrack settings: what they follow from, and their writing at start; knows nothing of flows.
//!
//! A limit is only ever raised; time-outs are set as configured. What cannot be written is told and left: the cluster's
//! Services work without.

use crate::config::{Conntrack, ConntrackMax};
use netlink::sysctl::{Sysctl, SysctlError};
use std::path::Path;
use std::time::Duration;
use tracing::{debug, info, warn};

/// However many CPUs there are, the product stops here; unlike upstream, `min` may ask for more.
const MOST_BY_CORES: u64 = 1_048_576;

const MAX: &str = "net/netfilter/nf_conntrack_max";

/// The hash table's size, below `/sys`.
const HASH_SIZE: &str = "module/nf_conntrack/parameters/hashsize";

/// Flows per bucket that the hash table should not exceed.
const FLOWS_PER_BUCKET: u64 = 4;

/// Where the kernel shows its settings.
#[derive(Debug, Clone)]
pub struct Kernel {
    proc_sys: Sysctl,
    sys: Sysctl,
    cpus: u64,
}

impl Kernel {
    /// The running kernel, in the network namespace of the caller.
    pub fn running() -> Self {
        let sys = Sysctl::below("/sys");
        let listed = sys.read("devices/system/cpu/online").ok().and_then(|list| count(&list));
        let cpus = listed.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, |cpus| cpus.get().try_into().unwrap_or(1))
        });
        Self { proc_sys: Sysctl::default(), sys, cpus }
    }

    /// Folders that look like the kernel's, for a machine of so many CPUs.
    pub fn below(proc_sys: &Path, sys: &Path, cpus: u64) -> Self {
        Self { proc_sys: Sysctl::below(proc_sys), sys: Sysctl::below(sys), cpus }
    }

    /// Puts the settings in force. Says whether the kernel has them all: those of a module that is not loaded yet are
    /// missing, and it may be called again. What cannot be written is told in one line.
    pub fn apply(&self, wanted: &Conntrack) -> bool {
        let mut outcome = Outcome::default();
        if let Some(max) = wanted.max {
            self.raise_max(max, &mut outcome);
        }
        let be_liberal = wanted.tcp_be_liberal.then_some(1);
        for (name, value) in [
            ("nf_conntrack_tcp_timeout_established", wanted.tcp_established.map(seconds)),
            ("nf_conntrack_tcp_timeout_close_wait", wanted.tcp_close_wait.map(seconds)),
            ("nf_conntrack_udp_timeout", wanted.udp.map(seconds)),
            ("nf_conntrack_udp_timeout_stream", wanted.udp_stream.map(seconds)),
            ("nf_conntrack_tcp_be_liberal", be_liberal),
        ] {
            if let Some(value) = value {
                let name = format!("net/netfilter/{name}");
                let written = self.proc_sys.ensure(&name, &value.to_string());
                outcome.note(&name, value, written);
            }
        }
        if !outcome.refused.is_empty() {
            warn!("conntrack settings that stay as they are: {}", outcome.refused.join("; "));
        }
        !outcome.missing
    }

    fn raise_max(&self, max: ConntrackMax, outcome: &mut Outcome) {
        let wanted = wanted_max(max, self.cpus);
        match self.proc_sys.read_number(MAX) {
            Ok(current) if u64::try_from(current).is_ok_and(|current| current >= wanted) => {
                debug!("{MAX} is {current} and stays");
            }
            Ok(_) | Err(SysctlError::Number { .. }) => {
                outcome.note(MAX, wanted, self.proc_sys.write(MAX, &wanted.to_string()).map(|()| true));
            }
            Err(error) => outcome.note(MAX, wanted, Err(error)),
        }
        let buckets = wanted / FLOWS_PER_BUCKET;
        let current = self.sys.read_number(HASH_SIZE).ok().and_then(|current| u64::try_from(current).ok());
        if current.is_some_and(|current| current < buckets) {
            outcome.note(HASH_SIZE, buckets, self.sys.write(HASH_SIZE, &buckets.to_string()).map(|()| true));
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    missing: bool,
    refused: Vec<String>,
}

impl Outcome {
    fn note(&mut self, name: &str, value: u64, written: Result<bool, SysctlError>) {
        match written {
            Ok(true) => info!("{name} is {value} now"),
            Ok(false) => {}
            Err(SysctlError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                debug!("{name}: not there yet");
                self.missing = true;
            }
            Err(error) => self.refused.push(error.to_string()),
        }
    }
}

fn wanted_max(max: ConntrackMax, cpus: u64) -> u64 {
    let by_cores = u64::from(max.per_core) * cpus;
    by_cores.min(MOST_BY_CORES).max(max.min.into())
}

const fn seconds(time: Duration) -> u64 {
    time.as_secs()
}

/// How many there are in a list such as `0-3,8`.
fn count(list: &str) -> Option<u64> {
    list.trim()
        .split(',')
        .map(|part| match part.split_once('-') {
            Some((first, last)) => Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1),
            None => part.parse::<u64>().ok().map(|_| 1),
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// A folder with these files in it.
    fn kernel(files: &[(&str, &str)]) -> (TempDir, Kernel) {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kernel = Kernel::below(dir.path(), dir.path(), 4);
        (dir, kernel)
    }

    fn nothing() -> Conntrack {
        Conntrack {
            max: None,
            tcp_established: None,
            tcp_close_wait: None,
            tcp_be_liberal: false,
            udp: None,
            udp_stream: None,
        }
    }

    #[test]
    fn k07_the_limit_is_only_raised() {
        let max = ConntrackMax { per_core: 1000, min: 100 };
        for (current, hash, want_max, want_hash) in [
            ("3999\n", "999\n", "4000", "1000"),
            ("4000\n", "2000\n", "4000\n", "2000\n"),
            ("9999\n", "5\n", "9999\n", "1000"),
        ] {
            let (dir, kernel) = kernel(&[(MAX, current), (HASH_SIZE, hash)]);
            assert!(kernel.apply(&Conntrack { max: Some(max), ..nothing() }));
            let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
            // A file, unlike the kernel, keeps what a shorter text does not overwrite.
            assert!(read(MAX).starts_with(want_max), "{current:?}: {:?}", read(MAX));
            assert!(read(HASH_SIZE).starts_with(want_hash), "{current:?}: {:?}", read(HASH_SIZE));
        }
    }

    #[test]
    fn k07_the_limit_follows_cores_and_least() {
        for (per_core, min, cpus, want) in [
            (32_768, 131_072, 2, 131_072),
            (32_768, 131_072, 8, 262_144),
            (32_768, 131_072, 64, 1_048_576),
            (32_768, 2_000_000, 64, 2_000_000),
            (32_768, 0, 1, 32_768),
        ] {
            assert_eq!(wanted_max(ConntrackMax { per_core, min }, cpus), want, "{per_core} {min} {cpus}");
        }
    }

    #[test]
    fn k07_time_outs_are_set_as_configured() {
        let name = "net/netfilter/nf_conntrack_udp_timeout";
        let liberal = "net/netfilter/nf_conntrack_tcp_be_liberal";
        let (dir, kernel) = kernel(&[(name, "30\n"), (liberal, "0\n")]);
        let wanted = Conntrack { udp: Some(Duration::from_secs(10)), tcp_be_liberal: true, ..nothing() };
        assert!(kernel.apply(&wanted));
        assert!(fs::read_to_string(dir.path().join(name)).unwrap().starts_with("10"));
        assert!(fs::read_to_string(dir.path().join(liberal)).unwrap().starts_with('1'));
    }

    #[test]
    fn k07_what_is_missing_can_be_tried_again() {
        let (_dir, kernel) = kernel(&[]);
        assert!(!kernel.apply(&Conntrack { udp: Some(Duration::from_secs(10)), ..nothing() }));
        assert!(kernel.apply(&nothing()));
    }

    #[test]
    fn cpus_are_counted_from_the_kernels_list() {
        for (list, want) in
            [("0-3\n", Some(4)), ("0", Some(1)), ("0-1,4,6-7", Some(5)), ("", None), ("x", None)]
        {
            assert_eq!(count(list), want, "{list:?}");
        }
    }
}

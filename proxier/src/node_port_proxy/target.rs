//! Owns which endpoint a new connection goes to. Knows nothing of sockets or of the clock: the moment is an argument.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where the connections of one listener go.
#[derive(Debug)]
pub(super) struct Target(Mutex<State>);

#[derive(Debug)]
struct State {
    endpoints: Arc<[SocketAddr]>,
    affinity: Option<Duration>,
    /// With affinity: the endpoint of the last connection, and when that was. All clients of loopback are one, as upstream.
    pinned: Option<(SocketAddr, Instant)>,
}

impl Target {
    pub(super) const fn new(endpoints: Arc<[SocketAddr]>, affinity: Option<Duration>) -> Self {
        Self(Mutex::new(State { endpoints, affinity, pinned: None }))
    }

    /// From now on these. Another affinity forgets whom connections went to.
    pub(super) fn set(&self, endpoints: Arc<[SocketAddr]>, affinity: Option<Duration>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.affinity != affinity {
            state.pinned = None;
        }
        (state.endpoints, state.affinity) = (endpoints, affinity);
    }

    /// The endpoint of a connection that is made at this moment; `None` if there is none.
    pub(super) fn choose(&self, now: Instant) -> Option<SocketAddr> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { endpoints, affinity, pinned } = &mut *state;
        let Some(timeout) = *affinity else { return at_random(endpoints) };
        let is_good = |(endpoint, used): &(SocketAddr, Instant)| {
            now.saturating_duration_since(*used) < timeout && endpoints.contains(endpoint)
        };
        let endpoint = match pinned.filter(is_good) {
            Some((endpoint, _)) => Some(endpoint),
            None => at_random(endpoints),
        };
        *pinned = endpoint.map(|endpoint| (endpoint, now));
        endpoint
    }
}

fn at_random(endpoints: &[SocketAddr]) -> Option<SocketAddr> {
    // Each state has other keys, so that a hash of nothing is a number at random: enough to spread load.
    let number = RandomState::new().build_hasher().finish();
    let index = usize::try_from(number % u64::try_from(endpoints.len()).ok()?.max(1)).ok()?;
    endpoints.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn endpoints(ports: &[u16]) -> Arc<[SocketAddr]> {
        ports.iter().map(|port| SocketAddr::from(([10, 0, 0, 1], *port))).collect()
    }

    #[test]
    fn each_endpoint_gets_its_share() {
        let (target, now) = (Target::new(endpoints(&[1, 2, 3]), None), Instant::now());
        let mut count = BTreeMap::<u16, usize>::new();
        for _ in 0..3000 {
            *count.entry(target.choose(now).unwrap().port()).or_default() += 1;
        }
        assert!(count.len() == 3 && count.values().all(|count| (800..1200).contains(count)), "{count:?}");
        target.set(endpoints(&[]), None);
        assert_eq!(target.choose(now), None);
    }

    #[test]
    fn with_affinity_connections_stay_until_they_pause_or_the_endpoint_goes() {
        let hour = Duration::from_secs(3600);
        let all: Vec<u16> = (1..=200).collect();
        let (target, mut now) = (Target::new(endpoints(&all), Some(hour)), Instant::now());
        let first = target.choose(now);
        for _ in 0..10 {
            now += hour / 2;
            assert_eq!(target.choose(now), first, "each use renews it");
        }
        now += hour;
        let second = target.choose(now);
        let third = (0..5)
            .map(|_| {
                now += hour;
                target.choose(now)
            })
            .find(|endpoint| *endpoint != second);
        assert!(third.is_some(), "chosen anew after each pause");
        let last = target.choose(now).unwrap();
        target.set(
            all.iter()
                .filter(|port| **port != last.port())
                .map(|port| SocketAddr::from(([10, 0, 0, 1], *port)))
                .collect(),
            Some(hour),
        );
        let next = target.choose(now).unwrap();
        assert_ne!(next, last);
        assert_eq!(target.choose(now), Some(next));
    }
}

//! Owns whether this proxier is healthy and its node eligible for traffic; knows nothing of HTTP.

use k8s_openapi::jiff::Timestamp;
use nft_ir::Family;
use proxier_core::model::Node;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A moment by both clocks: one to measure with, one to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Never goes back.
    pub at: Instant,
    /// What a calendar says.
    pub wall: Timestamp,
}

impl Moment {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self { at: Instant::now(), wall: Timestamp::now() }
    }
}

/// The state of the rules of each family, and of the node. Clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    families: Vec<FamilyState>,
    eligible: bool,
}

#[derive(Debug)]
struct FamilyState {
    family: Family,
    synced: Option<Moment>,
    /// The oldest change that is not in the kernel yet.
    queued: Option<Instant>,
}

/// What is so at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// No change has waited for too long.
    pub live: bool,
    /// Live, and every family has been synced once.
    pub healthy: bool,
    /// The node may get traffic: known, not being deleted, not marked by the cluster autoscaler.
    pub eligible: bool,
    /// The newest sync of any family.
    pub last_updated: Option<Timestamp>,
    /// Each family for itself.
    pub families: Vec<FamilyVerdict>,
}

/// What is so of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyVerdict {
    /// Which.
    pub family: Family,
    /// Its last sync.
    pub last_updated: Option<Timestamp>,
    /// It has been synced once, and no change has waited for too long.
    pub healthy: bool,
    /// How long the oldest change that is not in the kernel yet has waited.
    pub waiting: Option<Duration>,
}

impl Health {
    /// For these families. A change may wait for twice the sync period. Where a Node object is to come (`needs_node`), the
    /// node is not eligible before it has.
    pub fn new(families: &[Family], sync_period: Duration, needs_node: bool) -> Self {
        let families = families
            .iter()
            .map(|family| FamilyState { family: *family, synced: None, queued: None })
            .collect();
        Self(Arc::new(Shared {
            timeout: sync_period * 2,
            state: Mutex::new(State { families, eligible: !needs_node }),
        }))
    }

    /// A change of this family waits to be synced. The clock runs from the first that does. Before the first sync nothing
    /// is late: the proxier is not healthy yet anyway, and a source that takes its time is no reason to restart it.
    pub fn queued(&self, family: Family, now: Moment) {
        if let Some(state) = self.state().of(family)
            && state.synced.is_some()
        {
            state.queued.get_or_insert(now.at);
        }
    }

    /// All changes of this family are in the kernel.
    pub fn synced(&self, family: Family, now: Moment) {
        if let Some(state) = self.state().of(family) {
            state.synced = Some(now);
            state.queued = None;
        }
    }

    /// What the Node object says now; `None`: it is gone.
    pub fn node(&self, node: Option<&Node>) {
        self.state().eligible = node.is_some_and(|node| !node.being_deleted && !node.to_be_deleted);
    }

    /// What is so at this moment.
    pub fn verdict(&self, now: Moment) -> Verdict {
        let state = self.state();
        let waiting =
            |family: &FamilyState| family.queued.map(|since| now.at.saturating_duration_since(since));
        let is_late = |family: &FamilyState| waiting(family).is_some_and(|waiting| waiting >= self.0.timeout);
        let families: Vec<_> = state
            .families
            .iter()
            .map(|family| FamilyVerdict {
                family: family.family,
                last_updated: family.synced.map(|synced| synced.wall),
                healthy: family.synced.is_some() && !is_late(family),
                waiting: waiting(family),
            })
            .collect();
        Verdict {
            live: !state.families.iter().any(is_late),
            healthy: families.iter().all(|family| family.healthy),
            eligible: state.eligible,
            last_updated: families.iter().filter_map(|family| family.last_updated).max(),
            families,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment: a panic elsewhere leaves no half of one.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&mut self, family: Family) -> Option<&mut FamilyState> {
        self.families.iter_mut().find(|state| state.family == family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    fn later(start: Moment, secs: u64) -> Moment {
        Moment { at: start.at + Duration::from_secs(secs), ..start }
    }

    #[test]
    fn h01_unhealthy_until_every_family_was_synced() {
        let (health, start) = (Health::new(&Family::ALL, PERIOD, false), Moment::now());
        health.queued(Family::Ip, start);
        let late = health.verdict(later(start, 1000));
        assert_eq!((late.live, late.healthy), (true, false));
        health.synced(Family::Ip, start);
        assert!(!health.verdict(start).healthy);
        health.synced(Family::Ip6, start);
        assert!(health.verdict(later(start, 100_000)).healthy, "without changes there is nothing to be late");
    }

    #[test]
    fn h01_unhealthy_when_the_oldest_change_waits_too_long() {
        let (health, start) = (Health::new(&[Family::Ip], PERIOD, false), Moment::now());
        health.synced(Family::Ip, start);
        health.queued(Family::Ip, start);
        health.queued(Family::Ip, later(start, 50));
        assert!(health.verdict(later(start, 59)).healthy);
        let late = health.verdict(later(start, 60));
        assert_eq!((late.live, late.healthy), (false, false));
        assert_eq!(late.families[0].waiting, Some(Duration::from_secs(60)));
        health.synced(Family::Ip, later(start, 61));
        assert!(health.verdict(later(start, 61)).healthy);
    }

    #[test]
    fn h02_the_node_decides_on_eligibility() {
        let (health, now) = (Health::new(&[Family::Ip], PERIOD, true), Moment::now());
        let eligible = || health.verdict(now).eligible;
        assert!(!eligible(), "not known yet");
        health.node(Some(&Node::default()));
        assert!(eligible());
        health.node(Some(&Node { being_deleted: true, ..Node::default() }));
        assert!(!eligible());
        health.node(Some(&Node { to_be_deleted: true, ..Node::default() }));
        assert!(!eligible());
        health.node(None);
        assert!(!eligible());
        assert!(Health::new(&[Family::Ip], PERIOD, false).verdict(now).eligible, "no Node is to come");
    }
}

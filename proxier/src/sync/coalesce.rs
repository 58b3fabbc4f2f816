//! Owns when the next sync may run. Knows nothing of what is synced; time is an argument.

use std::time::{Duration, Instant};

/// The pace of syncs: the first change goes out at once, changes that come while the kernel is busy go out together.
///
/// kube-proxy waits a second between syncs because each is dear. Here a sync costs what changed, so the default is to wait
/// only as long as the last one took: under a storm of changes half of the time is left to others, and a burst shares a
/// transaction. An explicit `minSyncPeriod` is honoured.
#[derive(Debug, Clone)]
pub struct Pace {
    least: Duration,
    next: Option<Instant>,
}

impl Pace {
    /// A pace that leaves at least this long between the end of a sync and the start of the next.
    pub const fn new(least: Duration) -> Self {
        Self { least, next: None }
    }

    /// When a sync that is wanted now may run.
    pub fn start(&self, now: Instant) -> Instant {
        self.next.map_or(now, |next| next.max(now))
    }

    /// A sync that began then has ended now.
    pub fn ended(&mut self, began: Instant, now: Instant) {
        self.next = Some(now + self.least.max(now.saturating_duration_since(began)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_at_once_then_as_long_apart_as_the_last_took_or_the_least() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::new(Duration::ZERO);
        assert_eq!(pace.start(at(5)), at(5));
        pace.ended(at(5), at(9));
        assert_eq!(pace.start(at(9)), at(13));
        assert_eq!(pace.start(at(20)), at(20));
        let mut pace = Pace::new(Duration::from_secs(1));
        pace.ended(at(0), at(4));
        assert_eq!(pace.start(at(10)), at(1004));
    }
}

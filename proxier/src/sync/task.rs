//! Owns the loop around the syncer: it waits for changes, for writes of others and for time. Knows nothing of HTTP, files
//! or the API.

use super::{Error, FlowCleaner, Pace, Report, Syncer};
use crate::source::SourceEvent;
use proxier_core::engine::Engine;
use proxier_core::model::HostAddress;
use proxier_core::{Change, Settings};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// What the task needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the operator decided.
    pub settings: Settings,
    /// `minSyncPeriod`: at least this long between two syncs.
    pub min_sync_period: Duration,
    /// `syncPeriod`: how long after a failure the next try comes at the latest.
    pub sync_period: Duration,
}

/// Somebody who reads what the task does: health, metrics, events.
pub trait Observe: Send {
    /// Objects came in. A sync follows.
    fn queued(&mut self, changes: &[Change]);
    /// A sync has ended well after this long.
    fn synced(&mut self, took: Duration, report: &Report, engine: &Engine);
    /// A sync has failed after this long.
    fn failed(&mut self, took: Duration, error: &Error);
    /// Deleting unused chains has failed; it is tried again.
    fn sweep_failed(&mut self, error: &Error);
    /// Somebody else wrote into our tables.
    fn disturbed(&mut self);
}

/// The first try after a failure comes after this, then twice as long each time up to `syncPeriod`.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// Chains that fell out of use are deleted this long after.
const SWEEP_AFTER: Duration = Duration::from_secs(1);

/// Services that the kernel refused are tried again after this.
const HELD_AGAIN: Duration = Duration::from_secs(30);

/// Runs until the source ends. Nothing is written before the source has delivered its initial state.
///
/// # Errors
/// [`Error`] when the kernel cannot be talked to at all. A failed sync is no error: it is tried again.
pub async fn run(
    options: Options,
    mut events: mpsc::Receiver<SourceEvent>,
    mut addresses: mpsc::Receiver<Vec<HostAddress>>,
    flows: FlowCleaner,
    mut observer: Box<dyn Observe>,
) -> Result<(), Error> {
    let mut task = Task::new(options, flows)?;
    let monitor = netlink::readable(task.syncer.monitor()).map_err(|source| {
        Error::Kernel(netlink::Error::Open { step: "waiting for changes of the ruleset", source })
    })?;
    let mut batch = Vec::new();
    loop {
        let deadline = task.deadline(Instant::now());
        tokio::select! {
            received = events.recv_many(&mut batch, 1024) => {
                if received == 0 {
                    return Ok(());
                }
                for event in batch.drain(..) {
                    task.take(event, &mut *observer);
                }
            }
            Some(all) = addresses.recv() => {
                task.addresses_known = true;
                task.syncer.apply(Change::HostAddresses(all));
            }
            ready = monitor.readable() => {
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                if task.syncer.notice_others()? && task.synced_once {
                    tracing::warn!("somebody else changed our tables: repairing");
                    observer.disturbed();
                }
            }
            () = sleep_until(deadline), if deadline.is_some() => {}
        }
        // The kernel answers while the call waits; other tasks get another thread meanwhile.
        tokio::task::block_in_place(|| task.due(Instant::now(), &mut *observer));
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        tokio::time::sleep_until(deadline.into()).await;
    }
}

struct Task {
    syncer: Syncer,
    flows: FlowCleaner,
    sync_period: Duration,
    pace: Pace,
    /// The source has delivered its initial state.
    source_ready: bool,
    /// The addresses of this host were listed.
    addresses_known: bool,
    synced_once: bool,
    retry: Option<(Instant, Duration)>,
    sweep_at: Option<Instant>,
    held_again_at: Option<Instant>,
}

impl Task {
    fn new(options: Options, flows: FlowCleaner) -> Result<Self, Error> {
        Ok(Self {
            syncer: Syncer::new(options.settings)?,
            flows,
            sync_period: options.sync_period,
            pace: Pace::new(options.min_sync_period),
            source_ready: false,
            addresses_known: false,
            synced_once: false,
            retry: None,
            sweep_at: None,
            held_again_at: None,
        })
    }

    fn take(&mut self, event: SourceEvent, observer: &mut dyn Observe) {
        match event {
            SourceEvent::Changes(changes) => {
                observer.queued(&changes);
                for change in changes {
                    self.syncer.apply(change);
                }
            }
            SourceEvent::Synced => self.source_ready = true,
            SourceEvent::Rejected(rejected) => {
                for rejected in rejected {
                    tracing::warn!("{rejected}");
                }
            }
        }
    }

    /// Whether enough is known to write: else what is right in the kernel would be taken away and put back.
    const fn is_ready(&self) -> bool {
        self.source_ready && self.addresses_known
    }

    /// When something is due next, if nothing else happens.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        let sync = (self.is_ready() && self.syncer.is_wanted()).then(|| {
            let earliest = self.pace.start(now);
            self.retry.map_or(earliest, |(at, _)| at.max(earliest))
        });
        [sync, self.sweep_at, self.held_again_at].into_iter().flatten().min()
    }

    fn due(&mut self, now: Instant, observer: &mut dyn Observe) {
        if self.held_again_at.is_some_and(|at| at <= now) {
            self.held_again_at = None;
            self.syncer.release_held();
        }
        let waiting = self.retry.is_some_and(|(at, _)| at > now);
        if self.is_ready() && self.syncer.is_wanted() && !waiting && self.pace.start(now) <= now {
            self.sync(now, observer);
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep_at = None;
            match self.syncer.sweep() {
                Ok(more) => self.sweep_at = more.then(|| now + SWEEP_AFTER),
                Err(error) => {
                    observer.sweep_failed(&error);
                    self.sweep_at = Some(now + self.sync_period);
                }
            }
        }
    }

    fn sync(&mut self, began: Instant, observer: &mut dyn Observe) {
        let outcome = self.syncer.sync();
        let ended = Instant::now();
        self.pace.ended(began, ended);
        match outcome {
            Ok(mut report) => {
                self.flows.clean(std::mem::take(&mut report.flows));
                log(&report, ended - began);
                self.retry = None;
                self.synced_once = true;
                self.sweep_at.get_or_insert(ended + SWEEP_AFTER);
                if !report.held.is_empty() {
                    self.held_again_at = Some(ended + HELD_AGAIN);
                }
                observer.synced(ended - began, &report, self.syncer.engine());
            }
            Err(error) => {
                let pause = self.retry.map_or(RETRY_FIRST, |(_, pause)| (pause * 2).min(self.sync_period));
                tracing::error!("{error}; nothing was written, next try in {pause:?}");
                self.retry = Some((ended + pause, pause));
                observer.failed(ended - began, &error);
            }
        }
    }
}

fn log(report: &Report, took: Duration) {
    for conflict in &report.conflicts {
        tracing::warn!("{conflict}");
    }
    for held in &report.held {
        tracing::error!(
            "Service {} is left as it was: the kernel refused it: {}; the others are programmed",
            held.service,
            held.refusal
        );
    }
    for name in &report.unnameable {
        tracing::error!("a Service port is left out: {name}");
    }
    if report.operations > 0 {
        tracing::debug!(
            "{} sync of {} Services: {} operations, {} elements, {took:?}",
            if report.full { "full" } else { "partial" },
            report.services.len(),
            report.operations,
            report.elements.iter().sum::<u64>(),
        );
    }
}

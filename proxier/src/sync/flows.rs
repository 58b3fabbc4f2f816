//! Owns the thread that deletes flows which no longer match what is programmed. It has a socket of its own, so that no sync
//! waits for a long table. Knows nothing of what makes a flow stale.

use netlink::conntrack::{Conntrack, Filter, Flow, Status};
use nft_ir::Family;
use proxier_core::conntrack::{FlowEnds, FlowRules, Search};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What one look at a family's flows did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleaned {
    /// The family.
    pub family: Family,
    /// How long it took.
    pub took: Duration,
    /// How many flows were deleted.
    pub deleted: usize,
}

/// How long to wait before looking again when the table could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// The thread, as seen from the task that syncs. It ends when this is dropped.
#[derive(Debug)]
pub struct FlowCleaner {
    jobs: Sender<FlowRules>,
}

impl FlowCleaner {
    /// Starts the thread, in the network namespace of the calling one. `told` hears of each look.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(told: impl Fn(Cleaned) + Send + 'static) -> std::io::Result<Self> {
        let (jobs, inbox) = channel();
        thread::Builder::new().name("flows".into()).spawn(move || serve(&inbox, told))?;
        Ok(Self { jobs })
    }

    /// Has flows looked at; returns at once. What still waits is looked at together with it.
    pub fn clean(&self, rules: FlowRules) {
        if !rules.is_empty() && self.jobs.send(rules).is_err() {
            tracing::error!(
                "the thread that cleans flows has ended; UDP flows may stay with endpoints that are gone"
            );
        }
    }
}

fn serve(inbox: &Receiver<FlowRules>, told: impl Fn(Cleaned)) {
    let mut waiting = FlowRules::default();
    loop {
        let next = if waiting.is_empty() {
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            inbox.recv_timeout(AGAIN)
        };
        match next {
            Ok(rules) => waiting.merge(rules),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // The newest word on each frontend counts, and one look serves all.
        inbox.try_iter().for_each(|rules| waiting.merge(rules));
        match Conntrack::open().and_then(|mut conntrack| clean(&mut conntrack, &waiting)) {
            Ok(cleaned) => {
                cleaned.into_iter().for_each(&told);
                waiting = FlowRules::default();
            }
            Err(error) => tracing::warn!("flows: {error}; looking again in {AGAIN:?}"),
        }
    }
}

/// Deletes the flows that these rules call stale.
///
/// # Errors
/// When the table cannot be read or written. What was deleted until then stays deleted, and looking again finds the rest.
pub fn clean(conntrack: &mut Conntrack, rules: &FlowRules) -> Result<Vec<Cleaned>, netlink::Error> {
    let mut cleaned: Vec<Cleaned> = Vec::new();
    for search in rules.searches() {
        let began = Instant::now();
        let mut stale: Vec<Flow> = Vec::new();
        conntrack.dump(&filter(search), |flow| {
            if rules.is_stale(ends(&flow)) {
                stale.push(flow);
            }
        })?;
        let deleted = if stale.is_empty() { 0 } else { conntrack.delete(&stale)? };
        let took = began.elapsed();
        match cleaned.iter_mut().find(|known| known.family == search.family) {
            Some(known) => {
                known.took += took;
                known.deleted += deleted;
            }
            None => cleaned.push(Cleaned { family: search.family, took, deleted }),
        }
    }
    Ok(cleaned)
}

const fn filter(search: Search) -> Filter {
    let filter = Filter::of(search.family).proto(search.protocol);
    match search.destination {
        Some(destination) => filter.destination(destination.ip()).destination_port(destination.port()),
        None => filter,
    }
}

const fn ends(flow: &Flow) -> FlowEnds {
    FlowEnds {
        protocol: flow.original.proto,
        dialled: flow.original.destination,
        answers: flow.reply.source,
        answered: flow.status.contains(Status::SEEN_REPLY),
    }
}

//! Owns the thread that deletes flows which no longer match what is programmed. It has sockets of its own, so that no sync
//! waits for a long table. Knows nothing of what makes a flow stale.

use netlink::conntrack::{Conntrack, Filter, Flow, Status};
use nft_ir::Family;
use proxier_core::conntrack::{FlowEnds, FlowRules, Part, Search};
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

/// How long to wait before looking again when the table could not be read; then twice as long each time, up to
/// [`AGAIN_AT_LAST`].
const AGAIN: Duration = Duration::from_secs(1);

const AGAIN_AT_LAST: Duration = Duration::from_secs(60);

/// So many stale flows are deleted before the table is read on: what is found need not be kept, however much it is.
const RUN: usize = 500;

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
        thread::Builder::new().name("flows".into()).spawn(move || serve(&inbox, told, look))?;
        Ok(Self { jobs })
    }

    /// Has flows looked at; returns at once. What still waits is looked at together with it.
    pub fn clean(&self, rules: FlowRules) {
        if !rules.says_nothing() && self.jobs.send(rules).is_err() {
            tracing::error!(
                "the thread that cleans flows has ended; UDP flows may stay with endpoints that are gone"
            );
        }
    }
}

/// Takes out of what is to be deleted what has become right.
type Confirm<'a> = &'a mut dyn FnMut(&mut Vec<Flow>);

fn serve(
    inbox: &Receiver<FlowRules>,
    told: impl Fn(Cleaned),
    mut look: impl FnMut(&FlowRules, Confirm<'_>) -> Result<Vec<Cleaned>, netlink::Error>,
) {
    let mut waiting = FlowRules::default();
    let mut again = AGAIN;
    loop {
        let next = if waiting.is_empty() {
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            inbox.recv_timeout(again)
        };
        match next {
            Ok(rules) => waiting.merge(rules),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // The newest word on each frontend counts, and one look serves all.
        inbox.try_iter().for_each(|rules| waiting.merge(rules));
        if waiting.is_empty() {
            continue;
        }
        let mut now = std::mem::take(&mut waiting);
        let looked_for = now.clone();
        // A long look must not delete what a sync has meanwhile put right: an endpoint that is back, and its new clients.
        let mut confirm = |run: &mut Vec<Flow>| {
            for news in inbox.try_iter() {
                now.amend(&news);
                waiting.merge(news);
            }
            run.retain(|flow| now.is_stale(ends(flow)));
        };
        match look(&looked_for, &mut confirm) {
            Ok(cleaned) => {
                cleaned.into_iter().for_each(&told);
                again = AGAIN;
            }
            Err(error) => {
                tracing::warn!("flows: {error}; looking again in {again:?}");
                again = AGAIN_AT_LAST.min(again * 2);
                now.merge(waiting);
                waiting = now;
            }
        }
    }
}

/// Deletes the flows that these rules call stale, in the network namespace of the calling thread.
///
/// # Errors
/// When the table cannot be read or written. What was deleted until then stays deleted, and looking again finds the rest.
pub fn clean(rules: &FlowRules) -> Result<Vec<Cleaned>, netlink::Error> {
    look(rules, &mut |_| {})
}

fn look(rules: &FlowRules, confirm: Confirm<'_>) -> Result<Vec<Cleaned>, netlink::Error> {
    let mut cleaned: Vec<Cleaned> = Vec::new();
    let (mut reads, mut deletes) = (Conntrack::open()?, Conntrack::open()?);
    for search in rules.searches() {
        let began = Instant::now();
        let mut run = Vec::with_capacity(RUN);
        let mut deleted = 0;
        let mut outcome = Ok(());
        let mut flush = |run: &mut Vec<Flow>| {
            confirm(run);
            match deletes.delete(run) {
                Ok(gone) => deleted += gone,
                Err(error) => outcome = Err(error),
            }
            run.clear();
        };
        reads.dump(&filter(search), |flow| {
            if rules.is_stale(ends(&flow)) {
                run.push(flow);
                if run.len() == RUN {
                    flush(&mut run);
                }
            }
        })?;
        flush(&mut run);
        outcome?;
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
    match search.part {
        Part::All => filter,
        Part::Dialled(None, port) => filter.destination_port(port.get()),
        Part::Dialled(Some(addr), port) => filter.destination(addr).destination_port(port.get()),
        Part::Answered(endpoint) => filter.answers(endpoint.addr).answers_port(endpoint.port.get()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::conntrack::{Tuple, Zone};
    use nft_ir::L4Proto;
    use proxier_core::engine::Engine;
    use proxier_core::fixtures::{service, slice};
    use proxier_core::{Change, Settings};
    use std::cell::{Cell, RefCell};

    fn endpoints(list: &[&str]) -> Change {
        slice("dns-1", "dns", 1, list).and_port("dns", L4Proto::Udp, 53).upsert()
    }

    /// What two syncs say: the second of two endpoints leaves, and comes back.
    fn leaves_and_comes_back() -> [FlowRules; 2] {
        let both = ["10.0.0.1@here", "10.0.0.2@here"];
        let mut engine = Engine::new(Settings::new("here"));
        engine.apply(service("dns", &["10.96.0.10"]).port("dns", L4Proto::Udp, 53, 0).upsert());
        engine.apply(endpoints(&both));
        let plan = engine.adopt([None, None]);
        engine.accept(plan);
        [&both[..1], &both].map(|list| {
            engine.apply(endpoints(list));
            let mut plan = engine.plan();
            let flows = std::mem::take(&mut plan.flows);
            engine.accept(plan);
            flows
        })
    }

    fn flow_to(answers: &str) -> Flow {
        let source = "10.0.0.9:4000".parse().unwrap();
        let original = Tuple { proto: L4Proto::Udp, source, destination: "10.96.0.10:53".parse().unwrap() };
        let reply = Tuple { source: answers.parse().unwrap(), destination: source, ..original };
        Flow { original, reply, status: Status::default(), zone: Zone::default(), id: 0 }
    }

    #[test]
    fn an_endpoint_that_comes_back_during_a_look_keeps_its_flows() {
        let [leaves, comes_back] = leaves_and_comes_back();
        let (jobs, inbox) = channel();
        let jobs = RefCell::new(Some(jobs));
        let send = |rules| jobs.borrow().as_ref().map(|jobs| jobs.send(rules));
        send(leaves);
        let looks = Cell::new(0);
        serve(
            &inbox,
            |_| {},
            |_, confirm| {
                looks.set(looks.get() + 1);
                let all = [flow_to("10.0.0.2:53"), flow_to("10.0.0.3:53")];
                let mut run = all.to_vec();
                confirm(&mut run);
                assert_eq!(run, all);
                send(comes_back.clone());
                confirm(&mut run);
                assert_eq!(run, all[1..]);
                *jobs.borrow_mut() = None;
                Ok(Vec::new())
            },
        );
        assert_eq!(looks.get(), 1, "the news asks for no look");
    }

    #[test]
    fn a_look_that_failed_is_made_again_with_the_news() {
        let [leaves, comes_back] = leaves_and_comes_back();
        let (jobs, inbox) = channel();
        let jobs = RefCell::new(Some(jobs));
        let send = |rules| jobs.borrow().as_ref().map(|jobs| jobs.send(rules));
        send(leaves);
        let seen = RefCell::new(Vec::new());
        serve(
            &inbox,
            |_| {},
            |rules, _| {
                seen.borrow_mut().push(rules.is_stale(ends(&flow_to("10.0.0.2:53"))));
                if seen.borrow().len() == 1 {
                    send(comes_back.clone());
                    return Err(netlink::Error::Overrun);
                }
                *jobs.borrow_mut() = None;
                Ok(Vec::new())
            },
        );
        assert_eq!(seen.into_inner(), [true, false]);
    }
}

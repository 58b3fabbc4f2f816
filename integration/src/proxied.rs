//! Owns a proxier that runs in a node's namespace within this process: the real decoder, core and kernel side, without the
//! program around them. Knows nothing of what is tested with it.

use crate::objects::{NAMESPACE, Object};
use crate::{Family, Node};
use netlink::Nft;
use nft_ir::Ruleset;
use proxier::source::{Decoder, Rejected};
use proxier::sync::{Report, Syncer, clean};
use proxier_core::model::{HostAddress, ObjectName};
use proxier_core::ruleset::table_id;
use proxier_core::{Change, Settings};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

enum Order {
    Apply(Vec<Change>),
    NoticeOthers,
    Sweep,
    Dump,
}

enum Answer {
    Synced(Box<Report>),
    Noticed(bool),
    Swept,
    Dumped(Ruleset),
}

/// A proxier on a node. Dropping it leaves the node's rules as they are, as a stopped program would.
#[derive(Debug)]
pub struct Proxied {
    decoder: Decoder,
    orders: Option<Sender<Order>>,
    answers: Receiver<Result<Answer, String>>,
    thread: Option<JoinHandle<()>>,
    name: String,
    /// Changes that wait for the next sync.
    pending: Vec<Change>,
}

impl Proxied {
    /// Starts a proxier on a node. Nothing is written before the first objects are applied.
    pub fn start(node: &Node, settings: Settings) -> Self {
        let (orders, inbox) = channel();
        let (outbox, answers) = channel();
        let decoder = Decoder::new(settings.node_name.clone(), true);
        let thread = node.ns().spawn("proxier", move || serve(settings, &inbox, &outbox));
        let mut this = Self {
            decoder,
            orders: Some(orders),
            answers,
            thread: Some(thread),
            name: node.name().to_owned(),
            pending: Vec::new(),
        };
        let addresses = node.ns().block_on(netlink::address::host_addresses);
        let addresses = addresses.unwrap_or_else(|error| panic!("{}: {error}", node.name()));
        let addresses = addresses.into_iter().map(|host| HostAddress { addr: host.addr, link: host.link });
        this.pending.push(Change::HostAddresses(addresses.collect()));
        this
    }

    /// Takes objects in and brings the kernel in step. Entries that were left out come back.
    #[track_caller]
    pub fn apply(&mut self, objects: &[Object]) -> (Report, Vec<Rejected>) {
        let rejected = self.queue(objects);
        (self.change(Vec::new()), rejected)
    }

    /// Takes objects in; they are written with the next sync.
    pub fn queue(&mut self, objects: &[Object]) -> Vec<Rejected> {
        let mut rejected = Vec::new();
        for object in objects {
            let gone = |name: &str| ObjectName::new(NAMESPACE, name);
            let decoded = match object {
                Object::Service(service) => self.decoder.service(service),
                Object::EndpointSlice(slice) => self.decoder.endpoint_slice(slice),
                Object::Node(node) => self.decoder.node(node),
                Object::ServiceCidr(cidr) => self.decoder.service_cidr(cidr),
                Object::NoService(name) => {
                    self.pending.push(Change::Service(gone(name), None));
                    continue;
                }
                Object::NoSlice(name) => {
                    self.pending.push(Change::EndpointSlice(gone(name), None));
                    continue;
                }
            };
            self.pending.extend(decoded.change);
            rejected.extend(decoded.rejected);
        }
        rejected
    }

    /// Takes changes in and brings the kernel in step.
    #[track_caller]
    pub fn change(&mut self, changes: Vec<Change>) -> Report {
        self.pending.extend(changes);
        let pending = std::mem::take(&mut self.pending);
        match self.order(Order::Apply(pending)) {
            Answer::Synced(report) => *report,
            _ => unreachable!("the answer to a change is a report"),
        }
    }

    /// Reads what others wrote; says whether it was into our tables.
    #[track_caller]
    pub fn notice_others(&mut self) -> bool {
        matches!(self.order(Order::NoticeOthers), Answer::Noticed(true))
    }

    /// Deletes chains that fell out of use.
    #[track_caller]
    pub fn sweep(&mut self) {
        let _ = self.order(Order::Sweep);
    }

    /// What the kernel holds in our tables.
    #[track_caller]
    pub fn dump(&mut self) -> Ruleset {
        match self.order(Order::Dump) {
            Answer::Dumped(ruleset) => ruleset,
            _ => unreachable!("the answer to a dump is a ruleset"),
        }
    }

    #[track_caller]
    fn order(&mut self, order: Order) -> Answer {
        let sent = self.orders.as_ref().map(|orders| orders.send(order));
        assert!(matches!(sent, Some(Ok(()))), "{}: the proxier has ended", self.name);
        match self.answers.recv() {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => panic!("{}: {error}", self.name),
            Err(_) => panic!("{}: the proxier has ended", self.name),
        }
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(settings: Settings, orders: &Receiver<Order>, answers: &Sender<Result<Answer, String>>) {
    let mut syncer = match Syncer::new(settings) {
        Ok(syncer) => syncer,
        Err(error) => {
            let _ = answers.send(Err(error.to_string()));
            return;
        }
    };
    for order in orders {
        let answer = match order {
            Order::Apply(changes) => {
                changes.into_iter().for_each(|change| syncer.apply(change));
                sync(&mut syncer).map(|report| Answer::Synced(Box::new(report))).map_err(|e| e.to_string())
            }
            Order::NoticeOthers => syncer.notice_others().map(Answer::Noticed).map_err(|e| e.to_string()),
            Order::Sweep => sweep(&mut syncer).map(|()| Answer::Swept).map_err(|e| e.to_string()),
            Order::Dump => dump().map(Answer::Dumped).map_err(|e| e.to_string()),
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

/// A sync, and then what the program's thread for flows does.
fn sync(syncer: &mut Syncer) -> Result<Report, proxier::sync::Error> {
    let report = syncer.sync()?;
    if !report.flows.is_empty() {
        clean(&report.flows)?;
    }
    Ok(report)
}

fn sweep(syncer: &mut Syncer) -> Result<(), proxier::sync::Error> {
    while syncer.sweep()? {}
    Ok(())
}

/// What the kernel of the calling thread's namespace holds in our tables.
pub fn dump() -> Result<Ruleset, netlink::Error> {
    let mut nft = Nft::open()?;
    let mut ruleset = Ruleset::default();
    for family in Family::ALL {
        if let Some(dump) = nft.dump_table(&table_id(family))? {
            ruleset.tables.insert(table_id(family), dump.table);
        }
    }
    Ok(ruleset)
}

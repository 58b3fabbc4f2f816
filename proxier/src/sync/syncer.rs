//! Owns one sync: plan, commit, accept, and what follows from a refusal. Knows nothing of tasks or timers.

use netlink::{ForeignObject, Generation, Monitor, Nft, Notice, Refusal, TableDump};
use nft_ir::{Family, Op, Rule, SetDecl, Table, Transaction};
use proxier_core::conntrack::FlowRules;
use proxier_core::engine::{Engine, ForgetClients, Plan, address_frontend, destination, node_port_frontend};
use proxier_core::model::ServiceName;
use proxier_core::policy::Conflict;
use proxier_core::ruleset::{family_index, table_id};
use proxier_core::view::Destination;
use proxier_core::{Change, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a sync failed as a whole. Nothing was written, and nothing is lost: the same changes go out with the next try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel could not be talked to, or refused what no single Service is to blame for.
    #[error("programming the kernel: {0}")]
    Kernel(#[from] netlink::Error),
    /// Others kept changing the ruleset.
    #[error("programming the kernel: the ruleset kept changing, gave up after {0} tries")]
    Unsettled(usize),
}

/// A Service that the kernel refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The Service.
    pub service: ServiceName,
    /// What the kernel said.
    pub refusal: Refusal,
}

/// What a sync did.
#[derive(Debug, Default)]
pub struct Report {
    /// It started from a dump of the kernel.
    pub full: bool,
    /// Services that were looked at.
    pub services: Vec<ServiceName>,
    /// Elements added and deleted, by family.
    pub elements: [u64; 2],
    /// Operations, elements of one set counting as one.
    pub operations: usize,
    /// Frontends newly in conflict.
    pub conflicts: Vec<Conflict>,
    /// Services left out because the kernel refused them.
    pub held: Vec<Held>,
    /// Flows to look for.
    pub flows: FlowRules,
    /// Service ports left out because the kernel cannot hold their name.
    pub unnameable: Vec<String>,
}

/// The engine and its line to the kernel.
#[derive(Debug)]
pub struct Syncer {
    engine: Engine,
    nft: Nft,
    monitor: Monitor,
    generation: Option<Generation>,
}

/// What came of a commit.
#[derive(Debug, Clone, Copy)]
struct Committed {
    /// The generation that it made.
    generation: Generation,
    /// Somebody may have written while nobody listened.
    overtaken: bool,
}

/// A transaction of so many elements is committed with nobody listening.
const LARGE: usize = 1000;

/// How often a commit is tried anew when others write at the same time.
const TRIES: usize = 10;

impl Syncer {
    /// Opens the line to the kernel in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Kernel`] when netfilter's netlink is not there.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            engine: Engine::new(settings),
            nft: Nft::open()?,
            monitor: Monitor::open()?,
            generation: None,
        })
    }

    /// Takes a change in.
    pub fn apply(&mut self, change: Change) {
        self.engine.apply(change);
    }

    /// The engine.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The listener for writes of others; readable when there may be some.
    pub const fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Lets the next sync try Services again that the kernel refused.
    pub fn release_held(&mut self) {
        self.engine.release_held();
    }

    /// Reads what others wrote; if it was our tables, the next sync starts from a dump. Says whether it was.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the listener broke.
    pub fn notice_others(&mut self) -> Result<bool, Error> {
        let ours = [table_id(Family::Ip), table_id(Family::Ip6)];
        let own_port = self.nft.port();
        let mut touched = false;
        for notice in self.monitor.drain()? {
            touched |= match notice {
                Notice::Commit(commit) => {
                    commit.port != own_port && ours.iter().any(|table| commit.tables.contains(table))
                }
                // Nothing foreign is among what was lost if the last generation is one that we made.
                Notice::Lost => self.generation != Some(self.nft.generation()?),
            };
        }
        if touched {
            self.engine.forget_kernel();
        }
        Ok(touched)
    }

    /// Whether a sync has something to do.
    pub fn is_wanted(&self) -> bool {
        self.engine.is_dirty() || self.engine.must_adopt()
    }

    /// Brings the kernel in step.
    ///
    /// # Errors
    /// [`Error`]; nothing was written then.
    pub fn sync(&mut self) -> Result<Report, Error> {
        let mut report = Report { conflicts: self.engine.take_conflicts(), ..Report::default() };
        for _ in 0..TRIES {
            let full = self.engine.must_adopt();
            let expected = match self.generation.filter(|_| !full) {
                Some(generation) => generation,
                None => self.nft.generation()?,
            };
            let mut plan = if full { self.adopt()? } else { self.engine.plan() };
            self.forget_clients(&mut plan)?;
            report.full |= full;
            report.services = std::mem::take(&mut plan.services);
            report.unnameable = plan.unnameable.iter().map(ToString::to_string).collect();
            report.flows = std::mem::take(&mut plan.flows);
            report.operations = plan.transaction.ops.len();
            report.elements = elements(&plan.transaction);
            if plan.transaction.is_empty() {
                self.engine.accept(plan);
                return Ok(report);
            }
            match self.commit(&plan.transaction, expected) {
                Ok(Committed { generation, overtaken }) => {
                    self.engine.accept(plan);
                    self.generation = Some(generation);
                    if overtaken {
                        // Rare, and a dump is cheap beside what was just written.
                        self.engine.forget_kernel();
                        self.generation = None;
                    }
                    return Ok(report);
                }
                Err(netlink::Error::Stale { .. }) => {
                    // Somebody wrote; only if it was into our tables must the kernel be read again.
                    self.generation = Some(self.nft.generation()?);
                    self.notice_others()?;
                }
                Err(netlink::Error::Refused { refusals }) => {
                    self.refused(&plan, refusals, full, &mut report)?;
                }
                Err(error) => {
                    // What the kernel holds now is not known.
                    self.engine.forget_kernel();
                    self.generation = None;
                    return Err(error.into());
                }
            }
        }
        self.engine.forget_kernel();
        Err(Error::Unsettled(TRIES))
    }

    /// Commits. The kernel writes a notice for each element as long as anybody listens, which doubles the time of a large
    /// transaction: nobody listens meanwhile. Afterwards the generation tells whether anybody else wrote.
    fn commit(
        &mut self,
        transaction: &Transaction,
        expected: Generation,
    ) -> Result<Committed, netlink::Error> {
        if transaction.element_count() < LARGE {
            let generation = self.nft.commit(transaction, Some(expected))?;
            return Ok(Committed { generation, overtaken: false });
        }
        self.monitor.pause()?;
        let outcome = self.nft.commit(transaction, Some(expected));
        let notices = self.monitor.resume(&mut self.nft, *outcome.as_ref().unwrap_or(&expected))?;
        Ok(Committed { generation: outcome?, overtaken: !notices.is_empty() })
    }

    /// Deletes chains that fell out of use. Says whether there is more to delete, in another sweep.
    ///
    /// # Errors
    /// [`Error::Kernel`] when the kernel refuses; the chains are tried again with the next sweep.
    pub fn sweep(&mut self) -> Result<bool, Error> {
        let transaction = self.engine.sweep();
        if transaction.is_empty() || self.engine.must_adopt() {
            return Ok(false);
        }
        let generation = self.nft.commit(&transaction, None)?;
        self.generation = Some(generation);
        Ok(self.engine.swept())
    }

    fn adopt(&mut self) -> Result<Plan, Error> {
        let mut kernel: [Option<Table>; 2] = [None, None];
        let mut first = Vec::new();
        for (place, family) in kernel.iter_mut().zip(Family::ALL) {
            if !self.engine.settings().families.contains(&family) {
                continue;
            }
            let Some(mut dump) = self.nft.dump_table(&table_id(family))? else { continue };
            if spoil(&mut dump) {
                *place = Some(dump.table);
            } else {
                first.push(Op::DeleteTable { table: table_id(family) });
            }
        }
        let mut plan = self.engine.adopt(kernel);
        plan.transaction.ops.splice(0..0, first);
        Ok(plan)
    }

    /// Adds the deletion of clients whose endpoint is gone.
    fn forget_clients(&mut self, plan: &mut Plan) -> Result<(), Error> {
        for ForgetClients { set, keep } in std::mem::take(&mut plan.forget) {
            let keep: BTreeSet<Destination> = keep.into_iter().collect();
            let gone: Vec<_> = match self.nft.dump_elements(&set) {
                Ok(clients) => clients
                    .into_iter()
                    .filter(|client| destination(client).is_none_or(|to| !keep.contains(&to)))
                    .collect(),
                // The map is not there yet: nobody has learnt anything.
                Err(netlink::Error::Read { errno, .. }) if errno == nix::errno::Errno::ENOENT as i32 => {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if !gone.is_empty() {
                plan.transaction.ops.insert(0, Op::DeleteElements { set, elements: gone });
            }
        }
        Ok(())
    }

    /// Finds the Services at fault and leaves them out; if nobody is, or the plan was not built on a dump, reads the kernel.
    fn refused(
        &mut self,
        plan: &Plan,
        refusals: Vec<Refusal>,
        full: bool,
        report: &mut Report,
    ) -> Result<(), Error> {
        self.generation = None;
        if !full {
            // Our idea of the kernel may be wrong, rather than the Service.
            self.engine.forget_kernel();
            return Ok(());
        }
        let mut owners: BTreeMap<ServiceName, &Refusal> = BTreeMap::new();
        for refusal in &refusals {
            let owner = refusal.op.and_then(|op| self.owner(plan.transaction.ops.get(op)?, refusal.element));
            owners.extend(owner.map(|service| (service, refusal)));
        }
        let mut blamed = 0;
        for (service, refusal) in owners {
            if self.engine.hold(service.clone()) {
                blamed += 1;
                if !report.held.iter().any(|held| held.service == service) {
                    report.held.push(Held { service, refusal: refusal.clone() });
                }
            }
        }
        if blamed == 0 { Err(netlink::Error::Refused { refusals }.into()) } else { Ok(()) }
    }

    /// The Service that an operation is written for.
    fn owner(&self, op: &Op, element: Option<usize>) -> Option<ServiceName> {
        let (set, elements): (&Arc<SetDecl>, _) = match op {
            Op::AddElements { set, elements } | Op::DeleteElements { set, elements } => (set, elements),
            Op::AddSet { set } => return sticky_service(set.name.as_str()),
            Op::AddChain { chain, .. } | Op::AddRule { chain, .. } => return sticky_service(chain.as_str()),
            _ => return None,
        };
        let key = &elements.get(element?)?.key;
        let frontend = match set.spec.key.first()? {
            nft_ir::Field::L4Proto => node_port_frontend(set.table.family, key)?,
            _ => address_frontend(set.table.family, key)?,
        };
        self.engine.owner(&frontend).map(|port| port.service.clone())
    }
}

/// Elements added and deleted, by family.
fn elements(transaction: &Transaction) -> [u64; 2] {
    let mut count = [0; 2];
    for op in &transaction.ops {
        if let Op::AddElements { set, elements } | Op::DeleteElements { set, elements } = op {
            count[family_index(set.table.family)] += elements.len() as u64;
        }
    }
    count
}

/// Makes a chain with a rule that is not ours differ from what it should be, so that it is written anew. Says `false` when a
/// whole object is not ours: then the table is made anew, in the same transaction.
fn spoil(dump: &mut TableDump) -> bool {
    for foreign in &dump.foreign {
        tracing::warn!("not ours, and replaced: {foreign}");
        let ForeignObject::Rule { chain, .. } = &foreign.object else { return false };
        if let Some(chain) = dump.table.chains.get_mut(chain) {
            chain.rules.push(Rule::default());
        }
    }
    true
}

/// The Service in the name of an affinity chain or map, such as `sticky-NAMESPACE/NAME/tcp/PORT`.
fn sticky_service(name: &str) -> Option<ServiceName> {
    let mut parts = name.split('/');
    let first = parts.next()?;
    let namespace = ["local-affinity-", "local-sticky-", "affinity-", "sticky-", "learn-"]
        .iter()
        .find_map(|prefix| first.strip_prefix(prefix))?;
    Some(ServiceName::new(namespace, parts.next()?))
}

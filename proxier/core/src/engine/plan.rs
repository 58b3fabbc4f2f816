//! Owns the plan: what to write so that the kernel holds what it should, and what is known once it is written. Knows
//! nothing of how it is sent.

use super::known::Known;
use super::{Engine, PortKey};
use crate::conntrack::FlowRules;
use crate::model::{ServiceName, Touched};
use crate::ruleset::{
    Delta, PickChain, Resolved, SetId, Shared, decl, delta, family_index, set_name, skeleton::skeleton,
    table_id,
};
use crate::view::{Destination, Exposure, ServicePortView, port_name, view};
use nft_ir::{
    ChainName, Element, Family, KeyBuilder, NameError, Op, Ruleset, SetDecl, Table, Transaction, diff,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A map of affinity clients that may name an endpoint which is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetClients {
    /// The map.
    pub set: Arc<SetDecl>,
    /// Endpoints that clients may stay with; clients of any other are to be forgotten.
    pub keep: Vec<Destination>,
}

/// What to write, and what is known once it is written. Made by [`Engine::plan`] and [`Engine::adopt`]; give it to
/// [`Engine::accept`] when the kernel has acknowledged it, or drop it when it has not.
#[derive(Debug, Default)]
pub struct Plan {
    /// What to write; may be empty.
    pub transaction: Transaction,
    /// Maps to look through before the transaction goes out. The deletions belong into the same transaction.
    pub forget: Vec<ForgetClients>,
    /// Services that this plan looked at.
    pub services: Vec<ServiceName>,
    /// Flows to look for once the transaction is through.
    pub flows: FlowRules,
    /// Names that the kernel cannot hold; their Service ports are left as they were.
    pub unnameable: Vec<NameError>,
    pub(super) views: Vec<(ServiceName, Vec<(PortKey, ServicePortView)>)>,
    pub(super) shared: Vec<(Shared, u32)>,
    pub(super) chains: Vec<(Family, PickChain)>,
    pub(super) skeletons: Vec<(Family, Table)>,
    pub(super) leftover_chains: Vec<(Family, ChainName)>,
    pub(super) used_chains: Vec<(Family, ChainName)>,
    /// Families whose node ports are served on more addresses than before.
    pub(super) more_node_ports: Vec<Family>,
    /// Everything known before is void: the plan starts from a dump.
    pub(super) fresh: bool,
}

impl Engine {
    /// Plans the difference between what is applied and what should be. If nothing is known of the kernel yet, use
    /// [`Self::adopt`].
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        let mut ops = Vec::new();
        if self.dirty.skeleton {
            self.plan_skeleton(&mut plan, &mut ops);
        }
        let mut delta = Delta::default();
        let names: BTreeSet<&ServiceName> = if self.dirty.all_services {
            self.cluster.services().map(|(name, _)| name).chain(self.applied.views.keys()).collect()
        } else {
            self.dirty.services.iter().collect()
        };
        for name in names.into_iter().filter(|name| !self.held.contains(*name)) {
            self.plan_service(name, &mut plan, &mut delta);
        }
        for family in std::mem::take(&mut plan.more_node_ports) {
            for (_, view) in self.views().filter(|((_, known), _)| *known == family) {
                plan.flows.note_node_ports(view);
            }
        }
        self.assemble(&mut plan, ops, delta, None);
        plan
    }

    /// The views of a Service as they should be.
    pub(super) fn wanted<'a>(
        &self,
        name: &ServiceName,
        previous: impl Fn(&PortKey) -> Option<&'a ServicePortView>,
    ) -> Vec<(PortKey, ServicePortView)> {
        let mut views = Vec::new();
        if let Some(service) = self.service(name) {
            for port in &service.ports {
                for family in &self.settings.families {
                    let key = (port_name(service, port), *family);
                    let before = previous(&key);
                    let wanted =
                        view(service, port, *family, &self.cluster, &self.claims, &self.settings, before);
                    views.extend(wanted.map(|view| (key, view)));
                }
            }
        }
        views.sort_by(|(a, _), (b, _)| a.cmp(b));
        views
    }

    fn plan_service(&self, name: &ServiceName, plan: &mut Plan, delta: &mut Delta) {
        let before = self.views_of(name);
        let mut after = self.wanted(name, |key| find(before, key).map(|place| &before[place].1));
        plan.services.push(name.clone());
        if after == before {
            return;
        }
        let keys: BTreeSet<&PortKey> = before.iter().chain(&after).map(|(key, _)| key).collect();
        let mut unnameable = Vec::new();
        for key in keys {
            let old = find(before, key).map(|place| &before[place].1);
            let new = find(&after, key).map(|place| &after[place].1);
            if old == new {
                continue;
            }
            match delta.add(&key.0, old, new) {
                Ok(()) => {
                    plan.flows.note(old, new);
                    plan.forget_clients(&key.0, old, new);
                }
                Err(error) => unnameable.push((key.clone(), error)),
            }
        }
        for (key, error) in unnameable {
            // What was programmed for the port stays.
            after.retain(|(known, _)| *known != key);
            after.extend(find(before, &key).map(|place| before[place].clone()));
            after.sort_by(|(a, _), (b, _)| a.cmp(b));
            plan.unnameable.push(error);
        }
        plan.views.push((name.clone(), after));
    }

    fn plan_skeleton(&self, plan: &mut Plan, ops: &mut Vec<Op>) {
        for family in &self.settings.families {
            let after = skeleton(*family, &self.settings, &self.cluster);
            let Some(before) = &self.applied.skeletons[family_index(*family)] else { continue };
            if *before == after {
                continue;
            }
            ops.extend(structure(*family, before, &after));
            let only_in = |some: &Table, other: &Table| -> Vec<(Family, ChainName)> {
                let names = some.chains.keys().filter(|name| !other.chains.contains_key(*name));
                names.map(|name| (*family, name.clone())).collect()
            };
            plan.leftover_chains.extend(only_in(before, &after));
            plan.used_chains.extend(only_in(&after, before));
            if serves_more(before, &after) {
                plan.more_node_ports.push(*family);
            }
            plan.skeletons.push((*family, after));
            // How pods are told from others may have changed, or whether anything is sticky: the pick chains say it too.
            for (_, chain) in self.applied.chains.iter().filter(|(known, _)| known == family) {
                self.write_chain(*family, *chain, ops);
            }
        }
    }

    /// Writes the rules of a pick chain, whether it is there or not.
    pub(super) fn write_chain(&self, family: Family, chain: PickChain, ops: &mut Vec<Op>) {
        let resolved = Resolved::of(&self.settings, &self.cluster);
        let (table, name) = (table_id(family), chain.name());
        ops.push(Op::AddChain { table: table.clone(), chain: name.clone(), base: None });
        ops.push(Op::FlushChain { table: table.clone(), chain: name.clone() });
        for rule in chain.rules(family, &resolved) {
            ops.push(Op::AddRule { table: table.clone(), chain: name.clone(), rule });
        }
    }

    /// Puts the operations in the order that the kernel wants: what is referred to before what refers to it.
    pub(super) fn assemble(
        &self,
        plan: &mut Plan,
        mut ops: Vec<Op>,
        mut delta: Delta,
        mut known: Option<&mut Known>,
    ) {
        if !plan.flows.is_empty() {
            plan.flows.locate(&self.settings, &self.cluster, &self.claims);
        }
        let mut chains = Vec::new();
        self.count_shared(plan, &mut delta, &mut chains);
        for (family, chain) in &chains {
            match &mut known {
                Some(known) => known.write_chain(self, *family, *chain, &mut ops),
                None => self.write_chain(*family, *chain, &mut ops),
            }
        }
        plan.chains = chains;
        for (family, sticky) in &delta.sticky_new {
            match &mut known {
                Some(known) => known.write_sticky(*family, sticky, &mut ops),
                None => sticky.add(*family, &mut ops),
            }
            plan.used_chains.extend(sticky.chains().into_iter().map(|(chain, _)| (*family, chain)));
        }
        if let Some(known) = known {
            known.reconcile(&mut delta);
        }
        let mut adds = Vec::new();
        for family in Family::ALL {
            for id in SetId::ALL {
                let edit = std::mem::take(&mut delta.edits[family_index(family)][*id as usize]);
                let set = decl(family, *id);
                if !edit.delete.is_empty() {
                    ops.push(Op::DeleteElements { set: set.clone(), elements: edit.delete });
                }
                if !edit.add.is_empty() {
                    adds.push(Op::AddElements { set: set.clone(), elements: edit.add });
                }
            }
        }
        // Deletions of all sets before additions to any: a changed value is delete and add of one key.
        ops.extend(adds);
        plan_gone(plan, &mut ops, &delta);
        plan.transaction.ops = ops;
    }

    /// Turns uses gained and lost into elements and chains that come and go.
    fn count_shared(&self, plan: &mut Plan, delta: &mut Delta, chains: &mut Vec<(Family, PickChain)>) {
        let mut sums: BTreeMap<Shared, i64> = BTreeMap::new();
        for (shared, uses) in delta.shared.drain(..) {
            *sums.entry(shared).or_default() += i64::from(uses);
        }
        let none = HashMap::new();
        let counts = if plan.fresh { &none } else { &self.applied.shared };
        for (shared, change) in sums {
            let before = counts.get(&shared).copied().unwrap_or(0);
            let after = u32::try_from(i64::from(before) + change).unwrap_or(0);
            if before == after {
                continue;
            }
            plan.shared.push((shared, after));
            if (before == 0) == (after == 0) {
                continue;
            }
            let (family, id, element) = match shared {
                Shared::Chain(family, chain) => {
                    let exists = !plan.fresh && self.applied.chains.contains(&(family, chain));
                    if after > 0 && !exists {
                        chains.push((family, chain));
                    }
                    continue;
                }
                Shared::ClusterIp(addr) => (
                    Family::of(&addr),
                    SetId::ClusterIps,
                    Element::of_set(KeyBuilder::new().addr(addr).build()),
                ),
                Shared::Hairpin(protocol, to) => {
                    let key =
                        KeyBuilder::new().addr(to.addr).addr(to.addr).proto(protocol).port(to.port.get());
                    (Family::of(&to.addr), SetId::Hairpin, Element::of_set(key.build()))
                }
            };
            let edit = &mut delta.edits[family_index(family)][id as usize];
            if after > 0 { edit.add.push(element) } else { edit.delete.push(element) }
        }
        // A chain that goes on to another comes after it.
        chains.sort_by_key(|(family, chain)| (*family, chain.needs().is_some(), *chain));
    }

    /// The kernel has acknowledged the plan: what it wrote is now what is applied.
    pub fn accept(&mut self, plan: Plan) {
        let applied = &mut self.applied;
        if plan.fresh {
            *applied = super::Applied::default();
        }
        for (name, views) in plan.views {
            let lacking = &mut applied.lacking_local;
            let count = |views: &[(PortKey, ServicePortView)], lacking: &mut [[usize; 2]; 2], add: bool| {
                for ((_, family), view) in views {
                    for exposure in [Exposure::Internal, Exposure::External] {
                        let cell = &mut lacking[family_index(*family)][exposure as usize];
                        let lacks = usize::from(view.lacks_local(exposure));
                        *cell = if add { *cell + lacks } else { cell.saturating_sub(lacks) };
                    }
                }
            };
            count(applied.views.get(&name).map_or(&[], |views| views), lacking, false);
            count(&views, lacking, true);
            if views.is_empty() {
                applied.views.remove(&name);
            } else {
                applied.views.insert(name, views);
            }
        }
        for (shared, uses) in plan.shared {
            if uses == 0 {
                applied.shared.remove(&shared);
            } else {
                applied.shared.insert(shared, uses);
            }
        }
        applied.chains.extend(plan.chains);
        applied.leftover_chains.extend(plan.leftover_chains);
        for used in plan.used_chains {
            applied.leftover_chains.remove(&used);
        }
        for (family, skeleton) in plan.skeletons {
            applied.skeletons[family_index(family)] = Some(skeleton);
        }
        self.dirty = Touched::default();
    }

    /// Deletes chains that fell out of use in an earlier transaction; empty if there is none. Not in the transaction that
    /// drops their last reference: before Linux 6.2 the kernel notices only later that a chain is free, and refuses
    /// (`EBUSY`), which is no error here: it is tried again. A chain that another idle one goes on to is left for the sweep
    /// after, for the same reason.
    pub fn sweep(&self) -> Transaction {
        let idle = self.idle_chains().into_iter().map(|(family, chain)| (family, chain.name()));
        let gone: Vec<(Family, ChainName)> =
            idle.chain(self.applied.leftover_chains.iter().cloned()).collect();
        let mut transaction = Transaction::default();
        for (family, chain) in &gone {
            transaction.push(Op::FlushChain { table: table_id(*family), chain: chain.clone() });
        }
        for (family, chain) in gone {
            transaction.push(Op::DeleteChain { table: table_id(family), chain });
        }
        transaction
    }

    /// The kernel has deleted what [`Self::sweep`] named. Says whether there is more to sweep.
    pub fn swept(&mut self) -> bool {
        for key in self.idle_chains() {
            self.applied.chains.remove(&key);
        }
        self.applied.leftover_chains.clear();
        !self.idle_chains().is_empty()
    }

    /// Pick chains that nothing goes to, neither a Service nor another pick chain.
    fn idle_chains(&self) -> Vec<(Family, PickChain)> {
        let chains = &self.applied.chains;
        let needed: BTreeSet<(Family, PickChain)> =
            chains.iter().filter_map(|(family, chain)| Some((*family, chain.needs()?))).collect();
        let is_idle = |key: &&(Family, PickChain)| {
            !self.applied.shared.contains_key(&Shared::Chain(key.0, key.1)) && !needed.contains(*key)
        };
        chains.iter().filter(is_idle).copied().collect()
    }
}

impl Plan {
    /// Clients of an endpoint that left a sticky port's lists are freed at once.
    pub(super) fn forget_clients(
        &mut self,
        port: &crate::model::ServicePortName,
        old: Option<&ServicePortView>,
        new: Option<&ServicePortView>,
    ) {
        let Some(new) = new else { return };
        let Ok(Some(sticky)) = delta::sticky(port, new) else { return };
        let lost = |list: &dyn Fn(&ServicePortView) -> &[Destination]| {
            old.is_none_or(|old| list(old).iter().any(|d| !list(new).contains(d)))
        };
        if lost(&|view| &view.cluster) || lost(&|view| &view.local) {
            let keep: Vec<Destination> = new.cluster.iter().chain(&new.local).copied().collect();
            self.forget.push(ForgetClients { set: sticky.clients.clone(), keep });
            if let Some(set) = sticky.local_clients {
                self.forget.push(ForgetClients { set, keep: new.local.to_vec() });
            }
        }
    }
}

/// Whether node ports are served on an address that they were not served on before.
fn serves_more(before: &Table, after: &Table) -> bool {
    let served = |table: &Table| -> BTreeSet<nft_ir::Key> {
        let set = table.sets.get(&set_name(SetId::NodePortIps));
        set.map(|set| set.elements.keys().cloned().collect()).unwrap_or_default()
    };
    !served(after).is_subset(&served(before))
}

/// Empties the chains and deletes the maps of ports whose affinity went. Nothing refers to them any more: the verdicts that
/// did were deleted before.
fn plan_gone(plan: &mut Plan, ops: &mut Vec<Op>, delta: &Delta) {
    for (family, sticky) in &delta.sticky_gone {
        let stays = |set: &Arc<SetDecl>| {
            delta.sticky_new.iter().any(|(f, new)| f == family && new.sets().any(|s| s.name == set.name))
        };
        let chain_stays = |chain: &ChainName| {
            delta
                .sticky_new
                .iter()
                .any(|(f, new)| f == family && new.chains().iter().any(|(name, _)| name == chain))
        };
        for (chain, _) in sticky.chains() {
            if !chain_stays(&chain) {
                ops.push(Op::FlushChain { table: table_id(*family), chain: chain.clone() });
                plan.leftover_chains.push((*family, chain));
            }
        }
        ops.extend(sticky.sets().filter(|set| !stays(set)).map(|set| Op::DeleteSet { set: set.clone() }));
    }
}

fn find(views: &[(PortKey, ServicePortView)], key: &PortKey) -> Option<usize> {
    views.binary_search_by(|(known, _)| known.cmp(key)).ok()
}

/// Operations that lead from one set of chains and sets to another, elements of [`SetId::NodePortIps`] included.
pub(super) fn structure(family: Family, before: &Table, after: &Table) -> Vec<Op> {
    let ruleset = |table: &Table| Ruleset { tables: BTreeMap::from([(table_id(family), table.clone())]) };
    // What `later` would delete is in `leftover_chains`: it is swept with the rest.
    diff::diff(&ruleset(before), &ruleset(after)).now.ops
}

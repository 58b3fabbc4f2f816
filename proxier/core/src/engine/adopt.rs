//! Owns the plan that starts from a dump of the kernel: at start, and after somebody else wrote into our tables. Knows
//! nothing of how the dump was taken.

use super::known::{Known, previous_views};
use super::plan::{Plan, structure};
use super::{Engine, PortKey};
use crate::model::ServiceName;
use crate::ruleset::{Delta, SetId, decl, delta, family_index, skeleton::skeleton, table_id};
use crate::view::{FrontendView, ServicePortView};
use nft_ir::{Family, Op, Ruleset, Table, TableId, diff};
use std::collections::BTreeMap;

impl Engine {
    /// Plans from what the kernel holds in our tables (`None`: it has no such table, or the family is not served) to what it
    /// should. What is right already is not written. Everything known before is void once the plan is accepted.
    pub fn adopt(&self, kernel: [Option<Table>; 2]) -> Plan {
        let mut plan = Plan { fresh: true, ..Plan::default() };
        let mut ops = Vec::new();
        let mut known = Known::default();
        for (family, table) in Family::ALL.into_iter().zip(kernel) {
            if !self.settings.families.contains(&family) {
                continue;
            }
            let wanted = skeleton(family, &self.settings, &self.cluster);
            if table.as_ref().is_some_and(|table| !compatible(family, table)) {
                // Another version of the program declared a set otherwise. Rules hold on to it, so the whole table is made
                // anew; in one transaction, so that no packet meets neither, and flows keep their translation.
                ops.push(Op::DeleteTable { table: table_id(family) });
            }
            let before =
                table.filter(|table| compatible(family, table)).map(|table| known.take(family, table));
            match &before {
                Some(before) => ops.extend(structure(family, before, &wanted)),
                None => ops.extend(create(table_id(family), &wanted)),
            }
            let gone = before
                .iter()
                .flat_map(|table| table.chains.keys())
                .filter(|name| !wanted.chains.contains_key(*name));
            plan.leftover_chains.extend(gone.map(|name| (family, name.clone())));
            plan.skeletons.push((family, wanted));
        }
        let mut delta = Delta::default();
        let names: Vec<&ServiceName> = self.cluster.services().map(|(name, _)| name).collect();
        for name in names.into_iter().filter(|name| !self.left_out.contains(*name)) {
            let held = self.held.contains(name);
            let views = if held { self.still_held(name) } else { self.wanted_from(name, &known) };
            adopt_views(name, views, &known, &mut plan, &mut delta);
        }
        for frontend in known.frontends() {
            if self.claims.owner(&frontend).is_none() {
                plan.flows.gone(frontend);
            }
        }
        self.assemble(&mut plan, ops, delta, Some(&mut known));
        plan.chains.extend(known.pick_chains());
        for family in Family::ALL {
            let (chains, sets) = known.leftovers(family);
            for chain in chains {
                plan.transaction.push(Op::FlushChain { table: table_id(family), chain: chain.clone() });
                plan.leftover_chains.push((family, chain));
            }
            plan.transaction.ops.extend(sets.into_iter().map(|set| Op::DeleteSet { set }));
        }
        plan
    }

    /// The views of a Service as they should be, with the slots that the kernel has.
    fn wanted_from(&self, name: &ServiceName, known: &Known) -> Vec<(PortKey, ServicePortView)> {
        let views = self.wanted(name, |_| None);
        if known.is_empty() {
            return views;
        }
        let start = previous_views(known, views);
        self.wanted(name, |key| start.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|place| &start[place].1))
    }

    /// What was programmed for a held Service: it stays as it is, but for frontends that another Service has by now.
    fn still_held(&self, name: &ServiceName) -> Vec<(PortKey, ServicePortView)> {
        let mut views = self.views_of(name).to_vec();
        for (key, view) in &mut views {
            let own = |fv: &&FrontendView| self.claims.owner(&fv.frontend) == Some(&key.0);
            view.frontends = view.frontends.iter().filter(own).copied().collect();
        }
        views
    }

    /// Whether nothing is known of the kernel, so that the next plan must come from [`Self::adopt`].
    pub fn must_adopt(&self) -> bool {
        self.settings.families.iter().any(|family| self.applied.skeletons[family_index(*family)].is_none())
    }

    /// Somebody else wrote into our tables, or a transaction's outcome is not known: the kernel must be read again.
    pub fn forget_kernel(&mut self) {
        self.applied.skeletons = [None, None];
    }
}

/// Takes a Service's views into a plan that starts from nothing.
fn adopt_views(
    name: &ServiceName,
    mut views: Vec<(PortKey, ServicePortView)>,
    known: &Known,
    plan: &mut Plan,
    delta: &mut Delta,
) {
    plan.services.push(name.clone());
    views.retain(|(key, view)| match delta.add(&key.0, None, Some(view)) {
        Ok(()) => {
            plan.flows.note(None, Some(view));
            if let Ok(Some(sticky)) = delta::sticky(&key.0, view)
                && sticky.sets().any(|set| known.has_set(key.1, &set.name))
            {
                plan.forget_clients(&key.0, None, Some(view));
            }
            true
        }
        Err(error) => {
            plan.unnameable.push(error);
            false
        }
    });
    if !views.is_empty() {
        plan.views.push((name.clone(), views));
    }
}

/// Whether the sets that are there are declared as ours are.
fn compatible(family: Family, table: &Table) -> bool {
    SetId::ALL.iter().all(|id| {
        let ours = decl(family, *id);
        table.sets.get(&ours.name).is_none_or(|set| set.decl == *ours)
    })
}

/// Operations that make a table from nothing.
fn create(id: TableId, wanted: &Table) -> Vec<Op> {
    diff::diff(&Ruleset::default(), &Ruleset { tables: BTreeMap::from([(id, wanted.clone())]) }).now.ops
}

//! Owns what a transaction does to a ruleset, and what of it is refused. Knows nothing of the kernel itself, only
//! what it would answer.
//!
//! [`Ruleset::apply`] takes all operations or none, and refuses what the kernel refuses, by the same errno (that of
//! Linux 6.18 where releases differ). In four points it is stricter than the kernel:
//!
//! * a chain must be empty to be deleted (the kernel would delete its rules with it, unless `NLM_F_NONREC` is set);
//! * a chain can not be deleted in the transaction that drops an element that led to it
//!   ([`Reason::UnsafeChainDelete`]): before Linux 6.2 the kernel notices only later that the chain is free. A rule
//!   that led to it may go in the same transaction;
//! * a loop of chains is refused (`ELOOP`, as before Linux 6.11) even where no base chain leads into it;
//! * a plain lookup in a map is `EINVAL`, as before Linux 6.8.
//!
//! Not modelled: memory limits, expiry, and the update of a set's time-out and size by adding it anew (Linux 6.5),
//! which leaves the set as it is here, as it did before.

mod check;
mod graph;
mod refusal;
mod undo;

pub use refusal::{Errno, Reason, Refusal};

use crate::{
    BaseChain, Chain, ChainName, Element, Field, Key, Op, Ruleset, Set, SetDecl, Table, TableId, Transaction,
};
use refusal::{ElementObject, Refused, SetObject, no_chain, no_set, no_table, refused};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use undo::Undo;

impl Ruleset {
    /// Carries out all of the transaction, or nothing of it.
    ///
    /// # Errors
    /// The first operation that would be refused. The ruleset is then as it was.
    pub fn apply(&mut self, transaction: &Transaction) -> Result<(), Refusal> {
        let mut run = Run {
            tables: &mut self.tables,
            undo: Vec::new(),
            dropped: BTreeSet::new(),
            uses: BTreeMap::new(),
            grown: BTreeMap::new(),
        };
        let result = run.all(&transaction.ops);
        if result.is_err() {
            let undo = std::mem::take(&mut run.undo);
            undo::roll_back(self, undo);
        }
        result
    }
}

struct Run<'a> {
    tables: &'a mut BTreeMap<TableId, Table>,
    /// How to go back, in order.
    undo: Vec<Undo>,
    /// Chains to which an element led that was dropped in this transaction.
    dropped: BTreeSet<(TableId, ChainName)>,
    /// Reference counts of tables in which something was to be deleted; kept up to date from then on.
    uses: BTreeMap<TableId, graph::Uses>,
    /// Tables that gained a rule or a reference, and the last operation that did so.
    grown: BTreeMap<TableId, usize>,
}

impl Run<'_> {
    fn all(&mut self, ops: &[Op]) -> Result<(), Refusal> {
        for (index, op) in ops.iter().enumerate() {
            self.one(index, op).map_err(|(object, reason)| Refusal { op: index, object, reason })?;
        }
        for (id, &op) in &self.grown {
            if let Some(table) = self.tables.get(id) {
                graph::validate(id, table).map_err(|(object, reason)| Refusal { op, object, reason })?;
            }
        }
        Ok(())
    }

    fn one(&mut self, index: usize, op: &Op) -> Result<(), Refused> {
        match op {
            Op::AddTable { table, comment } => {
                if !self.tables.contains_key(table) {
                    let new = Table { comment: comment.clone(), ..Table::default() };
                    self.tables.insert(table.clone(), new);
                    self.undo.push(Undo::AddedTable(table.clone()));
                }
                Ok(())
            }
            Op::DeleteTable { table } => {
                let Some(old) = self.tables.remove(table) else { return Err(no_table(table)) };
                self.undo.push(Undo::DeletedTable(table.clone(), Box::new(old)));
                // What comes under the same names later are other chains.
                self.dropped.retain(|(id, _)| id != table);
                self.uses.remove(table);
                self.grown.remove(table);
                Ok(())
            }
            Op::AddChain { table, chain, base } => self.add_chain(table, chain, base.as_ref()),
            Op::FlushChain { table, chain } => self.flush_chain(table, chain),
            Op::DeleteChain { table, chain } => self.delete_chain(table, chain),
            Op::AddRule { table, chain, rule } => {
                let there = self.table(table)?;
                if !there.chains.contains_key(chain) {
                    return Err(no_chain(table, chain));
                }
                check::rule(table, there, rule).map_err(|(errno, why)| {
                    refused(format_args!("rule of chain {table} {chain}"), errno, why)
                })?;
                if let Some(uses) = self.uses.get_mut(table) {
                    uses.add_rule(rule);
                }
                self.chain(table, chain)?.rules.push(rule.clone());
                self.undo.push(Undo::AddedRule(table.clone(), chain.clone()));
                self.grown.insert(table.clone(), index);
                Ok(())
            }
            Op::AddSet { set } => self.add_set(set),
            Op::FlushSet { set } => {
                let old = std::mem::take(&mut self.set(set)?.elements);
                self.drop_elements(set, old.values());
                self.undo.push(Undo::FlushedSet(set.clone(), old));
                Ok(())
            }
            Op::DeleteSet { set } => {
                self.set(set)?;
                if self.uses(&set.table).set(&set.name) > 0 {
                    return Err(refused(SetObject(set), Errno::EBUSY, "a rule refers to it"));
                }
                let table = self.table_mut(&set.table)?;
                if let Some(old) = table.sets.remove(&set.name) {
                    self.drop_elements(set, old.elements.values());
                    self.undo.push(Undo::DeletedSet(set.clone(), old));
                }
                Ok(())
            }
            Op::AddElements { set, elements } => {
                let mut added = Vec::new();
                let result =
                    elements.iter().try_for_each(|element| self.add_element(index, set, element, &mut added));
                self.undo.push(Undo::AddedElements(set.clone(), added));
                result
            }
            Op::DeleteElements { set, elements } => {
                let mut deleted = Vec::new();
                let result =
                    elements.iter().try_for_each(|element| self.delete_element(set, element, &mut deleted));
                self.drop_elements(set, deleted.iter());
                self.undo.push(Undo::DeletedElements(set.clone(), deleted));
                result
            }
        }
    }

    fn add_chain(&mut self, id: &TableId, name: &ChainName, base: Option<&BaseChain>) -> Result<(), Refused> {
        let object = || format!("chain {id} {name}");
        let table = self.table_mut(id)?;
        let Some(there) = table.chains.get_mut(name) else {
            if let Some(base) = base {
                check::base_chain(base).map_err(|(errno, why)| refused(object(), errno, why))?;
            }
            table.chains.insert(name.clone(), Chain { base: base.cloned(), rules: Vec::new() });
            self.undo.push(Undo::AddedChain(id.clone(), name.clone()));
            return Ok(());
        };
        // The kernel takes an addition without a base as "whatever it is", and changes nothing but the policy.
        let Some(wanted) = base else { return Ok(()) };
        let Some(base) = &mut there.base else {
            // It would be EEXIST, but the policy that comes with each base is looked at first.
            return Err(refused(object(), Errno::EOPNOTSUPP, "is there without a hook"));
        };
        if base.chain_type != wanted.chain_type {
            return Err(refused(object(), Errno::EEXIST, "is there with another type"));
        }
        if (base.hook, base.priority) != (wanted.hook, wanted.priority) {
            return Err(refused(object(), Errno::EOPNOTSUPP, "is there with another hook or priority"));
        }
        check::base_chain(wanted).map_err(|(errno, why)| refused(object(), errno, why))?;
        let old = std::mem::replace(&mut base.policy, wanted.policy.clone());
        self.undo.push(Undo::ChangedPolicy(id.clone(), name.clone(), old));
        Ok(())
    }

    fn flush_chain(&mut self, id: &TableId, name: &ChainName) -> Result<(), Refused> {
        let old = std::mem::take(&mut self.chain(id, name)?.rules);
        for rule in &old {
            if let Some(uses) = self.uses.get_mut(id) {
                uses.drop_rule(rule);
            }
        }
        self.undo.push(Undo::FlushedChain(id.clone(), name.clone(), old));
        Ok(())
    }

    fn delete_chain(&mut self, id: &TableId, name: &ChainName) -> Result<(), Refused> {
        let object = || format!("chain {id} {name}");
        if !self.chain(id, name)?.rules.is_empty() {
            return Err(refused(object(), Errno::EBUSY, "is not empty"));
        }
        if self.uses(id).chain(name) > 0 {
            return Err(refused(object(), Errno::EBUSY, "a rule or an element leads to it"));
        }
        if self.dropped.contains(&(id.clone(), name.clone())) {
            return Err((object(), Reason::UnsafeChainDelete));
        }
        if let Some(old) = self.table_mut(id)?.chains.remove(name) {
            self.undo.push(Undo::DeletedChain(id.clone(), name.clone(), old));
        }
        Ok(())
    }

    fn add_set(&mut self, decl: &Arc<SetDecl>) -> Result<(), Refused> {
        let table = self.table_mut(&decl.table)?;
        if let Some(there) = table.sets.get(&decl.name) {
            if !check::same_set(&there.decl, decl) {
                return Err(refused(
                    SetObject(decl),
                    Errno::EEXIST,
                    "is there with another key, data or flags",
                ));
            }
            return Ok(());
        }
        check::set(decl).map_err(|(errno, why)| refused(SetObject(decl), errno, why))?;
        table.sets.insert(decl.name.clone(), Set { decl: decl.clone(), elements: BTreeMap::new() });
        self.undo.push(Undo::AddedSet(decl.clone()));
        Ok(())
    }

    fn add_element(
        &mut self,
        index: usize,
        decl: &Arc<SetDecl>,
        element: &Element,
        added: &mut Vec<Key>,
    ) -> Result<(), Refused> {
        let table = self.table(&decl.table)?;
        let there = table.sets.get(&decl.name).ok_or_else(|| no_set(decl))?;
        let new = check::element(table, there, element).map_err(|(errno, why)| {
            refused(ElementObject(decl, &there.decl.key_text(&element.key)), errno, why)
        })?;
        if !new {
            return Ok(());
        }
        if let Some(chain) = element.chain() {
            if let Some(uses) = self.uses.get_mut(&decl.table) {
                uses.add_chain(chain);
            }
            self.grown.insert(decl.table.clone(), index);
        }
        self.set(decl)?.elements.insert(element.key.clone(), element.clone());
        added.push(element.key.clone());
        Ok(())
    }

    fn delete_element(
        &mut self,
        decl: &Arc<SetDecl>,
        element: &Element,
        deleted: &mut Vec<Element>,
    ) -> Result<(), Refused> {
        let there = self.set(decl)?;
        let same = |old: &Element| {
            old.key_end.as_deref().unwrap_or(&old.key) == element.key_end.as_deref().unwrap_or(&element.key)
        };
        let object = || ElementObject(decl, &there.decl.key_text(&element.key)).to_string();
        if element.key.len() != Field::key_len(&there.decl.spec.key, decl.table.family) {
            return Err(refused(object(), Errno::EINVAL, "its key is of another length"));
        }
        if !there.elements.get(&element.key).is_some_and(same) {
            return Err(refused(object(), Errno::ENOENT, "is not there"));
        }
        deleted.extend(there.elements.remove(&element.key));
        Ok(())
    }

    /// Notes that these elements are gone.
    fn drop_elements<'a>(&mut self, decl: &SetDecl, elements: impl Iterator<Item = &'a Element>) {
        for chain in elements.filter_map(Element::chain) {
            self.dropped.insert((decl.table.clone(), chain.clone()));
            if let Some(uses) = self.uses.get_mut(&decl.table) {
                uses.drop_chain(chain);
            }
        }
    }

    fn uses(&mut self, id: &TableId) -> &graph::Uses {
        let tables = &self.tables;
        self.uses.entry(id.clone()).or_insert_with(|| tables.get(id).map(graph::Uses::of).unwrap_or_default())
    }

    fn table(&self, id: &TableId) -> Result<&Table, Refused> {
        self.tables.get(id).ok_or_else(|| no_table(id))
    }

    fn table_mut(&mut self, id: &TableId) -> Result<&mut Table, Refused> {
        self.tables.get_mut(id).ok_or_else(|| no_table(id))
    }

    fn chain(&mut self, id: &TableId, name: &ChainName) -> Result<&mut Chain, Refused> {
        self.table_mut(id)?.chains.get_mut(name).ok_or_else(|| no_chain(id, name))
    }

    fn set(&mut self, decl: &SetDecl) -> Result<&mut Set, Refused> {
        self.table_mut(&decl.table)?.sets.get_mut(&decl.name).ok_or_else(|| no_set(decl))
    }
}

#[cfg(test)]
mod tests;

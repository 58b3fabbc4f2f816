//! Owns the way from one ruleset to another: which operations, and in which order. Knows nothing of what rules mean.
//!
//! The order within a table, and the reason of each step:
//!
//! 1. **Base chains with another hook, type or priority** are flushed, deleted and added again: the kernel can not
//!    move one. Nothing can refer to a base chain, so that is safe in one transaction.
//! 2. **New chains** are added empty, so that what comes after can lead to them, in whatever order.
//! 3. **Chains whose rules changed, or that use a set which is replaced, or that are no longer wanted** are flushed.
//!    Where rules were only added at the end, nothing is flushed.
//! 4. **Sets that are no longer wanted or have another spec** are deleted. Only now, since a set that a rule refers to
//!    is busy. What the elements of a dynamic set had learnt goes with it.
//! 5. **New sets** are added.
//! 6. **Elements** are deleted before others are added: a changed element is a delete and an add of the same key (the
//!    kernel refuses another datum for a key that is there), intervals must not overlap, and a full set takes no more.
//!    Elements of dynamic sets are learnt by the kernel, and left alone; so is what is left of an element's time.
//! 7. **Rules** are added last, when all that they refer to is there.
//!
//! A chain that is no longer wanted is only *emptied* here, and deleted by a second transaction
//! ([`Difference::later`]): before Linux 6.2 the kernel notices only later that a removed element no longer refers to
//! the chain. If a chain's policy was to drop, it becomes accept until then.

use crate::{
    BaseChain, Chain, ChainName, Element, Field, Key, Op, Ruleset, Set, SetData, SetDecl, SetName, SetSpec,
    Table, TableId, Transaction, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The way from one ruleset to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// All but the deletion of chains. After it, packets are treated as the new ruleset says.
    pub now: Transaction,
    /// Deletes chains that `now` left empty. To be sent after `now`, in a transaction of its own; a refusal with
    /// `EBUSY` is no error, the chains are then found again by the next difference.
    pub later: Transaction,
}

impl Difference {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty()
    }
}

/// The way from `old`, which is in the kernel, to `new`. Tables that are only in `old` are deleted, so hold out of it
/// what is not to be touched.
pub fn diff(old: &Ruleset, new: &Ruleset) -> Difference {
    let mut difference = Difference::default();
    let ids: BTreeSet<&TableId> = old.tables.keys().chain(new.tables.keys()).collect();
    for id in ids {
        add_table_diff(&mut difference, id, old.tables.get(id), new.tables.get(id));
    }
    difference
}

/// The same for one table; `None`: it is not there, or not wanted.
pub fn diff_table(id: &TableId, old: Option<&Table>, new: Option<&Table>) -> Difference {
    let mut difference = Difference::default();
    add_table_diff(&mut difference, id, old, new);
    difference
}

/// Elements to delete and elements to add, to get from `old` to `new`. A changed element is in both. What is left of
/// an element's time is no change.
pub fn diff_elements(
    old: &BTreeMap<Key, Element>,
    new: &BTreeMap<Key, Element>,
) -> (Vec<Element>, Vec<Element>) {
    let without = |these: &BTreeMap<Key, Element>, those: &BTreeMap<Key, Element>| {
        let kept =
            |element: &Element| those.get(&element.key).is_some_and(|other| same_element(element, other));
        these.values().filter(|element| !kept(element)).cloned().collect()
    };
    (without(old, new), without(new, old))
}

fn same_element(a: &Element, b: &Element) -> bool {
    let Element { key, key_end, datum, comment, expires: _ } = a;
    (key, key_end, datum, comment) == (&b.key, &b.key_end, &b.datum, &b.comment)
}

fn add_table_diff(difference: &mut Difference, id: &TableId, old: Option<&Table>, new: Option<&Table>) {
    let now = &mut difference.now;
    match (old, new) {
        (None, None) => {}
        (Some(_), None) => now.push(Op::DeleteTable { table: id.clone() }),
        (None, Some(new)) => {
            now.push(Op::AddTable { table: id.clone(), comment: new.comment.clone() });
            TableDiff::of(id, &Table::default(), new).write(difference);
        }
        // What the kernel can not change in place takes the table with it. No packet meets neither of the two.
        (Some(old), Some(new)) if old.comment != new.comment || !can_change_in_place(old, new) => {
            now.push(Op::DeleteTable { table: id.clone() });
            add_table_diff(difference, id, None, Some(new));
        }
        (Some(old), Some(new)) => TableDiff::of(id, old, new).write(difference),
    }
}

/// Whether each chain that becomes a base chain is free of references: the chain would have to be deleted in the
/// transaction that drops them.
fn can_change_in_place(old: &Table, new: &Table) -> bool {
    let mut becomes_base = old.chains.iter().filter(|(name, chain)| {
        chain.base.is_none() && new.chains.get(*name).is_some_and(|chain| chain.base.is_some())
    });
    becomes_base.all(|(name, _)| {
        let by_rule =
            old.chains.values().flat_map(|chain| &chain.rules).any(|rule| rule.chains().any(|to| to == name));
        let by_element =
            old.sets.values().flat_map(|set| set.elements.values()).any(|e| e.chain() == Some(name));
        !by_rule && !by_element
    })
}

struct TableDiff<'a> {
    id: &'a TableId,
    old: &'a Table,
    new: &'a Table,
    /// Sets that are deleted and added again.
    replaced: BTreeSet<&'a SetName>,
}

/// What becomes of the rules of a chain.
enum Rules {
    /// They stay, and those from this index on are added.
    AddFrom(usize),
    /// They all go, and the new ones are added.
    Renew,
}

impl<'a> TableDiff<'a> {
    fn of(id: &'a TableId, old: &'a Table, new: &'a Table) -> Self {
        let replaced = old
            .sets
            .iter()
            .filter(|(name, set)| {
                new.sets.get(*name).is_some_and(|new| !same_spec(&set.decl.spec, &new.decl.spec))
            })
            .map(|(name, _)| name)
            .collect();
        Self { id, old, new, replaced }
    }

    fn write(&self, difference: &mut Difference) {
        let now = &mut difference.now;
        self.renew_base_chains(now);
        self.add_chains(now);
        self.flush_chains(now);
        self.delete_sets(now);
        for (name, set) in &self.new.sets {
            if self.kept_set(name).is_none() {
                now.push(Op::AddSet { set: set.decl.clone() });
            }
        }
        self.change_elements(now);
        self.add_rules(now);
        for name in self.old.chains.keys().filter(|name| !self.new.chains.contains_key(*name)) {
            difference.later.push(Op::DeleteChain { table: self.id.clone(), chain: name.clone() });
        }
    }

    fn renew_base_chains(&self, now: &mut Transaction) {
        for (name, new) in &self.new.chains {
            let Some(old) = self.old.chains.get(name).filter(|old| must_renew(old, new)) else { continue };
            if !old.rules.is_empty() {
                now.push(self.flush(name));
            }
            now.push(Op::DeleteChain { table: self.id.clone(), chain: name.clone() });
        }
    }

    fn add_chains(&self, now: &mut Transaction) {
        for (name, chain) in &self.new.chains {
            // A base chain with another policy only is added over itself.
            if self.kept_chain(name).is_none_or(|old| old.base != chain.base) {
                now.push(self.add_chain(name, chain.base.clone()));
            }
        }
        for (name, old) in self.old.chains.iter().filter(|(name, _)| !self.new.chains.contains_key(*name)) {
            if let Some(base) = old.base.as_ref().filter(|base| base.policy != Verdict::Accept) {
                now.push(self.add_chain(name, Some(BaseChain { policy: Verdict::Accept, ..base.clone() })));
            }
        }
    }

    fn flush_chains(&self, now: &mut Transaction) {
        for (name, old) in self.old.chains.iter().filter(|(_, old)| !old.rules.is_empty()) {
            let flushed = match self.new.chains.get(name) {
                None => true,
                Some(new) => !must_renew(old, new) && matches!(self.rules(old, new), Rules::Renew),
            };
            if flushed {
                now.push(self.flush(name));
            }
        }
    }

    fn delete_sets(&self, now: &mut Transaction) {
        for (name, set) in &self.old.sets {
            if !self.new.sets.contains_key(name) || self.replaced.contains(name) {
                now.push(Op::DeleteSet { set: set.decl.clone() });
            }
        }
    }

    fn change_elements(&self, now: &mut Transaction) {
        let none = BTreeMap::new();
        let changes: Vec<(&Arc<SetDecl>, Vec<Element>, Vec<Element>)> = self
            .new
            .sets
            .iter()
            .filter(|(_, set)| !set.decl.spec.flags.dynamic)
            .map(|(name, set)| {
                let old = self.kept_set(name).map_or(&none, |old| &old.elements);
                let (delete, add) = diff_elements(old, &set.elements);
                (&set.decl, delete, add)
            })
            .collect();
        for (set, delete, _) in &changes {
            if !delete.is_empty() {
                now.push(Op::DeleteElements { set: Arc::clone(set), elements: delete.clone() });
            }
        }
        for (set, _, add) in changes {
            if !add.is_empty() {
                now.push(Op::AddElements { set: Arc::clone(set), elements: add });
            }
        }
    }

    fn add_rules(&self, now: &mut Transaction) {
        for (name, new) in &self.new.chains {
            let from = match self.kept_chain(name).map(|old| self.rules(old, new)) {
                Some(Rules::AddFrom(index)) => index,
                Some(Rules::Renew) | None => 0,
            };
            now.ops.extend(new.rules[from..].iter().map(|rule| Op::AddRule {
                table: self.id.clone(),
                chain: name.clone(),
                rule: rule.clone(),
            }));
        }
    }

    fn rules(&self, old: &Chain, new: &Chain) -> Rules {
        let uses_replaced =
            || old.rules.iter().any(|rule| rule.sets().any(|set| self.replaced.contains(set)));
        if new.rules.starts_with(&old.rules) && !uses_replaced() {
            Rules::AddFrom(old.rules.len())
        } else {
            Rules::Renew
        }
    }

    /// The chain as it is in the kernel, if it may stay.
    fn kept_chain(&self, name: &ChainName) -> Option<&'a Chain> {
        let old = self.old.chains.get(name)?;
        (!must_renew(old, self.new.chains.get(name)?)).then_some(old)
    }

    /// The set as it is in the kernel, if it may stay.
    fn kept_set(&self, name: &SetName) -> Option<&'a Set> {
        self.old.sets.get(name).filter(|_| !self.replaced.contains(name))
    }

    fn add_chain(&self, name: &ChainName, base: Option<BaseChain>) -> Op {
        Op::AddChain { table: self.id.clone(), chain: name.clone(), base }
    }

    fn flush(&self, name: &ChainName) -> Op {
        Op::FlushChain { table: self.id.clone(), chain: name.clone() }
    }
}

/// Whether the kernel can not make the old chain the new one by adding it over itself, which changes the policy only.
fn must_renew(old: &Chain, new: &Chain) -> bool {
    let place = |chain: &Chain| chain.base.as_ref().map(|base| (base.chain_type, base.hook, base.priority));
    place(old) != place(new)
}

/// Whether two specs are the same; the number in a slot does not matter.
fn same_spec(old: &SetSpec, new: &SetSpec) -> bool {
    let same_fields = |old: &[Field], new: &[Field]| {
        old.len() == new.len()
            && old
                .iter()
                .zip(new)
                .all(|pair| matches!(pair, (Field::Slot(_), Field::Slot(_))) || pair.0 == pair.1)
    };
    let SetSpec { key, data, flags, timeout, size, comment } = old;
    let same_data = match (data, &new.data) {
        (SetData::Fields(old), SetData::Fields(new)) => same_fields(old, new),
        (old, new) => old == new,
    };
    // The kernel gives a dynamic set a size when nobody did.
    let same_size = *size == new.size || (new.flags.dynamic && new.size.is_none());
    same_fields(key, &new.key)
        && same_data
        && same_size
        && (flags, timeout, comment) == (&new.flags, &new.timeout, &new.comment)
}

#[cfg(test)]
mod tests;

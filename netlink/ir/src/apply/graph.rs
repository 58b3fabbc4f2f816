//! Owns how chains, sets and elements refer to each other: counts, depth, loops, and from which hooks a chain is
//! reached. Knows nothing of transactions.

use super::{Errno, Refused, refused};
use crate::{
    BaseChain, Chain, ChainName, ChainType, Element, Hook, Rule, SetName, Statement, Table, TableId,
};
use std::collections::{BTreeMap, BTreeSet};

/// How often each chain and each set of a table is referred to.
#[derive(Debug, Default)]
pub(super) struct Uses {
    chains: BTreeMap<ChainName, usize>,
    sets: BTreeMap<SetName, usize>,
}

impl Uses {
    pub(super) fn of(table: &Table) -> Self {
        let mut uses = Self::default();
        for rule in table.chains.values().flat_map(|chain| &chain.rules) {
            uses.add_rule(rule);
        }
        for chain in table.sets.values().flat_map(|set| set.elements.values()).filter_map(Element::chain) {
            uses.add_chain(chain);
        }
        uses
    }

    pub(super) fn chain(&self, name: &ChainName) -> usize {
        self.chains.get(name).copied().unwrap_or(0)
    }

    pub(super) fn set(&self, name: &SetName) -> usize {
        self.sets.get(name).copied().unwrap_or(0)
    }

    pub(super) fn add_rule(&mut self, rule: &Rule) {
        rule.chains().for_each(|chain| self.add_chain(chain));
        for set in rule.sets() {
            *self.sets.entry(set.clone()).or_default() += 1;
        }
    }

    pub(super) fn drop_rule(&mut self, rule: &Rule) {
        rule.chains().for_each(|chain| self.drop_chain(chain));
        for set in rule.sets() {
            if let Some(count) = self.sets.get_mut(set) {
                *count = count.saturating_sub(1);
            }
        }
    }

    pub(super) fn add_chain(&mut self, chain: &ChainName) {
        *self.chains.entry(chain.clone()).or_default() += 1;
    }

    pub(super) fn drop_chain(&mut self, chain: &ChainName) {
        if let Some(count) = self.chains.get_mut(chain) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Chains may lead into each other this deep, the base chain included (`NFT_JUMP_STACK_SIZE`).
const DEPTH_MAX: usize = 16;

/// Checks what the kernel checks at the end of a transaction: depth, loops, and that each statement is in a chain
/// that is only reached from hooks where it works.
pub(super) fn validate(id: &TableId, table: &Table) -> Result<(), Refused> {
    let next = edges(table);
    for (name, chain) in &table.chains {
        if let Some(base) = &chain.base {
            validate_from(id, table, &next, name, base)?;
        }
    }
    if let Some(name) = chain_in_loop(table, &next) {
        return Err(refused(format_args!("chain {id} {name}"), Errno::ELOOP, "leads back to itself"));
    }
    Ok(())
}

type Edges<'a> = BTreeMap<&'a ChainName, BTreeSet<&'a ChainName>>;

/// Which chain leads to which, by its own verdicts or by those of a verdict map it looks up.
fn edges(table: &Table) -> Edges<'_> {
    let by_map: BTreeMap<&SetName, BTreeSet<&ChainName>> = table
        .sets
        .iter()
        .map(|(name, set)| (name, set.elements.values().filter_map(Element::chain).collect()))
        .collect();
    let mapped = |statement: &Statement| match statement {
        Statement::VerdictMap { map, .. } => by_map.get(map),
        _ => None,
    };
    let next = |chain: &'_ Chain| {
        chain
            .rules
            .iter()
            .flat_map(|rule| &rule.statements)
            .filter_map(mapped)
            .flatten()
            .copied()
            .collect::<Vec<_>>()
    };
    table
        .chains
        .iter()
        .map(|(name, chain)| {
            let own = chain.rules.iter().flat_map(Rule::chains);
            (name, own.chain(next(chain)).collect())
        })
        .collect()
}

fn validate_from(
    id: &TableId,
    table: &Table,
    next: &Edges<'_>,
    name: &ChainName,
    base: &BaseChain,
) -> Result<(), Refused> {
    // The greatest depth at which each chain was met; met again at a greater one, it is walked again.
    let mut deepest: BTreeMap<&ChainName, usize> = BTreeMap::new();
    let mut todo = vec![(name, 0)];
    while let Some((name, depth)) = todo.pop() {
        let object = || format!("chain {id} {name}");
        if depth >= DEPTH_MAX {
            return Err(refused(object(), Errno::EMLINK, "is reached over more than 15 other chains"));
        }
        let before = deepest.insert(name, depth);
        if let Some(before) = before.filter(|before| *before >= depth) {
            deepest.insert(name, before);
            continue;
        }
        let rules = table.chains.get(name).into_iter().flat_map(|chain| &chain.rules);
        for statement in rules.flat_map(|rule| &rule.statements).filter(|_| before.is_none()) {
            if !works_in(statement, base) {
                return Err(refused(
                    object(),
                    Errno::EOPNOTSUPP,
                    "has a statement that does not work in a base chain that leads to it",
                ));
            }
        }
        todo.extend(next.get(name).into_iter().flatten().map(|to| (*to, depth + 1)));
    }
    Ok(())
}

fn works_in(statement: &Statement, base: &BaseChain) -> bool {
    let nat = base.chain_type == ChainType::Nat;
    match statement {
        Statement::Dnat { .. } => nat && matches!(base.hook, Hook::Prerouting | Hook::Output),
        Statement::Masquerade => nat && base.hook == Hook::Postrouting,
        Statement::Reject(_) => base.hook != Hook::Postrouting,
        Statement::Compare(..)
        | Statement::CtStateNew
        | Statement::CtStatus(_)
        | Statement::InSet { .. }
        | Statement::VerdictMap { .. }
        | Statement::SetMarkBits(_)
        | Statement::FlipMarkBits(_)
        | Statement::Update { .. }
        | Statement::Counter
        | Statement::Verdict(_) => true,
    }
}

/// Some chain that leads back to itself.
fn chain_in_loop<'a>(table: &'a Table, next: &Edges<'a>) -> Option<&'a ChainName> {
    // Takes away chains that nothing leads to, again and again; what is left is in a loop or behind one.
    let mut into: BTreeMap<&ChainName, usize> = table.chains.keys().map(|name| (name, 0)).collect();
    for to in next.values().flatten() {
        *into.entry(to).or_default() += 1;
    }
    let mut free: Vec<&ChainName> = into.iter().filter(|(_, n)| **n == 0).map(|(name, _)| *name).collect();
    while let Some(name) = free.pop() {
        into.remove(name);
        for to in next.get(name).into_iter().flatten() {
            if let Some(count) = into.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    free.push(to);
                }
            }
        }
    }
    into.into_keys().next()
}

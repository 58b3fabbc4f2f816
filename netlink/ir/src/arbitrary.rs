//! Owns random rulesets and transactions for property tests (feature `arbitrary`). Knows nothing of what is asserted.
//!
//! The domains are small on purpose, so that two samples have names, keys and rules in common, and differ in the rest:
//! the same set with another spec, the same chain with another hook, the same key with another datum.

mod objects;
mod rules;

use crate::{
    BaseChain, Chain, ChainName, ChainType, Element, Family, Hook, Op, Priority, Ruleset, SetDecl, Table,
    TableId, TableName, Transaction, Verdict,
};
use objects::{decl, elements, set, spec_choices};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::sync::Arc;

/// Which rules there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// All that the kernel takes.
    Kernel,
    /// Only what nft 1.0.6 can load (see [`crate::text`]).
    Nft106,
}

/// The table that all samples of a family are about.
pub fn table_id(family: Family) -> TableId {
    TableId { family, name: TableName::literal("t") }
}

/// Any ruleset that the kernel takes: no table, or one of each family.
pub fn ruleset(dialect: Dialect) -> impl Strategy<Value = Ruleset> {
    let tables = Family::ALL.map(|family| proptest::option::weighted(0.9, table(family, dialect)));
    tables.prop_map(|tables| Ruleset {
        tables: Family::ALL
            .into_iter()
            .zip(tables)
            .filter_map(|(family, table)| Some((table_id(family), table?)))
            .collect(),
    })
}

/// Any table that the kernel takes.
pub fn table(family: Family, dialect: Dialect) -> impl Strategy<Value = Table> {
    let sets = subsequence(objects::SET_NAMES.to_vec(), 0..=objects::SET_NAMES.len())
        .prop_flat_map(move |names| names.into_iter().map(|name| set(family, name)).collect::<Vec<_>>());
    let comment = proptest::option::weighted(0.1, "[a-z ]{1,9}");
    (sets, comment).prop_flat_map(move |(sets, comment)| {
        let decls: Vec<Arc<SetDecl>> = sets.iter().map(|set| set.decl.clone()).collect();
        let chains: Vec<_> = KINDS.iter().map(|kind| chain(family, dialect, *kind, decls.clone())).collect();
        subsequence(chains, 0..=KINDS.len()).prop_flat_map(|chains| chains).prop_map(move |chains| {
            let sets = sets.iter().map(|set| (set.decl.name.clone(), set.clone())).collect();
            without_dangling(Table { comment: comment.clone(), chains: chains.into_iter().collect(), sets })
        })
    })
}

/// A ruleset, and operations on its table of the family. They are about the sets as they are declared there, but
/// otherwise need not fit: they add what is there, delete what is not, lead to chains that are missing.
pub fn ruleset_and_transaction(family: Family) -> impl Strategy<Value = (Ruleset, Transaction)> {
    let others = objects::SET_NAMES.map(|name| spec_choices().prop_map(move |spec| decl(family, name, spec)));
    (ruleset(Dialect::Kernel), others).prop_flat_map(move |(ruleset, others)| {
        let there = ruleset.tables.get(&table_id(family)).map(|table| &table.sets);
        let decls: Vec<Arc<SetDecl>> = others
            .into_iter()
            .map(|other| match there.and_then(|sets| sets.get(&other.name)) {
                Some(set) => set.decl.clone(),
                None => Arc::new(other),
            })
            .collect();
        let ops = vec(op(family, decls), 0..12);
        (Just(ruleset), ops.prop_map(|ops| Transaction { ops }))
    })
}

/// One operation on the table of the family, with these sets (or with one of them declared otherwise).
fn op(family: Family, decls: Vec<Arc<SetDecl>>) -> impl Strategy<Value = Op> {
    let table = table_id(family);
    let chain_name = || select(KINDS.map(|kind| kind.name).to_vec()).prop_map(ChainName::literal);
    let pool = decls.clone();
    let any_set = move || select(pool.clone());
    let set_otherwise = (any_set(), spec_choices())
        .prop_map(|(set, spec)| Arc::new(SetDecl { spec, ..SetDecl::clone(&set) }));
    let with_elements = || {
        any_set().prop_flat_map(|decl| {
            let elements = elements(&decl).prop_map(|map| map.into_values().collect::<Vec<Element>>());
            (Just(decl), elements)
        })
    };
    let on_chain = move |make: fn(TableId, ChainName) -> Op| {
        let table = table.clone();
        chain_name().prop_map(move |chain| make(table.clone(), chain))
    };
    let add_rule = select(KINDS.to_vec()).prop_flat_map(move |kind| {
        let name = ChainName::literal(kind.name);
        rules::rule(family, Dialect::Kernel, kind, decls.clone()).prop_map(move |rule| Op::AddRule {
            table: table_id(family),
            chain: name.clone(),
            rule,
        })
    });
    let add_chain = select(KINDS.to_vec()).prop_flat_map(move |kind| {
        base(kind).prop_map(move |base| Op::AddChain {
            table: table_id(family),
            chain: ChainName::literal(kind.name),
            base,
        })
    });
    prop_oneof![
        2 => Just(Op::AddTable { table: table_id(family), comment: None }),
        1 => Just(Op::DeleteTable { table: table_id(family) }),
        4 => add_chain,
        2 => on_chain(|table, chain| Op::FlushChain { table, chain }),
        2 => on_chain(|table, chain| Op::DeleteChain { table, chain }),
        4 => add_rule,
        3 => any_set().prop_map(|set| Op::AddSet { set }),
        1 => set_otherwise.prop_map(|set| Op::AddSet { set }),
        1 => any_set().prop_map(|set| Op::FlushSet { set }),
        1 => any_set().prop_map(|set| Op::DeleteSet { set }),
        4 => with_elements().prop_map(|(set, elements)| Op::AddElements { set, elements }),
        2 => with_elements().prop_map(|(set, elements)| Op::DeleteElements { set, elements }),
    ]
}

/// A chain of the samples, and what may stand in it.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Type and hooks, if it is a base chain.
    base: Option<(ChainType, &'static [Hook])>,
    /// Whether it may as well be a regular chain.
    either: bool,
    ends: Ends,
    /// Whether it may look up verdict maps.
    maps: bool,
    /// Chains that it may lead to. None leads back.
    next: &'static [&'static str],
}

/// Statements that end a rule and do not work everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Dnat,
    Masquerade,
    Reject,
    Nowhere,
}

/// Chains that a verdict map may lead to; they look up none.
const MAPPED: &[&str] = &["plain-0", "plain-1"];

const KINDS: [Kind; 11] = {
    use ChainType::{Filter, Nat};
    let to_filter: &[Hook] = &[Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output];
    let regular = Kind { name: "", base: None, either: false, ends: Ends::Nowhere, maps: true, next: MAPPED };
    let nat_to: &[&str] = &["dnat-0", "dnat-1", "plain-0"];
    [
        Kind {
            name: "nat-to",
            base: Some((Nat, &[Hook::Prerouting, Hook::Output])),
            ends: Ends::Dnat,
            next: nat_to,
            ..regular
        },
        Kind {
            name: "nat-from",
            base: Some((Nat, &[Hook::Postrouting])),
            ends: Ends::Masquerade,
            next: &["masq-0", "plain-1"],
            ..regular
        },
        Kind {
            name: "filter",
            base: Some((Filter, to_filter)),
            ends: Ends::Reject,
            next: &["reject-0", "plain-0", "either"],
            ..regular
        },
        Kind { name: "last", base: Some((Filter, &[Hook::Postrouting])), ..regular },
        Kind { name: "either", base: Some((Filter, to_filter)), either: true, ..regular },
        Kind { name: "dnat-0", ends: Ends::Dnat, next: &["dnat-1", "plain-0"], ..regular },
        Kind { name: "dnat-1", ends: Ends::Dnat, ..regular },
        Kind { name: "masq-0", ends: Ends::Masquerade, ..regular },
        Kind { name: "reject-0", ends: Ends::Reject, ..regular },
        Kind { name: "plain-0", maps: false, next: &["plain-1"], ..regular },
        Kind { name: "plain-1", maps: false, next: &[], ..regular },
    ]
};

fn base(kind: Kind) -> BoxedStrategy<Option<BaseChain>> {
    let Some((chain_type, hooks)) = kind.base else { return Just(None).boxed() };
    let regular = if kind.either { 1 } else { 0 };
    let base = (select(hooks.to_vec()), select(vec![0, 1]), select(vec![Verdict::Accept, Verdict::Drop]))
        .prop_map(move |(hook, offset, policy)| {
            let named = match (chain_type, hook) {
                (ChainType::Nat, Hook::Postrouting) => Priority::SRCNAT,
                (ChainType::Nat, _) => Priority::DSTNAT,
                (ChainType::Filter, Hook::Prerouting) => Priority::BEFORE_DSTNAT,
                (ChainType::Filter, _) => Priority::FILTER,
            };
            Some(BaseChain { chain_type, hook, priority: Priority(named.0 + offset), policy })
        });
    prop_oneof![regular => Just(None), 2 => base].boxed()
}

fn chain(
    family: Family,
    dialect: Dialect,
    kind: Kind,
    decls: Vec<Arc<SetDecl>>,
) -> BoxedStrategy<(ChainName, Chain)> {
    (base(kind), vec(rules::rule(family, dialect, kind, decls), 0..4))
        .prop_map(move |(base, rules)| (ChainName::literal(kind.name), Chain { base, rules }))
        .boxed()
}

/// The table without what leads to chains that are not there, or are base chains.
fn without_dangling(mut table: Table) -> Table {
    let regular: Vec<ChainName> =
        table.chains.iter().filter(|(_, chain)| chain.base.is_none()).map(|(name, _)| name.clone()).collect();
    for chain in table.chains.values_mut() {
        chain.rules.retain(|rule| rule.chains().all(|to| regular.contains(to)));
    }
    for set in table.sets.values_mut() {
        set.elements.retain(|_, element| element.chain().is_none_or(|to| regular.contains(to)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn rulesets_can_be_applied(ruleset in ruleset(Dialect::Kernel)) {
            let mut kernel = Ruleset::default();
            let difference = crate::diff::diff(&kernel, &ruleset);
            kernel.apply(&difference.now).map_err(|refusal| {
                TestCaseError::fail(format!("{refusal}\n{}", difference.now))
            })?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default() })]

        #[test]
        fn nft_loads_what_is_printed(ruleset in ruleset(Dialect::Nft106)) {
            let text = ruleset.to_string();
            crate::nft::check(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            let transaction = crate::diff::diff(&Ruleset::default(), &ruleset).now.to_string();
            crate::nft::check(&transaction)
                .map_err(|error| TestCaseError::fail(format!("{error}\n{transaction}")))?;
        }
    }
}

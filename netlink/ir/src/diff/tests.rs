//! Owns the tests of the way from one ruleset to another.

use super::*;
use crate::arbitrary::{self, Dialect, table_id};
use crate::{AddrKind, Datum, Family, KeyBuilder, Priority, Rule, SetFlags, Statement, Value};
use crate::{ChainType, Hook};
use proptest::prelude::*;
use std::net::IpAddr;

proptest! {
    #[test]
    fn the_way_leads_from_old_to_new(
        old in arbitrary::ruleset(Dialect::Kernel),
        new in arbitrary::ruleset(Dialect::Kernel),
    ) {
        let Difference { now, later } = diff(&old, &new);
        let mut kernel = old;
        kernel.apply(&now).map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{now}")))?;
        let left_over = kernel.tables.values().flat_map(|table| &table.chains).filter(|(name, _)| {
            new.tables.values().all(|table| !table.chains.contains_key(*name))
        });
        for (name, chain) in left_over {
            prop_assert!(chain.rules.is_empty(), "{}", name);
            prop_assert!(chain.base.as_ref().is_none_or(|base| base.policy == Verdict::Accept), "{}", name);
        }
        kernel.apply(&later).map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{now}{later}")))?;
        prop_assert_eq!(&kernel, &new, "\n{}", now);
        prop_assert!(diff(&kernel, &new).is_empty());
    }

    #[test]
    fn no_way_leads_nowhere(ruleset in arbitrary::ruleset(Dialect::Kernel)) {
        prop_assert!(diff(&ruleset, &ruleset).is_empty());
    }

    #[test]
    fn a_refused_transaction_changes_nothing(
        (old, transaction) in arbitrary::ruleset_and_transaction(Family::Ip),
    ) {
        let mut kernel = old.clone();
        if kernel.apply(&transaction).is_err() {
            prop_assert_eq!(kernel, old);
        } else {
            // What was taken can be said as a difference just as well.
            let mut by_diff = old.clone();
            let Difference { now, later } = diff(&old, &kernel);
            by_diff.apply(&now).map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{now}")))?;
            by_diff.apply(&later).map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{later}")))?;
            prop_assert_eq!(without_learnt(by_diff), without_learnt(kernel));
        }
    }
}

/// Elements of dynamic sets are none of the difference's business.
fn without_learnt(mut ruleset: Ruleset) -> Ruleset {
    for set in ruleset.tables.values_mut().flat_map(|table| table.sets.values_mut()) {
        if set.decl.spec.flags.dynamic {
            set.elements.clear();
        }
    }
    ruleset
}

fn chain(name: &str) -> ChainName {
    ChainName::literal(name)
}

fn key(addr: &str) -> Key {
    KeyBuilder::new().addr(addr.parse::<IpAddr>().unwrap()).build()
}

fn set(name: &str, spec: SetSpec, elements: impl IntoIterator<Item = Element>) -> (SetName, Set) {
    let name = SetName::literal(name);
    let decl = Arc::new(SetDecl { table: table_id(Family::Ip), name: name.clone(), spec });
    (name, Set { decl, elements: elements.into_iter().map(|e| (e.key.clone(), e)).collect() })
}

fn lookup() -> Rule {
    Rule::new([Statement::VerdictMap {
        key: [Field::DestinationAddr].into_iter().collect(),
        map: SetName::literal("services"),
    }])
}

fn to(name: &str) -> Datum {
    Datum::Verdict(Verdict::Goto(chain(name)))
}

fn mark(bits: u32) -> Rule {
    Rule::new([
        Statement::Compare(crate::Compare::Eq, Value::FibLocal(AddrKind::Source)),
        Statement::SetMarkBits(bits),
    ])
}

/// A verdict map, the chain that looks it up, and the chains that it leads to.
fn services() -> Table {
    let spec = SetSpec::verdict_map([Field::DestinationAddr]);
    let element = |addr, name| Element::of_map(key(addr), to(name));
    let base = BaseChain {
        chain_type: ChainType::Nat,
        hook: Hook::Prerouting,
        priority: Priority::DSTNAT,
        policy: Verdict::Accept,
    };
    Table {
        comment: None,
        chains: [
            (chain("pick-1"), Chain { base: None, rules: vec![mark(1)] }),
            (chain("pick-2"), Chain { base: None, rules: vec![mark(2)] }),
            (chain("prerouting"), Chain { base: Some(base), rules: vec![lookup()] }),
        ]
        .into(),
        sets: [set("services", spec, [element("10.0.0.1", "pick-1"), element("10.0.0.2", "pick-2")])].into(),
    }
}

/// What it takes to change `services()` so.
fn changed(change: impl FnOnce(&mut Table)) -> (String, String) {
    let (old, mut new) = (services(), services());
    change(&mut new);
    let Difference { now, later } = diff_table(&table_id(Family::Ip), Some(&old), Some(&new));
    (now.to_string(), later.to_string())
}

fn elements(table: &mut Table) -> &mut BTreeMap<Key, Element> {
    &mut table.sets.get_mut(&SetName::literal("services")).unwrap().elements
}

#[test]
fn a_changed_element_is_deleted_and_added() {
    let (now, later) = changed(|table| {
        elements(table).insert(key("10.0.0.1"), Element::of_map(key("10.0.0.1"), to("pick-2")));
    });
    assert_eq!(
        now,
        "delete element ip t services { 10.0.0.1 }\nadd element ip t services { 10.0.0.1 : goto pick-2 }\n"
    );
    assert_eq!(later, "");
}

#[test]
fn a_chain_out_of_use_is_emptied_now_and_deleted_later() {
    let (now, later) = changed(|table| {
        elements(table).remove(&key("10.0.0.2"));
        table.chains.remove(&chain("pick-2"));
    });
    assert_eq!(now, "flush chain ip t pick-2\ndelete element ip t services { 10.0.0.2 }\n");
    assert_eq!(later, "delete chain ip t pick-2\n");
}

#[test]
fn rules_at_the_end_are_added_without_a_flush() {
    let (now, _) = changed(|table| table.chains.get_mut(&chain("pick-1")).unwrap().rules.push(mark(4)));
    assert_eq!(now, "add rule ip t pick-1 fib saddr type local meta mark set meta mark | 0x00000004\n");
    let (now, _) = changed(|table| table.chains.get_mut(&chain("pick-1")).unwrap().rules.insert(0, mark(4)));
    assert_eq!(now.lines().next(), Some("flush chain ip t pick-1"));
    assert_eq!(now.lines().count(), 3);
}

#[test]
fn a_set_of_another_type_takes_the_rules_that_use_it_along() {
    let (now, later) = changed(|table| {
        let spec = SetSpec::verdict_map([Field::DestinationAddr]).comment("new");
        table.sets = [set("services", spec, [Element::of_map(key("10.0.0.1"), to("pick-1"))])].into();
    });
    assert_eq!(
        now,
        "flush chain ip t prerouting\n\
         delete map ip t services\n\
         add map ip t services { typeof ip daddr : verdict; comment \"new\"; }\n\
         add element ip t services { 10.0.0.1 : goto pick-1 }\n\
         add rule ip t prerouting ip daddr vmap @services\n"
    );
    assert_eq!(later, "");
}

#[test]
fn a_base_chain_moves_by_deletion() {
    let base = |change: fn(&mut BaseChain)| {
        changed(|table| change(table.chains.get_mut(&chain("prerouting")).unwrap().base.as_mut().unwrap()))
    };
    let (now, _) = base(|base| base.hook = Hook::Output);
    assert_eq!(
        now,
        "flush chain ip t prerouting\n\
         delete chain ip t prerouting\n\
         add chain ip t prerouting { type nat hook output priority -100; policy accept; }\n\
         add rule ip t prerouting ip daddr vmap @services\n"
    );
    let (now, _) = base(|base| base.policy = Verdict::Drop);
    assert_eq!(now, "add chain ip t prerouting { type nat hook prerouting priority dstnat; policy drop; }\n");
}

#[test]
fn a_base_chain_out_of_use_lets_all_pass_until_it_is_gone() {
    let mut old = services();
    let without = {
        let mut table = services();
        table.chains.remove(&chain("prerouting"));
        table
    };
    old.chains.get_mut(&chain("prerouting")).unwrap().base.as_mut().unwrap().policy = Verdict::Drop;
    let Difference { now, later } = diff_table(&table_id(Family::Ip), Some(&old), Some(&without));
    assert_eq!(
        now.to_string(),
        "add chain ip t prerouting { type nat hook prerouting priority dstnat; policy accept; }\n\
         flush chain ip t prerouting\n"
    );
    assert_eq!(later.to_string(), "delete chain ip t prerouting\n");
}

#[test]
fn a_chain_in_use_that_becomes_a_base_chain_takes_the_table_along() {
    let (now, _) = changed(|table| {
        elements(table).remove(&key("10.0.0.2"));
        let base = table.chains[&chain("prerouting")].base.clone();
        table.chains.get_mut(&chain("pick-2")).unwrap().base = base;
    });
    assert!(now.starts_with("delete table ip t\nadd table ip t\nadd chain ip t pick-1\n"), "{now}");
}

#[test]
fn learnt_elements_and_time_left_are_left_alone() {
    let flags = SetFlags { dynamic: true, timeout: true, ..SetFlags::default() };
    let learnt = SetSpec { flags, ..SetSpec::set([Field::SourceAddr]) };
    let timed = SetSpec { flags: SetFlags { dynamic: false, ..flags }, ..learnt.clone() };
    let left = |secs| Element {
        expires: Some(std::time::Duration::from_secs(secs)),
        ..Element::of_set(key("10.0.0.1"))
    };
    let sized = SetSpec { size: Some(65_535), ..learnt.clone() };
    let old = Table {
        sets: [set("a", sized, [left(9)]), set("b", timed.clone(), [left(9)])].into(),
        ..Table::default()
    };
    let new = Table { sets: [set("a", learnt, []), set("b", timed, [left(5)])].into(), ..Table::default() };
    assert!(diff_table(&table_id(Family::Ip), Some(&old), Some(&new)).is_empty());
}

#[test]
fn tables_come_and_go_as_a_whole() {
    let id = table_id(Family::Ip);
    let come = diff_table(&id, None, Some(&services()));
    assert_eq!(come.now.to_string().lines().next(), Some("add table ip t"));
    assert!(come.later.is_empty());
    assert_eq!(diff_table(&id, Some(&services()), None).now.to_string(), "delete table ip t\n");
    assert!(diff_table(&id, None, None).is_empty());
}

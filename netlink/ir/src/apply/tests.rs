//! Owns the tests of what transactions do and what is refused, with `nft` as witness for the errno.

use super::Errno::{self, *};
use crate::*;
use std::net::IpAddr;
use std::sync::Arc;

fn id() -> TableId {
    TableId { family: Family::Ip, name: TableName::literal("t") }
}

fn chain(name: &str) -> ChainName {
    ChainName::literal(name)
}

fn decl(name: &str, spec: SetSpec) -> Arc<SetDecl> {
    Arc::new(SetDecl { table: id(), name: SetName::literal(name), spec })
}

fn add_table() -> Op {
    Op::AddTable { table: id(), comment: None }
}

fn add_chain(name: &str) -> Op {
    Op::AddChain { table: id(), chain: chain(name), base: None }
}

fn add_base(name: &str, chain_type: ChainType, hook: Hook, priority: i32) -> Op {
    let base = BaseChain { chain_type, hook, priority: Priority(priority), policy: Verdict::Accept };
    Op::AddChain { table: id(), chain: chain(name), base: Some(base) }
}

fn flush_chain(name: &str) -> Op {
    Op::FlushChain { table: id(), chain: chain(name) }
}

fn delete_chain(name: &str) -> Op {
    Op::DeleteChain { table: id(), chain: chain(name) }
}

fn add_rule(name: &str, statements: impl IntoIterator<Item = Statement>) -> Op {
    Op::AddRule { table: id(), chain: chain(name), rule: Rule::new(statements) }
}

fn jump(name: &str) -> Statement {
    Statement::Verdict(Verdict::Jump(chain(name)))
}

fn goto(name: &str) -> Datum {
    Datum::Verdict(Verdict::Goto(chain(name)))
}

fn key(addr: &str) -> Key {
    KeyBuilder::new().addr(addr.parse::<IpAddr>().unwrap()).build()
}

fn add(set: &Arc<SetDecl>, elements: impl IntoIterator<Item = Element>) -> Op {
    Op::AddElements { set: set.clone(), elements: elements.into_iter().collect() }
}

fn delete(set: &Arc<SetDecl>, elements: impl IntoIterator<Item = Element>) -> Op {
    Op::DeleteElements { set: set.clone(), elements: elements.into_iter().collect() }
}

fn vmap() -> Arc<SetDecl> {
    decl("v", SetSpec::verdict_map([Field::SourceAddr]))
}

fn plain() -> Arc<SetDecl> {
    decl("s", SetSpec::set([Field::SourceAddr]))
}

fn in_set(name: &str) -> Statement {
    Statement::InSet {
        key: [Field::SourceAddr].into_iter().collect(),
        op: Compare::Eq,
        set: SetName::literal(name),
    }
}

fn in_map(name: &str) -> Statement {
    Statement::VerdictMap { key: [Field::SourceAddr].into_iter().collect(), map: SetName::literal(name) }
}

#[derive(PartialEq, Eq)]
enum Witness {
    /// `nft` gives the same answer.
    Nft,
    /// `nft` itself sees to it that this can not be sent, or the kernel is less strict.
    None,
}

#[test]
fn the_kernel_refuses_the_same_by_the_same_errno() {
    use ChainType::{Filter, Nat};
    use Witness::Nft;
    let (v, s) = (vmap(), plain());
    let full = decl("f", SetSpec { size: Some(1), ..SetSpec::set([Field::SourceAddr]) });
    let interval = SetFlags { interval: true, ..SetFlags::default() };
    let ranges =
        decl("r", SetSpec { flags: interval, ..SetSpec::set([Field::SourceAddr, Field::DestinationPort]) });
    let range = |from: &str, to: &str| {
        let key = |addr: &str| KeyBuilder::new().addr(addr.parse().unwrap()).port(80).build();
        Element::of_set(key(from)).through(key(to))
    };
    let of_v = |addr: &str, datum| Element::of_map(key(addr), datum);
    let of_s = |addr: &str| Element::of_set(key(addr));
    let set = |set: &Arc<SetDecl>| Op::AddSet { set: set.clone() };
    let delete_set = |set: &Arc<SetDecl>| Op::DeleteSet { set: set.clone() };
    let drop = || Datum::Verdict(Verdict::Drop);
    let accept = || Datum::Verdict(Verdict::Accept);
    let masquerade = || Statement::Masquerade;
    let reject = || Statement::Reject(Reject::PortUnreachable);
    let ladder = |rungs: usize| -> Vec<Op> {
        let base = add_base("c0", Filter, Hook::Input, 0);
        let chains = (1..=rungs).map(|n| add_chain(&format!("c{n}")));
        let rules = (0..rungs).map(|n| add_rule(&format!("c{n}"), [jump(&format!("c{}", n + 1))]));
        std::iter::once(base).chain(chains).chain(rules).collect()
    };

    // Each row: operations after `add table`, and the refusal of the last, if it is one.
    let rows: Vec<(Vec<Op>, Option<Errno>, Witness)> = vec![
        (vec![add_chain("a"), add_chain("a")], None, Nft),
        (vec![add_rule("a", [jump("b")])], Some(ENOENT), Nft),
        (vec![add_chain("a"), add_rule("a", [jump("b")])], Some(ENOENT), Nft),
        (vec![add_chain("a"), add_rule("a", [in_map("v")])], Some(ENOENT), Nft),
        (vec![flush_chain("a")], Some(ENOENT), Nft),
        (vec![delete_chain("a")], Some(ENOENT), Nft),
        (vec![delete_set(&s)], Some(ENOENT), Nft),
        (vec![add(&s, [of_s("1.2.3.4")])], Some(ENOENT), Nft),
        (vec![set(&s), delete(&s, [of_s("1.2.3.4")])], Some(ENOENT), Nft),
        (vec![set(&v), add(&v, [of_v("1.2.3.4", goto("a"))])], Some(ENOENT), Nft),
        (vec![set(&v), add(&v, [of_v("1.2.3.4", drop())]), add(&v, [of_v("1.2.3.4", drop())])], None, Nft),
        (
            vec![set(&v), add(&v, [of_v("1.2.3.4", drop())]), add(&v, [of_v("1.2.3.4", accept())])],
            Some(EEXIST),
            Nft,
        ),
        (
            vec![
                set(&v),
                add(&v, [of_v("1.2.3.4", drop())]),
                delete(&v, [of_v("1.2.3.4", drop())]),
                add(&v, [of_v("1.2.3.4", accept())]),
            ],
            None,
            Nft,
        ),
        (vec![set(&full), add(&full, [of_s("1.2.3.4")]), add(&full, [of_s("1.2.3.5")])], Some(ENFILE), Nft),
        (
            vec![
                set(&ranges),
                add(&ranges, [range("1.2.3.0", "1.2.3.255")]),
                add(&ranges, [range("1.2.3.4", "1.2.3.5")]),
            ],
            Some(EEXIST),
            Nft,
        ),
        (
            vec![
                set(&ranges),
                add(&ranges, [range("1.2.3.0", "1.2.3.255")]),
                add(&ranges, [range("1.2.4.0", "1.2.4.255")]),
            ],
            None,
            Nft,
        ),
        (vec![set(&s), set(&decl("s", SetSpec::set([Field::DestinationAddr])))], None, Nft),
        (vec![set(&s), set(&decl("s", SetSpec::set([Field::SourcePort])))], Some(EEXIST), Nft),
        (vec![add_base("a", Filter, Hook::Input, 0), add_base("a", Filter, Hook::Input, 0)], None, Nft),
        (vec![add_base("a", Filter, Hook::Input, 0), add_base("a", Nat, Hook::Input, 0)], Some(EEXIST), Nft),
        (
            vec![add_base("a", Filter, Hook::Input, 0), add_base("a", Filter, Hook::Output, 0)],
            Some(EOPNOTSUPP),
            Nft,
        ),
        (
            vec![add_base("a", Filter, Hook::Input, 0), add_base("a", Filter, Hook::Input, 1)],
            Some(EOPNOTSUPP),
            Nft,
        ),
        (vec![add_chain("a"), add_base("a", Filter, Hook::Input, 0)], Some(EOPNOTSUPP), Nft),
        (vec![add_base("a", Filter, Hook::Input, 0), add_chain("a")], None, Nft),
        (vec![add_base("a", Nat, Hook::Forward, 0)], Some(EOPNOTSUPP), Nft),
        (vec![add_base("a", Nat, Hook::Output, -200)], Some(EOPNOTSUPP), Nft),
        (vec![add_base("a", Nat, Hook::Output, -199)], None, Nft),
        (
            vec![add_base("a", Filter, Hook::Input, 0), add_chain("b"), add_rule("b", [jump("a")])],
            Some(EOPNOTSUPP),
            Nft,
        ),
        (
            vec![
                add_base("a", Filter, Hook::Postrouting, 0),
                add_chain("b"),
                add_rule("b", [reject()]),
                add_rule("a", [jump("b")]),
            ],
            Some(EOPNOTSUPP),
            Nft,
        ),
        (
            vec![
                add_base("a", Filter, Hook::Prerouting, 0),
                add_chain("b"),
                add_rule("b", [reject()]),
                add_rule("a", [jump("b")]),
            ],
            None,
            Nft,
        ),
        (
            vec![add_base("a", Filter, Hook::Postrouting, 0), add_rule("a", [masquerade()])],
            Some(EOPNOTSUPP),
            Nft,
        ),
        (vec![add_base("a", Nat, Hook::Postrouting, 0), add_rule("a", [masquerade()])], None, Nft),
        (
            vec![
                set(&v),
                add_base("a", Nat, Hook::Prerouting, 0),
                add_chain("b"),
                add_rule("b", [masquerade()]),
                add_rule("a", [in_map("v")]),
                add(&v, [of_v("1.2.3.4", goto("b"))]),
            ],
            Some(EOPNOTSUPP),
            Nft,
        ),
        (
            vec![add_chain("a"), add_chain("b"), add_rule("a", [jump("b")]), delete_chain("b")],
            Some(EBUSY),
            Nft,
        ),
        (
            vec![add_chain("a"), add_rule("a", [Statement::Counter]), delete_chain("a")],
            Some(EBUSY),
            Witness::None,
        ),
        (
            vec![set(&v), add_chain("a"), add(&v, [of_v("1.2.3.4", goto("a"))]), delete_chain("a")],
            Some(EBUSY),
            Nft,
        ),
        (vec![set(&s), add_chain("a"), add_rule("a", [in_set("s")]), delete_set(&s)], Some(EBUSY), Nft),
        (
            vec![set(&s), add_chain("a"), add_rule("a", [in_set("s")]), flush_chain("a"), delete_set(&s)],
            None,
            Nft,
        ),
        (ladder(15), None, Nft),
        (ladder(16), Some(EMLINK), Nft),
        (
            vec![
                add_base("p", Filter, Hook::Input, 0),
                add_chain("a"),
                add_chain("b"),
                add_rule("p", [jump("a")]),
                add_rule("a", [jump("b")]),
                add_rule("b", [jump("a")]),
            ],
            Some(EMLINK),
            Nft,
        ),
        (
            vec![add_chain("a"), add_chain("b"), add_rule("a", [jump("b")]), add_rule("b", [jump("a")])],
            Some(ELOOP),
            Witness::None,
        ),
        (vec![set(&v), add_chain("a"), add_rule("a", [in_set("v")])], Some(EINVAL), Witness::None),
    ];
    for (ops, expected, witness) in rows {
        let last = ops.len();
        let transaction = Transaction { ops: std::iter::once(add_table()).chain(ops).collect() };
        let mut ruleset = Ruleset::default();
        let result = ruleset.apply(&transaction);
        let errno = result.as_ref().err().and_then(|refusal| refusal.reason.errno());
        assert_eq!(errno, expected, "{transaction}{result:?}");
        if let Err(refusal) = result {
            assert_eq!(refusal.op, last, "{transaction}{refusal}");
            assert_eq!(ruleset, Ruleset::default(), "{transaction}");
        }
        if witness == Nft {
            let answer = crate::nft::load_and_list(&transaction.to_string());
            match (expected, &answer) {
                (None, Ok(listed)) => {
                    let ours = crate::nft::load_and_list(&ruleset.to_string()).unwrap();
                    assert_eq!(ours.len(), listed.len(), "{transaction}{ours}{listed}");
                }
                (Some(errno), Err(text)) => {
                    let says = std::io::Error::from_raw_os_error(errno.number()).to_string();
                    let says = says.split(" (os error").next().unwrap();
                    assert!(text.contains(says), "{transaction}{says}: {text}");
                }
                _ => panic!("{transaction}{expected:?}: {answer:?}"),
            }
        }
    }
}

#[test]
fn a_chain_is_not_deleted_with_the_last_element_that_led_to_it() {
    let v = vmap();
    let mut ruleset = Ruleset::default();
    let element = || Element::of_map(key("1.2.3.4"), goto("a"));
    let start = [add_table(), add_chain("a"), Op::AddSet { set: v.clone() }, add(&v, [element()])];
    ruleset.apply(&Transaction { ops: start.into() }).unwrap();

    let both = Transaction { ops: vec![delete(&v, [element()]), delete_chain("a")] };
    let before = ruleset.clone();
    let refusal = ruleset.apply(&both).unwrap_err();
    assert_eq!(refusal.reason, apply::Reason::UnsafeChainDelete);
    assert_eq!(
        refusal.to_string(),
        "operation 1: chain ip t a: is deleted in the transaction that drops the last element that led to it"
    );
    assert_eq!(ruleset, before);

    for op in both.ops {
        ruleset.apply(&Transaction { ops: vec![op] }).unwrap();
    }
    assert_eq!(ruleset.tables[&id()].chains.len(), 0);

    // With a rule it may go.
    ruleset
        .apply(&Transaction { ops: vec![add_chain("a"), add_chain("b"), add_rule("b", [jump("a")])] })
        .unwrap();
    ruleset
        .apply(&Transaction { ops: vec![flush_chain("b"), delete_chain("a"), delete_chain("b")] })
        .unwrap();

    // A deleted table takes its references with it: what is added after it is new.
    ruleset.apply(&Transaction { ops: vec![add_chain("a"), add(&v, [element()])] }).unwrap();
    let anew = [Op::DeleteTable { table: id() }, add_table(), add_chain("a"), delete_chain("a")];
    ruleset.apply(&Transaction { ops: anew.into() }).unwrap();
}

#[test]
fn a_refusal_names_operation_and_object() {
    let v = vmap();
    let refusal = Ruleset::default()
        .apply(&Transaction {
            ops: vec![
                add_table(),
                Op::AddSet { set: v.clone() },
                add(&v, [Element::of_map(key("1.2.3.4"), goto("pick-3"))]),
            ],
        })
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "operation 2: element ip t v { 1.2.3.4 }: ENOENT: leads to a chain that is not there"
    );
}

#[test]
fn a_refused_transaction_leaves_everything_as_it_was() {
    let (v, s) = (vmap(), plain());
    let element = |n: u8| Element::of_map(key(&format!("1.2.3.{n}")), goto("a"));
    let mut ruleset = Ruleset::default();
    let start = vec![
        add_table(),
        add_chain("a"),
        add_chain("b"),
        add_base("p", ChainType::Filter, Hook::Input, 0),
        add_rule("b", [jump("a")]),
        Op::AddSet { set: v.clone() },
        add(&v, [element(1), element(2)]),
        Op::AddSet { set: s.clone() },
        add(&s, [Element::of_set(key("1.1.1.1"))]),
    ];
    ruleset.apply(&Transaction { ops: start }).unwrap();
    let before = ruleset.clone();
    let policy = BaseChain {
        chain_type: ChainType::Filter,
        hook: Hook::Input,
        priority: Priority(0),
        policy: Verdict::Drop,
    };
    let changes = vec![
        add_chain("c"),
        Op::AddChain { table: id(), chain: chain("p"), base: Some(policy) },
        add_rule("c", [Statement::Counter]),
        add(&v, [element(3)]),
        delete(&v, [element(1)]),
        Op::FlushSet { set: v.clone() },
        add(&v, [element(1)]),
        Op::DeleteSet { set: s },
        flush_chain("b"),
        delete_chain("b"),
        Op::AddTable { table: TableId { family: Family::Ip6, name: TableName::literal("t") }, comment: None },
        Op::DeleteTable { table: id() },
        add_table(),
    ];
    for upto in 0..=changes.len() {
        let refused = Op::FlushChain { table: id(), chain: chain("nowhere") };
        let ops = changes[..upto].iter().cloned().chain([refused]).collect();
        let refusal = ruleset.apply(&Transaction { ops }).unwrap_err();
        assert_eq!(refusal.op, upto, "{refusal}");
        assert_eq!(ruleset, before);
    }
}

//! Owns: what the kernel refuses is told by operation, element and errno, and nothing of it took effect. Knows
//! nothing of how rulesets are made.

use crate::ruleset::{addr, product, program, table_id};
use netlink::{Error, Nft, Refusal, testns};
use nft_ir::{
    ChainName, Datum, Element, Family, Field, KeyBuilder, L4Proto, Op, Rule, SetDecl, SetName, SetSpec,
    Statement, Table, Transaction, Verdict,
};
use nix::errno::Errno;
use std::sync::Arc;

fn refusals(nft: &mut Nft, ops: Vec<Op>) -> Vec<Refusal> {
    match nft.commit(&Transaction { ops }, None) {
        Err(Error::Refused { refusals }) => refusals,
        other => panic!("not refused: {other:?}"),
    }
}

fn with_product(test: impl FnOnce(&mut Nft, &Table) + Send) {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let table = product(Family::Ip);
        nft.commit(&program(&table_id(Family::Ip), &table), None).unwrap();
        let before = nft.generation().unwrap();
        test(&mut nft, &table);
        assert_eq!(nft.generation().unwrap(), before, "nothing took effect");
        assert_eq!(nft.dump_table(&table_id(Family::Ip)).unwrap().unwrap().table, table);
    });
}

fn vip(number: u32) -> KeyBuilder {
    KeyBuilder::new().addr(addr(Family::Ip, number)).proto(L4Proto::Tcp).port(80)
}

fn endpoint(number: u32, slot: u32, to: u32) -> Element {
    let to = KeyBuilder::new().addr(addr(Family::Ip, to)).port(8080).build();
    Element::of_map(vip(number).slot(slot).build(), Datum::Value(to))
}

fn decl(table: &Table, name: &str) -> Arc<SetDecl> {
    Arc::clone(&table.sets[&SetName::literal(name)].decl)
}

#[test]
fn each_refused_operation_names_itself_and_its_element() {
    with_product(|nft, table| {
        let (id, endpoints, services) =
            (table_id(Family::Ip), decl(table, "endpoints"), decl(table, "services"));
        let goto = |chain| Datum::Verdict(Verdict::Goto(ChainName::literal(chain)));
        let nowhere = Arc::new(SetDecl { name: SetName::literal("nowhere"), ..(*endpoints).clone() });
        let found = refusals(
            nft,
            vec![
                Op::AddTable { table: id.clone(), comment: None },
                // Element 2 is there with another datum.
                Op::AddElements {
                    set: Arc::clone(&endpoints),
                    elements: vec![
                        endpoint(7, 0, 1),
                        endpoint(7, 1, 2),
                        endpoint(1, 0, 3),
                        endpoint(7, 2, 4),
                    ],
                },
                Op::AddElements { set: Arc::clone(&endpoints), elements: vec![endpoint(8, 0, 1)] },
                // Element 1 is not there.
                Op::DeleteElements {
                    set: Arc::clone(&endpoints),
                    elements: vec![endpoint(1, 0, 0), endpoint(99, 0, 0)],
                },
                Op::AddElements { set: nowhere, elements: vec![endpoint(1, 0, 0)] },
                Op::AddElements {
                    set: services,
                    elements: vec![
                        Element::of_map(vip(50).build(), goto("pick-2")),
                        Element::of_map(vip(51).build(), goto("no-such-chain")),
                    ],
                },
                Op::AddRule {
                    table: id.clone(),
                    chain: ChainName::literal("pick-2"),
                    rule: Rule::new([Statement::Verdict(Verdict::Goto(ChainName::literal("no-such-chain")))]),
                },
                Op::AddRule {
                    table: id.clone(),
                    chain: ChainName::literal("no-such-chain"),
                    rule: Rule::new([Statement::Counter]).comment("why not"),
                },
                Op::DeleteSet { set: decl(table, "cluster-ips") },
                Op::DeleteChain { table: id, chain: ChainName::literal("pick-2") },
            ],
        );
        let told: Vec<_> = found
            .iter()
            .map(|refusal| (refusal.op, refusal.element, Errno::from_raw(refusal.errno)))
            .collect();
        assert_eq!(
            told,
            [
                (Some(1), Some(2), Errno::EEXIST),
                (Some(3), Some(1), Errno::ENOENT),
                (Some(4), None, Errno::ENOENT),
                (Some(5), Some(1), Errno::ENOENT),
                (Some(6), None, Errno::ENOENT),
                (Some(7), None, Errno::ENOENT),
                (Some(8), None, Errno::EBUSY),
                (Some(9), None, Errno::EBUSY),
            ],
            "{found:#?}"
        );
        let words: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(words[0], "add element ip proxier endpoints: 10.0.0.1 . tcp . 80 . 0: File exists");
        assert_eq!(
            words[1],
            "delete element ip proxier endpoints: 10.0.0.99 . tcp . 80 . 0: No such file or directory"
        );
        assert_eq!(
            words[5],
            "add rule ip proxier no-such-chain counter comment \"why not\": No such file or directory"
        );
        let error = Error::Refused { refusals: found };
        assert!(error.to_string().ends_with("; and 3 more"), "{error}");
        assert!(!error.is_retryable());
    });
}

#[test]
fn an_element_far_into_a_long_operation_is_found() {
    with_product(|nft, table| {
        let set = decl(table, "endpoints");
        let mut elements: Vec<_> = (0..5000).map(|number| endpoint(1000 + number, 0, number)).collect();
        elements[4321] = endpoint(1, 1, 77);
        elements[17].comment = Some("a".repeat(100).into());
        let found = refusals(nft, vec![Op::AddElements { set, elements }]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].op, found[0].element, found[0].errno),
            (Some(0), Some(4321), Errno::EEXIST as i32)
        );
    });
}

#[test]
fn the_second_half_of_an_interval_points_at_its_element() {
    with_product(|nft, table| {
        let set = decl(table, "service-cidrs");
        let key = |number| KeyBuilder::new().addr(addr(Family::Ip, number)).build();
        let elements = vec![
            Element::of_set(key(0x5000)).through(key(0x50ff)),
            Element::of_set(key(0x6000)).through(key(0x60ff)),
            // Reaches into one that is there.
            Element::of_set(key(0x0f00)).through(key(0x1100)),
        ];
        let found = refusals(nft, vec![Op::AddElements { set, elements }]);
        assert_eq!((found[0].op, found[0].element), (Some(0), Some(2)), "{found:?}");
    });
}

#[test]
fn two_thousand_refusals_are_all_told() {
    with_product(|nft, table| {
        let set = decl(table, "endpoints");
        let ops: Vec<_> = (0..2000)
            .map(|number| Op::DeleteElements {
                set: Arc::clone(&set),
                elements: vec![endpoint(5000 + number, 0, 0)],
            })
            .collect();
        let found = refusals(nft, ops);
        assert_eq!(found.len(), 2000);
        assert!(found.iter().enumerate().all(|(index, refusal)| refusal.op == Some(index)));
    });
}

#[test]
fn what_cannot_be_written_is_not_sent() {
    with_product(|nft, table| {
        let id = table_id(Family::Ip);
        let rule = |statement| Op::AddRule {
            table: id.clone(),
            chain: ChainName::literal("pick-2"),
            rule: Rule::new([statement]),
        };
        let set = |spec| Op::AddSet {
            set: Arc::new(SetDecl { table: id.clone(), name: SetName::literal("new"), spec }),
        };
        let endpoints = decl(table, "endpoints");
        let add = |element| Op::AddElements { set: Arc::clone(&endpoints), elements: vec![element] };
        let interface = |name: &str| {
            rule(Statement::Compare(
                nft_ir::Compare::Eq,
                nft_ir::Value::InputInterface { name: name.into(), wildcard: false },
            ))
        };
        for (op, reason) in [
            (Op::AddTable { table: id.clone(), comment: Some("x".repeat(128)) }, "comment of 128 bytes"),
            (interface("sixteen-letters-"), "interface name"),
            (
                rule(Statement::InSet {
                    key: [][..].into(),
                    op: nft_ir::Compare::Ne,
                    set: SetName::literal("x"),
                }),
                "key without fields",
            ),
            (
                rule(Statement::Compare(
                    nft_ir::Compare::Eq,
                    nft_ir::Value::Prefix(nft_ir::AddrKind::Source, addr(Family::Ip6, 0), 8),
                )),
                "family ip",
            ),
            (set(SetSpec::set([])), "key without fields"),
            (set(SetSpec::set([Field::Slot(1); 5]).comment("x".repeat(120))), "bytes, 256 are allowed"),
            (add(Element::of_set(vip(1).slot(0).build())), "no value in a map"),
            (
                add(Element { key: vip(1).build(), ..endpoint(1, 0, 0) }),
                "key of 12 bytes where the set has 16",
            ),
            (add(endpoint(1, 0, 0).through(vip(2).slot(0).build())), "without intervals"),
            (
                add(Element { expires: Some(std::time::Duration::from_secs(1)), ..endpoint(1, 0, 0) }),
                "time-outs",
            ),
        ] {
            let ops = vec![Op::AddTable { table: id.clone(), comment: None }, op];
            match nft.commit(&Transaction { ops }, None) {
                Err(error @ Error::Encode { op: 1, .. }) => {
                    assert!(error.to_string().contains(reason), "{error}: {reason}");
                    assert!(!error.is_retryable());
                }
                other => panic!("{reason}: {other:?}"),
            }
        }
    });
}

/// Runs again as nobody: this test in a process of its own, with the variable set.
#[test]
fn without_privilege_the_capability_is_named() {
    const NOBODY: &str = "NETLINK_TEST_AS_NOBODY";
    if std::env::var_os(NOBODY).is_some() {
        let mut nft = Nft::open().unwrap();
        let missing = nft.missing(Family::Ip).unwrap();
        let words: Vec<_> = missing.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["nf_tables: Operation not permitted: CAP_NET_ADMIN is needed"]);
        let error = nft.generation().unwrap_err();
        assert_eq!(
            error.to_string(),
            "generation of the ruleset: Operation not permitted (os error 1): CAP_NET_ADMIN is needed"
        );
        assert!(netlink::Monitor::open().is_err());
        return;
    }
    testns::run(|| {
        let this = std::env::current_exe().unwrap();
        let name = "refusal::without_privilege_the_capability_is_named";
        let script = format!(
            "{NOBODY}=1 exec setpriv --inh-caps=-all --bounding-set=-all \
             --securebits=+noroot,+noroot_locked -- \"$0\" --exact {name}"
        );
        let ran = testns::command("sh", &["-c", &script, this.to_str().unwrap()], "").unwrap();
        assert!(ran.contains("1 passed"), "{ran}");
    });
}

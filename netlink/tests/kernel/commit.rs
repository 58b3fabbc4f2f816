//! Owns: what is committed is what is dumped. Knows nothing of nft.

use crate::ruleset::{addr, intervals, product, program, table_id};
use crate::strategy::{Scenario, scenario};
use netlink::{Error, ForeignObject, Nft, testns};
use nft_ir::{
    Datum, Element, Family, Field, KeyBuilder, L4Proto, Op, Set, SetDecl, SetFlags, SetName, SetSpec, Table,
    Transaction,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn dump(nft: &mut Nft, family: Family) -> Table {
    let dump = nft.dump_table(&table_id(family)).unwrap().expect("the table is there");
    assert_eq!(dump.foreign, []);
    dump.table
}

#[test]
fn the_product_ruleset_comes_back_as_it_was_written() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        for family in Family::ALL {
            let table = product(family);
            let before = nft.generation().unwrap();
            let after = nft.commit(&program(&table_id(family), &table), Some(before)).unwrap();
            assert_eq!(nft.generation().unwrap(), after);
            assert_ne!(before, after);
            assert_eq!(dump(&mut nft, family), table);
        }
        assert_eq!(nft.tables().unwrap(), Family::ALL.map(table_id));
    });
}

#[test]
fn any_ruleset_comes_back_as_it_was_written() {
    testns::run(|| {
        let nft = std::cell::RefCell::new(Nft::open().unwrap());
        let config = Config { cases: 96, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&scenario(), |Scenario { id, table }| {
                let mut nft = nft.borrow_mut();
                // A case that failed leaves its table behind for the next, smaller one.
                let empty = Op::AddTable { table: id.clone(), comment: None };
                let mut transaction = Transaction { ops: vec![empty, Op::DeleteTable { table: id.clone() }] };
                transaction.ops.extend(program(&id, &table).ops);
                nft.commit(&transaction, None).map_err(|error| TestCaseError::fail(error.to_string()))?;
                let dumped = nft.dump_table(&id).unwrap().expect("the table is there");
                prop_assert_eq!(&dumped.foreign, &[]);
                prop_assert_eq!(&dumped.table, &table);
                transaction.ops = vec![Op::DeleteTable { table: id.clone() }];
                nft.commit(&transaction, None).unwrap();
                prop_assert_eq!(nft.dump_table(&id).unwrap(), None);
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn an_empty_transaction_changes_nothing() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let before = nft.generation().unwrap();
        assert_eq!(nft.commit(&Transaction::default(), Some(before)).unwrap(), before);
        assert_eq!(nft.commit(&Transaction::default(), None).unwrap(), before);
    });
}

#[test]
fn what_is_deleted_is_gone() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let family = Family::Ip6;
        let id = table_id(family);
        let mut table = product(family);
        nft.commit(&program(&id, &table), None).unwrap();

        let mut transaction = Transaction::default();
        for name in ["services", "service-cidrs", "source-ranges"] {
            let set = table.sets.get_mut(&SetName::literal(name)).unwrap();
            let gone = std::mem::take(&mut set.elements).into_values().collect();
            transaction.push(Op::DeleteElements { set: Arc::clone(&set.decl), elements: gone });
        }
        let endpoints = table.sets.get_mut(&SetName::literal("endpoints")).unwrap();
        endpoints.elements.clear();
        transaction.push(Op::FlushSet { set: Arc::clone(&endpoints.decl) });
        for name in ["nat-postrouting", "dispatch"] {
            let chain = nft_ir::ChainName::literal(name);
            table.chains.get_mut(&chain).unwrap().rules.clear();
            transaction.push(Op::FlushChain { table: id.clone(), chain });
        }
        let hairpin = table.sets.remove(&SetName::literal("hairpin")).unwrap();
        transaction.push(Op::DeleteSet { set: hairpin.decl });
        let forward = nft_ir::ChainName::literal("filter-input");
        table.chains.remove(&forward);
        transaction.push(Op::FlushChain { table: id.clone(), chain: forward.clone() });
        transaction.push(Op::DeleteChain { table: id.clone(), chain: forward });
        nft.commit(&transaction, None).unwrap();
        assert_eq!(dump(&mut nft, family), table);
    });
}

#[test]
fn a_stale_generation_is_refused_and_nothing_changes() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let before = nft.generation().unwrap();
        let transaction = program(&table_id(Family::Ip), &product(Family::Ip));
        testns::command("nft", &["add", "table", "ip", "other"], "").unwrap();
        let error = nft.commit(&transaction, Some(before)).unwrap_err();
        assert!(matches!(error, Error::Stale { expected } if expected == before), "{error}");
        assert!(error.is_retryable());
        assert_eq!(nft.dump_table(&table_id(Family::Ip)).unwrap(), None);
        let now = nft.generation().unwrap();
        nft.commit(&transaction, Some(now)).unwrap();
    });
}

#[test]
fn a_hundred_thousand_elements_go_in_one_commit() {
    testns::run(|| {
        let id = table_id(Family::Ip);
        let spec = SetSpec::map(
            [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort, Field::Slot(65536)],
            [Field::DestinationAddr, Field::DestinationPort],
        );
        let name = SetName::literal("endpoints");
        let decl = Arc::new(SetDecl { table: id.clone(), name: name.clone(), spec });
        let elements: BTreeMap<_, _> = (0..100_000u32)
            .map(|number| {
                let key = KeyBuilder::new()
                    .addr(addr(Family::Ip, number / 4))
                    .proto(L4Proto::Tcp)
                    .port(80)
                    .slot(number % 4)
                    .build();
                let to = KeyBuilder::new().addr(addr(Family::Ip, number)).port(8080).build();
                (key.clone(), Element::of_map(key, Datum::Value(to)))
            })
            .collect();
        let table = Table {
            sets: BTreeMap::from([(name, Set { decl: Arc::clone(&decl), elements })]),
            ..Table::default()
        };
        let mut nft = Nft::open().unwrap();
        nft.commit(&program(&id, &table), None).unwrap();
        assert_eq!(nft.dump_elements(&decl).unwrap().len(), 100_000);
        assert!(dump(&mut nft, Family::Ip) == table);
    });
}

#[test]
fn elements_with_a_time_to_live_keep_what_is_left_of_it() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        for (default, own) in [(Some(3600), 60), (Some(60), 3600), (None, 60)] {
            let set = Arc::new(SetDecl {
                table: table_id(Family::Ip),
                name: SetName::literal("affinity"),
                spec: SetSpec {
                    flags: SetFlags { timeout: true, dynamic: true, ..SetFlags::default() },
                    timeout: default.map(Duration::from_secs),
                    ..SetSpec::map([Field::SourceAddr], [Field::DestinationAddr])
                },
            });
            let a = |number| KeyBuilder::new().addr(addr(Family::Ip, number)).build();
            let element = |number| Element::of_map(a(number), Datum::Value(a(9)));
            let elements =
                vec![element(1), Element { expires: Some(Duration::from_secs(own)), ..element(2) }];
            let transaction = Transaction {
                ops: vec![
                    Op::AddTable { table: table_id(Family::Ip), comment: None },
                    Op::DeleteTable { table: table_id(Family::Ip) },
                    Op::AddTable { table: table_id(Family::Ip), comment: None },
                    Op::AddSet { set: Arc::clone(&set) },
                    Op::AddElements { set: Arc::clone(&set), elements },
                ],
            };
            nft.commit(&transaction, None).unwrap();
            let mut left = nft.dump_elements(&set).unwrap();
            left.sort();
            let close = |expires: Option<Duration>, seconds: u64| {
                let full = Duration::from_secs(seconds);
                expires.is_some_and(|left| left <= full && left + Duration::from_secs(30) > full)
            };
            match default {
                Some(default) => assert!(close(left[0].expires, default), "{left:?}"),
                None => assert_eq!(left[0].expires, None),
            }
            assert!(close(left[1].expires, own), "{left:?}");
        }
    });
}

#[test]
fn what_is_foreign_is_named_and_the_rest_is_dumped() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let family = Family::Ip;
        let table = product(family);
        nft.commit(&program(&table_id(family), &table), None).unwrap();
        let edit = "
            insert rule ip proxier dispatch tcp dport 22 drop
            add rule ip proxier dispatch ip saddr 10.9.9.9 limit rate 1/second accept
            add set ip proxier others { type ether_addr; }
            add chain ip proxier rerouted { type route hook output priority 0; }
            add element ip proxier services { 10.0.0.99 . tcp . 99 : continue }
            add table ip proxier { flags dormant; }
        ";
        testns::command("nft", &["-f", "-"], edit).unwrap();
        let dump = nft.dump_table(&table_id(family)).unwrap().unwrap();
        let named: Vec<_> = dump.foreign.iter().map(ToString::to_string).collect();
        assert_eq!(named.len(), 6, "{named:#?}");
        for (object, text) in [
            ("the table's flags: ", "dormant"),
            ("rule 0 ", "of chain dispatch: cmp: of Field(DestinationPort)"),
            ("rule 5 ", "of chain dispatch: limit: not one of ours"),
            ("set others: ", "typeof"),
            ("chain rerouted: ", "chain type"),
            ("element 10.0.0.99 . tcp . 99 of set services: ", "verdict code -1"),
        ] {
            assert!(named.iter().any(|it| it.starts_with(object) && it.contains(text)), "{named:#?}");
        }
        assert!(dump.foreign.iter().any(|foreign| {
            matches!(&foreign.object, ForeignObject::Rule { index: 5, handle, .. } if *handle > 0)
        }));
        let mut without = dump.table;
        without.chains.remove(&nft_ir::ChainName::literal("rerouted"));
        assert_eq!(without, table);
    });
}

#[test]
fn intervals_of_one_field_may_touch_and_end_anywhere() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let id = table_id(Family::Ip);
        let decl = Arc::new(SetDecl {
            table: id.clone(),
            name: SetName::literal("ranges"),
            spec: SetSpec { flags: intervals(), ..SetSpec::set([Field::DestinationAddr]) },
        });
        let key = |number: u32| KeyBuilder::new().addr(std::net::IpAddr::from(number.to_be_bytes())).build();
        let interval = |from, to| Element::of_set(key(from)).through(key(to));
        let mut elements = vec![
            interval(0xffff_0000, u32::MAX),
            interval(0, 9),
            interval(10, 19),
            Element::of_set(key(20)),
            Element::of_set(key(21)),
            interval(30, 39),
        ];
        let ops = vec![
            Op::AddTable { table: id, comment: None },
            Op::AddSet { set: Arc::clone(&decl) },
            Op::AddElements { set: Arc::clone(&decl), elements: elements.clone() },
        ];
        nft.commit(&Transaction { ops }, None).unwrap();
        let sorted = |mut elements: Vec<Element>| {
            elements.sort();
            elements
        };
        assert_eq!(sorted(nft.dump_elements(&decl).unwrap()), sorted(elements.clone()));
        // Out of the middle, and the one that stays open.
        let gone = vec![elements.remove(3), elements.remove(0)];
        let ops = vec![Op::DeleteElements { set: Arc::clone(&decl), elements: gone }];
        nft.commit(&Transaction { ops }, None).unwrap();
        assert_eq!(sorted(nft.dump_elements(&decl).unwrap()), sorted(elements));
    });
}

#[test]
fn a_check_changes_nothing_and_nothing_is_missing_here() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let before = nft.generation().unwrap();
        for family in Family::ALL {
            assert_eq!(nft.missing(family).unwrap(), []);
            nft.check(&program(&table_id(family), &product(family))).unwrap();
        }
        let wrong = Op::DeleteTable { table: table_id(Family::Ip) };
        let error = nft.check(&Transaction { ops: vec![wrong] }).unwrap_err();
        assert_eq!(error.to_string(), "refused: delete table ip proxier: No such file or directory");
        assert_eq!(nft.generation().unwrap(), before);
        assert_eq!(nft.tables().unwrap(), []);
    });
}

#[test]
fn a_dump_is_of_one_generation() {
    testns::run(|| {
        let id = table_id(Family::Ip);
        let states = [product(Family::Ip), {
            let mut other = product(Family::Ip);
            other.chains.values_mut().for_each(|chain| chain.rules.reverse());
            for set in other.sets.values_mut().filter(|set| !set.decl.spec.flags.interval) {
                set.elements.clear();
            }
            other
        }];
        let replace = |table: &Table| {
            let mut ops = vec![
                Op::AddTable { table: id.clone(), comment: None },
                Op::DeleteTable { table: id.clone() },
            ];
            ops.extend(program(&id, table).ops);
            Transaction { ops }
        };
        let mut nft = Nft::open().unwrap();
        nft.commit(&replace(&states[0]), None).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = Nft::open().unwrap();
                let transactions = states.each_ref().map(replace);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for transaction in &transactions {
                        writer.commit(transaction, None).unwrap();
                        // A dump takes about as long as a commit: leave it a gap now and then.
                        std::thread::yield_now();
                    }
                }
            });
            let _done = SetOnDrop(&done);
            let mut whole = 0;
            for _ in 0..50 {
                match nft.dump_table(&id) {
                    Ok(Some(dump)) => {
                        whole += 1;
                        let chains = states.each_ref().map(|state| state.chains == dump.table.chains);
                        let sets = states.each_ref().map(|state| state.sets == dump.table.sets);
                        let foreign = &dump.foreign;
                        assert!(
                            foreign.is_empty() && states.contains(&dump.table),
                            "chains as in {chains:?}, sets as in {sets:?}, {foreign:#?}"
                        );
                    }
                    Ok(None) => panic!("there is always a table"),
                    Err(error) => assert!(matches!(error, Error::Unsettled { .. }), "{error}"),
                }
            }
            println!("{whole} of 50 dumps were whole");
        });
        assert!(nft.dump_table(&id).unwrap().is_some());
    });
}

/// Ends the other thread also when an assertion fails here.
struct SetOnDrop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

//! Measures encoding and committing of services × 2 endpoints from an empty table, and of one changed endpoint,
//! each in a network namespace of its own. Run with `--release`; arguments: services (10000), repetitions (7).

use netlink::{Monitor, Nft, testns};
use nft_ir::{
    ChainName, Datum, Element, Family, Field, KeyBuilder, L4Proto, Op, Rule, SetDecl, SetName, SetSpec,
    Statement, TableId, TableName, Transaction, Verdict,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse::<u32>().expect("a number"));
    let services = arguments.next().unwrap_or(10_000);
    let repetitions = arguments.next().unwrap_or(7);
    for (listening, title) in [
        (Listening::Nobody, "alone"),
        (Listening::Always, "with a monitor listening"),
        (Listening::Paused, "with a monitor paused meanwhile"),
    ] {
        let mut rows: [Vec<Duration>; 5] = Default::default();
        for _ in 0..repetitions {
            for (row, took) in rows.iter_mut().zip(measure(services, listening)) {
                row.push(took);
            }
        }
        println!("{services} services x 2 endpoints, median of {repetitions}, {title}:");
        for (name, row) in
            ["build values", "encode", "commit (encode and kernel)", "dump table", "replace one endpoint"]
                .iter()
                .zip(rows)
        {
            let mut row = row;
            row.sort_unstable();
            println!("  {name:28} {:>10.1?}", row[row.len() / 2]);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Listening {
    Nobody,
    Always,
    Paused,
}

fn measure(services: u32, listening: Listening) -> [Duration; 5] {
    testns::run(|| {
        let start = Instant::now();
        let (id, endpoints, transaction) = ruleset(services);
        let build = start.elapsed();
        let start = Instant::now();
        std::hint::black_box(netlink::encode_len(&transaction).expect("it can be written"));
        let encode = start.elapsed();
        let mut monitor = (listening != Listening::Nobody).then(|| Monitor::open().expect("a monitor"));
        let mut nft = Nft::open().expect("a socket");
        let start = Instant::now();
        let mut paused = monitor.as_mut().filter(|_| listening == Listening::Paused);
        if let Some(monitor) = &mut paused {
            monitor.pause().expect("it leaves");
        }
        let generation = nft.commit(&transaction, None).expect("it is taken");
        if let Some(monitor) = &mut paused {
            assert_eq!(monitor.resume(&mut nft, generation).expect("it joins"), []);
        }
        let commit = start.elapsed();
        let start = Instant::now();
        let dump = nft.dump_table(&id).expect("it can be read").expect("it is there");
        let dumped = start.elapsed();
        assert_eq!(dump.foreign, []);
        let change = Transaction {
            ops: vec![
                Op::DeleteElements { set: Arc::clone(&endpoints), elements: vec![endpoint(7, 1)] },
                Op::AddElements { set: endpoints, elements: vec![endpoint_to(7, 1, 99)] },
            ],
        };
        let start = Instant::now();
        nft.commit(&change, Some(generation)).expect("it is taken");
        [build, encode, commit, dumped, start.elapsed()]
    })
}

fn vip(service: u32) -> KeyBuilder {
    KeyBuilder::new().addr((0x0a60_0000 + service).to_be_bytes().into()).proto(L4Proto::Tcp).port(80)
}

fn endpoint(service: u32, slot: u32) -> Element {
    endpoint_to(service, slot, service * 2 + slot)
}

fn endpoint_to(service: u32, slot: u32, to: u32) -> Element {
    let to = KeyBuilder::new().addr((0x0a00_0000 + to).to_be_bytes().into()).port(8080).build();
    Element::of_map(vip(service).slot(slot).build(), Datum::Value(to))
}

fn ruleset(services: u32) -> (TableId, Arc<SetDecl>, Transaction) {
    let id = TableId { family: Family::Ip, name: TableName::literal("speed") };
    let chain = ChainName::literal("pick-2");
    let key = [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort, Field::Slot(2)];
    let set = |name, spec| Arc::new(SetDecl { table: id.clone(), name: SetName::literal(name), spec });
    let frontends = set("services", SetSpec::verdict_map([key[0], key[1], key[2]]));
    let endpoints = set("endpoints", SetSpec::map(key, [Field::DestinationAddr, Field::DestinationPort]));
    let goto = Datum::Verdict(Verdict::Goto(chain.clone()));
    let ops = vec![
        Op::AddTable { table: id.clone(), comment: None },
        Op::AddChain { table: id.clone(), chain: chain.clone(), base: None },
        Op::AddSet { set: Arc::clone(&frontends) },
        Op::AddSet { set: Arc::clone(&endpoints) },
        Op::AddRule {
            table: id.clone(),
            chain,
            rule: Rule::new([Statement::Dnat { key: key[..].into(), map: endpoints.name.clone() }]),
        },
        Op::AddElements {
            set: frontends,
            elements: (0..services)
                .map(|service| Element::of_map(vip(service).build(), goto.clone()))
                .collect(),
        },
        Op::AddElements {
            set: Arc::clone(&endpoints),
            elements: (0..services * 2).map(|number| endpoint(number / 2, number % 2)).collect(),
        },
    ];
    (id, endpoints, Transaction { ops })
}

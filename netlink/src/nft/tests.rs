//! Owns: what is written reads back without a kernel, and no byte that a kernel might send makes a panic.

use super::decode_element::ElementReader;
use super::{decode_object, decode_rule, kind};
use crate::batch::Batch;
use crate::wire::{self, Message};
use nft_ir::{
    AddrKind, ChainName, Compare, CtStatus, Datum, Element, Family, Field, KeyBuilder, L4Proto, Op, Reject,
    Rule, Set, SetDecl, SetFlags, SetName, SetSpec, Statement, TableId, TableName, Transaction, Value,
    Verdict,
};
use proptest::prelude::*;
use rustables::sys;
use std::collections::BTreeMap;
use std::sync::Arc;

fn table(family: Family) -> TableId {
    TableId { family, name: TableName::literal("t") }
}

fn set(family: Family, name: &str, spec: SetSpec) -> Arc<SetDecl> {
    Arc::new(SetDecl { table: table(family), name: SetName::literal(name), spec })
}

fn sets(family: Family) -> BTreeMap<SetName, Set> {
    use Field::{DestinationAddr, DestinationPort, L4Proto, Slot, SourceAddr};
    let endpoint = [DestinationAddr, DestinationPort];
    [
        set(family, "services", SetSpec::verdict_map([DestinationAddr, L4Proto, DestinationPort])),
        set(
            family,
            "endpoints",
            SetSpec::map([DestinationAddr, L4Proto, DestinationPort, Slot(65536)], endpoint),
        ),
        set(family, "ports", SetSpec::set([DestinationPort]).comment("one field")),
        set(
            family,
            "ranges",
            SetSpec {
                flags: SetFlags { interval: true, ..SetFlags::default() },
                ..SetSpec::set([DestinationAddr])
            },
        ),
        set(
            family,
            "affinity",
            SetSpec {
                flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
                size: Some(9),
                ..SetSpec::map([SourceAddr], endpoint)
            },
        ),
    ]
    .into_iter()
    .map(|decl| (decl.name.clone(), Set { decl, elements: BTreeMap::new() }))
    .collect()
}

fn rules(family: Family) -> Vec<Rule> {
    use Field::{
        DestinationAddr, DestinationPort, L4Proto as Proto, OriginalDestinationAddr, OriginalDestinationPort,
        Slot, SourceAddr,
    };
    let addr = match family {
        Family::Ip => "10.0.0.0".parse(),
        Family::Ip6 => "fd00::".parse(),
    };
    let prefix = |len| Value::Prefix(AddrKind::Source, addr.clone().unwrap(), len);
    let name = SetName::literal;
    vec![
        Rule::new([]),
        Rule::new([
            Statement::Compare(Compare::Ne, prefix(8)),
            Statement::Compare(Compare::Eq, prefix(13)),
            Statement::Compare(Compare::Eq, Value::FibLocal(AddrKind::Source)),
            Statement::Compare(Compare::Eq, Value::L4Proto(L4Proto::Sctp)),
            Statement::Compare(Compare::Ne, Value::InputInterface { name: "br".into(), wildcard: true }),
            Statement::Compare(Compare::Ne, Value::MarkBits(0x4000)),
            Statement::SetMarkBits(0x4000),
            Statement::FlipMarkBits(0x4000),
            Statement::Counter,
            Statement::Verdict(Verdict::Jump(ChainName::literal("c"))),
        ])
        .comment("everything"),
        Rule::new([
            Statement::CtStateNew,
            Statement::CtStatus(CtStatus::Dnat),
            Statement::InSet { key: [DestinationPort][..].into(), op: Compare::Eq, set: name("ports") },
            Statement::InSet { key: [DestinationAddr][..].into(), op: Compare::Ne, set: name("ranges") },
            Statement::VerdictMap {
                key: [OriginalDestinationAddr, Proto, OriginalDestinationPort][..].into(),
                map: name("services"),
            },
        ]),
        Rule::new([
            Statement::Update {
                set: name("affinity"),
                key: [SourceAddr][..].into(),
                data: [DestinationAddr, DestinationPort][..].into(),
            },
            Statement::Dnat {
                key: [DestinationAddr, Proto, DestinationPort, Slot(3)][..].into(),
                map: name("endpoints"),
            },
        ]),
        Rule::new([Statement::Masquerade]),
        Rule::new([Statement::Reject(Reject::PortUnreachable)]),
        Rule::new([Statement::Reject(Reject::TcpReset)]),
    ]
}

fn elements(sets: &BTreeMap<SetName, Set>) -> Vec<(Arc<SetDecl>, Vec<Element>)> {
    let decl = |name| Arc::clone(&sets[&SetName::literal(name)].decl);
    let family = decl("ports").table.family;
    let addr = |last: u8| match family {
        Family::Ip => std::net::IpAddr::from([10, 0, 0, last]),
        Family::Ip6 => std::net::IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    };
    let vip = |last| KeyBuilder::new().addr(addr(last)).proto(L4Proto::Udp).port(53);
    let goto = Datum::Verdict(Verdict::Goto(ChainName::literal("c")));
    let endpoint = Datum::Value(KeyBuilder::new().addr(addr(9)).port(5353).build());
    let key = |last| KeyBuilder::new().addr(addr(last)).build();
    vec![
        (decl("services"), vec![Element::of_map(vip(1).build(), goto).comment("c")]),
        (decl("endpoints"), vec![Element::of_map(vip(1).slot(2).build(), endpoint)]),
        (decl("ports"), vec![Element::of_set(KeyBuilder::new().port(80).build())]),
        (decl("ranges"), vec![Element::of_set(key(1)).through(key(4)), Element::of_set(key(5))]),
    ]
}

/// The batch of all that, and its messages.
fn batch(family: Family) -> Vec<u8> {
    let sets = sets(family);
    let chain = ChainName::literal("c");
    let mut ops = vec![
        Op::AddTable { table: table(family), comment: Some("t".into()) },
        Op::AddChain { table: table(family), chain: chain.clone(), base: None },
    ];
    ops.extend(sets.values().map(|set| Op::AddSet { set: Arc::clone(&set.decl) }));
    ops.extend(rules(family).into_iter().map(|rule| Op::AddRule {
        table: table(family),
        chain: chain.clone(),
        rule,
    }));
    ops.extend(elements(&sets).into_iter().map(|(set, elements)| Op::AddElements { set, elements }));
    Batch::encode(&Transaction { ops }, None, |_| 1).unwrap().bytes().to_vec()
}

/// What a dump makes of the messages of a batch.
fn read(bytes: &[u8], family: Family) -> (Vec<SetDecl>, Vec<Rule>, Vec<Vec<Element>>) {
    let known = sets(family);
    let of = |message: u32| {
        wire::messages(bytes)
            .filter(move |it| it.kind == kind(message))
            .map(|it: Message<'_>| it.attributes())
    };
    let decls = of(sys::NFT_MSG_NEWSET)
        .filter_map(|attributes| decode_object::set(attributes, &table(family))?.1.ok())
        .collect();
    let rules = of(sys::NFT_MSG_NEWRULE)
        .filter_map(|attributes| decode_rule::rule(attributes, family, &known).ok())
        .collect();
    let elements = of(sys::NFT_MSG_NEWSETELEM)
        .filter_map(|attributes| {
            let name = wire::text(attributes, sys::NFTA_SET_ELEM_LIST_SET)?;
            let mut reader = ElementReader::new(&known.get(&SetName::from_kernel(name))?.decl);
            reader.read(attributes);
            Some(reader.finish().0)
        })
        .collect();
    (decls, rules, elements)
}

#[test]
fn what_is_written_reads_back() {
    for family in Family::ALL {
        let (decls, read_rules, read_elements) = read(&batch(family), family);
        let sets = sets(family);
        assert_eq!(decls, sets.values().map(|set| (*set.decl).clone()).collect::<Vec<_>>());
        assert_eq!(read_rules, rules(family));
        let elements: Vec<_> = elements(&sets).into_iter().map(|(_, elements)| elements).collect();
        assert_eq!(read_elements, elements);
    }
}

#[test]
fn sequence_numbers_run_through_and_only_the_end_is_acknowledged() {
    let bytes = batch(Family::Ip);
    let messages: Vec<_> = wire::messages(&bytes).collect();
    assert!(messages.iter().map(|it| it.seq).eq(1..=messages.len() as u32));
    let acknowledged: Vec<_> =
        messages.iter().filter(|it| it.flags & wire::NLM_F_ACK != 0).map(|it| u32::from(it.kind)).collect();
    assert_eq!(acknowledged, [sys::NFNL_MSG_BATCH_END]);
    let frames = messages.iter().filter(|it| u32::from(it.kind) == sys::NFNL_MSG_BATCH_BEGIN).count();
    assert_eq!(frames, 1, "the batches of rustables lost theirs");
    assert_eq!(messages.iter().map(|it| it.payload.len() + wire::HEADER).sum::<usize>(), bytes.len());
}

proptest! {
    /// Broken in a few places, and cut anywhere.
    #[test]
    fn no_bytes_make_a_panic(
        family in proptest::sample::select(&Family::ALL[..]),
        breaks in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<proptest::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = batch(family);
        for (at, byte) in breaks {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        read(&bytes, family);
        for message in wire::messages(&bytes) {
            let _ = (message.errno(), message.ack_attributes(), message.family());
            let _ = crate::conntrack::read_any(message.attributes());
        }
    }

    #[test]
    fn no_datagram_makes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        for message in wire::messages(&bytes) {
            let _ = (message.errno(), message.ack_attributes(), message.attributes());
        }
        let _ = crate::conntrack::read_any(&bytes);
        let _ = super::userdata::read_set(&bytes, true, Family::Ip);
        let _ = super::userdata::read_comment(&bytes);
    }
}

//! Owns random sets and elements. Knows nothing of rules.

use super::{MAPPED, table_id};
use crate::{
    ChainName, Datum, Element, Family, Field, Key, KeyBuilder, L4Proto, Set, SetData, SetDecl, SetFlags,
    SetName, SetSpec, Verdict,
};
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

pub(super) const SET_NAMES: [&str; 5] = ["set-0", "set-1", "set-2", "set-3", "set-4"];

const FRONTEND: [Field; 3] = [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort];

pub(super) fn decl(family: Family, name: &str, spec: SetSpec) -> SetDecl {
    SetDecl { table: table_id(family), name: SetName::literal(name), spec }
}

/// One of the specs of the samples: each kind of set, in few shapes.
pub(super) fn spec_choices() -> impl Strategy<Value = SetSpec> {
    let flags = SetFlags::default();
    let interval = SetFlags { interval: true, ..flags };
    let learnt = SetFlags { dynamic: true, timeout: true, ..flags };
    let to = [Field::DestinationAddr, Field::DestinationPort];
    let slots = FRONTEND.into_iter().chain([Field::Slot(65536)]);
    let guarded = FRONTEND.into_iter().chain([Field::SourceAddr]);
    select(vec![
        SetSpec::set([Field::SourceAddr]),
        SetSpec::set([Field::SourceAddr]).comment("clients"),
        SetSpec { size: Some(100), ..SetSpec::set(FRONTEND) },
        SetSpec { flags: interval, ..SetSpec::set([Field::SourceAddr]) },
        SetSpec { flags: interval, ..SetSpec::set(guarded) },
        SetSpec::verdict_map(FRONTEND),
        SetSpec::verdict_map([Field::L4Proto, Field::DestinationPort]),
        SetSpec::map(slots, to),
        SetSpec::map([Field::SourceAddr], to),
        SetSpec {
            flags: learnt,
            timeout: Some(Duration::from_secs(10_800)),
            size: Some(65_535),
            ..SetSpec::map([Field::SourceAddr], to)
        },
        SetSpec {
            flags: SetFlags { timeout: false, ..learnt },
            size: Some(100),
            ..SetSpec::set([Field::SourceAddr, Field::L4Proto])
        },
    ])
}

pub(super) fn set(family: Family, name: &'static str) -> BoxedStrategy<Set> {
    spec_choices()
        .prop_flat_map(move |spec| {
            let decl = Arc::new(decl(family, name, spec));
            // What rules learn is not written by us.
            let elements =
                if decl.spec.flags.dynamic { Just(BTreeMap::new()).boxed() } else { elements(&decl) };
            elements.prop_map(move |elements| Set { decl: decl.clone(), elements })
        })
        .boxed()
}

/// Elements of a set, that do not overlap.
pub(super) fn elements(decl: &SetDecl) -> BoxedStrategy<BTreeMap<Key, Element>> {
    let (spec, family) = (&decl.spec, decl.table.family);
    if spec.flags.interval {
        return intervals(decl);
    }
    let datum = match &spec.data {
        SetData::None => Just(None).boxed(),
        SetData::Verdict => verdict().prop_map(|verdict| Some(Datum::Verdict(verdict))).boxed(),
        SetData::Fields(fields) => key(fields, family).prop_map(|value| Some(Datum::Value(value))).boxed(),
    };
    let comment = proptest::option::weighted(0.2, "[a-z]{1,9}");
    btree_map(key(&spec.key, family), (datum, comment), 0..8)
        .prop_map(|elements| {
            let element = |key: &Key, (datum, comment): (Option<Datum>, Option<String>)| Element {
                datum,
                comment: comment.map(String::into_boxed_str),
                ..Element::of_set(key.clone())
            };
            elements.into_iter().map(|(key, rest)| (key.clone(), element(&key, rest))).collect()
        })
        .boxed()
}

/// Blocks of sixteen addresses, each in part or as a whole; other fields are the same in first and last key.
fn intervals(decl: &SetDecl) -> BoxedStrategy<BTreeMap<Key, Element>> {
    let family = decl.table.family;
    let before = decl.spec.key[..decl.spec.key.len() - 1].to_vec();
    let block = (key(&before, family), 0u8..4).prop_flat_map(|(before, block)| {
        let ends = select(vec![(0, 15), (0, 7), (3, 9), (5, 5)]);
        (Just((before, block)), ends)
    });
    btree_set(block, 0..5)
        .prop_map(move |blocks| {
            // Of each block one, or they would overlap.
            let blocks: BTreeMap<(Key, u8), (u8, u8)> = blocks.into_iter().collect();
            blocks
                .into_iter()
                .map(|((before, block), (first, last))| {
                    let at = |offset: u8| {
                        let addr = KeyBuilder::new().addr(addr(family, block * 16 + offset)).build();
                        before.iter().chain(&addr).copied().collect::<Key>()
                    };
                    (at(first), Element::of_set(at(first)).through(at(last)))
                })
                .collect()
        })
        .boxed()
}

fn key(fields: &[Field], family: Family) -> BoxedStrategy<Key> {
    let parts: Vec<BoxedStrategy<Key>> = fields.iter().map(|field| part(*field, family)).collect();
    parts.prop_map(|parts| parts.into_iter().flatten().collect()).boxed()
}

fn part(field: Field, family: Family) -> BoxedStrategy<Key> {
    let key = KeyBuilder::new;
    match field {
        Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr => {
            (0u8..4).prop_map(move |host| key().addr(addr(family, host)).build()).boxed()
        }
        Field::L4Proto => select(&L4Proto::ALL[..]).prop_map(move |proto| key().proto(proto).build()).boxed(),
        Field::SourcePort | Field::DestinationPort | Field::OriginalDestinationPort => {
            (80u16..82).prop_map(move |port| key().port(port).build()).boxed()
        }
        Field::Slot(_) => select(vec![0, 1, 2, 256]).prop_map(move |slot| key().slot(slot).build()).boxed(),
    }
}

/// An address of the samples.
pub(super) fn addr(family: Family, host: u8) -> IpAddr {
    match family {
        Family::Ip => Ipv4Addr::new(10, 0, 0, host).into(),
        Family::Ip6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

fn verdict() -> BoxedStrategy<Verdict> {
    let chain = || select(MAPPED.to_vec()).prop_map(ChainName::literal);
    prop_oneof![
        1 => select(vec![Verdict::Accept, Verdict::Drop]),
        3 => chain().prop_map(Verdict::Goto),
        1 => chain().prop_map(Verdict::Jump),
    ]
    .boxed()
}

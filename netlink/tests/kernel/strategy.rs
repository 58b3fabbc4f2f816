//! Owns random rulesets that the kernel takes: every noun of `nft_ir`, in every place where it may stand. Knows
//! nothing of what is asserted.

use crate::ruleset::table_id;
use nft_ir::{
    AddrKind, BaseChain, Chain, ChainName, ChainType, Compare, CtStatus, Datum, Element, Family, Field, Hook,
    Key, L4Proto, Priority, Reject, Rule, Set, SetData, SetDecl, SetFlags, SetName, SetSpec, Statement,
    Table, TableId, Value, Verdict,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

type Fields = SmallVec<[Field; 5]>;

/// A table and its place.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) id: TableId,
    pub(crate) table: Table,
}

/// Any table, of any family.
pub(crate) fn scenario() -> impl Strategy<Value = Scenario> {
    (select(&Family::ALL[..]), vec(set_spec(), 1..6), option::of(comment()))
        .prop_flat_map(|(family, specs, comment)| {
            let id = table_id(family);
            let decls: Vec<_> = specs
                .into_iter()
                .enumerate()
                .map(|(index, spec)| {
                    let name = SetName::literal(&format!("set-{index}"));
                    Arc::new(SetDecl { table: table_id(family), name, spec })
                })
                .collect();
            let sets: Vec<_> = decls.iter().map(|decl| elements(Arc::clone(decl))).collect();
            let chains = (regular_chains(family, decls.clone()), base_chains(family, decls));
            (Just(id), Just(comment), sets, chains)
        })
        .prop_map(|(id, comment, sets, (regular, base))| {
            let sets = sets.into_iter().map(|set| (set.decl.name.clone(), set)).collect();
            let mut chains = regular;
            chains.extend(base);
            Scenario { id, table: Table { comment, chains, sets } }
        })
}

fn comment() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9/:. -]{1,40}", "[a-z]{127}"]
}

/// Chains `c-0` to `c-2` are there always and only jump forward, so that there is no loop.
const REGULAR: usize = 3;

fn regular(index: usize) -> ChainName {
    ChainName::literal(&format!("c-{index}"))
}

fn set_spec() -> impl Strategy<Value = SetSpec> {
    let field = select(vec![
        Field::SourceAddr,
        Field::DestinationAddr,
        Field::L4Proto,
        Field::SourcePort,
        Field::DestinationPort,
        Field::OriginalDestinationAddr,
        Field::OriginalDestinationPort,
        Field::Slot(65536),
    ]);
    // The kernel has registers for 64 bytes; three addresses of IPv6 and a port fit.
    let key = vec(field, 1..5).prop_map(|mut fields| {
        let mut addresses = 0;
        fields.retain(|field| {
            addresses += usize::from(is_address(*field));
            addresses <= 2 || !is_address(*field)
        });
        Fields::from_vec(fields)
    });
    let data = prop_oneof![
        Just(SetData::None),
        Just(SetData::Verdict),
        Just(SetData::Fields(Fields::from_slice(&[Field::DestinationAddr, Field::DestinationPort]))),
        Just(SetData::Fields(Fields::from_slice(&[Field::DestinationPort]))),
        Just(SetData::Fields(Fields::from_slice(&[Field::L4Proto, Field::DestinationPort]))),
    ];
    let timeout = option::of((1u64..100_000).prop_map(Duration::from_secs));
    let shape = (any::<bool>(), any::<bool>(), any::<bool>());
    (key, data, shape, timeout, option::of(1000u32..100_000), option::of("[a-z ]{1,60}")).prop_map(
        |(key, data, (interval, dynamic, timed), timeout, size, comment)| {
            // The kernel has no set that is both of intervals and dynamic, nor a dynamic verdict map.
            // A rule that updates has key and datum in registers at once.
            let fits = key.iter().filter(|field| is_address(**field)).count() < 2;
            let dynamic = dynamic && !interval && data != SetData::Verdict && fits;
            let interval = interval && data == SetData::None;
            let timed = timed && !interval;
            // A dynamic set without a size gets one of the kernel's choice as soon as a rule updates it.
            let size = size.or(dynamic.then_some(65_535));
            SetSpec {
                key,
                data,
                flags: SetFlags { interval, dynamic, timeout: timed },
                timeout: timeout.filter(|_| timed),
                size,
                comment,
            }
        },
    )
}

fn is_address(field: Field) -> bool {
    matches!(field, Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr)
}

fn field_bytes(field: Field, family: Family) -> BoxedStrategy<Vec<u8>> {
    match field {
        Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr => {
            vec(any::<u8>(), family.addr_len()).boxed()
        }
        Field::L4Proto => select(&L4Proto::ALL[..]).prop_map(|proto| vec![proto.number(), 0, 0, 0]).boxed(),
        Field::SourcePort | Field::DestinationPort | Field::OriginalDestinationPort => {
            any::<[u8; 2]>().prop_map(|[high, low]| vec![high, low, 0, 0]).boxed()
        }
        Field::Slot(_) => (0u32..65536).prop_map(|slot| slot.to_ne_bytes().to_vec()).boxed(),
    }
}

fn key(fields: &[Field], family: Family) -> BoxedStrategy<Key> {
    let parts: Vec<_> = fields.iter().map(|field| field_bytes(*field, family)).collect();
    parts.prop_map(|parts| Key::from_vec(parts.concat())).boxed()
}

fn verdict(chains: std::ops::Range<usize>) -> BoxedStrategy<Verdict> {
    let plain = select(vec![Verdict::Accept, Verdict::Drop, Verdict::Return]);
    if chains.is_empty() {
        return plain.boxed();
    }
    let chain = select(chains.collect::<Vec<_>>()).prop_map(regular);
    prop_oneof![plain, chain.clone().prop_map(Verdict::Jump), chain.prop_map(Verdict::Goto)].boxed()
}

fn elements(decl: Arc<SetDecl>) -> BoxedStrategy<Set> {
    let family = decl.table.family;
    let spec = &decl.spec;
    if spec.flags.timeout {
        // What is left to live changes between commit and dump: that has a test of its own.
        return Just(Set { decl, elements: BTreeMap::new() }).boxed();
    }
    if spec.flags.interval {
        return intervals(decl);
    }
    let datum = match &spec.data {
        SetData::None => Just(None).boxed(),
        // Only to the last chain: a map may be looked up from every chain.
        SetData::Verdict => verdict(REGULAR - 1..REGULAR).prop_map(|it| Some(Datum::Verdict(it))).boxed(),
        SetData::Fields(fields) => key(fields, family).prop_map(|it| Some(Datum::Value(it))).boxed(),
    };
    btree_map(key(&spec.key, family), (datum, option::of(comment())), 0..60)
        .prop_map(move |elements| {
            let element = |key: &Key, (datum, comment): (Option<Datum>, Option<String>)| Element {
                datum,
                comment: comment.map(String::into_boxed_str),
                ..Element::of_set(key.clone())
            };
            let elements =
                elements.into_iter().map(|(key, rest)| (key.clone(), element(&key, rest))).collect();
            Set { decl: Arc::clone(&decl), elements }
        })
        .boxed()
}

/// Disjoint intervals: of one field from a sorted row of keys; of several, with the interval in the last field.
fn intervals(decl: Arc<SetDecl>) -> BoxedStrategy<Set> {
    let family = decl.table.family;
    let row = proptest::collection::btree_set(key(&decl.spec.key, family), 0..20);
    (row, any::<u64>())
        .prop_map(move |(row, singles)| {
            let mut elements = BTreeMap::new();
            let row: Vec<Key> = row.into_iter().collect();
            if decl.spec.key.len() == 1 && !matches!(decl.spec.key[0], Field::Slot(_)) {
                for (index, pair) in row.chunks_exact(2).enumerate() {
                    let element = Element::of_set(pair[0].clone());
                    let element =
                        if singles >> index & 1 == 0 { element.through(pair[1].clone()) } else { element };
                    elements.insert(pair[0].clone(), element);
                }
            } else if decl.spec.key.len() > 1 {
                for key in row.into_iter().take(3) {
                    elements.insert(key.clone(), Element::of_set(key));
                }
            }
            Set { decl: Arc::clone(&decl), elements }
        })
        .boxed()
}

/// A key for the fields of a set: the same kinds of fields, slots with any modulus.
fn rule_key(spec_key: &[Field]) -> BoxedStrategy<Fields> {
    let parts: Vec<BoxedStrategy<Field>> = spec_key
        .iter()
        .map(|field| match field {
            Field::Slot(_) => (1u32..100).prop_map(Field::Slot).boxed(),
            Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr => {
                select(vec![Field::SourceAddr, Field::DestinationAddr, Field::OriginalDestinationAddr])
                    .boxed()
            }
            Field::SourcePort | Field::DestinationPort | Field::OriginalDestinationPort => {
                select(vec![Field::SourcePort, Field::DestinationPort, Field::OriginalDestinationPort])
                    .boxed()
            }
            Field::L4Proto => Just(Field::L4Proto).boxed(),
        })
        .collect();
    parts.prop_map(Fields::from_vec).boxed()
}

fn value(family: Family) -> BoxedStrategy<Value> {
    let kind = select(vec![AddrKind::Source, AddrKind::Destination]);
    let bits = family.addr_len() * 8;
    let prefix =
        (kind.clone(), vec(any::<u8>(), family.addr_len()), 0..=bits).prop_map(|(kind, mut octets, len)| {
            for (index, octet) in octets.iter_mut().enumerate() {
                let kept = len.saturating_sub(index * 8).min(8);
                *octet &= (0xff00u16 >> kept) as u8;
            }
            let addr = match (<[u8; 4]>::try_from(&octets[..]), <[u8; 16]>::try_from(&octets[..])) {
                (Ok(octets), _) => IpAddr::from(octets),
                (_, Ok(octets)) => IpAddr::from(octets),
                _ => unreachable!("addresses have 4 or 16 bytes"),
            };
            Value::Prefix(kind, addr, len as u8)
        });
    prop_oneof![
        3 => prefix,
        1 => select(&L4Proto::ALL[..]).prop_map(Value::L4Proto),
        1 => ("[a-z][a-z0-9.-]{0,14}", any::<bool>())
            .prop_map(|(name, wildcard)| Value::InputInterface { name, wildcard }),
        1 => kind.prop_map(Value::FibLocal),
        1 => (1u32..).prop_map(Value::MarkBits),
    ]
    .boxed()
}

fn op() -> impl Strategy<Value = Compare> {
    select(vec![Compare::Eq, Compare::Ne])
}

/// Matches and statements that may stand in any chain.
fn statement(family: Family, decls: Vec<Arc<SetDecl>>) -> BoxedStrategy<Statement> {
    let by_set: Vec<BoxedStrategy<Statement>> = decls
        .into_iter()
        .map(|decl| {
            let name = decl.name.clone();
            let key = rule_key(&decl.spec.key);
            match (&decl.spec.data, decl.spec.flags.dynamic) {
                (SetData::Verdict, _) => {
                    key.prop_map(move |key| Statement::VerdictMap { key, map: name.clone() }).boxed()
                }
                (SetData::Fields(data), true) => (key, rule_key(data))
                    .prop_map(move |(key, data)| Statement::Update { set: name.clone(), key, data })
                    .boxed(),
                (SetData::None, true) => key
                    .prop_map(move |key| Statement::Update { set: name.clone(), key, data: Fields::new() })
                    .boxed(),
                (_, false) => (key, op())
                    .prop_map(move |(key, op)| Statement::InSet { key, op, set: name.clone() })
                    .boxed(),
            }
        })
        .collect();
    let bits = || 1u32..u32::MAX;
    prop_oneof![
        4 => (op(), value(family)).prop_map(|(op, value)| Statement::Compare(op, value)),
        1 => Just(Statement::CtStateNew),
        1 => Just(Statement::CtStatus(CtStatus::Dnat)),
        1 => bits().prop_map(Statement::SetMarkBits),
        1 => bits().prop_map(Statement::FlipMarkBits),
        1 => Just(Statement::Counter),
        4 => proptest::strategy::Union::new(by_set),
    ]
    .boxed()
}

fn rules(
    family: Family,
    decls: Vec<Arc<SetDecl>>,
    ends: BoxedStrategy<Option<Statement>>,
) -> BoxedStrategy<Vec<Rule>> {
    let rule = (vec(statement(family, decls), 0..4), ends, option::of(comment())).prop_map(
        |(mut statements, end, comment)| {
            statements.extend(end);
            Rule { statements, comment }
        },
    );
    vec(rule, 0..6).boxed()
}

fn regular_chains(family: Family, decls: Vec<Arc<SetDecl>>) -> BoxedStrategy<BTreeMap<ChainName, Chain>> {
    let chains: Vec<_> = (0..REGULAR)
        .map(|index| {
            // The last is where verdict maps lead, so it looks up none of them.
            let usable: Vec<_> = decls
                .iter()
                .filter(|decl| index + 1 < REGULAR || decl.spec.data != SetData::Verdict)
                .cloned()
                .collect();
            let end = verdict(index + 1..REGULAR).prop_map(|it| Some(Statement::Verdict(it)));
            let usable = if usable.is_empty() { None } else { Some(usable) };
            let rules = match usable {
                Some(usable) => rules(family, usable, prop_oneof![Just(None), end].boxed()),
                None => Just(Vec::new()).boxed(),
            };
            rules.prop_map(move |rules| (regular(index), Chain { base: None, rules })).boxed()
        })
        .collect();
    chains.prop_map(|chains| chains.into_iter().collect()).boxed()
}

fn base_chains(family: Family, decls: Vec<Arc<SetDecl>>) -> BoxedStrategy<BTreeMap<ChainName, Chain>> {
    let map = decls
        .iter()
        .find(|decl| {
            decl.spec.data
                == SetData::Fields(Fields::from_slice(&[Field::DestinationAddr, Field::DestinationPort]))
        })
        .cloned();
    let dnat = match map {
        Some(decl) => rule_key(&decl.spec.key)
            .prop_map(move |key| Some(Statement::Dnat { key, map: decl.name.clone() }))
            .boxed(),
        None => Just(None).boxed(),
    };
    let reject = select(vec![
        vec![Statement::Reject(Reject::PortUnreachable)],
        vec![
            Statement::Compare(Compare::Eq, Value::L4Proto(L4Proto::Tcp)),
            Statement::Reject(Reject::TcpReset),
        ],
    ]);
    let policy = || select(vec![Verdict::Accept, Verdict::Drop]);
    let base = |chain_type, hook, priority| {
        policy().prop_map(move |policy| BaseChain { chain_type, hook, priority: Priority(priority), policy })
    };
    let kinds: Vec<BoxedStrategy<(ChainName, Chain)>> = vec![
        (base(ChainType::Nat, Hook::Prerouting, -100), rules(family, decls.clone(), dnat))
            .prop_map(|(base, rules)| (ChainName::literal("nat-pre"), Chain { base: Some(base), rules }))
            .boxed(),
        (
            base(ChainType::Nat, Hook::Postrouting, 100),
            rules(family, decls.clone(), Just(Some(Statement::Masquerade)).boxed()),
        )
            .prop_map(|(base, rules)| (ChainName::literal("nat-post"), Chain { base: Some(base), rules }))
            .boxed(),
        (base(ChainType::Filter, Hook::Forward, -7), rules(family, decls, Just(None).boxed()), reject)
            .prop_map(|(base, mut rules, reject)| {
                rules.push(Rule::new(reject));
                (ChainName::literal("filter"), Chain { base: Some(base), rules })
            })
            .boxed(),
    ];
    let count = kinds.len();
    kinds
        .prop_flat_map(move |chains| subsequence(chains, 0..=count))
        .prop_map(|chains| chains.into_iter().collect())
        .boxed()
}

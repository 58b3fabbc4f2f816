//! Owns random rules. Knows nothing of the sets beyond how they are declared.

use super::objects::addr;
use super::{Dialect, Ends, Kind};
use crate::{
    AddrKind, ChainName, Compare, CtStatus, Family, Field, L4Proto, Reject, Rule, SetData, SetDecl,
    Statement, Value, Verdict,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use smallvec::SmallVec;
use std::sync::Arc;

type Fields = SmallVec<[Field; 5]>;

/// A rule for a chain of this kind.
pub(super) fn rule(
    family: Family,
    dialect: Dialect,
    kind: Kind,
    decls: Vec<Arc<SetDecl>>,
) -> BoxedStrategy<Rule> {
    let end = end(dialect, kind, &decls);
    let middle = vec(middle(family, dialect, &decls), 0..3);
    let comment = proptest::option::weighted(0.2, "[a-z0-9:/ -]{1,40}");
    (middle, end, comment)
        .prop_map(|(middle, (first, end), comment)| {
            // The protocol comes first: nft refuses two matches that contradict each other, and wants one before
            // a port is translated.
            let statements: Vec<Statement> = first.into_iter().chain(middle).chain(end).collect();
            Rule { statements, comment }
        })
        // A rule without a statement is one that nft can not print.
        .prop_map(|mut rule| {
            if rule.statements.is_empty() {
                rule.statements.push(Statement::Counter);
            }
            rule
        })
        .boxed()
}

/// What ends a rule, and the match of a protocol that must or may come before.
fn end(
    dialect: Dialect,
    kind: Kind,
    decls: &[Arc<SetDecl>],
) -> BoxedStrategy<(Option<Statement>, Option<Statement>)> {
    let protocol = |proto| Some(Statement::Compare(Compare::Eq, Value::L4Proto(proto)));
    let any_protocol = move || select(&L4Proto::ALL[..]).prop_map(protocol);
    let maybe = move || prop_oneof![2 => Just(None), 1 => any_protocol()];
    let mut choices: Vec<BoxedStrategy<(Option<Statement>, Option<Statement>)>> = vec![
        (maybe(), Just(None)).boxed(),
        (maybe(), select(vec![Verdict::Accept, Verdict::Drop, Verdict::Return]))
            .prop_map(|(first, verdict)| (first, Some(Statement::Verdict(verdict))))
            .boxed(),
    ];
    if !kind.next.is_empty() {
        let next = select(kind.next.to_vec()).prop_map(ChainName::literal);
        let lead = prop_oneof![next.clone().prop_map(Verdict::Jump), next.prop_map(Verdict::Goto)];
        choices.push((maybe(), lead.prop_map(|verdict| Some(Statement::Verdict(verdict)))).boxed());
    }
    for decl in decls {
        let (name, key) = (decl.name.clone(), key(dialect, &decl.spec.key));
        match &decl.spec.data {
            SetData::Verdict if kind.maps => {
                let lookup = key.prop_map(move |key| Some(Statement::VerdictMap { key, map: name.clone() }));
                choices.push((maybe(), lookup).boxed());
            }
            SetData::Fields(_) if kind.ends == Ends::Dnat => {
                let dnat = key.prop_map(move |key| Some(Statement::Dnat { key, map: name.clone() }));
                choices.push((any_protocol(), dnat).boxed());
            }
            SetData::None | SetData::Verdict | SetData::Fields(_) => {}
        }
    }
    match kind.ends {
        Ends::Masquerade => choices.push((maybe(), Just(Some(Statement::Masquerade))).boxed()),
        Ends::Reject => {
            let reject = |reject| Just(Some(Statement::Reject(reject)));
            choices.push((maybe(), reject(Reject::PortUnreachable)).boxed());
            choices.push((Just(protocol(L4Proto::Tcp)), reject(Reject::TcpReset)).boxed());
        }
        Ends::Dnat | Ends::Nowhere => {}
    }
    proptest::strategy::Union::new(choices).boxed()
}

/// What may stand anywhere in a rule.
fn middle(family: Family, dialect: Dialect, decls: &[Arc<SetDecl>]) -> BoxedStrategy<Statement> {
    let compare = select(vec![Compare::Eq, Compare::Ne]);
    let kind = || select(vec![AddrKind::Source, AddrKind::Destination]);
    let full = (family.addr_len() * 8) as u8;
    let value = prop_oneof![
        (kind(), 0u8..4).prop_map(move |(kind, block)| Value::Prefix(
            kind,
            addr(family, block * 16),
            full - 4
        )),
        (kind(), 0u8..4).prop_map(move |(kind, host)| Value::Prefix(kind, addr(family, host), full)),
        kind().prop_map(Value::FibLocal),
        select(vec![("lo", false), ("cni", true)])
            .prop_map(|(name, wildcard)| Value::InputInterface { name: name.into(), wildcard }),
        Just(Value::MarkBits(0x4000)),
    ];
    let mut choices: Vec<BoxedStrategy<Statement>> = vec![
        (compare.clone(), value).prop_map(|(op, value)| Statement::Compare(op, value)).boxed(),
        select(vec![
            Statement::CtStateNew,
            Statement::CtStatus(CtStatus::Dnat),
            Statement::SetMarkBits(0x4000),
            Statement::FlipMarkBits(0x4000),
            Statement::Counter,
        ])
        .boxed(),
    ];
    for decl in decls {
        let (name, key) = (decl.name.clone(), key(dialect, &decl.spec.key));
        match &decl.spec.data {
            SetData::None => {
                let set = name.clone();
                choices.push(
                    (key.clone(), compare.clone())
                        .prop_map(move |(key, op)| Statement::InSet { key, op, set: set.clone() })
                        .boxed(),
                );
                if decl.spec.flags.dynamic {
                    choices.push(update(name, key, Just(Fields::new()).boxed()));
                }
            }
            // nft 1.0.6 aborts on an IPv6 address in a concatenated datum.
            SetData::Fields(fields)
                if decl.spec.flags.dynamic && (dialect, family) != (Dialect::Nft106, Family::Ip6) =>
            {
                choices.push(update(name, key, self::key(dialect, fields)));
            }
            SetData::Fields(_) | SetData::Verdict => {}
        }
    }
    proptest::strategy::Union::new(choices).boxed()
}

fn update(
    set: crate::SetName,
    key: BoxedStrategy<Fields>,
    data: BoxedStrategy<Fields>,
) -> BoxedStrategy<Statement> {
    (key, data).prop_map(move |(key, data)| Statement::Update { set: set.clone(), key, data }).boxed()
}

/// A key in a rule for a set with these fields: each of the same kind.
fn key(dialect: Dialect, fields: &[Field]) -> BoxedStrategy<Fields> {
    let parts: Vec<BoxedStrategy<Field>> = fields
        .iter()
        .map(|field| match field {
            Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr => {
                select(vec![Field::SourceAddr, Field::DestinationAddr, Field::OriginalDestinationAddr])
                    .boxed()
            }
            Field::SourcePort | Field::DestinationPort | Field::OriginalDestinationPort => match dialect {
                Dialect::Kernel => {
                    select(vec![Field::SourcePort, Field::DestinationPort, Field::OriginalDestinationPort])
                        .boxed()
                }
                Dialect::Nft106 => select(vec![Field::SourcePort, Field::DestinationPort]).boxed(),
            },
            Field::L4Proto => Just(Field::L4Proto).boxed(),
            Field::Slot(_) => (1u32..4).prop_map(Field::Slot).boxed(),
        })
        .collect();
    parts.prop_map(Fields::from_vec).boxed()
}

//! Owns what `rustables` has words for: tables, chains, and the statements that need neither a map nor a narrow
//! register. Knows nothing of the batch that its messages end up in.

use super::encode::EncodeError;
use super::encode_element::verdict_code;
use crate::wire;
use nft_ir::{
    AddrKind, BaseChain, ChainName, ChainType, Compare, Family, Field, Hook, Reject, Rule, Statement,
    TableId, Value, Verdict,
};
use rustables::expr::{
    self, Bitwise, Cmp, CmpOp, Conntrack, ConntrackKey, Counter, IcmpCode, Immediate, Lookup, Meta, MetaType,
    Payload, RawExpression, Register, RejectType, VerdictKind,
};
use rustables::{Batch, MsgType, ProtocolFamily, sys};
use std::net::IpAddr;

/// Bytes of an interface name with its terminating zero (`IFNAMSIZ`).
pub(crate) const INTERFACE_NAME: usize = 16;
/// `NF_CT_STATE_BIT(IP_CT_NEW)` (linux/netfilter/nf_conntrack_common.h).
pub(crate) const CT_STATE_NEW: u32 = 1 << 3;

fn batch(fill: impl FnOnce(&mut Batch)) -> Vec<u8> {
    let mut batch = Batch::new();
    fill(&mut batch);
    batch.finalize()
}

fn rustables_table(table: &TableId) -> rustables::Table {
    rustables::Table::new(match table.family {
        Family::Ip => ProtocolFamily::Ipv4,
        Family::Ip6 => ProtocolFamily::Ipv6,
    })
    .with_name(table.name.as_str())
}

fn rustables_chain(table: &TableId, chain: &str) -> rustables::Chain {
    rustables::Chain::new(&rustables_table(table)).with_name(chain)
}

fn rustables_rule(table: &TableId, chain: &str) -> Result<rustables::Rule, EncodeError> {
    rustables::Rule::new(&rustables_chain(table, chain)).map_err(|error| EncodeError(error.to_string()))
}

/// A batch that adds a table. A table that is there stays as it is.
pub(crate) fn add_table(table: &TableId, notes: Option<Vec<u8>>) -> Vec<u8> {
    let mut object = rustables_table(table);
    if let Some(notes) = notes {
        object = object.with_userdata(notes);
    }
    batch(|batch| batch.add(&object, MsgType::Add))
}

/// A batch that deletes a table.
pub(crate) fn delete_table(table: &TableId) -> Vec<u8> {
    batch(|batch| batch.add(&rustables_table(table), MsgType::Del))
}

/// A batch that adds a chain.
pub(crate) fn add_chain(
    table: &TableId,
    chain: &ChainName,
    base: Option<&BaseChain>,
) -> Result<Vec<u8>, EncodeError> {
    let mut object = rustables_chain(table, chain.as_str());
    if let Some(BaseChain { chain_type, hook, priority, policy }) = base {
        let class = match hook {
            Hook::Prerouting => rustables::HookClass::PreRouting,
            Hook::Input => rustables::HookClass::In,
            Hook::Forward => rustables::HookClass::Forward,
            Hook::Output => rustables::HookClass::Out,
            Hook::Postrouting => rustables::HookClass::PostRouting,
        };
        object = object
            .with_type(match chain_type {
                ChainType::Filter => rustables::ChainType::Filter,
                ChainType::Nat => rustables::ChainType::Nat,
            })
            .with_hook(rustables::Hook::new(class, priority.0))
            .with_policy(match policy {
                Verdict::Accept => rustables::ChainPolicy::Accept,
                Verdict::Drop => rustables::ChainPolicy::Drop,
                other => return Err(EncodeError(format!("{other:?} is not a policy"))),
            });
    }
    Ok(batch(|batch| batch.add(&object, MsgType::Add)))
}

/// A batch that deletes a chain.
pub(crate) fn delete_chain(table: &TableId, chain: &ChainName) -> Vec<u8> {
    batch(|batch| batch.add(&rustables_chain(table, chain.as_str()), MsgType::Del))
}

/// A batch that deletes the rules of a chain.
pub(crate) fn flush_chain(table: &TableId, chain: &ChainName) -> Result<Vec<u8>, EncodeError> {
    let rule = rustables_rule(table, chain.as_str())?;
    Ok(batch(|batch| batch.add(&rule, MsgType::Del)))
}

/// A batch that adds a rule at the end of its chain, if `rustables` has words for all of it.
pub(crate) fn add_rule(
    table: &TableId,
    chain: &str,
    rule: &Rule,
    notes: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, EncodeError> {
    let mut object = rustables_rule(table, chain)?;
    // Also for a rule that does nothing: the kernel wants the list, be it empty.
    object.set_expressions(expr::ExpressionList::default());
    for statement in &rule.statements {
        let Some(expressions) = statement_expressions(statement, table.family)? else { return Ok(None) };
        expressions.into_iter().for_each(|expression| object.add_expr(expression));
    }
    if let Some(notes) = notes {
        object.set_userdata(notes);
    }
    Ok(Some(batch(|batch| batch.add(&object, MsgType::Add))))
}

/// The expressions of a statement as list elements, if `rustables` has words for it.
pub(crate) fn statement(statement: &Statement, family: Family) -> Result<Option<Vec<u8>>, EncodeError> {
    let Some(expressions) = statement_expressions(statement, family)? else { return Ok(None) };
    let mut rule = rustables::Rule::default();
    expressions.into_iter().for_each(|expression| rule.add_expr(expression));
    let bytes = batch(|batch| batch.add(&rule, MsgType::Add));
    let list = wire::messages(&bytes)
        .find(|message| message.kind == super::kind(sys::NFT_MSG_NEWRULE))
        .and_then(|message| wire::attribute(message.attributes(), sys::NFTA_RULE_EXPRESSIONS));
    Ok(list.map(<[u8]>::to_vec))
}

fn statement_expressions(
    statement: &Statement,
    family: Family,
) -> Result<Option<Vec<RawExpression>>, EncodeError> {
    Ok(Some(match statement {
        Statement::Compare(op, value) => match compare(*op, value, family)? {
            Some(expressions) => expressions,
            None => return Ok(None),
        },
        Statement::CtStateNew => vec![
            Conntrack::new(ConntrackKey::State).into(),
            bits(CT_STATE_NEW, 0),
            Cmp::new(CmpOp::Neq, 0u32.to_ne_bytes()).into(),
        ],
        Statement::InSet { key, op: Compare::Eq, set } => match &key[..] {
            [field] => match plain_load(*field, family) {
                Some(load) => {
                    let lookup = Lookup::default().with_set(set.as_str()).with_sreg(Register::Reg1);
                    vec![load, lookup.into()]
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        },
        Statement::SetMarkBits(set) => change_mark(!set, *set),
        Statement::FlipMarkBits(flip) => change_mark(u32::MAX, *flip),
        Statement::Reject(Reject::TcpReset) => {
            // The kernel ignores the code; nft writes 0.
            let reject =
                expr::Reject::default().with_type(RejectType::TcpRst).with_icmp_code(IcmpCode::NoRoute);
            vec![reject.into()]
        }
        Statement::Counter => vec![Counter::default().into()],
        Statement::Verdict(verdict) => vec![Immediate::new_verdict(verdict_kind(verdict)).into()],
        Statement::InSet { .. }
        | Statement::CtStatus(_)
        | Statement::VerdictMap { .. }
        | Statement::Dnat { .. }
        | Statement::Masquerade
        | Statement::Reject(Reject::PortUnreachable)
        | Statement::Update { .. } => return Ok(None),
    }))
}

fn compare(op: Compare, value: &Value, family: Family) -> Result<Option<Vec<RawExpression>>, EncodeError> {
    let op = match op {
        Compare::Eq => CmpOp::Eq,
        Compare::Ne => CmpOp::Neq,
    };
    Ok(Some(match value {
        Value::Prefix(kind, addr, len) => prefix(op, *kind, *addr, *len, family)?,
        Value::L4Proto(proto) => {
            vec![Meta::new(MetaType::L4Proto).into(), Cmp::new(op, [proto.number()]).into()]
        }
        Value::InputInterface { name, wildcard } => {
            let mut bytes = name.clone().into_bytes();
            if bytes.len() >= INTERFACE_NAME || bytes.contains(&0) || (bytes.is_empty() && *wildcard) {
                return Err(EncodeError(format!("interface name {name:?}")));
            }
            if !wildcard {
                bytes.resize(INTERFACE_NAME, 0);
            }
            vec![Meta::new(MetaType::IifName).into(), Cmp::new(op, bytes).into()]
        }
        Value::MarkBits(mask) => {
            vec![Meta::new(MetaType::Mark).into(), bits(*mask, 0), Cmp::new(op, mask.to_ne_bytes()).into()]
        }
        Value::FibLocal(_) => return Ok(None),
    }))
}

/// A prefix of whole bytes is compared by itself, as nft does; any other by masking the address.
fn prefix(
    op: CmpOp,
    kind: AddrKind,
    addr: IpAddr,
    len: u8,
    family: Family,
) -> Result<Vec<RawExpression>, EncodeError> {
    let octets = match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    let len = usize::from(len);
    if Family::of(&addr) != family || len > octets.len() * 8 {
        return Err(EncodeError(format!("prefix {addr}/{len} in a table of family {family}")));
    }
    let field = match kind {
        AddrKind::Source => Field::SourceAddr,
        AddrKind::Destination => Field::DestinationAddr,
    };
    let payload = |bytes: usize| payload(field, family).map(|payload| payload.with_len(bytes as u32).into());
    if len > 0 && len % 8 == 0 {
        let bytes = len / 8;
        return Ok(payload(bytes).into_iter().chain([Cmp::new(op, &octets[..bytes]).into()]).collect());
    }
    let mask = prefix_mask(len, octets.len());
    let zeros = vec![0; octets.len()];
    let bitwise = Bitwise::new(mask, zeros).map_err(|error| EncodeError(error.to_string()))?;
    Ok(payload(octets.len()).into_iter().chain([bitwise.into(), Cmp::new(op, octets).into()]).collect())
}

/// A mask of `bytes` bytes whose first `len` bits are set.
pub(crate) fn prefix_mask(len: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (0xff00u16 >> len.saturating_sub(at * 8).min(8)) as u8).collect()
}

fn change_mark(mask: u32, xor: u32) -> Vec<RawExpression> {
    vec![
        Meta::new(MetaType::Mark).into(),
        bits(mask, xor),
        Meta::default().with_key(MetaType::Mark).with_sreg(Register::Reg1).into(),
    ]
}

/// `reg1 = (reg1 & mask) ^ xor`.
fn bits(mask: u32, xor: u32) -> RawExpression {
    // The two are of one length, so `new` would not fail; spelt out, there is nothing to fail.
    let data = |value: u32| value.to_ne_bytes().to_vec();
    let mut bitwise = Bitwise::default().with_sreg(Register::Reg1).with_dreg(Register::Reg1).with_len(4u32);
    if let Ok(both) = Bitwise::new(data(mask), data(xor)) {
        bitwise = both;
    }
    bitwise.into()
}

/// Where in a packet a field is, for fields that one payload expression reads.
fn payload(field: Field, family: Family) -> Option<Payload> {
    let (base, offset, len) = payload_place(field, family)?;
    Some(Payload::default().with_dreg(Register::Reg1).with_base(base).with_offset(offset).with_len(len))
}

/// Base, offset and length of a field in a packet.
pub(crate) const fn payload_place(field: Field, family: Family) -> Option<(u32, u32, u32)> {
    let (source, destination) = match family {
        Family::Ip => (12, 16),
        Family::Ip6 => (8, 24),
    };
    let address = family.addr_len() as u32;
    Some(match field {
        Field::SourceAddr => (sys::NFT_PAYLOAD_NETWORK_HEADER, source, address),
        Field::DestinationAddr => (sys::NFT_PAYLOAD_NETWORK_HEADER, destination, address),
        Field::SourcePort => (sys::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2),
        Field::DestinationPort => (sys::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
        _ => return None,
    })
}

fn plain_load(field: Field, family: Family) -> Option<RawExpression> {
    match field {
        Field::L4Proto => Some(Meta::new(MetaType::L4Proto).into()),
        field => payload(field, family).map(RawExpression::from),
    }
}

fn verdict_kind(verdict: &Verdict) -> VerdictKind {
    let chain = verdict_code(verdict).1.unwrap_or_default().to_owned();
    match verdict {
        Verdict::Accept => VerdictKind::Accept,
        Verdict::Drop => VerdictKind::Drop,
        Verdict::Jump(_) => VerdictKind::Jump { chain },
        Verdict::Goto(_) => VerdictKind::Goto { chain },
        Verdict::Return => VerdictKind::Return,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_prefixes() {
        for (len, bytes) in [(0, [0, 0, 0]), (1, [0x80, 0, 0]), (9, [0xff, 0x80, 0]), (24, [0xff; 3])] {
            assert_eq!(prefix_mask(len, 3), bytes, "/{len}");
        }
    }
}

//! Owns the expressions of the statements that `rustables` has no words for, and which registers they use. Knows
//! nothing of messages.

use super::encode::EncodeError;
use super::ext::{Dynset, ExprListExt, Lookup, NAT_RANDOM_FULLY};
use super::layout::REGISTER;
use super::registers::{self, number};
use super::userdata::ct_destination;
use super::{encode_plain, encode_plain::payload_place};
use crate::wire;
use netlink_bindings::nftables::PushExprListAttrs;
use nft_ir::{AddrKind, Compare, CtStatus, Family, Field, Reject, SetName, Statement, Value};
use rustables::sys;

/// `IPS_DST_NAT` (linux/netfilter/nf_conntrack_common.h).
pub(crate) const IPS_DST_NAT: u32 = 1 << 5;
/// `RTN_LOCAL` (linux/rtnetlink.h).
pub(crate) const RTN_LOCAL: u32 = 2;
/// `IP_CT_DIR_ORIGINAL` (linux/netfilter/nf_conntrack_tuple_common.h).
pub(crate) const IP_CT_DIR_ORIGINAL: u8 = 0;
/// ICMP and ICMPv6 code of "port unreachable" (linux/icmp.h, linux/icmpv6.h).
pub(crate) const fn port_unreachable(family: Family) -> u8 {
    match family {
        Family::Ip => 3,
        Family::Ip6 => 4,
    }
}

/// Appends the expressions of a rule as list elements.
pub(crate) fn push_statements(
    bytes: &mut Vec<u8>,
    family: Family,
    statements: &[Statement],
) -> Result<(), EncodeError> {
    for statement in statements {
        match encode_plain::statement(statement, family)? {
            Some(plain) => bytes.extend_from_slice(&plain),
            None => {
                push_statement(PushExprListAttrs::new(&mut *bytes), family, statement)?.end_nested();
                bytes.resize(wire::align(bytes.len()), 0);
            }
        }
    }
    Ok(())
}

type List<'a> = PushExprListAttrs<&'a mut Vec<u8>>;

fn push_statement<'a>(
    list: List<'a>,
    family: Family,
    statement: &Statement,
) -> Result<List<'a>, EncodeError> {
    Ok(match statement {
        Statement::Compare(op, Value::FibLocal(kind)) => push_fib_local(list, *op, *kind),
        Statement::CtStatus(CtStatus::Dnat) => push_ct_status(list, IPS_DST_NAT),
        Statement::InSet { key, op, set } => {
            let list = push_key(list, key, family)?;
            let inverted = *op == Compare::Ne;
            list.push_lookup(&Lookup { set: set.as_str(), key: number(0), data: None, inverted })
        }
        Statement::VerdictMap { key, map } => {
            let list = push_key(list, key, family)?;
            let data = Some(sys::NFT_REG_VERDICT);
            list.push_lookup(&Lookup { set: map.as_str(), key: number(0), data, inverted: false })
        }
        Statement::Dnat { key, map } => push_dnat(push_key(list, key, family)?, map, family),
        Statement::Masquerade => list.push_masq(NAT_RANDOM_FULLY),
        Statement::Reject(Reject::PortUnreachable) => list
            .nested_elem()
            .nested_data_reject()
            .push_type(sys::NFT_REJECT_ICMP_UNREACH)
            .push_icmp_code(port_unreachable(family))
            .end_nested()
            .end_nested(),
        Statement::Update { set, key, data } => {
            let list = push_key(list, key, family)?;
            // nft gives the datum registers of 16 bytes of its own, behind the key.
            let behind = (Field::key_len(key, family) / REGISTER).next_multiple_of(4);
            let list = push_fields(list, data, family, behind)?;
            list.push_dynset(&Dynset {
                set: set.as_str(),
                op: sys::NFT_DYNSET_OP_UPDATE,
                key: number(0),
                data: (!data.is_empty()).then(|| number(behind)),
            })
        }
        other => return Err(EncodeError(format!("no expression for {other:?}"))),
    })
}

fn push_key<'a>(list: List<'a>, key: &[Field], family: Family) -> Result<List<'a>, EncodeError> {
    if key.is_empty() {
        return Err(EncodeError("key without fields".into()));
    }
    push_fields(list, key, family, 0)
}

/// Reads fields into registers, one behind the other, from the register at `index` on.
fn push_fields<'a>(
    mut list: List<'a>,
    fields: &[Field],
    family: Family,
    mut index: usize,
) -> Result<List<'a>, EncodeError> {
    if index + Field::key_len(fields, family) / REGISTER > registers::COUNT {
        return Err(EncodeError("key and datum do not fit in the kernel's registers".into()));
    }
    for field in fields {
        list = push_load(list, *field, family, number(index));
        index += field.register_len(family) / REGISTER;
    }
    Ok(list)
}

fn push_load<'a>(list: List<'a>, field: Field, family: Family, register: u32) -> List<'a> {
    if let Some((base, offset, len)) = payload_place(field, family) {
        let payload = list.nested_elem().nested_data_payload();
        return payload
            .push_dreg(register)
            .push_base(base)
            .push_offset(offset)
            .push_len(len)
            .end_nested()
            .end_nested();
    }
    let ct = |list: List<'a>, key| {
        let ct = list.nested_elem().nested_data_ct();
        ct.push_key(key).push_dreg(register).push_direction(IP_CT_DIR_ORIGINAL).end_nested().end_nested()
    };
    match field {
        Field::L4Proto => {
            let meta = list.nested_elem().nested_data_meta();
            meta.push_key(sys::NFT_META_L4PROTO).push_dreg(register).end_nested().end_nested()
        }
        Field::OriginalDestinationAddr => ct(list, ct_destination(family)),
        Field::OriginalDestinationPort => ct(list, sys::NFT_CT_PROTO_DST),
        // The bindings write this one register in host order; turned twice it comes out right.
        Field::Slot(modulus) => list
            .nested_elem()
            .nested_data_numgen()
            .push_dreg(register.to_be())
            .push_modulus(modulus)
            .push_type(sys::NFT_NG_RANDOM)
            .push_offset(0)
            .end_nested()
            .end_nested(),
        Field::SourceAddr | Field::DestinationAddr | Field::SourcePort | Field::DestinationPort => list,
    }
}

fn push_fib_local(list: List<'_>, op: Compare, kind: AddrKind) -> List<'_> {
    let flags = match kind {
        AddrKind::Source => sys::NFTA_FIB_F_SADDR,
        AddrKind::Destination => sys::NFTA_FIB_F_DADDR,
    };
    let list = list
        .nested_elem()
        .nested_data_fib()
        .push_flags(flags)
        .push_result(sys::NFT_FIB_RESULT_ADDRTYPE)
        .push_dreg(number(0))
        .end_nested()
        .end_nested();
    push_compare(list, op, &RTN_LOCAL.to_ne_bytes())
}

fn push_ct_status(list: List<'_>, status: u32) -> List<'_> {
    let list = list
        .nested_elem()
        .nested_data_ct()
        .push_key(sys::NFT_CT_STATUS)
        .push_dreg(number(0))
        .end_nested()
        .end_nested()
        .nested_elem()
        .nested_data_bitwise()
        .push_sreg(number(0))
        .push_dreg(number(0))
        .push_len(4)
        .nested_mask()
        .push_value(&status.to_ne_bytes())
        .end_nested()
        .nested_xor()
        .push_value(&[0; 4])
        .end_nested()
        .end_nested()
        .end_nested();
    push_compare(list, Compare::Ne, &[0; 4])
}

fn push_compare<'a>(list: List<'a>, op: Compare, value: &[u8]) -> List<'a> {
    let op = match op {
        Compare::Eq => sys::NFT_CMP_EQ,
        Compare::Ne => sys::NFT_CMP_NEQ,
    };
    let cmp = list.nested_elem().nested_data_cmp().push_sreg(number(0)).push_op(op);
    cmp.nested_data().push_value(value).end_nested().end_nested().end_nested()
}

/// The map puts address and port into the registers that the key came from; `nat` takes them there.
fn push_dnat<'a>(list: List<'a>, map: &SetName, family: Family) -> List<'a> {
    let data = Some(number(0));
    list.push_lookup(&Lookup { set: map.as_str(), key: number(0), data, inverted: false })
        .nested_elem()
        .nested_data_nat()
        .push_type(sys::NFT_NAT_DNAT)
        .push_family(u32::from(wire::nfproto(family)))
        .push_reg_addr_min(number(0))
        .push_reg_proto_min(number(family.addr_len() / REGISTER))
        .end_nested()
        .end_nested()
}

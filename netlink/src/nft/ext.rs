//! Owns what the generated bindings lack, or have wrong (0.3.5), in their own style: `masq` and `dynset`
//! expressions, and attributes whose numbers or byte order differ from linux/netfilter/nf_tables.h. Knows
//! nothing of rules.
//!
//! Wrong there, because the kernel's own specification file left out a padding attribute or an order:
//! `lookup` (`set-id` before the registers), `key-end` of an element (9 instead of 10), `dreg` of `numgen`, `id`
//! and `timeout` of a set, `timeout` and `expiration` of an element (host order).

use netlink_bindings::nftables::{PushExprAttrs, PushExprListAttrs, PushSetAttrs, PushSetelemAttrs};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{finalize_nested_header, push_header, push_nested_header};
use rustables::sys;

/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY` (linux/netfilter/nf_nat.h).
pub(crate) const NAT_RANDOM_FULLY: u32 = 1 << 4;

/// What a `dynset` expression does, and with which registers.
pub(crate) struct Dynset<'a> {
    /// Name of the set.
    pub(crate) set: &'a str,
    /// `NFT_DYNSET_OP_*`.
    pub(crate) op: u32,
    /// Register of the key.
    pub(crate) key: u32,
    /// Register of the datum, in maps.
    pub(crate) data: Option<u32>,
}

/// What a `lookup` expression does, and with which registers.
pub(crate) struct Lookup<'a> {
    /// Name of the set.
    pub(crate) set: &'a str,
    /// Register of the key.
    pub(crate) key: u32,
    /// Register for the datum, in maps.
    pub(crate) data: Option<u32>,
    /// Whether the rule goes on when the key is not there.
    pub(crate) inverted: bool,
}

/// Expressions that the bindings cannot write.
pub(crate) trait ExprListExt: Sized {
    /// `masq` with flags (`NF_NAT_RANGE_*`).
    fn push_masq(self, flags: u32) -> Self;
    /// `dynset`.
    fn push_dynset(self, dynset: &Dynset<'_>) -> Self;
    /// `lookup`.
    fn push_lookup(self, lookup: &Lookup<'_>) -> Self;
}

impl<P: Pusher> ExprListExt for PushExprListAttrs<P> {
    fn push_masq(self, flags: u32) -> Self {
        expression(self.nested_elem(), c"masq", |bytes| push_be32(bytes, sys::NFTA_MASQ_FLAGS, flags))
    }

    fn push_dynset(self, dynset: &Dynset<'_>) -> Self {
        expression(self.nested_elem(), c"dynset", |bytes| {
            push_text(bytes, sys::NFTA_DYNSET_SET_NAME, dynset.set);
            push_be32(bytes, sys::NFTA_DYNSET_OP, dynset.op);
            push_be32(bytes, sys::NFTA_DYNSET_SREG_KEY, dynset.key);
            if let Some(data) = dynset.data {
                push_be32(bytes, sys::NFTA_DYNSET_SREG_DATA, data);
            }
        })
    }

    fn push_lookup(self, lookup: &Lookup<'_>) -> Self {
        expression(self.nested_elem(), c"lookup", |bytes| {
            push_text(bytes, sys::NFTA_LOOKUP_SET, lookup.set);
            push_be32(bytes, sys::NFTA_LOOKUP_SREG, lookup.key);
            if let Some(data) = lookup.data {
                push_be32(bytes, sys::NFTA_LOOKUP_DREG, data);
            }
            if lookup.inverted {
                push_be32(bytes, sys::NFTA_LOOKUP_FLAGS, sys::NFT_LOOKUP_F_INV);
            }
        })
    }
}

/// Attributes of a set that the bindings write in the wrong byte order.
pub(crate) trait SetExt: Sized {
    /// The set's number within its batch (`NFTA_SET_ID`).
    fn push_set_id(self, id: u32) -> Self;
    /// Default time to live in milliseconds (`NFTA_SET_TIMEOUT`).
    fn push_timeout_ms(self, milliseconds: u64) -> Self;
}

impl<P: Pusher> SetExt for PushSetAttrs<P> {
    fn push_set_id(mut self, id: u32) -> Self {
        push_be32(self.as_vec_mut(), sys::NFTA_SET_ID, id);
        self
    }

    fn push_timeout_ms(mut self, milliseconds: u64) -> Self {
        push_be64(self.as_vec_mut(), sys::NFTA_SET_TIMEOUT, milliseconds);
        self
    }
}

/// Attributes of an element that the bindings number or order otherwise.
pub(crate) trait ElementExt: Sized {
    /// The last key of an interval, itself included (`NFTA_SET_ELEM_KEY_END`).
    fn push_key_end(self, key: &[u8]) -> Self;
    /// Time to live in milliseconds (`NFTA_SET_ELEM_TIMEOUT`).
    fn push_timeout_ms(self, milliseconds: u64) -> Self;
    /// What is left of it (`NFTA_SET_ELEM_EXPIRATION`).
    fn push_expiration_ms(self, milliseconds: u64) -> Self;
}

impl<P: Pusher> ElementExt for PushSetelemAttrs<P> {
    fn push_key_end(mut self, key: &[u8]) -> Self {
        let bytes = self.as_vec_mut();
        let nested = push_nested_header(bytes, sys::NFTA_SET_ELEM_KEY_END);
        push_header(bytes, sys::NFTA_DATA_VALUE, key.len() as u16);
        bytes.extend_from_slice(key);
        finalize_nested_header(bytes, nested);
        self
    }

    fn push_timeout_ms(mut self, milliseconds: u64) -> Self {
        push_be64(self.as_vec_mut(), sys::NFTA_SET_ELEM_TIMEOUT, milliseconds);
        self
    }

    fn push_expiration_ms(mut self, milliseconds: u64) -> Self {
        push_be64(self.as_vec_mut(), sys::NFTA_SET_ELEM_EXPIRATION, milliseconds);
        self
    }
}

fn expression<P: Pusher>(
    expr: PushExprAttrs<P>,
    name: &std::ffi::CStr,
    fill: impl FnOnce(&mut Vec<u8>),
) -> P {
    let mut expr = expr.push_name(name);
    let bytes = expr.as_vec_mut();
    let data = push_nested_header(bytes, sys::NFTA_EXPR_DATA);
    fill(bytes);
    finalize_nested_header(bytes, data);
    expr.end_nested()
}

fn push_be32(bytes: &mut Vec<u8>, kind: u16, value: u32) {
    push_header(bytes, kind, 4);
    bytes.extend_from_slice(&value.to_be_bytes());
}

/// Appends an attribute of a long number in network order.
pub(crate) fn push_be64(bytes: &mut Vec<u8>, kind: u16, value: u64) {
    push_header(bytes, kind, 8);
    bytes.extend_from_slice(&value.to_be_bytes());
}

/// Appends an attribute of text with its terminating zero.
pub(crate) fn push_text(bytes: &mut Vec<u8>, kind: u16, text: &str) {
    push_header(bytes, kind, text.len() as u16 + 1);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
}

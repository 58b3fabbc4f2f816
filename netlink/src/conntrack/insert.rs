//! Owns the making of flows that no packet made, for tests. Knows nothing of what they are for.

use super::{Conntrack, Flow, RUN, Status, Zone, kind, message, tuple};
use crate::Error;
use crate::wire::{self, NLM_F_CREATE};
use netlink_bindings::conntrack::PushConntrackAttrs;
use netlink_bindings::utils::{finalize_nested_header, push_header, push_nested_header};
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// `NLM_F_EXCL` (linux/netlink.h).
const NLM_F_EXCL: u16 = 0x200;
/// `IPS_CONFIRMED` (linux/netfilter/nf_conntrack_common.h).
const CONFIRMED: u32 = 1 << 3;

/// Numbers that the bindings have otherwise (linux/netfilter/nfnetlink_conntrack.h).
mod nat {
    pub(super) const DST: u16 = 13;
    pub(super) const V4_MINIP: u16 = 1;
    pub(super) const V4_MAXIP: u16 = 2;
    pub(super) const PROTO: u16 = 3;
    pub(super) const V6_MINIP: u16 = 4;
    pub(super) const V6_MAXIP: u16 = 5;
    pub(super) const PORT_MIN: u16 = 1;
    pub(super) const PORT_MAX: u16 = 2;
}

impl Conntrack {
    /// Makes flows that live for so many seconds; returns how many were not there already. Tuples, zone, and the
    /// status bits "seen reply" and "assured" are taken from each; where the reply's source is not the original's
    /// destination, the destination is translated.
    ///
    /// # Errors
    /// [`Error::Read`] without privilege (`EPERM`), or with a full table (`ENOMEM`).
    pub fn insert(&mut self, flows: &[Flow], lifetime: Duration) -> Result<usize, Error> {
        let mut inserted = 0;
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        for run in flows.chunks(RUN) {
            let there = self.send_run(run, kind(message::NEW), flags, Errno::EEXIST, |bytes, flow| {
                push(bytes, flow, lifetime);
            })?;
            inserted += run.len() - there;
        }
        Ok(inserted)
    }
}

fn push(bytes: &mut Vec<u8>, flow: &Flow, lifetime: Duration) {
    let untranslated = flow.original.inverted();
    let mut attributes = PushConntrackAttrs::new(&mut *bytes);
    attributes = tuple::push(attributes.nested_tuple_orig(), &flow.original).end_nested();
    attributes = tuple::push(attributes.nested_tuple_reply(), &untranslated).end_nested();
    let status = flow.status.0 & (Status::SEEN_REPLY.0 | Status::ASSURED.0) | CONFIRMED;
    attributes = attributes.push_status(status).push_timeout(lifetime.as_secs() as u32);
    if let Zone::Both(zone @ 1..) = flow.zone {
        attributes = attributes.push_zone(zone);
    }
    attributes.end_nested();
    if flow.reply.source != untranslated.source {
        push_destination(bytes, flow.reply.source);
    }
    bytes.resize(wire::align(bytes.len()), 0);
}

fn push_destination(bytes: &mut Vec<u8>, to: SocketAddr) {
    let value = |bytes: &mut Vec<u8>, kind, value: &[u8]| {
        push_header(bytes, kind, value.len() as u16);
        bytes.extend_from_slice(value);
    };
    let nested = push_nested_header(bytes, nat::DST);
    match to.ip() {
        IpAddr::V4(addr) => {
            value(bytes, nat::V4_MINIP, &addr.octets());
            value(bytes, nat::V4_MAXIP, &addr.octets());
        }
        IpAddr::V6(addr) => {
            value(bytes, nat::V6_MINIP, &addr.octets());
            value(bytes, nat::V6_MAXIP, &addr.octets());
        }
    }
    let ports = push_nested_header(bytes, nat::PROTO);
    value(bytes, nat::PORT_MIN, &to.port().to_be_bytes());
    value(bytes, nat::PORT_MAX, &to.port().to_be_bytes());
    finalize_nested_header(bytes, ports);
    finalize_nested_header(bytes, nested);
}

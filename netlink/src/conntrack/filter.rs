//! Owns which flows a dump shows: once as attributes for the kernel, once as a predicate, since an old kernel
//! shows more than it was asked for. Knows nothing of dumps.

use super::Flow;
use netlink_bindings::conntrack::PushConntrackAttrs;
use nft_ir::{Family, L4Proto};
use std::net::IpAddr;

/// `CTA_FILTER_F_*` (net/netfilter/nf_conntrack_netlink.c): which parts of the tuple have to agree.
mod part {
    pub(super) const IP_SRC: u32 = 1 << 0;
    pub(super) const IP_DST: u32 = 1 << 1;
    pub(super) const PROTO_NUM: u32 = 1 << 3;
    pub(super) const PROTO_SRC_PORT: u32 = 1 << 4;
    pub(super) const PROTO_DST_PORT: u32 = 1 << 5;
}

/// What flows of a family have to agree with. The kernel filters by it since Linux 5.8 (by zone since 6.8); what an
/// older one shows in excess is filtered here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Family of the addresses.
    pub family: Family,
    /// Transport protocol.
    pub proto: Option<L4Proto>,
    /// Number of the zone. Flows that are in it in one direction only are not shown.
    pub zone: Option<u16>,
    /// The address that the client dialled; of that family.
    pub destination: Option<IpAddr>,
    /// The port that the client dialled; only together with a protocol, else nothing agrees.
    pub destination_port: Option<u16>,
    /// The address that answers; of that family.
    pub answers: Option<IpAddr>,
    /// The port that answers; only together with a protocol, else nothing agrees.
    pub answers_port: Option<u16>,
}

impl Filter {
    /// All flows of a family.
    pub const fn of(family: Family) -> Self {
        Self {
            family,
            proto: None,
            zone: None,
            destination: None,
            destination_port: None,
            answers: None,
            answers_port: None,
        }
    }

    /// Of these, those of a transport protocol.
    #[must_use]
    pub const fn proto(self, proto: L4Proto) -> Self {
        Self { proto: Some(proto), ..self }
    }

    /// Of these, those that are in a zone in both directions.
    #[must_use]
    pub const fn zone(self, zone: u16) -> Self {
        Self { zone: Some(zone), ..self }
    }

    /// Of these, those to an address, before translation.
    #[must_use]
    pub const fn destination(self, destination: IpAddr) -> Self {
        Self { destination: Some(destination), ..self }
    }

    /// Of these, those to a port, before translation.
    #[must_use]
    pub const fn destination_port(self, port: u16) -> Self {
        Self { destination_port: Some(port), ..self }
    }

    /// Of these, those that an address answers: where they really go, after translation.
    #[must_use]
    pub const fn answers(self, answers: IpAddr) -> Self {
        Self { answers: Some(answers), ..self }
    }

    /// Of these, those that a port answers.
    #[must_use]
    pub const fn answers_port(self, port: u16) -> Self {
        Self { answers_port: Some(port), ..self }
    }

    /// Whether a flow agrees.
    pub fn matches(&self, flow: &Flow) -> bool {
        let (destination, answers) = (flow.original.destination, flow.reply.source);
        flow.original.family() == self.family
            && self.proto.is_none_or(|proto| proto == flow.original.proto)
            && self.zone.is_none_or(|zone| super::Zone::Both(zone) == flow.zone)
            && self.destination.is_none_or(|addr| addr == destination.ip())
            && self.destination_port.is_none_or(|port| self.proto.is_some() && port == destination.port())
            && self.answers.is_none_or(|addr| addr == answers.ip())
            && self.answers_port.is_none_or(|port| self.proto.is_some() && port == answers.port())
    }

    /// Writes it for the kernel.
    pub(super) fn push(&self, bytes: &mut Vec<u8>) {
        let mut parts = 0;
        let mut attributes = PushConntrackAttrs::new(bytes).nested_tuple_orig();
        // An address of IPv6 is left to the predicate: the kernel has the comparison the wrong way round, and shows
        // all flows but those to it (seen on 6.18).
        if let Some(IpAddr::V4(addr)) = self.destination {
            parts |= part::IP_DST;
            attributes = attributes.nested_tuple_ip().push_ip_v4_dst(addr).end_nested();
        }
        if let Some(proto) = self.proto {
            parts |= part::PROTO_NUM;
            let mut ports = attributes.nested_tuple_proto().push_proto_num(proto.number());
            if let Some(port) = self.destination_port {
                parts |= part::PROTO_DST_PORT;
                ports = ports.push_proto_dst_port(port);
            }
            attributes = ports.end_nested();
        }
        let mut attributes = attributes.end_nested();
        let mut reply_parts = 0;
        if self.answers.is_some() || self.answers_port.is_some() {
            let mut tuple = attributes.nested_tuple_reply();
            if let Some(IpAddr::V4(addr)) = self.answers {
                reply_parts |= part::IP_SRC;
                tuple = tuple.nested_tuple_ip().push_ip_v4_src(addr).end_nested();
            }
            if let (Some(proto), Some(port)) = (self.proto, self.answers_port) {
                reply_parts |= part::PROTO_NUM | part::PROTO_SRC_PORT;
                let ports = tuple.nested_tuple_proto().push_proto_num(proto.number());
                tuple = ports.push_proto_src_port(port).end_nested();
            }
            attributes = tuple.end_nested();
        }
        if parts | reply_parts != 0 {
            let filter = attributes.nested_filter().push_orig_flags(parts);
            attributes = filter.push_reply_flags(reply_parts).end_nested();
        }
        if let Some(zone) = self.zone {
            attributes = attributes.push_zone(zone);
        }
        attributes.end_nested();
    }
}

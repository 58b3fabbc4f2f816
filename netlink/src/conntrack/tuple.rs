//! Owns the tuple: who speaks to whom in one direction. Knows nothing of flows.

use super::cta;
use crate::wire::attribute;
use netlink_bindings::conntrack::PushTupleAttrs;
use netlink_bindings::traits::Pusher;
use nft_ir::{Family, L4Proto};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// One direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Transport protocol.
    pub proto: L4Proto,
    /// Where packets come from.
    pub source: SocketAddr,
    /// Where they go; of the same family.
    pub destination: SocketAddr,
}

impl Tuple {
    /// The other direction, as long as nothing is translated.
    #[must_use]
    pub const fn inverted(self) -> Self {
        Self { proto: self.proto, source: self.destination, destination: self.source }
    }

    /// The family of the addresses.
    pub fn family(&self) -> Family {
        Family::of(&self.destination.ip())
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} > {}", self.proto, self.source, self.destination)
    }
}

/// Reads a tuple; `None` if its protocol has no ports.
pub(super) fn read(tuple: &[u8]) -> Option<Tuple> {
    let ip = attribute(tuple, cta::TUPLE_IP)?;
    let proto = attribute(tuple, cta::TUPLE_PROTO)?;
    let addr = |v4, v6| {
        let v4 = attribute(ip, v4)
            .and_then(|bytes| bytes.first_chunk().copied().map(<IpAddr as From<[u8; 4]>>::from));
        v4.or_else(|| attribute(ip, v6)?.first_chunk().copied().map(<IpAddr as From<[u8; 16]>>::from))
    };
    let port = |kind| attribute(proto, kind)?.first_chunk().copied().map(u16::from_be_bytes);
    Some(Tuple {
        proto: L4Proto::from_number(*attribute(proto, cta::PROTO_NUM)?.first()?)?,
        source: SocketAddr::new(addr(cta::IP_V4_SRC, cta::IP_V6_SRC)?, port(cta::PROTO_SRC_PORT)?),
        destination: SocketAddr::new(addr(cta::IP_V4_DST, cta::IP_V6_DST)?, port(cta::PROTO_DST_PORT)?),
    })
}

/// Writes a whole tuple.
pub(super) fn push<P: Pusher>(attributes: PushTupleAttrs<P>, tuple: &Tuple) -> PushTupleAttrs<P> {
    let ip = attributes.nested_tuple_ip();
    let ip = match tuple.source.ip() {
        IpAddr::V4(addr) => ip.push_ip_v4_src(addr),
        IpAddr::V6(addr) => ip.push_ip_v6_src(addr),
    };
    let ip = match tuple.destination.ip() {
        IpAddr::V4(addr) => ip.push_ip_v4_dst(addr),
        IpAddr::V6(addr) => ip.push_ip_v6_dst(addr),
    };
    ip.end_nested()
        .nested_tuple_proto()
        .push_proto_num(tuple.proto.number())
        .push_proto_src_port(tuple.source.port())
        .push_proto_dst_port(tuple.destination.port())
        .end_nested()
}

//! Owns a flow as the kernel shows it. Knows nothing of how it was asked for.

use super::{Tuple, cta, tuple};
use crate::wire::{attribute, be32};
use std::fmt;

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// As whoever began it sees it.
    pub original: Tuple,
    /// As whoever answers sees it; its source is where the flow really goes.
    pub reply: Tuple,
    /// What conntrack knows of it.
    pub status: Status,
    /// The zone that it is in.
    pub zone: Zone,
    /// The kernel's number for this very flow: another one of the same tuple has another.
    pub id: u32,
}

/// `IPS_*` (linux/netfilter/nf_conntrack_common.h).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Status(pub u32);

/// A flow's zone. Flows of one tuple in different zones are different flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zone {
    /// In both directions; zone 0 is where flows are that no rule put elsewhere.
    Both(u16),
    /// In the original direction only.
    Original(u16),
    /// In the reply direction only.
    Reply(u16),
}

impl Status {
    /// Packets went both ways (`IPS_SEEN_REPLY`).
    pub const SEEN_REPLY: Self = Self(1 << 1);
    /// It is not dropped early when the table is full (`IPS_ASSURED`).
    pub const ASSURED: Self = Self(1 << 2);
    /// The source is translated (`IPS_SRC_NAT`).
    pub const SRC_NAT: Self = Self(1 << 4);
    /// The destination is translated (`IPS_DST_NAT`).
    pub const DST_NAT: Self = Self(1 << 5);

    /// Whether all bits of another are set.
    pub const fn contains(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:#x})", self.0)
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::Both(0)
    }
}

impl Zone {
    /// Its number, in whichever direction it holds.
    pub const fn id(self) -> u16 {
        match self {
            Self::Both(id) | Self::Original(id) | Self::Reply(id) => id,
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.original)?;
        if self.reply != self.original.inverted() {
            write!(f, ", really {} > {}", self.reply.destination, self.reply.source)?;
        }
        match self.zone {
            Zone::Both(0) => Ok(()),
            zone => write!(f, ", zone {}", zone.id()),
        }
    }
}

/// Reads a flow; `None` if its protocol has no ports.
pub(super) fn read(attributes: &[u8]) -> Option<Flow> {
    let original = attribute(attributes, cta::TUPLE_ORIG)?;
    let reply = attribute(attributes, cta::TUPLE_REPLY)?;
    let zone = |bytes, kind| attribute(bytes, kind)?.first_chunk().copied().map(u16::from_be_bytes);
    Some(Flow {
        original: tuple::read(original)?,
        reply: tuple::read(reply)?,
        status: Status(be32(attributes, cta::STATUS).unwrap_or_default()),
        zone: zone(attributes, cta::ZONE)
            .map(Zone::Both)
            .or_else(|| zone(original, cta::TUPLE_ZONE).map(Zone::Original))
            .or_else(|| zone(reply, cta::TUPLE_ZONE).map(Zone::Reply))
            .unwrap_or_default(),
        id: be32(attributes, cta::ID)?,
    })
}

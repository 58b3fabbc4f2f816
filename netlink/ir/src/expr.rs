//! Owns the words of a rule: what of a packet can be read, compared, looked up, and done. Only the words
//! that this product says. Knows nothing of registers or encoding.

use crate::{ChainName, L4Proto, SetName};
use smallvec::SmallVec;
use std::net::IpAddr;

/// Something of a packet, or beside it, that a rule can read; one part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `ip saddr` / `ip6 saddr`.
    SourceAddr,
    /// `ip daddr` / `ip6 daddr`.
    DestinationAddr,
    /// `meta l4proto`.
    L4Proto,
    /// `th sport`.
    SourcePort,
    /// `th dport`.
    DestinationPort,
    /// `ct original ip daddr`: the address that the client dialled, before any translation.
    OriginalDestinationAddr,
    /// `ct original proto-dst`: the port that the client dialled.
    OriginalDestinationPort,
    /// `numgen random mod N`: a slot number drawn anew for each packet.
    Slot(u32),
}

/// What a fib or address comparison is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddrKind {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// Equal or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// `==`, which nft leaves out.
    Eq,
    /// `!=`.
    Ne,
}

/// A fact of the flow that conntrack knows (`IPS_*`, linux/netfilter/nf_conntrack_common.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CtStatus {
    /// The flow's destination was translated (`IPS_DST_NAT`).
    Dnat,
}

/// How a packet is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reject {
    /// ICMP or ICMPv6 port unreachable: nft's plain `reject`.
    PortUnreachable,
    /// `reject with tcp reset`; only valid after a match of TCP.
    TcpReset,
}

/// Where a packet goes next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Let it pass this hook.
    Accept,
    /// Throw it away.
    Drop,
    /// Go on there, and come back.
    Jump(ChainName),
    /// Go on there, and do not come back.
    Goto(ChainName),
    /// Back to the chain that jumped here.
    Return,
}

/// What a [`Statement::Compare`] compares with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// `ip saddr 10.0.0.0/8`: the address lies in the prefix (bits beyond it are zero).
    Prefix(AddrKind, IpAddr, u8),
    /// `meta l4proto tcp`.
    L4Proto(L4Proto),
    /// `iifname "cni0"`, or `iifname "veth*"` when `wildcard`. At most 15 bytes.
    InputInterface {
        /// The name or its beginning.
        name: String,
        /// Whether anything may follow.
        wildcard: bool,
    },
    /// `fib saddr type local` / `fib daddr type local`: the address is one of this host's.
    FibLocal(AddrKind),
    /// `meta mark & BITS == BITS` (or `!=`): all these bits of the packet mark are set.
    MarkBits(u32),
}

/// One step of a rule, left to right; a match that does not hold ends the rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statement {
    /// A comparison with a constant.
    Compare(Op, Value),
    /// `ct state new`.
    CtStateNew,
    /// `ct status dnat`.
    CtStatus(CtStatus),
    /// `ip daddr . meta l4proto . th dport @set`, or `!= @set`.
    InSet {
        /// The key, in the order of the set's own.
        key: SmallVec<[Field; 5]>,
        /// `Ne` when the rule wants the key not to be there.
        op: Op,
        /// The set.
        set: SetName,
    },
    /// `ip daddr . meta l4proto . th dport vmap @map`: the verdict of the element, if there is one.
    VerdictMap {
        /// The key, in the order of the map's own.
        key: SmallVec<[Field; 5]>,
        /// The verdict map.
        map: SetName,
    },
    /// `meta mark set meta mark | BITS`: sets these bits and no other.
    SetMarkBits(u32),
    /// `meta mark set meta mark ^ BITS`: flips these bits and no other.
    FlipMarkBits(u32),
    /// `dnat ip to KEY map @map`: the map gives address and port. No element: the rule ends here.
    Dnat {
        /// The key, in the order of the map's own.
        key: SmallVec<[Field; 5]>,
        /// A map whose data is destination address and port.
        map: SetName,
    },
    /// `masquerade fully-random`.
    Masquerade,
    /// `reject`.
    Reject(Reject),
    /// `update @map { KEY : DATA }`: learns or refreshes an element of a dynamic set or map.
    Update {
        /// The dynamic set or map.
        set: SetName,
        /// What is learnt.
        key: SmallVec<[Field; 5]>,
        /// What it is mapped to; empty for a set.
        data: SmallVec<[Field; 5]>,
    },
    /// `counter`. The numbers are not part of the ruleset.
    Counter,
    /// A verdict.
    Verdict(Verdict),
}

/// A rule: its steps, and a comment that says the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rule {
    /// Steps, left to right.
    pub statements: Vec<Statement>,
    /// At most 127 bytes (`NFT_USERDATA_MAXLEN` leaves more, nft prints this much).
    pub comment: Option<String>,
}

impl Rule {
    /// A rule without comment.
    pub fn new(statements: impl IntoIterator<Item = Statement>) -> Self {
        Self { statements: statements.into_iter().collect(), comment: None }
    }

    /// The same rule with a comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }
}

impl Statement {
    /// The set or map that it refers to.
    pub const fn set(&self) -> Option<&SetName> {
        match self {
            Self::InSet { set, .. } | Self::Update { set, .. } => Some(set),
            Self::VerdictMap { map, .. } | Self::Dnat { map, .. } => Some(map),
            Self::Compare(..)
            | Self::CtStateNew
            | Self::CtStatus(_)
            | Self::SetMarkBits(_)
            | Self::FlipMarkBits(_)
            | Self::Masquerade
            | Self::Reject(_)
            | Self::Counter
            | Self::Verdict(_) => None,
        }
    }
}

impl Verdict {
    /// The chain that it leads to.
    pub const fn chain(&self) -> Option<&ChainName> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return => None,
        }
    }
}

impl Rule {
    /// Sets and maps that the rule refers to, as often as it does.
    pub fn sets(&self) -> impl Iterator<Item = &SetName> {
        self.statements.iter().filter_map(Statement::set)
    }

    /// Chains that the rule itself leads to (those of a verdict map are the map's).
    pub fn chains(&self) -> impl Iterator<Item = &ChainName> {
        self.statements.iter().filter_map(|statement| match statement {
            Statement::Verdict(verdict) => verdict.chain(),
            _ => None,
        })
    }
}

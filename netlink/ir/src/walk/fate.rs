//! Owns what is said of a packet at the end of its walk. Knows nothing of how it went.

use super::Draw;
use crate::{ChainName, Datum, Element, Hook, Key, Reject, SetDecl, TableId, Verdict};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::Arc;

/// One of the things that may become of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Where it ends.
    pub outcome: Outcome,
    /// Whether its source was translated to an address of this host.
    pub masqueraded: bool,
    /// The packet mark at the end.
    pub mark_left: u32,
    /// What rules wrote into dynamic sets.
    pub learnt: Vec<Learnt>,
    /// What acted on it, in order.
    pub trail: Vec<Step>,
    /// The numbers that were drawn for it. Fates of one packet differ in these; the probability of this one is the
    /// product of 1/[`Draw::of`].
    pub draws: Vec<Draw>,
}

/// Where a packet ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// All hooks let it pass.
    Delivered {
        /// To which address and port.
        to: SocketAddr,
        /// Where that is.
        place: Place,
    },
    /// It was refused, and the sender told so.
    Rejected(Reject),
    /// It was thrown away without a word.
    Dropped,
}

/// Where a delivered packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// To a process in this host's own network namespace.
    Here,
    /// Out of an interface: to a pod of this host, or to another host.
    Elsewhere,
}

/// Something that a rule wrote into a dynamic set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learnt {
    /// The set or map.
    pub set: Arc<SetDecl>,
    /// The key.
    pub key: Key,
    /// What it is mapped to; `None` in a set.
    pub datum: Option<Datum>,
    /// The key was there already: its time begins anew, its datum stays what it was.
    pub known: bool,
}

/// A rule (or policy) and one thing that it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// In which hook.
    pub hook: Hook,
    /// The table.
    pub table: TableId,
    /// The chain.
    pub chain: ChainName,
    /// Index of the rule; `None`: the chain's policy.
    pub rule: Option<usize>,
    /// The elements that the rule had found up to then.
    pub found: Vec<Found>,
    /// What it did.
    pub act: Act,
}

/// An element that a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The set.
    pub set: Arc<SetDecl>,
    /// The element.
    pub element: Element,
}

/// What a rule did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// It gave a verdict, of its own or of a verdict map.
    Verdict(Verdict),
    /// It made the packet mark this.
    SetMark(u32),
    /// It translated the destination to this.
    Dnat(SocketAddr),
    /// It had the source translated.
    Masquerade,
    /// It refused the packet.
    Reject(Reject),
    /// It wrote into a dynamic set.
    Learn(Learnt),
}

impl Display for Fate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        if self.masqueraded { f.write_str(", masqueraded") } else { Ok(()) }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered { to, place: Place::Here } => write!(f, "delivered to {to} on this host"),
            Self::Delivered { to, place: Place::Elsewhere } => write!(f, "delivered to {to}"),
            Self::Rejected(Reject::PortUnreachable) => f.write_str("rejected with port unreachable"),
            Self::Rejected(Reject::TcpReset) => f.write_str("rejected with a TCP reset"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {} ", self.hook, self.table, self.chain)?;
        match self.rule {
            Some(rule) => write!(f, "rule {rule}: ")?,
            None => f.write_str("policy: ")?,
        }
        for Found { set, element } in &self.found {
            write!(f, "@{} has {}, ", set.name, set.element_text(element))?;
        }
        write!(f, "{}", self.act)
    }
}

impl Display for Act {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => write!(f, "{verdict}"),
            Self::SetMark(mark) => write!(f, "mark {mark:#010x}"),
            Self::Dnat(to) => write!(f, "dnat to {to}"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::Reject(reject) => write!(f, "{}", Outcome::Rejected(*reject)),
            Self::Learn(Learnt { set, key, datum, known }) => {
                write!(
                    f,
                    "{} @{} {}",
                    if *known { "refresh" } else { "learn" },
                    set.name,
                    set.key_text(key)
                )?;
                match datum {
                    Some(datum) => write!(f, " : {}", set.datum_text(datum)),
                    None => Ok(()),
                }
            }
        }
    }
}

//! Owns where in the table of flows to look. Knows nothing of what is stale.

use super::FlowRules;
use crate::view::{Destination, Frontend};
use nft_ir::{Family, L4Proto};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

/// A part of the table of flows that is worth a look. The kernel shows no more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The family.
    pub family: Family,
    /// The protocol.
    pub protocol: L4Proto,
    /// Which flows of these.
    pub part: Part,
}

/// Which flows of a family and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of them.
    All,
    /// Those that were dialled at this port, and at this address if there is one.
    Dialled(Option<IpAddr>, NonZeroU16),
    /// Those that this endpoint answers.
    Answered(Destination),
}

/// Each look walks through the whole table in the kernel, and a flow that it shows costs ten times as much as one that it passes
/// over. So a few narrow looks are better than a wide one, and many are not.
const NARROW: usize = 3;

impl FlowRules {
    /// Where to look, sorted by family and protocol.
    pub fn searches(&self) -> Vec<Search> {
        let mut parts: BTreeMap<(Family, L4Proto), Vec<Part>> = BTreeMap::new();
        for (protocol, lost) in &self.lost {
            parts.entry((Family::of(&lost.addr), *protocol)).or_default().push(Part::Answered(*lost));
        }
        // All addresses of a Service are dialled at one port, so one look serves them all.
        let mut ports: BTreeMap<(Family, L4Proto, NonZeroU16), Option<IpAddr>> = BTreeMap::new();
        for frontend in &self.whole {
            let (protocol, port, addr) = match *frontend {
                Frontend::Address { addr, protocol, port } => (protocol, port, Some(addr)),
                Frontend::NodePort { protocol, port, .. } => (protocol, port, None),
            };
            let only = ports.entry((frontend.family(), protocol, port)).or_insert(addr);
            *only = only.filter(|only| Some(*only) == addr);
        }
        for ((family, protocol, port), addr) in ports {
            parts.entry((family, protocol)).or_default().push(Part::Dialled(addr, port));
        }
        let mut searches = Vec::new();
        for ((family, protocol), parts) in parts {
            let parts = if parts.len() > NARROW { vec![Part::All] } else { parts };
            searches.extend(parts.into_iter().map(|part| Search { family, protocol, part }));
        }
        searches
    }
}

//! Owns where in the table of flows to look. Knows nothing of what is stale.

use super::{FlowRules, Rule};
use crate::view::Frontend;
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
    /// The address that the client dialled, if all that is looked for was dialled there.
    pub addr: Option<IpAddr>,
    /// The port that the client dialled, if all that is looked for was dialled there.
    pub port: Option<NonZeroU16>,
}

/// Each look walks through the whole table in the kernel, and what it shows costs ten times as much as what it passes over. So a
/// few narrow looks are better than a wide one, and many are not.
const NARROW: usize = 3;

impl FlowRules {
    /// Where to look, sorted by family and protocol.
    pub fn searches(&self) -> Vec<Search> {
        // All addresses of a Service are dialled at one port, so one look serves them all.
        let mut ports: BTreeMap<(Family, L4Proto), BTreeMap<NonZeroU16, Option<IpAddr>>> = BTreeMap::new();
        for (frontend, _) in self.rules.iter().filter(|(_, rule)| **rule != Rule::Leave) {
            let (protocol, port, addr) = match *frontend {
                Frontend::Address { addr, protocol, port } => (protocol, port, Some(addr)),
                Frontend::NodePort { protocol, port, .. } => (protocol, port, None),
            };
            let only = ports.entry((frontend.family(), protocol)).or_default().entry(port).or_insert(addr);
            *only = only.filter(|only| Some(*only) == addr);
        }
        let mut searches = Vec::new();
        for ((family, protocol), ports) in ports {
            if ports.len() > NARROW {
                searches.push(Search { family, protocol, addr: None, port: None });
            } else {
                let narrow = |(port, addr)| Search { family, protocol, addr, port: Some(port) };
                searches.extend(ports.into_iter().map(narrow));
            }
        }
        searches
    }
}

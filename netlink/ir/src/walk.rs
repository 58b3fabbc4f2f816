//! Owns the walk of one packet through a ruleset: all that may become of it, and by which rules. Knows nothing of
//! Services, nor of the kernel beyond what is written here.
//!
//! # What is modelled
//! * The hooks in the kernel's order: prerouting, then input or forward and postrouting, for a packet that comes in;
//!   output and postrouting for one that this host makes, and if it is for this host, prerouting and input of the
//!   loopback interface after that.
//! * In each hook, filter chains by priority. All NAT chains of a hook run at one place among them, as in the kernel:
//!   −100 (`dstnat`) in prerouting and output, 100 (`srcnat`) in postrouting and input; their own priorities only
//!   order them. They see the first packet of a flow only, and are done once one of them has translated it. What was
//!   decided for a flow is not asked again when its packet comes back over loopback.
//! * Destination NAT takes effect before the routing decision, and `ct status dnat` holds if it changed something.
//! * Each drawing of a slot (`numgen random`) is walked with every number: see [`Fate::draws`].
//! * A packet of an established flow, in the direction of the first: NAT chains do not see it, its translation is
//!   applied where they would be.
//! * Jump, goto and return with the kernel's stack; `break` of a rule whose lookup finds nothing.
//!
//! # What is not
//! * Replies, packets that conntrack calls invalid or related, and fragments.
//! * Routes: what is not for this host is taken to be forwarded, as if there were a route and forwarding were on.
//! * The source after masquerading: the packet keeps its source in the later hooks, [`Fate::masqueraded`] says so.
//! * The order of two filter chains of the same hook and priority: the kernel goes by the order in which they were
//!   added, the walk by table and name; NAT runs before a filter chain at its own place.
//! * Time: elements do not expire, and what is learnt in a walk ([`Fate::learnt`]) is not there for the next one.

mod choices;
mod eval;
mod fate;
mod path;
mod world;

pub use choices::Draw;
pub use fate::{Act, Fate, Found, Learnt, Outcome, Place, Step};
pub use world::{Flow, Origin, Packet, World};

use crate::{ChainName, Family, Ruleset, TableId};
use choices::Choices;
use path::Path;

/// Why a packet can not be walked: the packet or the ruleset contradicts itself. No ruleset of a kernel does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// Source and destination are of different families.
    #[error("packet from {source_addr} to {destination}: the addresses are of different families")]
    Families {
        /// The source.
        source_addr: std::net::IpAddr,
        /// The destination.
        destination: std::net::IpAddr,
    },
    /// A rule does not hold together.
    #[error("rule {rule} of chain {table} {chain}: {what}")]
    Rule {
        /// The table.
        table: TableId,
        /// The chain.
        chain: ChainName,
        /// Index of the rule.
        rule: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// All that may become of a packet, in the order of the slots that are drawn; at least one.
///
/// # Errors
/// [`WalkError`] if the packet or the ruleset contradicts itself.
pub fn walk(ruleset: &Ruleset, world: &World, packet: &Packet) -> Result<Vec<Fate>, WalkError> {
    let family = Family::of(&packet.source.ip());
    if family != Family::of(&packet.destination.ip()) {
        return Err(WalkError::Families {
            source_addr: packet.source.ip(),
            destination: packet.destination.ip(),
        });
    }
    let mut choices = Choices::default();
    let mut fates = Vec::new();
    loop {
        fates.push(Path::new(ruleset, world, packet, family, &mut choices).walk()?);
        if !choices.advance() {
            return Ok(fates);
        }
    }
}

#[cfg(test)]
mod tests;

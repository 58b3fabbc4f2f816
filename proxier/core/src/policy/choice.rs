//! Owns the choice of endpoints: topology, readiness, the fall-back to terminating ones, locality. Knows nothing of
//! frontends or of how the choice is programmed.
//!
//! Two lists are chosen independently, as upstream does: the *cluster* list from all nodes, the *local* list from this
//! node. Each takes ready endpoints first, and only if there is none those that are serving and terminating.

use super::Candidate;
use crate::view::Destination;

/// Which of the two lists a Service port needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Some traffic may go to any node.
    pub cluster: bool,
    /// Some traffic must stay on this node.
    pub local: bool,
}

/// Where this node is.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Name of this node.
    pub node: &'a str,
    /// Its zone, if it has one.
    pub zone: Option<&'a str>,
}

/// Why a list holds what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// Nobody asked for the list.
    #[default]
    Unused,
    /// Every ready endpoint.
    Ready,
    /// Ready endpoints hinted for this node: each ready endpoint carries node hints, and one names this node.
    SameNode,
    /// Ready endpoints hinted for this zone: each ready endpoint carries zone hints, and one names this zone.
    SameZone,
    /// None is ready; these are terminating and still serve.
    Terminating,
    /// None is ready, none is serving.
    Empty,
}

/// A list of endpoints and why it is so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// Sorted by address and port.
    pub destinations: Vec<Destination>,
    /// Why these.
    pub reason: Reason,
}

/// The endpoints that serve a Service port on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// From all nodes.
    pub cluster: List,
    /// From this node.
    pub local: List,
    /// Endpoints of this node in either list.
    pub reachable_local: Vec<Destination>,
    /// Some endpoint somewhere could serve. Decides between reject (none at all) and drop (none that the policy allows).
    pub usable_somewhere: bool,
}

/// Chooses among endpoints.
pub fn choose(demand: Demand, candidates: &[Candidate<'_>], place: Place<'_>) -> Choice {
    let is_local = |c: &Candidate<'_>| c.endpoint.node.as_deref() == Some(place.node);
    let cluster = if demand.cluster {
        let topology = topology(candidates, place);
        pick(candidates, topology.reason(), |c| topology.fits(c, place))
    } else {
        List::default()
    };
    let local = if demand.local { pick(candidates, Reason::Ready, is_local) } else { List::default() };
    let usable_somewhere = !cluster.destinations.is_empty()
        || (demand.local && candidates.iter().any(|c| c.endpoint.ready || serves_while_terminating(c)));
    let reachable_local = candidates
        .iter()
        .filter(|c| is_local(c))
        .map(|c| c.destination)
        .filter(|d| {
            cluster.destinations.binary_search(d).is_ok() || local.destinations.binary_search(d).is_ok()
        })
        .collect();
    Choice { cluster, local, reachable_local, usable_somewhere }
}

/// Ready candidates that fit, else those that serve while they terminate.
///
/// The fall-back to terminating endpoints heeds locality but not topology: a hint is a preference, never an outage.
fn pick(candidates: &[Candidate<'_>], reason: Reason, fits: impl Fn(&Candidate<'_>) -> bool) -> List {
    let list = |test: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<Destination> {
        candidates.iter().filter(|c| test(c)).map(|c| c.destination).collect()
    };
    let destinations = list(&|c| c.endpoint.ready && fits(c));
    if !destinations.is_empty() {
        return List { destinations, reason };
    }
    let destinations = list(&|c| serves_while_terminating(c) && fits(c));
    let reason = if destinations.is_empty() { Reason::Empty } else { Reason::Terminating };
    List { destinations, reason }
}

const fn serves_while_terminating(c: &Candidate<'_>) -> bool {
    !c.endpoint.ready && c.endpoint.serving && c.endpoint.terminating
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Topology {
    Everywhere,
    SameNode,
    SameZone,
}

impl Topology {
    const fn reason(self) -> Reason {
        match self {
            Self::Everywhere => Reason::Ready,
            Self::SameNode => Reason::SameNode,
            Self::SameZone => Reason::SameZone,
        }
    }

    fn fits(self, c: &Candidate<'_>, place: Place<'_>) -> bool {
        match self {
            Self::Everywhere => true,
            Self::SameNode => names_node(c, place),
            Self::SameZone => names_zone(c, place),
        }
    }
}

fn names_node(c: &Candidate<'_>, place: Place<'_>) -> bool {
    c.endpoint.node_hints.iter().any(|hint| &**hint == place.node)
}

fn names_zone(c: &Candidate<'_>, place: Place<'_>) -> bool {
    c.endpoint.zone_hints.iter().any(|hint| Some(&**hint) == place.zone)
}

/// Hints count only when every ready endpoint carries them and one of them names us; node hints before zone hints. With
/// nothing ready there is no topology, so that the fall-back sees terminating endpoints of every node.
fn topology(candidates: &[Candidate<'_>], place: Place<'_>) -> Topology {
    let ready = || candidates.iter().filter(|c| c.endpoint.ready);
    if ready().all(|c| !c.endpoint.node_hints.is_empty()) && ready().any(|c| names_node(c, place)) {
        Topology::SameNode
    } else if ready().all(|c| !c.endpoint.zone_hints.is_empty()) && ready().any(|c| names_zone(c, place)) {
        Topology::SameZone
    } else {
        Topology::Everywhere
    }
}

#[cfg(test)]
mod tests;

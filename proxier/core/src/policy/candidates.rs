//! Owns the merge of a Service's slices into the endpoints of one port. Knows nothing of which of them are used.

use crate::model::{Endpoint, EndpointSlice};
use crate::view::Destination;
use nft_ir::{Family, L4Proto};

/// An endpoint of a Service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Where it listens.
    pub destination: Destination,
    /// Its conditions, node and hints.
    pub endpoint: &'a Endpoint,
}

/// The endpoints of one family that serve the port of this name and protocol, sorted by address and port, each once.
///
/// Slices may overlap while an endpoint moves from one to another. Of two that name the same address and port, the one
/// that is not terminating counts, then the ready one, then the serving one, then that of the slice whose name is lower.
pub fn candidates<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    family: Family,
    port: &str,
    protocol: L4Proto,
) -> Vec<Candidate<'a>> {
    let mut found: Vec<Candidate<'a>> = Vec::new();
    for slice in slices.filter(|slice| slice.family == family) {
        for number in
            slice.ports.iter().filter(|p| &*p.name == port && p.protocol == protocol).map(|p| p.port)
        {
            found.extend(slice.endpoints.iter().map(|endpoint| Candidate {
                destination: Destination { addr: endpoint.addr, port: number },
                endpoint,
            }));
        }
    }
    // The sort is stable, so among equals the first slice stays first.
    found.sort_by_key(|c| (c.destination, c.endpoint.terminating, !c.endpoint.ready, !c.endpoint.serving));
    found.dedup_by_key(|c| c.destination);
    found
}

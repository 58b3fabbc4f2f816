//! Owns what a walk is about: the packet, the flow it belongs to, and the host it meets. Knows nothing of rules.

use crate::L4Proto;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The host that the packet meets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    /// Its own addresses, of both families. Loopback addresses are its own without being named.
    pub local: BTreeSet<IpAddr>,
}

impl World {
    /// A host with these addresses.
    pub fn new(local: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { local: local.into_iter().collect() }
    }

    /// Whether the address is the host's own (`fib … type local`).
    pub fn is_local(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.local.contains(&addr)
    }
}

/// Where a packet comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It comes in by this interface, from a pod or from outside.
    Interface(String),
    /// A process in the host's own network namespace sends it.
    Host,
}

/// The flow that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The packet is its first.
    New,
    /// There were packets in both directions. This one goes in the direction of the first.
    Established {
        /// Where destination NAT sent the flow, if it did.
        translated_to: Option<SocketAddr>,
        /// Whether the source was translated.
        masqueraded: bool,
    },
}

/// A packet as its sender made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Transport protocol.
    pub proto: L4Proto,
    /// Packet mark.
    pub mark: u32,
    /// Where it comes from.
    pub origin: Origin,
    /// The flow it belongs to.
    pub flow: Flow,
}

impl Packet {
    /// The first TCP packet of a flow that comes in by an interface.
    pub fn incoming(interface: &str, source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            source,
            destination,
            proto: L4Proto::Tcp,
            mark: 0,
            origin: Origin::Interface(interface.to_owned()),
            flow: Flow::New,
        }
    }

    /// The first TCP packet of a flow from this host.
    pub const fn outgoing(source: SocketAddr, destination: SocketAddr) -> Self {
        Self { source, destination, proto: L4Proto::Tcp, mark: 0, origin: Origin::Host, flow: Flow::New }
    }

    /// The same packet of another protocol.
    #[must_use]
    pub const fn proto(mut self, proto: L4Proto) -> Self {
        self.proto = proto;
        self
    }
}

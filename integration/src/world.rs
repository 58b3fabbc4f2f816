//! Owns a world: the underlay, and the nodes and clients on it. Knows nothing of what runs there.

use std::net::IpAddr;

use crate::Family;
use crate::error::Error;
use crate::host::Host;
use crate::netns::Netns;
use crate::node::{Client, Node};
use crate::plan::{self, NodePlan, Prefix};
use crate::wire;

/// How a node's pods hang on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wiring {
    /// By a bridge of this name that has the pod gateway's address, as many network plugins do; links are `vethNAME`.
    Bridge {
        /// Name of the bridge.
        name: String,
    },
    /// By a routed link each, named by this prefix and the pod's name, as point-to-point plugins do.
    PointToPoint {
        /// Start of the links' names on the node.
        prefix: String,
    },
}

impl Wiring {
    pub(crate) fn link_prefix(&self) -> &str {
        match self {
            Self::Bridge { .. } => "veth",
            Self::PointToPoint { prefix } => prefix,
        }
    }
}

/// A plan of a world, to be built.
#[derive(Debug, Clone)]
pub struct WorldPlan {
    name: String,
    nodes: u8,
    clients: u8,
    families: Vec<Family>,
    wiring: Wiring,
}

impl WorldPlan {
    /// With this many nodes; two unless told otherwise, at most 80.
    pub const fn nodes(mut self, count: u8) -> Self {
        self.nodes = count;
        self
    }

    /// With this many clients outside; one unless told otherwise, at most 100.
    pub const fn clients(mut self, count: u8) -> Self {
        self.clients = count;
        self
    }

    /// With addresses of one family only.
    pub fn only(mut self, family: Family) -> Self {
        self.families = vec![family];
        self
    }

    /// With pods wired like this; by a bridge `cni0` unless told otherwise.
    pub fn wiring(mut self, wiring: Wiring) -> Self {
        self.wiring = wiring;
        self
    }

    /// With pods on routed links whose names begin with `prefix` on the node.
    pub fn point_to_point(self, prefix: &str) -> Self {
        self.wiring(Wiring::PointToPoint { prefix: prefix.to_owned() })
    }

    /// Builds it; panics with the step that failed.
    #[track_caller]
    pub fn build(self) -> World {
        match self.try_build() {
            Ok(world) => world,
            Err(error) => panic!("{error}"),
        }
    }

    /// Builds it.
    pub fn try_build(self) -> Result<World, Error> {
        let underlay = Netns::new(&format!("{}-underlay", self.name))?;
        wire::bridge(&underlay, "br0")?;
        for family in &self.families {
            let len = plan::underlay_len(*family);
            wire::address(&underlay, "br0", plan::underlay_gateway(*family), len)?;
        }
        let mut nodes = Vec::new();
        for plan in (1..=self.nodes).map(|number| NodePlan { number }) {
            let addrs = self.families.iter().map(|family| plan.addr(*family)).collect();
            let host = join(&underlay, &plan.name(), addrs)?;
            nodes.push(Node::new(host, plan, self.wiring.clone())?);
        }
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let addrs = self.families.iter().map(|family| plan::client_addr(*family, number)).collect();
            let name = if number == 0 { "client".to_owned() } else { format!("client-{}", number + 1) };
            clients.push(Client::new(join(&underlay, &name, addrs)?));
        }
        let world = World { name: self.name, families: self.families, underlay, nodes, clients };
        world.route_pods()?;
        for client in &world.clients {
            if let Some(node) = world.nodes.first() {
                client.try_route_services_via(node)?;
            }
        }
        Ok(world)
    }
}

/// Nodes and clients on one underlay. Everything goes when it is dropped, and what was cloned out of it too.
#[derive(Debug)]
pub struct World {
    name: String,
    families: Vec<Family>,
    underlay: Netns,
    nodes: Vec<Node>,
    clients: Vec<Client>,
}

impl World {
    /// Plans a world: two nodes, one client, both families, pods on a bridge `cni0`.
    #[allow(clippy::new_ret_no_self, reason = "a sentence begins here: World::new(..).nodes(2).build()")]
    pub fn new(name: &str) -> WorldPlan {
        WorldPlan {
            name: name.to_owned(),
            nodes: 2,
            clients: 1,
            families: Family::ALL.to_vec(),
            wiring: Wiring::Bridge { name: "cni0".to_owned() },
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A node, counted from 0; its name is `node-1` for the first.
    #[track_caller]
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The first client outside.
    #[track_caller]
    pub fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// All clients outside.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// The families that it has addresses of, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = Family> + use<> {
        self.families.clone().into_iter()
    }

    /// The namespace that everything outside of a node passes through.
    pub const fn underlay(&self) -> &Netns {
        &self.underlay
    }

    /// Lets every node and client find every node's pods, as a routed pod network does.
    fn route_pods(&self) -> Result<(), Error> {
        let hosts = self.nodes.iter().map(|node| &**node).chain(self.clients.iter().map(|client| &**client));
        for host in hosts {
            for node in self.nodes.iter().filter(|node| node.name() != host.name()) {
                for family in &self.families {
                    wire::route_via(host.ns(), node.plan().pod_cidr(*family), node.addr(*family))?;
                }
            }
        }
        Ok(())
    }
}

/// A new host on the underlay, with the underlay's gateway as its default route.
fn join(underlay: &Netns, name: &str, addrs: Vec<IpAddr>) -> Result<Host, Error> {
    let ns = Netns::new(name)?;
    wire::veth(underlay, name, &ns, "eth0")?;
    wire::plug(underlay, name, "br0", false)?;
    for addr in &addrs {
        let family = Family::of(addr);
        wire::address(&ns, "eth0", *addr, plan::underlay_len(family))?;
        wire::route_via(&ns, Prefix::everything(family), plan::underlay_gateway(family))?;
    }
    Ok(Host::new(ns, addrs))
}

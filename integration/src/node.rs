//! Owns the members of a world: nodes with their pods, and clients outside. Knows nothing of the underlay.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Family;
use crate::error::Error;
use crate::host::Host;
use crate::netns::Netns;
use crate::plan::{NodePlan, Prefix, SERVICE_RANGES};
use crate::wire;
use crate::world::Wiring;

/// A node of the world.
#[derive(Debug, Clone)]
pub struct Node {
    host: Host,
    plan: NodePlan,
    wiring: Wiring,
    next_pod: Arc<AtomicU8>,
}

impl Node {
    /// A node in a namespace that the underlay is already wired into.
    pub(crate) fn new(host: Host, plan: NodePlan, wiring: Wiring) -> Result<Self, Error> {
        let ns = host.ns();
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/default/forwarding"]
        {
            ns.set_sysctl(key, "1")?;
        }
        if let Wiring::Bridge { name } = &wiring {
            wire::bridge(ns, name)?;
            for family in host.addrs().iter().map(Family::of) {
                wire::address(ns, name, plan.pod_gateway(family), plan.pod_cidr(family).len)?;
            }
        }
        Ok(Self { host, plan, wiring, next_pod: Arc::new(AtomicU8::new(2)) })
    }

    /// Its place in the address plan: its name in Kubernetes, its pod prefixes.
    pub const fn plan(&self) -> NodePlan {
        self.plan
    }

    /// Starts a pod on this node, with the node's next free address; it is gone when the value is dropped. Panics if
    /// that fails.
    #[track_caller]
    pub fn pod(&self, name: &str) -> Pod {
        match self.try_pod(name) {
            Ok(pod) => pod,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a pod on this node. On the node's side its link is named by the wiring's prefix and the pod's name,
    /// cut to the kernel's 15 bytes.
    pub fn try_pod(&self, name: &str) -> Result<Pod, Error> {
        let number = self.next_pod.fetch_add(1, Ordering::Relaxed);
        let node = self.ns();
        let ns = Netns::new(name)?;
        let mut link = format!("{}{name}", self.wiring.link_prefix());
        link.truncate(15);
        wire::veth(node, &link, &ns, "eth0")?;
        if let Wiring::Bridge { name } = &self.wiring {
            wire::plug(node, &link, name, true)?;
        }
        let mut addrs = Vec::new();
        for family in self.host.addrs().iter().map(Family::of) {
            let (addr, gateway) = (self.plan.pod_addr(family, number), self.plan.pod_gateway(family));
            wire::address(&ns, "eth0", addr, Prefix::host(addr).len)?;
            wire::route_on(&ns, Prefix::host(gateway), "eth0")?;
            wire::route_via(&ns, Prefix::everything(family), gateway)?;
            if matches!(self.wiring, Wiring::PointToPoint { .. }) {
                wire::address(node, &link, gateway, Prefix::host(gateway).len)?;
                wire::route_on(node, Prefix::host(addr), &link)?;
            }
            addrs.push(addr);
        }
        Ok(Pod { host: Host::new(ns, addrs), link, node: self.clone() })
    }

    /// Adds an address to the node, on a link to nowhere of that name, which is made if it is not there yet.
    pub fn add_address(&self, link: &str, addr: IpAddr) -> Result<(), Error> {
        if wire::index(self.ns(), link).is_err() {
            wire::stub(self.ns(), link)?;
        }
        wire::address(self.ns(), link, addr, Prefix::host(addr).len)
    }

    /// Removes an address that [`Node::add_address`] added.
    pub fn remove_address(&self, link: &str, addr: IpAddr) -> Result<(), Error> {
        wire::remove_address(self.ns(), link, addr, Prefix::host(addr).len)
    }
}

impl Deref for Node {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// A pod: one namespace with one link, whose gateway is its node.
#[derive(Debug)]
pub struct Pod {
    host: Host,
    link: String,
    node: Node,
}

impl Pod {
    /// The node that it runs on.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Name of its link on the node's side.
    pub fn link(&self) -> &str {
        &self.link
    }
}

impl Deref for Pod {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // The namespace takes the pair with it, but in its own time; the name may be wanted again at once.
        let _ = wire::remove(self.node.ns(), &self.link);
    }
}

/// A machine outside of the cluster, on the same underlay.
#[derive(Debug, Clone)]
pub struct Client {
    host: Host,
}

impl Client {
    pub(crate) const fn new(host: Host) -> Self {
        Self { host }
    }

    /// Sends what is for Services (all of [`SERVICE_RANGES`]) to this node from now on.
    #[track_caller]
    pub fn routes_services_via(&self, node: &Node) {
        if let Err(error) = self.try_route_services_via(node) {
            panic!("{error}");
        }
    }

    /// Sends what is for Services to this node from now on.
    pub fn try_route_services_via(&self, node: &Node) -> Result<(), Error> {
        for addr in node.addrs() {
            for range in SERVICE_RANGES.iter().filter(|range| range.family() == Family::of(addr)) {
                wire::route_via(self.ns(), *range, *addr)?;
            }
        }
        Ok(())
    }

    /// Adds a further address of the underlay's prefix to the client, to dial from.
    pub fn add_address(&self, addr: IpAddr) -> Result<(), Error> {
        wire::address(self.ns(), "eth0", addr, crate::plan::underlay_len(Family::of(&addr)))
    }
}

impl Deref for Client {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

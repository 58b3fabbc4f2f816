//! Owns what the sources said last: Services, their EndpointSlices, the Node, the host. Knows nothing of what follows
//! from it.

use super::{Cidr, EndpointSlice, HostAddress, Node, Service, ServiceName, SliceName};
use crate::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a change may have an effect on. Nothing else has to be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// Services whose ports may be served differently.
    pub services: BTreeSet<ServiceName>,
    /// Every Service: the node's place in the topology changed.
    pub all_services: bool,
    /// The fixed chains, or the addresses that node ports are served on.
    pub skeleton: bool,
}

impl Touched {
    /// Whether nothing has to be looked at.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && !self.all_services && !self.skeleton
    }
}

/// The inputs, as they are now.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    services: BTreeMap<ServiceName, Arc<Service>>,
    /// Services with session affinity.
    sticky: usize,
    slices: BTreeMap<ServiceName, BTreeMap<Arc<str>, Arc<EndpointSlice>>>,
    slice_services: BTreeMap<SliceName, ServiceName>,
    node: Option<Arc<Node>>,
    service_cidrs: BTreeMap<Arc<str>, Vec<Cidr>>,
    host_addresses: Vec<HostAddress>,
}

impl Cluster {
    /// Takes a change in, and says what it touches. A change that says what was known touches nothing.
    pub fn apply(&mut self, change: Change, touched: &mut Touched) {
        match change {
            Change::Service(name, service) => self.apply_service(name, service, touched),
            Change::EndpointSlice(name, slice) => self.apply_slice(name, slice, touched),
            Change::Node(node) => self.apply_node(node, touched),
            Change::ServiceCidr(name, cidrs) => {
                let before = self.service_cidrs();
                if cidrs.is_empty() {
                    self.service_cidrs.remove(&name);
                } else {
                    self.service_cidrs.insert(name, cidrs);
                }
                touched.skeleton |= before != self.service_cidrs();
            }
            Change::HostAddresses(mut addresses) => {
                addresses.sort_unstable();
                addresses.dedup();
                touched.skeleton |= self.host_addresses != addresses;
                self.host_addresses = addresses;
            }
        }
    }

    fn apply_service(&mut self, name: ServiceName, service: Option<Arc<Service>>, touched: &mut Touched) {
        if self.services.get(&name) == service.as_ref() {
            return;
        }
        let sticky =
            |service: Option<&Arc<Service>>| usize::from(service.is_some_and(|s| s.affinity.is_some()));
        let was_sticky = self.any_sticky();
        self.sticky += sticky(service.as_ref());
        let before = match service {
            Some(service) => self.services.insert(name.clone(), service),
            None => self.services.remove(&name),
        };
        self.sticky -= sticky(before.as_ref());
        touched.skeleton |= was_sticky != self.any_sticky();
        touched.services.insert(name);
    }

    fn apply_slice(&mut self, name: SliceName, slice: Option<Arc<EndpointSlice>>, touched: &mut Touched) {
        let owner = slice
            .as_ref()
            .map(|slice| ServiceName { namespace: name.namespace.clone(), name: slice.service.clone() });
        if let Some(before) = self.slice_services.get(&name).filter(|before| owner.as_ref() != Some(before)) {
            let before = before.clone();
            if let Some(slices) = self.slices.get_mut(&before) {
                slices.remove(&name.name);
                if slices.is_empty() {
                    self.slices.remove(&before);
                }
            }
            self.slice_services.remove(&name);
            touched.services.insert(before);
        }
        if let (Some(slice), Some(owner)) = (slice, owner) {
            let slices = self.slices.entry(owner.clone()).or_default();
            let same = slices.get(&name.name).is_some_and(|known| {
                known.family == slice.family
                    && known.ports == slice.ports
                    && known.endpoints == slice.endpoints
            });
            slices.insert(name.name.clone(), slice);
            self.slice_services.insert(name, owner.clone());
            if !same {
                touched.services.insert(owner);
            }
        }
    }

    fn apply_node(&mut self, node: Option<Arc<Node>>, touched: &mut Touched) {
        let (old, new) = (self.node.as_deref(), node.as_deref());
        touched.all_services |= old.and_then(|n| n.zone.as_ref()) != new.and_then(|n| n.zone.as_ref());
        // Source ranges that cover the node's own address let its load balancer addresses in as well.
        let addresses_differ = old.map(|n| &n.addresses) != new.map(|n| &n.addresses);
        touched.all_services |= addresses_differ;
        touched.skeleton |= addresses_differ || old.map(|n| &n.pod_cidrs) != new.map(|n| &n.pod_cidrs);
        self.node = node;
    }

    /// The Service of this name.
    pub fn service(&self, name: &ServiceName) -> Option<&Arc<Service>> {
        self.services.get(name)
    }

    /// All Services in the order of their names.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceName, &Arc<Service>)> {
        self.services.iter()
    }

    /// Whether any Service has session affinity.
    pub const fn any_sticky(&self) -> bool {
        self.sticky > 0
    }

    /// The slices of a Service in the order of their names.
    pub fn slices(&self, service: &ServiceName) -> impl Iterator<Item = &EndpointSlice> {
        self.slices.get(service).into_iter().flat_map(|slices| slices.values().map(AsRef::as_ref))
    }

    /// The Node object of this node, if it was seen.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// Interfaces that have the Node's own addresses, sorted, each once: what comes in over them comes from another host.
    pub fn node_links(&self) -> Vec<&str> {
        let addresses = self.node().map_or(&[][..], |node| &node.addresses);
        let mut links: Vec<&str> = self
            .host_addresses
            .iter()
            .filter(|host| addresses.contains(&host.addr) && !host.link.is_empty())
            .map(|host| &*host.link)
            .collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    /// Prefixes of all ServiceCIDRs, sorted, each once.
    pub fn service_cidrs(&self) -> Vec<Cidr> {
        self.service_cidrs.values().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Addresses of the host's interfaces, sorted.
    pub fn host_addresses(&self) -> &[HostAddress] {
        &self.host_addresses
    }
}

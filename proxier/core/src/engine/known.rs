//! Owns what a dump of the kernel says, in the order in which a plan asks for it. Knows nothing of what should be there.

use super::{Engine, PortKey};
use crate::model::TrafficPolicy;
use crate::ruleset::{
    Delta, PickChain, Resolved, SetId, affinity::StickyPort, decl, delta::frontend_key, family_index,
    table_id,
};
use crate::view::{Destination, Frontend, ServicePortView};
use nft_ir::{Chain, ChainName, Datum, Element, Family, Key, L4Proto, Op, Rule, SetDecl, SetName, Table};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

/// A dump of our tables, taken apart.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By family.
    families: [KnownFamily; 2],
}

#[derive(Debug, Default)]
struct KnownFamily {
    /// Elements by set, as long as the set is declared as ours. Only looked up by key until the rest is sorted.
    elements: BTreeMap<SetId, HashMap<Key, Element>>,
    /// Chains that come and go with Services: pick chains, affinity chains.
    chains: BTreeMap<ChainName, Vec<Rule>>,
    /// Sets that come and go with Services.
    sets: BTreeMap<SetName, Arc<SetDecl>>,
}

impl Known {
    /// Whether nothing of a Service is in the kernel.
    pub(super) fn is_empty(&self) -> bool {
        self.families.iter().all(|family| family.elements.values().all(HashMap::is_empty))
    }

    /// Takes a family's table apart, and gives back its fixed part: what [`crate::ruleset::skeleton`] makes.
    pub(super) fn take(&mut self, family: Family, mut table: Table) -> Table {
        let known = &mut self.families[family_index(family)];
        let fixed = |name: &ChainName, chain: &Chain| {
            chain.base.is_some() || (PickChain::from_name(name).is_none() && !name.as_str().contains('/'))
        };
        let (fixed_chains, coming_and_going) =
            std::mem::take(&mut table.chains).into_iter().partition(|(name, chain)| fixed(name, chain));
        table.chains = fixed_chains;
        known.chains = coming_and_going.into_iter().map(|(name, chain)| (name, chain.rules)).collect();
        for id in SetId::ALL.iter().filter(|id| **id != SetId::NodePortIps) {
            let ours = decl(family, *id);
            if let Some(set) = table.sets.get_mut(&ours.name).filter(|set| set.decl == *ours) {
                known.elements.insert(*id, std::mem::take(&mut set.elements).into_iter().collect());
            }
        }
        let (fixed_sets, coming_and_going) = std::mem::take(&mut table.sets)
            .into_iter()
            .partition(|(name, _): &(SetName, _)| !name.as_str().contains('/'));
        table.sets = fixed_sets;
        known.sets = coming_and_going.into_iter().map(|(name, set)| (name, set.decl)).collect();
        table
    }

    /// UDP frontends that the kernel sends somewhere, sorted.
    pub(super) fn frontends(&self) -> BTreeSet<Frontend> {
        let keys = |family: Family, id: SetId| {
            let elements = self.families[family_index(family)].elements.get(&id);
            elements.into_iter().flat_map(|elements| elements.keys())
        };
        Family::ALL
            .into_iter()
            .flat_map(|family| {
                let addresses =
                    keys(family, SetId::Services).filter_map(move |key| address_frontend(family, key));
                let node_ports =
                    keys(family, SetId::NodePorts).filter_map(move |key| node_port_frontend(family, key));
                addresses.chain(node_ports)
            })
            .filter(|frontend| frontend.protocol() == L4Proto::Udp)
            .collect()
    }

    /// Pick chains that the kernel has.
    pub(super) fn pick_chains(&self) -> impl Iterator<Item = (Family, PickChain)> {
        Family::ALL.into_iter().flat_map(|family| {
            let chains = self.families[family_index(family)].chains.keys();
            chains.filter_map(PickChain::from_name).map(move |chain| (family, chain))
        })
    }

    /// Writes a pick chain unless it is there as it should be.
    pub(super) fn write_chain(&self, engine: &Engine, family: Family, chain: PickChain, ops: &mut Vec<Op>) {
        let rules = chain.rules(family, &Resolved::of(&engine.settings, &engine.cluster));
        if self.families[family_index(family)].chains.get(&chain.name()) != Some(&rules) {
            engine.write_chain(family, chain, ops);
        }
    }

    /// Writes the objects of a sticky port unless they are there as they should be. The clients in its maps stay.
    pub(super) fn write_sticky(&mut self, family: Family, sticky: &StickyPort, ops: &mut Vec<Op>) {
        let known = &mut self.families[family_index(family)];
        let mut as_wanted = true;
        for set in sticky.sets() {
            match known.sets.remove(&set.name) {
                Some(there) if there == *set => {}
                Some(there)
                    if there.spec.key != set.spec.key
                        || there.spec.data != set.spec.data
                        || there.spec.flags != set.spec.flags =>
                {
                    // Another version of the program, or somebody else, made it another way. Its chains let go of it first.
                    for (chain, _) in sticky.chains() {
                        ops.push(Op::AddChain { table: table_id(family), chain: chain.clone(), base: None });
                        ops.push(Op::FlushChain { table: table_id(family), chain });
                    }
                    ops.push(Op::DeleteSet { set: there });
                    as_wanted = false;
                }
                _ => as_wanted = false,
            }
        }
        for (chain, rules) in sticky.chains() {
            as_wanted &= known.chains.remove(&chain).as_ref() == Some(&rules);
        }
        if !as_wanted {
            sticky.add(family, ops);
        }
    }

    /// Leaves out of a delta from nothing what the kernel has, and adds the deletion of what it has too much.
    pub(super) fn reconcile(&mut self, delta: &mut Delta) {
        for family in Family::ALL {
            for (id, mut elements) in std::mem::take(&mut self.families[family_index(family)].elements) {
                let edit = &mut delta.edits[family_index(family)][id as usize];
                let mut stale = Vec::new();
                edit.add.retain(|wanted| match elements.remove(&wanted.key) {
                    Some(there) if there == *wanted => false,
                    Some(there) => {
                        stale.push(there);
                        true
                    }
                    None => true,
                });
                stale.extend(elements.into_values());
                stale.sort_unstable();
                edit.delete = stale;
            }
        }
    }

    /// Chains and sets of sticky ports that nobody wants any more. Asked after everything wanted was written.
    pub(super) fn leftovers(&self, family: Family) -> (Vec<ChainName>, Vec<Arc<SetDecl>>) {
        let known = &self.families[family_index(family)];
        let chains =
            known.chains.keys().filter(|name| PickChain::from_name(name).is_none()).cloned().collect();
        (chains, known.sets.values().cloned().collect())
    }

    /// The slots that a Service port has in the kernel: those of the first of its frontends that has any.
    pub(super) fn slots(&self, view: &ServicePortView) -> (Vec<Destination>, Vec<Destination>) {
        let known = &self.families[family_index(view.family)];
        let (mut cluster, mut local) = (Vec::new(), Vec::new());
        for fv in &view.frontends {
            let (any, own) = match fv.frontend {
                Frontend::Address { .. } => (SetId::Endpoints, SetId::LocalEndpoints),
                Frontend::NodePort { .. } => (SetId::NodePortEndpoints, SetId::LocalNodePortEndpoints),
            };
            let internal_local = fv.exposure == crate::view::Exposure::Internal
                && view.internal_policy == TrafficPolicy::Local;
            let list = if internal_local { &mut local } else { &mut cluster };
            if list.is_empty() {
                *list = known.read_slots(any, &fv.frontend);
            }
            if local.is_empty() {
                local = known.read_slots(own, &fv.frontend);
            }
        }
        (cluster, local)
    }

    /// A sticky port's maps that are in the kernel may hold clients of endpoints that went while nobody looked.
    pub(super) fn has_set(&self, family: Family, name: &SetName) -> bool {
        self.families[family_index(family)].sets.contains_key(name)
    }
}

impl KnownFamily {
    fn read_slots(&self, set: SetId, frontend: &Frontend) -> Vec<Destination> {
        let Some(elements) = self.elements.get(&set) else { return Vec::new() };
        let prefix = frontend_key(frontend);
        (0_u32..)
            .map_while(|slot| {
                let mut key = prefix.clone();
                key.extend_from_slice(&slot.to_ne_bytes());
                elements.get(&key).and_then(destination)
            })
            .collect()
    }
}

/// The frontend that a key of a map of Service addresses begins with.
pub fn address_frontend(family: Family, key: &[u8]) -> Option<Frontend> {
    let (addr, rest): (IpAddr, &[u8]) = match family {
        Family::Ip => {
            key.split_first_chunk::<4>().map(|(octets, rest)| (Ipv4Addr::from(*octets).into(), rest))?
        }
        Family::Ip6 => {
            key.split_first_chunk::<16>().map(|(octets, rest)| (Ipv6Addr::from(*octets).into(), rest))?
        }
    };
    let (protocol, port) = protocol_and_port(rest)?;
    Some(Frontend::Address { addr, protocol, port })
}

/// The frontend that a key of a map of node ports begins with.
pub fn node_port_frontend(family: Family, key: &[u8]) -> Option<Frontend> {
    let (protocol, port) = protocol_and_port(key)?;
    Some(Frontend::NodePort { family, protocol, port })
}

fn protocol_and_port(key: &[u8]) -> Option<(L4Proto, NonZeroU16)> {
    let [protocol, _, _, _, high, low, ..] = key else { return None };
    Some((L4Proto::from_number(*protocol)?, u16::from_be_bytes([*high, *low]).try_into().ok()?))
}

/// The destination that an element of a slot map names.
pub fn destination(element: &Element) -> Option<Destination> {
    let Some(Datum::Value(value)) = &element.datum else { return None };
    let (addr, port): (IpAddr, [u8; 2]) = match value.len() {
        8 => {
            let octets: [u8; 4] = value[..4].try_into().ok()?;
            (Ipv4Addr::from(octets).into(), [value[4], value[5]])
        }
        20 => {
            let octets: [u8; 16] = value[..16].try_into().ok()?;
            (Ipv6Addr::from(octets).into(), [value[16], value[17]])
        }
        _ => return None,
    };
    Some(Destination { addr, port: u16::from_be_bytes(port).try_into().ok()? })
}

/// Views that carry nothing but the slots in the kernel, to start from.
pub(super) fn previous_views(
    known: &Known,
    views: Vec<(PortKey, ServicePortView)>,
) -> Vec<(PortKey, ServicePortView)> {
    views
        .into_iter()
        .map(|(key, mut view)| {
            let (cluster, local) = known.slots(&view);
            (view.cluster, view.local) = (cluster.into(), local.into());
            (key, view)
        })
        .collect()
}

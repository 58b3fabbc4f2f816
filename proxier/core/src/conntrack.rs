//! Owns which flows no longer match what is programmed. Knows nothing of the kernel's table of flows.
//!
//! A flow keeps the translation that its first packet got. For TCP and SCTP that is right: a connection to an endpoint that
//! went ends by itself, and one to an endpoint that only leaves may finish. A UDP client that keeps its source port would go
//! on for ever with an endpoint that is gone, or with none if it sent before there was one. So flows of UDP frontends are
//! looked at when an endpoint stopped serving, when the first one came, and when a frontend came or went.

use crate::model::Cluster;
use crate::policy::node_port_addresses::{ServedOn, served_on};
use crate::settings::Settings;
use crate::view::{Destination, Frontend, ServicePortView};
use nft_ir::{Family, L4Proto};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What may become of the flows of one frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// Flows stay that answer from one of these, sorted; all others go, also those that were never translated: they began
    /// before there was an endpoint.
    Stay(Arc<[Destination]>),
    /// The frontend is gone. Only flows that were translated were ours.
    Gone,
}

/// Which flows to look for, and which of them are stale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowRules {
    rules: BTreeMap<Frontend, Rule>,
    /// Addresses of this node that serve node ports: another host's flow to the same port number is not ours.
    node_addresses: BTreeSet<IpAddr>,
}

/// A flow, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnds {
    /// The transport protocol.
    pub protocol: L4Proto,
    /// What the client dialled.
    pub dialled: SocketAddr,
    /// Who answers.
    pub answers: SocketAddr,
    /// Somebody has answered.
    pub answered: bool,
}

impl FlowRules {
    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Notes what a Service port's change means for its flows.
    pub(crate) fn note(&mut self, old: Option<&ServicePortView>, new: Option<&ServicePortView>) {
        let frontends = |view: Option<&ServicePortView>| -> BTreeSet<Frontend> {
            view.map_or(&[][..], |view| &view.frontends).iter().map(|fv| fv.frontend).collect()
        };
        let (before, after) = (frontends(old), frontends(new));
        if let Some(new) = new.filter(|view| view.keeps_flows_in_step) {
            let old_serving = old.map_or(&[][..], |old| &old.serving);
            let lost = old_serving.iter().any(|d| new.serving.binary_search(d).is_err());
            let first = old_serving.is_empty() && !new.serving.is_empty();
            let stay: Arc<[Destination]> = new.serving.clone().into();
            let all = lost || first || old.is_none();
            let looked_at = after.iter().filter(|frontend| all || !before.contains(*frontend));
            self.rules.extend(looked_at.map(|frontend| (*frontend, Rule::Stay(stay.clone()))));
        }
        if old.is_some_and(|view| view.keeps_flows_in_step) {
            for frontend in before.difference(&after) {
                self.gone(*frontend);
            }
        }
    }

    /// A frontend that nobody has any more. One that another Service took over meanwhile is that Service's to note.
    pub(crate) fn gone(&mut self, frontend: Frontend) {
        self.rules.entry(frontend).or_insert(Rule::Gone);
    }

    /// Fills in where node ports are served.
    pub(crate) fn locate(&mut self, settings: &Settings, cluster: &Cluster) {
        for family in &settings.families {
            match served_on(&settings.node_port_addresses, *family, cluster.node(), cluster.host_addresses())
            {
                ServedOn::These(addresses) => self.node_addresses.extend(addresses),
                ServedOn::Every => {
                    let all = cluster.host_addresses().iter().map(|host| host.addr);
                    self.node_addresses
                        .extend(all.filter(|addr| Family::of(addr) == *family && !addr.is_loopback()));
                }
            }
        }
    }

    /// Takes in what is to be looked for as well; the newer says more of a frontend that both name.
    pub fn merge(&mut self, newer: Self) {
        self.rules.extend(newer.rules);
        self.node_addresses = newer.node_addresses;
    }

    /// Families and protocols of the flows to look at, and the one destination they all have, if they do.
    pub fn searches(&self) -> Vec<Search> {
        let mut searches: BTreeMap<(Family, L4Proto), Option<SocketAddr>> = BTreeMap::new();
        for frontend in self.rules.keys() {
            let (protocol, destination) = match frontend {
                Frontend::Address { addr, protocol, port } => {
                    (*protocol, Some(SocketAddr::new(*addr, port.get())))
                }
                Frontend::NodePort { protocol, .. } => (*protocol, None),
            };
            searches
                .entry((frontend.family(), protocol))
                .and_modify(|one| *one = one.filter(|one| Some(*one) == destination))
                .or_insert(destination);
        }
        searches
            .into_iter()
            .map(|((family, protocol), destination)| Search { family, protocol, destination })
            .collect()
    }

    /// Whether a flow must go.
    pub fn is_stale(&self, flow: FlowEnds) -> bool {
        let FlowEnds { protocol, dialled, answers, answered } = flow;
        let Ok(port) = dialled.port().try_into() else { return false };
        let address = Frontend::Address { addr: dialled.ip(), protocol, port };
        let node_port = || Frontend::NodePort { family: Family::of(&dialled.ip()), protocol, port };
        let rule = self.rules.get(&address).or_else(|| {
            self.node_addresses.contains(&dialled.ip()).then(|| self.rules.get(&node_port())).flatten()
        });
        let translated = answers != dialled;
        let stale = match rule {
            None => false,
            Some(Rule::Gone) => translated,
            Some(Rule::Stay(stay)) => !answers
                .port()
                .try_into()
                .is_ok_and(|port| stay.binary_search(&Destination { addr: answers.ip(), port }).is_ok()),
        };
        // Of TCP only what still waits for its first answer, and only if the operator asked for it: see `Settings`.
        stale && (protocol != L4Proto::Tcp || (translated && !answered))
    }
}

/// A part of the table of flows that is worth a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The family.
    pub family: Family,
    /// The protocol.
    pub protocol: L4Proto,
    /// What the client dialled, if all that is looked for was dialled there.
    pub destination: Option<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Exposure, FrontendView};

    fn view(frontends: &[&str], serving: &[&str]) -> ServicePortView {
        let addr = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let frontend = |text: &&str| FrontendView {
            frontend: Frontend::Address {
                addr: addr(text).ip(),
                protocol: L4Proto::Udp,
                port: addr(text).port().try_into().unwrap(),
            },
            exposure: Exposure::Internal,
            guarded: false,
        };
        let destination =
            |text: &&str| Destination { addr: addr(text).ip(), port: addr(text).port().try_into().unwrap() };
        let serving: Box<[Destination]> = serving.iter().map(destination).collect();
        ServicePortView {
            family: Family::Ip,
            protocol: L4Proto::Udp,
            frontends: frontends.iter().map(frontend).collect(),
            cluster: serving.clone(),
            local: Box::default(),
            reachable_local: Box::default(),
            usable_somewhere: !serving.is_empty(),
            internal_policy: Default::default(),
            external_policy: Default::default(),
            affinity: None,
            source_ranges: None,
            keeps_flows_in_step: true,
            serving,
        }
    }

    fn stale(rules: &FlowRules, dialled: &str, answers: &str) -> bool {
        rules.is_stale(FlowEnds {
            protocol: L4Proto::Udp,
            dialled: dialled.parse().unwrap(),
            answers: answers.parse().unwrap(),
            answered: true,
        })
    }

    #[test]
    fn what_a_change_means_for_flows() {
        const VIP: &str = "10.96.0.10:53";
        let both = view(&[VIP], &["10.0.0.1:53", "10.0.0.2:53"]);
        let one = view(&[VIP], &["10.0.0.1:53"]);
        let none = view(&[VIP], &[]);
        let moved = view(&["10.96.0.11:53"], &["10.0.0.1:53"]);
        // (case, before, after, stale: to an endpoint that stays, to the other, untranslated)
        let rows = [
            ("an endpoint goes", Some(&both), Some(&one), Some([false, true, true])),
            ("one comes beside others", Some(&one), Some(&both), None),
            ("the first comes", Some(&none), Some(&one), Some([false, true, true])),
            ("the last goes", Some(&one), Some(&none), Some([true, true, true])),
            ("the Service comes", None, Some(&one), Some([false, true, true])),
            ("the Service goes", Some(&one), None, Some([true, true, false])),
            ("its address changes", Some(&one), Some(&moved), Some([true, true, false])),
        ];
        for (case, old, new, want) in rows {
            let mut rules = FlowRules::default();
            rules.note(old, new);
            assert_eq!(rules.is_empty(), want.is_none(), "{case}");
            if let Some(want) = want {
                let got = ["10.0.0.1:53", "10.0.0.2:53", VIP].map(|answers| stale(&rules, VIP, answers));
                assert_eq!(got, want, "{case}");
                assert!(!stale(&rules, "10.96.0.99:53", "10.0.0.2:53"), "{case}: another's flow");
                assert!(!stale(&rules, "10.96.0.10:54", "10.0.0.2:53"), "{case}: another port");
            }
        }
    }

    #[test]
    fn node_ports_are_this_nodes_own() {
        let node_port = Frontend::NodePort {
            family: Family::Ip,
            protocol: L4Proto::Udp,
            port: 30053.try_into().unwrap(),
        };
        let mut rules =
            FlowRules { node_addresses: ["192.168.77.11".parse().unwrap()].into(), ..FlowRules::default() };
        rules.rules.insert(node_port, Rule::Stay(Arc::new([])));
        assert!(stale(&rules, "192.168.77.11:30053", "10.0.0.1:53"));
        assert!(!stale(&rules, "192.168.77.12:30053", "10.0.0.1:53"), "another host's");
    }
}

//! Owns which flows no longer match what is programmed. Knows nothing of the kernel's table of flows.
//!
//! A flow keeps the translation that its first packet got, whatever the rules say by the time of a later one. So a client
//! that keeps its source port would go on for ever with an endpoint that is gone, or with none if it sent before there was
//! one. A flow of a frontend is *stale*, and is deleted, if its answers come from
//!
//! | protocol | | and if it was never translated |
//! | --- | --- | --- |
//! | UDP | anything but an endpoint that serves | always |
//! | SCTP | an endpoint that no slice of the Service names any more | if nobody has answered it |
//! | TCP | left alone; with [`Settings::free_syn_sent`] as UDP, if nobody has answered it yet | |
//!
//! Endpoints that serve count whether new traffic uses them or not (terminating ones beside ready ones, other zones, other
//! nodes under a Local policy): their clients are served, and a flow that is cut for nothing is an outage.
//!
//! SCTP is between the two. Its clients keep their source port, as many UDP clients do, and an INIT from that port finds
//! the flow of the association before: conntrack leaves it ESTABLISHED and renews its 210 s, so that a client of a dead
//! endpoint would dial the dead for ever (a TCP client dials from another port, and conntrack starts a closed flow anew). But
//! as with TCP there is an association to lose. So an endpoint that is merely unready keeps its flows, and so does one
//! whose frontend went; one that is in no slice is a pod that is gone.
//!
//! Flows are looked at when an endpoint stopped serving, when the first one came, when a frontend came or went, and when an
//! address of the node began to serve node ports. Endpoints that join others leave no flow behind that is stale.

mod searches;

pub use searches::{Part, Search};

use crate::model::Cluster;
use crate::policy::Claims;
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
    /// Flows stay that answer from one of these, sorted; others go, also those that were never translated: they began
    /// before there was an endpoint.
    Stay(Arc<[Destination]>),
    /// The frontend is gone. Only flows that were translated were ours.
    Gone,
    /// An address of this node that is a Service's own: the node port of the same number is not dialled there.
    Leave,
}

/// Which flows to look for, and which of them are stale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowRules {
    rules: BTreeMap<Frontend, Rule>,
    /// Frontends that any flow may have to go of.
    whole: BTreeSet<Frontend>,
    /// Endpoints that flows no longer stay with; of frontends not in `whole`, only flows to these may have to go.
    lost: BTreeSet<(L4Proto, Destination)>,
    /// The newest word on frontends that need no look by themselves: an earlier look may still be going on.
    amendments: BTreeMap<Frontend, Rule>,
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

    /// Whether there is nothing to look for, and nothing to say to a look that is going on.
    pub fn says_nothing(&self) -> bool {
        self.rules.is_empty() && self.amendments.is_empty()
    }

    /// Notes what a Service port's change means for its flows.
    pub(crate) fn note(&mut self, old: Option<&ServicePortView>, new: Option<&ServicePortView>) {
        let frontends = |view: Option<&ServicePortView>| -> BTreeSet<Frontend> {
            view.map_or(&[][..], |view| &view.frontends).iter().map(|fv| fv.frontend).collect()
        };
        let (before, after) = (frontends(old), frontends(new));
        if let Some(new) = new.filter(|view| view.keeps_flows_in_step) {
            let old_stay = old.map_or(&[][..], |old| &old.flows_stay);
            let lost: Vec<_> = old_stay.iter().filter(|d| new.flows_stay.binary_search(d).is_err()).collect();
            let first = old_stay.is_empty() && !new.flows_stay.is_empty();
            let stay = Rule::Stay(new.flows_stay.clone().into());
            let all = first || old.is_none();
            for frontend in &after {
                let whole = all || !before.contains(frontend);
                if whole {
                    self.whole.insert(*frontend);
                }
                // The owner's word stands, whatever the Service that had the frontend before says.
                if whole || !lost.is_empty() || self.rules.contains_key(frontend) {
                    self.rules.insert(*frontend, stay.clone());
                } else {
                    self.amendments.insert(*frontend, stay.clone());
                }
            }
            self.lost.extend(lost.into_iter().map(|d| (new.protocol, *d)));
        }
        if old.is_some_and(|view| view.keeps_flows_in_step && view.protocol != L4Proto::Sctp) {
            for frontend in before.difference(&after) {
                self.gone(*frontend);
            }
        }
    }

    /// A frontend that nobody has any more. One that another Service took over meanwhile is that Service's to note.
    pub(crate) fn gone(&mut self, frontend: Frontend) {
        self.rules.entry(frontend).or_insert(Rule::Gone);
        self.whole.insert(frontend);
    }

    /// More addresses serve the node ports of this view, which stands unless a change of it was noted before. Clients may
    /// have sent to them already, and found nobody.
    pub(crate) fn note_node_ports(&mut self, view: &ServicePortView) {
        if view.keeps_flows_in_step {
            for fv in view.frontends.iter().filter(|fv| matches!(fv.frontend, Frontend::NodePort { .. })) {
                let stay = || Rule::Stay(view.flows_stay.clone().into());
                let rule = self.amendments.remove(&fv.frontend).unwrap_or_else(stay);
                self.rules.entry(fv.frontend).or_insert(rule);
                self.whole.insert(fv.frontend);
            }
        }
    }

    /// Fills in where node ports are served.
    pub(crate) fn locate(&mut self, settings: &Settings, cluster: &Cluster, claims: &Claims) {
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
        let mut leave = Vec::new();
        for frontend in self.rules.keys() {
            let Frontend::NodePort { family, protocol, port } = *frontend else { continue };
            let own = self.node_addresses.iter().filter(|addr| Family::of(addr) == family);
            leave.extend(own.map(|addr| Frontend::Address { addr: *addr, protocol, port }));
        }
        for frontend in leave.into_iter().filter(|frontend| claims.owner(frontend).is_some()) {
            self.rules.entry(frontend).or_insert(Rule::Leave);
        }
    }

    /// Takes in what is to be looked for as well; the newer says more of a frontend that both name.
    pub fn merge(&mut self, newer: Self) {
        self.amend(&newer);
        if !newer.rules.is_empty() {
            self.rules.extend(newer.rules);
            self.whole.extend(newer.whole);
            self.lost.extend(newer.lost);
            self.node_addresses = newer.node_addresses;
        }
    }

    /// Judges what is looked for already by a newer word, and looks for nothing more.
    pub fn amend(&mut self, newer: &Self) {
        for (frontend, rule) in newer.amendments.iter().chain(&newer.rules) {
            if let Some(known) = self.rules.get_mut(frontend) {
                *known = rule.clone();
            }
        }
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
            None | Some(Rule::Leave) => false,
            Some(Rule::Gone) => translated,
            Some(Rule::Stay(stay)) => !answers
                .port()
                .try_into()
                .is_ok_and(|port| stay.binary_search(&Destination { addr: answers.ip(), port }).is_ok()),
        };
        stale
            && match protocol {
                L4Proto::Udp => true,
                L4Proto::Tcp => translated && !answered,
                L4Proto::Sctp => translated || !answered,
            }
    }
}

#[cfg(test)]
mod tests;

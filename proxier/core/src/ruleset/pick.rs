//! Owns the chains that pick an endpoint: one chain of each kind per *number* of endpoints, shared by all Services with
//! that many. Knows nothing of which Service uses which.

use super::names::{SetId, set_name};
use crate::model::Cluster;
use crate::settings::{DetectLocal, Settings};
use nft_ir::{AddrKind, ChainName, Compare, Family, Field, Rule, Statement, Value, Verdict};
use smallvec::{SmallVec, smallvec};

/// What a pick chain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PickKind {
    /// Any endpoint of a Service address.
    Pick,
    /// An endpoint of this node, for a Service address.
    LocalPick,
    /// Any endpoint of a node port.
    NodePortPick,
    /// An endpoint of this node, for a node port.
    LocalNodePortPick,
    /// External address with policy Cluster: masquerade, then pick.
    External,
    /// External address with policy Local: pods and the node itself get any endpoint, others one of this node.
    ExternalLocal,
    /// Node port with policy Cluster.
    NodePort,
    /// Node port with policy Local.
    NodePortLocal,
}

/// A pick chain: its kind and the number of endpoints that it picks among (for [`PickKind::ExternalLocal`] and
/// [`PickKind::NodePortLocal`]: that the short-circuits pick among), at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PickChain {
    /// The kind.
    pub kind: PickKind,
    /// The number of endpoints.
    pub slots: u32,
}

impl PickKind {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Pick, "pick"),
        (Self::LocalPick, "local-pick"),
        (Self::NodePortPick, "node-port-pick"),
        (Self::LocalNodePortPick, "local-node-port-pick"),
        (Self::External, "external"),
        (Self::ExternalLocal, "external-local"),
        (Self::NodePort, "node-port"),
        (Self::NodePortLocal, "node-port-local"),
    ];
}

impl PickChain {
    /// The chain's name, such as `pick-3`.
    pub fn name(self) -> ChainName {
        let (_, prefix) = PickKind::ALL[self.kind as usize];
        ChainName::literal(&format!("{prefix}-{}", self.slots))
    }

    /// The pick chain of this name, if it is one.
    pub fn from_name(name: &ChainName) -> Option<Self> {
        let (prefix, slots) = name.as_str().rsplit_once('-')?;
        let (kind, _) = *PickKind::ALL.iter().find(|(_, known)| *known == prefix)?;
        let slots = slots.parse().ok().filter(|slots| *slots > 0)?;
        // "pick-03" is not ours.
        Some(Self { kind, slots }).filter(|chain| chain.name() == *name)
    }

    /// The chain that this one goes on to, which must be there as well.
    pub const fn needs(self) -> Option<Self> {
        let kind = match self.kind {
            PickKind::External | PickKind::ExternalLocal => PickKind::Pick,
            PickKind::NodePort | PickKind::NodePortLocal => PickKind::NodePortPick,
            PickKind::Pick | PickKind::LocalPick | PickKind::NodePortPick | PickKind::LocalNodePortPick => {
                return None;
            }
        };
        Some(Self { kind, slots: self.slots })
    }

    /// Its rules.
    pub fn rules(self, family: Family, resolved: &Resolved) -> Vec<Rule> {
        match self.kind {
            PickKind::Pick => self.pick(resolved, SetId::Sticky, SetId::Endpoints),
            PickKind::LocalPick => self.pick(resolved, SetId::StickyLocal, SetId::LocalEndpoints),
            PickKind::NodePortPick => self.pick(resolved, SetId::StickyNodePorts, SetId::NodePortEndpoints),
            PickKind::LocalNodePortPick => {
                self.pick(resolved, SetId::StickyLocalNodePorts, SetId::LocalNodePortEndpoints)
            }
            PickKind::External | PickKind::NodePort => vec![
                Rule::new([Statement::SetMarkBits(resolved.masquerade_mark)]).comment("masquerade"),
                Rule::new([self.go_on()]),
            ],
            PickKind::ExternalLocal => self.local(family, resolved, SetId::LocalServices),
            PickKind::NodePortLocal => self.local(family, resolved, SetId::LocalNodePorts),
        }
    }

    fn pick(self, resolved: &Resolved, sticky: SetId, endpoints: SetId) -> Vec<Rule> {
        let frontend = frontend_key(endpoints);
        let draw = |slots: u32| {
            let mut key = frontend.clone();
            key.push(Field::Slot(slots));
            Rule::new([Statement::Dnat { key, map: set_name(endpoints) }])
        };
        let mut rules = Vec::new();
        if resolved.sticky {
            rules.push(
                Rule::new([Statement::VerdictMap { key: frontend.clone(), map: set_name(sticky) }])
                    .comment("session affinity: the endpoint this client had"),
            );
        }
        rules.push(draw(self.slots));
        if self.slots > 1 {
            // A packet may read the verdict of one generation and the slots of the next. When the last slot went in
            // between, slot 0 is still there.
            rules.push(draw(1).comment("the slot just drawn is gone: slot 0 is there while any is"));
        }
        rules
    }

    fn local(self, family: Family, resolved: &Resolved, local: SetId) -> Vec<Rule> {
        let from_node = || Statement::Compare(Compare::Eq, Value::FibLocal(AddrKind::Source));
        let mut rules = Vec::new();
        if let Some(from_pod) = resolved.from_pods(family, Compare::Eq) {
            // A pod of another node that dials this node obeys this node's policy, as anybody from outside.
            let not_from_elsewhere = resolved.node_links.iter().map(|link| {
                Statement::Compare(
                    Compare::Ne,
                    Value::InputInterface { name: link.to_string(), wildcard: false },
                )
            });
            let statements = std::iter::once(from_pod).chain(not_from_elsewhere).chain([self.go_on()]);
            rules.push(Rule::new(statements).comment("short-circuit pod traffic"));
        }
        rules.push(
            Rule::new([from_node(), Statement::SetMarkBits(resolved.masquerade_mark), self.go_on()])
                .comment("short-circuit traffic of the node itself, masqueraded"),
        );
        rules.push(Rule::new([Statement::VerdictMap { key: frontend_key(local), map: set_name(local) }]));
        rules
    }

    fn go_on(self) -> Statement {
        let next = self.needs().unwrap_or(self);
        Statement::Verdict(Verdict::Goto(next.name()))
    }
}

/// The part of a set's key that a client dials.
fn frontend_key(set: SetId) -> SmallVec<[Field; 5]> {
    match set {
        SetId::NodePorts
        | SetId::NodePortEndpoints
        | SetId::LocalNodePorts
        | SetId::LocalNodePortEndpoints
        | SetId::StickyNodePorts
        | SetId::StickyLocalNodePorts => smallvec![Field::L4Proto, Field::DestinationPort],
        _ => smallvec![Field::DestinationAddr, Field::L4Proto, Field::DestinationPort],
    }
}

/// What the fixed chains and the pick chains depend on, beside the number of endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// How this node's pods are told from others; `NodeCIDR` has become the Node's prefixes.
    detect_local: DetectLocal,
    /// Interfaces towards other hosts. A prefix of the whole cluster does not tell this node's pods from those of others.
    node_links: Vec<Box<str>>,
    /// Some Service has session affinity. While none has, no packet pays for it.
    pub sticky: bool,
    /// The bit that marks what is to be masqueraded.
    pub masquerade_mark: u32,
}

impl Resolved {
    /// Resolves the settings for this cluster.
    pub fn of(settings: &Settings, cluster: &Cluster) -> Self {
        let detect_local = match &settings.detect_local {
            DetectLocal::NodeCidr => {
                DetectLocal::ClusterCidr(cluster.node().map_or_else(Vec::new, |node| node.pod_cidrs.clone()))
            }
            other => other.clone(),
        };
        let node_links = match &detect_local {
            DetectLocal::ClusterCidr(_) => cluster.node_links().into_iter().map(Into::into).collect(),
            _ => Vec::new(),
        };
        Self {
            detect_local,
            node_links,
            sticky: cluster.any_sticky(),
            masquerade_mark: settings.masquerade_mark(),
        }
    }

    /// The match for traffic of pods (or, with `Ne`, of anybody else); `None`: there is no way to tell in this family.
    pub fn from_pods(&self, family: Family, op: Compare) -> Option<Statement> {
        let value = match &self.detect_local {
            DetectLocal::None | DetectLocal::NodeCidr => return None,
            DetectLocal::ClusterCidr(cidrs) => {
                let cidr = cidrs.iter().find(|cidr| cidr.family() == family)?;
                Value::Prefix(AddrKind::Source, cidr.addr(), cidr.prefix_len())
            }
            DetectLocal::BridgeInterface(name) => {
                Value::InputInterface { name: name.clone(), wildcard: false }
            }
            DetectLocal::InterfaceNamePrefix(prefix) => {
                Value::InputInterface { name: prefix.clone(), wildcard: true }
            }
        };
        Some(Statement::Compare(op, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (index, (kind, prefix)) in PickKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            let chain = PickChain { kind, slots: 12 };
            assert_eq!(chain.name().as_str(), format!("{prefix}-12"));
            assert_eq!(PickChain::from_name(&chain.name()), Some(chain));
        }
        for foreign in ["pick-0", "pick-03", "pick-x", "pick", "other-3", "dispatch"] {
            assert_eq!(PickChain::from_name(&ChainName::literal(foreign)), None, "{foreign}");
        }
    }
}

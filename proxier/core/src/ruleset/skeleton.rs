//! Owns the fixed part of a family's table: base chains, dispatch, refusals, masquerading. Knows nothing of any Service.

use super::names::{SetId, TABLE_COMMENT, decl, set_name};
use super::pick::Resolved;
use crate::model::Cluster;
use crate::policy::node_port_addresses::{ServedOn, served_on};
use crate::settings::Settings;
use nft_ir::{
    AddrKind, BaseChain, Chain, ChainName, ChainType, Compare, CtStatus, Element, Family, Field, Hook,
    KeyBuilder, Priority, Reject, Rule, Set, Statement, Table, Value, Verdict,
};
use smallvec::{SmallVec, smallvec};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The chain that refuses.
pub fn reject_chain() -> ChainName {
    ChainName::literal("reject-packet")
}

/// The table with its fixed chains and its sets, empty but for the addresses that serve node ports.
pub fn skeleton(family: Family, settings: &Settings, cluster: &Cluster) -> Table {
    let resolved = Resolved::of(settings, cluster);
    let served = served_on(&settings.node_port_addresses, family, cluster.node(), cluster.host_addresses());
    let mut table = Table { comment: Some(TABLE_COMMENT.to_owned()), ..Table::default() };
    for id in SetId::ALL {
        let decl = decl(family, *id).clone();
        table.sets.insert(decl.name.clone(), Set { decl, elements: Default::default() });
    }
    if let (ServedOn::These(addresses), Some(set)) =
        (&served, table.sets.get_mut(&set_name(SetId::NodePortIps)))
    {
        set.elements.extend(addresses.iter().map(|addr| {
            let key = KeyBuilder::new().addr(*addr).build();
            (key.clone(), Element::of_set(key))
        }));
    }
    let cidrs = cluster.service_cidrs();
    let unused: Vec<_> = cidrs.iter().filter(|cidr| cidr.family() == family).collect();
    let refuse_unused = || {
        let reject = Rule::new([new_flow(), in_set(SetId::ClusterIps), goto(reject_chain())])
            .comment("a ClusterIP, on a port that no Service has");
        let drop = unused.iter().map(|cidr| {
            let to_cidr = Value::Prefix(AddrKind::Destination, cidr.addr(), cidr.prefix_len());
            Rule::new([
                new_flow(),
                Statement::Compare(Compare::Eq, to_cidr),
                Statement::Verdict(Verdict::Drop),
            ])
            .comment("an address for Services that no Service has")
        });
        std::iter::once(reject).chain(drop)
    };
    let refuse_services = Rule::new([new_flow(), frontend_map(SetId::NoEndpoints)]);
    let dispatch_chain = ChainName::literal("dispatch");

    let mut base = |name: &str, hook, chain_type, priority, rules: Vec<Rule>| {
        let base = Some(BaseChain { chain_type, hook, priority, policy: Verdict::Accept });
        table.chains.insert(ChainName::literal(name), Chain { base, rules });
    };
    for (name, hook) in
        [("filter-prerouting-pre-dnat", Hook::Prerouting), ("filter-output-pre-dnat", Hook::Output)]
    {
        base(name, hook, ChainType::Filter, Priority::BEFORE_DSTNAT, vec![guard_sources()]);
    }
    let node_ports_refused = Rule::new(
        std::iter::once(new_flow())
            .chain(to_node_port_address(family, &served))
            .chain([node_port_map(SetId::NoEndpointNodePorts)]),
    );
    base(
        "filter-input",
        Hook::Input,
        ChainType::Filter,
        Priority::FILTER,
        vec![node_ports_refused, refuse_services.clone()],
    );
    for (name, hook) in [("filter-forward", Hook::Forward), ("filter-output", Hook::Output)] {
        let rules = std::iter::once(refuse_services.clone()).chain(refuse_unused()).collect();
        base(name, hook, ChainType::Filter, Priority::FILTER, rules);
    }
    for (name, hook) in [("nat-prerouting", Hook::Prerouting), ("nat-output", Hook::Output)] {
        let jump = Rule::new([Statement::Verdict(Verdict::Jump(dispatch_chain.clone()))]);
        base(name, hook, ChainType::Nat, Priority::DSTNAT, vec![jump]);
    }
    let learn = if resolved.sticky { learn() } else { Vec::new() };
    if resolved.sticky {
        // An endpoint in this node's own namespace is reached through input, every other through postrouting.
        base("nat-input", Hook::Input, ChainType::Nat, Priority::SRCNAT, learn.clone());
    }
    let masquerade = learn.into_iter().chain(masquerade(resolved.masquerade_mark)).collect();
    base("nat-postrouting", Hook::Postrouting, ChainType::Nat, Priority::SRCNAT, masquerade);

    let mut regular = |name: ChainName, rules: Vec<Rule>| {
        table.chains.insert(name, Chain { base: None, rules });
    };
    regular(dispatch_chain, dispatch(family, settings.masquerade_all, &resolved, &served));
    regular(
        reject_chain(),
        vec![
            Rule::new([
                Statement::Compare(Compare::Eq, Value::L4Proto(nft_ir::L4Proto::Tcp)),
                Statement::Reject(Reject::TcpReset),
            ])
            .comment("not subject to the rate limit of ICMP errors"),
            Rule::new([Statement::Reject(Reject::PortUnreachable)]),
        ],
    );
    table
}

fn dispatch(family: Family, masquerade_all: bool, resolved: &Resolved, served: &ServedOn) -> Vec<Rule> {
    let mark = Statement::SetMarkBits(resolved.masquerade_mark);
    let mut rules = Vec::new();
    if masquerade_all {
        rules.push(
            Rule::new([in_set(SetId::ClusterIps), mark]).comment("masqueradeAll: every ClusterIP connection"),
        );
    } else if let Some(not_from_pod) = resolved.from_pods(family, Compare::Ne) {
        rules.push(
            Rule::new([in_set(SetId::ClusterIps), not_from_pod, mark])
                .comment("masquerade ClusterIP traffic from off the cluster"),
        );
    }
    rules.push(Rule::new([frontend_map(SetId::Services)]));
    rules.push(Rule::new(
        to_node_port_address(family, served).into_iter().chain([node_port_map(SetId::NodePorts)]),
    ));
    rules
}

fn guard_sources() -> Rule {
    let mut with_source = frontend();
    with_source.push(Field::SourceAddr);
    Rule::new([
        new_flow(),
        Statement::InSet { key: frontend(), op: Compare::Eq, set: set_name(SetId::SourceGuarded) },
        Statement::InSet { key: with_source, op: Compare::Ne, set: set_name(SetId::SourceRanges) },
        Statement::Verdict(Verdict::Drop),
    ])
    .comment("loadBalancerSourceRanges")
}

fn learn() -> Vec<Rule> {
    let to_address: SmallVec<[Field; 5]> =
        smallvec![Field::OriginalDestinationAddr, Field::L4Proto, Field::OriginalDestinationPort];
    let to_node_port: SmallVec<[Field; 5]> = smallvec![Field::L4Proto, Field::OriginalDestinationPort];
    let dnatted = || Statement::CtStatus(CtStatus::Dnat);
    vec![
        Rule::new([dnatted(), Statement::VerdictMap { key: to_address, map: set_name(SetId::Learn) }])
            .comment("session affinity: note the endpoint of this client"),
        Rule::new([
            dnatted(),
            Statement::VerdictMap { key: to_node_port, map: set_name(SetId::LearnNodePorts) },
        ]),
    ]
}

fn masquerade(mark: u32) -> [Rule; 2] {
    let own_connection: SmallVec<[Field; 5]> =
        smallvec![Field::SourceAddr, Field::DestinationAddr, Field::L4Proto, Field::DestinationPort];
    [
        Rule::new([
            Statement::Compare(Compare::Eq, Value::MarkBits(mark)),
            Statement::FlipMarkBits(mark),
            Statement::Masquerade,
        ])
        .comment("masquerade what is marked, and take the mark away"),
        Rule::new([
            Statement::CtStatus(CtStatus::Dnat),
            Statement::InSet { key: own_connection, op: Compare::Eq, set: set_name(SetId::Hairpin) },
            Statement::Masquerade,
        ])
        .comment("hairpin: an endpoint that reached itself"),
    ]
}

/// Matches for the addresses that serve node ports.
fn to_node_port_address(family: Family, served: &ServedOn) -> Vec<Statement> {
    match served {
        ServedOn::These(_) => vec![in_set(SetId::NodePortIps)],
        ServedOn::Every => {
            let (loopback, len) = match family {
                Family::Ip => (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
                Family::Ip6 => (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
            };
            vec![
                Statement::Compare(Compare::Eq, Value::FibLocal(AddrKind::Destination)),
                Statement::Compare(Compare::Ne, Value::Prefix(AddrKind::Destination, loopback, len)),
            ]
        }
    }
}

const fn new_flow() -> Statement {
    Statement::CtStateNew
}

fn goto(chain: ChainName) -> Statement {
    Statement::Verdict(Verdict::Goto(chain))
}

fn in_set(id: SetId) -> Statement {
    Statement::InSet { key: smallvec![Field::DestinationAddr], op: Compare::Eq, set: set_name(id) }
}

fn frontend() -> SmallVec<[Field; 5]> {
    smallvec![Field::DestinationAddr, Field::L4Proto, Field::DestinationPort]
}

fn frontend_map(id: SetId) -> Statement {
    Statement::VerdictMap { key: frontend(), map: set_name(id) }
}

fn node_port_map(id: SetId) -> Statement {
    Statement::VerdictMap { key: smallvec![Field::L4Proto, Field::DestinationPort], map: set_name(id) }
}

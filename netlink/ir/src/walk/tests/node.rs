//! Owns a node with a few Services, written by hand as the product writes them, for the tests of the walk.

use crate::*;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(super) const MARK: u32 = 0x4000;

/// The bit that a stranger uses in the packet mark.
pub(super) const OTHER_MARK: u32 = 0x8000;

/// An address of the scene, by its name there.
pub(super) fn addr(family: Family, name: &str) -> IpAddr {
    let [v4, v6] = match name {
        "node" => ["192.168.1.1", "fd68::1"],
        "outside" => ["198.51.100.9", "2001:db8:9::9"],
        "friend" => ["203.0.113.200", "2001:db8:1::200"],
        "pod-a" => ["10.0.0.1", "fd00::1"],
        "pod-b" => ["10.0.1.2", "fd00::1:2"],
        "pods" => ["10.0.0.0", "fd00::"],
        "web" => ["10.96.0.10", "fd96::10"],
        "sticky" => ["10.96.0.11", "fd96::11"],
        "empty" => ["10.96.0.12", "fd96::12"],
        "unused" => ["10.96.0.99", "fd96::99"],
        "service-cidr" => ["10.96.0.0", "fd96::"],
        "lb" => ["203.0.113.7", "2001:db8::7"],
        "lb-remote" => ["203.0.113.8", "2001:db8::8"],
        "guarded" => ["203.0.113.9", "2001:db8::9"],
        "friends" => ["203.0.113.192", "2001:db8:1::"],
        "last-friend" => ["203.0.113.255", "2001:db8:1::ffff"],
        "loopback" => ["127.0.0.1", "::1"],
        "loopbacks" => ["127.0.0.0", "::1"],
        _ => panic!("nobody is called {name}"),
    };
    let text = match family {
        Family::Ip => v4,
        Family::Ip6 => v6,
    };
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// `name:port`.
pub(super) fn to(family: Family, name: &str) -> SocketAddr {
    let (name, port) = name.rsplit_once(':').unwrap_or((name, "40000"));
    SocketAddr::new(addr(family, name), port.parse().unwrap_or_else(|error| panic!("{port}: {error}")))
}

fn frontend() -> SmallVec<[Field; 5]> {
    smallvec![Field::DestinationAddr, Field::L4Proto, Field::DestinationPort]
}

fn node_port() -> SmallVec<[Field; 5]> {
    smallvec![Field::L4Proto, Field::DestinationPort]
}

fn endpoint() -> SmallVec<[Field; 5]> {
    smallvec![Field::DestinationAddr, Field::DestinationPort]
}

fn with(mut fields: SmallVec<[Field; 5]>, field: Field) -> SmallVec<[Field; 5]> {
    fields.push(field);
    fields
}

fn in_set(set: &str, op: Compare, key: SmallVec<[Field; 5]>) -> Statement {
    Statement::InSet { key, op, set: SetName::literal(set) }
}

fn vmap(map: &str, key: SmallVec<[Field; 5]>) -> Statement {
    Statement::VerdictMap { key, map: SetName::literal(map) }
}

fn dnat(map: &str, key: SmallVec<[Field; 5]>) -> Rule {
    Rule::new([Statement::Dnat { key, map: SetName::literal(map) }])
}

fn goto(chain: &str) -> Statement {
    Statement::Verdict(Verdict::Goto(ChainName::literal(chain)))
}

fn drop() -> Statement {
    Statement::Verdict(Verdict::Drop)
}

const fn eq(value: Value) -> Statement {
    Statement::Compare(Compare::Eq, value)
}

/// The whole ruleset of the node.
pub(super) fn ruleset(family: Family) -> Ruleset {
    let id = TableId { family, name: TableName::literal("proxier") };
    let table = Table { comment: None, chains: chains(family), sets: sets(&id) };
    Ruleset { tables: [(id, table)].into() }
}

fn sets(id: &TableId) -> BTreeMap<SetName, Set> {
    let addr = |name: &str| addr(id.family, name);
    let key = |name: &str, port| KeyBuilder::new().addr(addr(name)).proto(L4Proto::Tcp).port(port);
    let node_port_key = |port| KeyBuilder::new().proto(L4Proto::Tcp).port(port);
    let pod = |name| Datum::Value(KeyBuilder::new().addr(addr(name)).port(8080).build());
    let lead = |chain| Datum::Verdict(Verdict::Goto(ChainName::literal(chain)));
    let of_map = |key: KeyBuilder, datum| Element::of_map(key.build(), datum);
    let of_set = |key: KeyBuilder| Element::of_set(key.build());
    let verdicts = || SetSpec::verdict_map(frontend());
    let endpoints = || SetSpec::map(with(frontend(), Field::Slot(65536)), endpoint());
    let interval = SetFlags { interval: true, ..SetFlags::default() };
    let learnt = SetFlags { dynamic: true, timeout: true, ..SetFlags::default() };
    let hour = Some(Duration::from_secs(3600));
    let itself = |name: &str| KeyBuilder::new().addr(addr(name)).addr(addr(name));
    let rows: Vec<(&str, SetSpec, Vec<Element>)> = vec![
        (
            "services",
            verdicts(),
            vec![
                of_map(key("web", 80), lead("pick-2")),
                of_map(key("sticky", 80), lead("sticky-1")),
                of_map(key("lb", 80), lead("external-local-2")),
                of_map(key("lb-remote", 80), lead("external-local-2")),
                of_map(key("guarded", 80), lead("external-2")),
            ],
        ),
        (
            "endpoints",
            endpoints(),
            ["web", "sticky", "lb", "lb-remote", "guarded"]
                .into_iter()
                .flat_map(|name| {
                    [of_map(key(name, 80).slot(0), pod("pod-a")), of_map(key(name, 80).slot(1), pod("pod-b"))]
                })
                .collect(),
        ),
        ("local-services", verdicts(), vec![of_map(key("lb", 80), lead("local-pick-1"))]),
        ("local-endpoints", endpoints(), vec![of_map(key("lb", 80).slot(0), pod("pod-a"))]),
        (
            "node-ports",
            SetSpec::verdict_map(node_port()),
            vec![of_map(node_port_key(30080), lead("node-port-2"))],
        ),
        (
            "node-port-endpoints",
            SetSpec::map(with(node_port(), Field::Slot(65536)), endpoint()),
            vec![
                of_map(node_port_key(30080).slot(0), pod("pod-a")),
                of_map(node_port_key(30080).slot(1), pod("pod-b")),
            ],
        ),
        (
            "no-endpoints",
            verdicts(),
            vec![
                of_map(key("empty", 80), lead("reject-it")),
                of_map(key("lb-remote", 80), Datum::Verdict(Verdict::Drop)),
            ],
        ),
        (
            "cluster-ips",
            SetSpec::set([Field::DestinationAddr]),
            ["web", "sticky", "empty"].map(|name| of_set(KeyBuilder::new().addr(addr(name)))).into(),
        ),
        ("source-guarded", SetSpec::set(frontend()), vec![of_set(key("guarded", 80))]),
        (
            "source-ranges",
            SetSpec { flags: interval, ..SetSpec::set(with(frontend(), Field::SourceAddr)) },
            vec![
                of_set(key("guarded", 80).addr(addr("friends")))
                    .through(key("guarded", 80).addr(addr("last-friend")).build()),
            ],
        ),
        (
            "hairpin",
            SetSpec::set([Field::SourceAddr, Field::DestinationAddr, Field::L4Proto, Field::DestinationPort]),
            vec![of_set(itself("pod-a").proto(L4Proto::Tcp).port(8080))],
        ),
        (
            "affinity-1",
            SetSpec { flags: learnt, timeout: hour, ..SetSpec::map([Field::SourceAddr], endpoint()) },
            vec![of_map(KeyBuilder::new().addr(addr("pod-b")), pod("pod-b"))],
        ),
        (
            "learn",
            SetSpec::verdict_map([
                Field::OriginalDestinationAddr,
                Field::L4Proto,
                Field::OriginalDestinationPort,
            ]),
            vec![Element::of_map(
                key("sticky", 80).build(),
                Datum::Verdict(Verdict::Jump(ChainName::literal("learn-1"))),
            )],
        ),
    ];
    rows.into_iter()
        .map(|(name, spec, elements)| {
            let name = SetName::literal(name);
            let decl = Arc::new(SetDecl { table: id.clone(), name: name.clone(), spec });
            let elements = elements.into_iter().map(|element| (element.key.clone(), element)).collect();
            (name, Set { decl, elements })
        })
        .collect()
}

fn chains(family: Family) -> BTreeMap<ChainName, Chain> {
    let prefix = |kind, name, len: [u8; 2]| {
        Value::Prefix(kind, addr(family, name), if family == Family::Ip { len[0] } else { len[1] })
    };
    let from_pods = |op| Statement::Compare(op, prefix(AddrKind::Source, "pods", [8, 64]));
    let mark = || Statement::SetMarkBits(MARK);
    let regular: Vec<(&str, Vec<Rule>)> = vec![
        (
            "reject-it",
            vec![
                Rule::new([eq(Value::L4Proto(L4Proto::Tcp)), Statement::Reject(Reject::TcpReset)]),
                Rule::new([Statement::Reject(Reject::PortUnreachable)]),
            ],
        ),
        ("pick-2", vec![dnat("endpoints", with(frontend(), Field::Slot(2)))]),
        ("local-pick-1", vec![dnat("local-endpoints", with(frontend(), Field::Slot(1)))]),
        ("node-port-pick-2", vec![dnat("node-port-endpoints", with(node_port(), Field::Slot(2)))]),
        ("external-2", vec![Rule::new([mark(), goto("pick-2")])]),
        ("node-port-2", vec![Rule::new([mark(), goto("node-port-pick-2")])]),
        (
            "external-local-2",
            vec![
                Rule::new([from_pods(Compare::Eq), goto("pick-2")]).comment("short-circuit pod traffic"),
                Rule::new([eq(Value::FibLocal(AddrKind::Source)), mark(), goto("pick-2")]),
                Rule::new([vmap("local-services", frontend())]),
            ],
        ),
        ("sticky-1", vec![dnat("affinity-1", smallvec![Field::SourceAddr]), Rule::new([goto("pick-2")])]),
        (
            "learn-1",
            vec![Rule::new([Statement::Update {
                set: SetName::literal("affinity-1"),
                key: smallvec![Field::SourceAddr],
                data: endpoint(),
            }])],
        ),
        (
            "dispatch",
            vec![
                Rule::new([
                    in_set("cluster-ips", Compare::Eq, smallvec![Field::DestinationAddr]),
                    from_pods(Compare::Ne),
                    mark(),
                ]),
                Rule::new([vmap("services", frontend())]),
                Rule::new([
                    eq(Value::FibLocal(AddrKind::Destination)),
                    Statement::Compare(Compare::Ne, prefix(AddrKind::Destination, "loopbacks", [8, 128])),
                    vmap("node-ports", node_port()),
                ]),
            ],
        ),
    ];
    let guard = || {
        Rule::new([
            Statement::CtStateNew,
            in_set("source-guarded", Compare::Eq, frontend()),
            in_set("source-ranges", Compare::Ne, with(frontend(), Field::SourceAddr)),
            drop(),
        ])
    };
    let none = || Rule::new([Statement::CtStateNew, vmap("no-endpoints", frontend())]);
    let unused = || {
        vec![
            none(),
            Rule::new([
                Statement::CtStateNew,
                in_set("cluster-ips", Compare::Eq, smallvec![Field::DestinationAddr]),
                goto("reject-it"),
            ]),
            Rule::new([
                Statement::CtStateNew,
                eq(prefix(AddrKind::Destination, "service-cidr", [12, 64])),
                drop(),
            ]),
        ]
    };
    let dispatch = || vec![Rule::new([Statement::Verdict(Verdict::Jump(ChainName::literal("dispatch")))])];
    let learn = || {
        Rule::new([
            Statement::CtStatus(CtStatus::Dnat),
            vmap(
                "learn",
                smallvec![Field::OriginalDestinationAddr, Field::L4Proto, Field::OriginalDestinationPort],
            ),
        ])
    };
    let masquerade = vec![
        learn(),
        Rule::new([eq(Value::MarkBits(MARK)), Statement::FlipMarkBits(MARK), Statement::Masquerade]),
        Rule::new([
            Statement::CtStatus(CtStatus::Dnat),
            in_set(
                "hairpin",
                Compare::Eq,
                smallvec![Field::SourceAddr, Field::DestinationAddr, Field::L4Proto, Field::DestinationPort],
            ),
            Statement::Masquerade,
        ]),
    ];
    use ChainType::{Filter, Nat};
    let base = [
        ("filter-prerouting", Filter, Hook::Prerouting, Priority::BEFORE_DSTNAT, vec![guard()]),
        ("filter-input", Filter, Hook::Input, Priority::FILTER, vec![none()]),
        ("filter-forward", Filter, Hook::Forward, Priority::FILTER, unused()),
        ("filter-output", Filter, Hook::Output, Priority::FILTER, unused()),
        ("nat-prerouting", Nat, Hook::Prerouting, Priority::DSTNAT, dispatch()),
        ("nat-output", Nat, Hook::Output, Priority::DSTNAT, dispatch()),
        ("nat-input", Nat, Hook::Input, Priority::SRCNAT, vec![learn()]),
        ("nat-postrouting", Nat, Hook::Postrouting, Priority::SRCNAT, masquerade),
    ]
    .map(|(name, chain_type, hook, priority, rules)| {
        let base = BaseChain { chain_type, hook, priority, policy: Verdict::Accept };
        (name, Chain { base: Some(base), rules })
    });
    regular
        .into_iter()
        .map(|(name, rules)| (name, Chain { base: None, rules }))
        .chain(base)
        .map(|(name, chain)| (ChainName::literal(name), chain))
        .collect()
}

//! Owns a ruleset with each kind of set, element and statement, for the tests of the printed form.

use crate::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn table(family: Family) -> TableId {
    TableId { family, name: TableName::literal("t") }
}

pub(super) fn chain(name: &str) -> ChainName {
    ChainName::literal(name)
}

pub(super) fn decl(family: Family, name: &str, spec: SetSpec) -> Arc<SetDecl> {
    Arc::new(SetDecl { table: table(family), name: SetName::literal(name), spec })
}

pub(super) fn set(decl: &Arc<SetDecl>, elements: impl IntoIterator<Item = Element>) -> (SetName, Set) {
    let elements: BTreeMap<_, _> = elements.into_iter().map(|e| (e.key.clone(), e)).collect();
    (decl.name.clone(), Set { decl: decl.clone(), elements })
}

pub(super) const FRONTEND: [Field; 3] = [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort];

pub(super) fn frontend(addr: IpAddr, port: u16) -> KeyBuilder {
    KeyBuilder::new().addr(addr).proto(L4Proto::Tcp).port(port)
}

pub(super) fn regular(rules: impl IntoIterator<Item = Rule>) -> Chain {
    Chain { base: None, rules: rules.into_iter().collect() }
}

pub(super) fn based(
    chain_type: ChainType,
    hook: Hook,
    priority: Priority,
    rules: impl IntoIterator<Item = Rule>,
) -> Chain {
    let base = BaseChain { chain_type, hook, priority, policy: Verdict::Accept };
    Chain { base: Some(base), rules: rules.into_iter().collect() }
}

/// A table with each kind of set, element and statement that nft 1.0.6 can parse.
pub(super) fn worked_example(family: Family) -> Ruleset {
    let [vip, pod, near, far, odd] = match family {
        Family::Ip => ["10.96.0.10", "10.0.0.1", "192.0.2.0", "192.0.2.255", "192.0.2.2"],
        Family::Ip6 => ["fd96::10", "fd00::1", "2001:db8::", "2001:db8::ffff", "2001:db8::2"],
    }
    .map(addr);
    let (prefix, prefix_len) = (near, if family == Family::Ip { 24 } else { 112 });
    let to = |name: &str| Datum::Verdict(Verdict::Goto(chain(name)));
    let endpoint = |port| Datum::Value(KeyBuilder::new().addr(pod).port(port).build());

    let services = decl(family, "services", SetSpec::verdict_map(FRONTEND).comment("VIP to choice"));
    let endpoints = decl(
        family,
        "endpoints",
        SetSpec::map(
            FRONTEND.into_iter().chain([Field::Slot(0)]),
            [Field::DestinationAddr, Field::DestinationPort],
        ),
    );
    let ranges = decl(
        family,
        "source-ranges",
        SetSpec {
            flags: SetFlags { interval: true, ..SetFlags::default() },
            ..SetSpec::set(FRONTEND.into_iter().chain([Field::SourceAddr]))
        },
    );
    let cidrs = decl(
        family,
        "cidrs",
        SetSpec {
            flags: SetFlags { interval: true, ..SetFlags::default() },
            ..SetSpec::set([Field::SourceAddr])
        },
    );
    let affinity = decl(
        family,
        "affinity",
        SetSpec {
            flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
            timeout: Some(Duration::from_secs(10_800)),
            size: Some(65_535),
            ..SetSpec::map([Field::SourceAddr], [Field::DestinationAddr, Field::DestinationPort])
        },
    );
    let seen = decl(
        family,
        "seen",
        SetSpec {
            flags: SetFlags { dynamic: true, ..SetFlags::default() },
            size: Some(100),
            ..SetSpec::set([Field::OriginalDestinationAddr, Field::L4Proto])
        },
    );

    let sets = BTreeMap::from([
        set(
            &services,
            [
                Element::of_map(frontend(vip, 80).build(), to("pick")).comment("ns/web:http"),
                Element::of_map(frontend(vip, 81).build(), Datum::Verdict(Verdict::Drop)),
            ],
        ),
        set(
            &endpoints,
            [0, 1, 2, 256].map(|slot| {
                Element::of_map(frontend(vip, 80).slot(slot).build(), endpoint(8000 + slot as u16))
            }),
        ),
        set(
            &ranges,
            [
                Element::of_set(frontend(vip, 80).addr(near).build())
                    .through(frontend(vip, 80).addr(far).build()),
                Element::of_set(frontend(vip, 81).addr(near).build())
                    .through(frontend(vip, 90).addr(near).build()),
                Element::of_set(frontend(vip, 99).addr(near).build())
                    .through(frontend(vip, 99).addr(odd).build()),
            ],
        ),
        set(
            &cidrs,
            [
                Element::of_set(KeyBuilder::new().addr(near).build())
                    .through(KeyBuilder::new().addr(far).build()),
                Element::of_set(KeyBuilder::new().addr(pod).build()),
            ],
        ),
        set(
            &affinity,
            [Element {
                expires: Some(Duration::from_millis(3500)),
                ..Element::of_map(KeyBuilder::new().addr(near).build(), endpoint(8000))
            }],
        ),
        set(&seen, []),
    ]);

    let in_set =
        |op, set: &Arc<SetDecl>| Statement::InSet { key: set.spec.key.clone(), op, set: set.name.clone() };
    let compare = Statement::Compare;
    let pick = Rule::new([Statement::Dnat {
        key: FRONTEND.into_iter().chain([Field::Slot(3)]).collect(),
        map: endpoints.name.clone(),
    }]);
    let external = Rule::new([
        compare(Compare::Eq, Value::FibLocal(AddrKind::Source)),
        Statement::SetMarkBits(0x4000),
        Statement::Verdict(Verdict::Goto(chain("pick"))),
    ]);
    let learn = match family {
        Family::Ip => Statement::Update {
            set: affinity.name.clone(),
            key: [Field::SourceAddr].into_iter().collect(),
            data: [Field::DestinationAddr, Field::DestinationPort].into_iter().collect(),
        },
        // nft 1.0.6 aborts on the same with IPv6.
        Family::Ip6 => Statement::Counter,
    };
    let chains = BTreeMap::from([
        (chain("pick"), regular([pick])),
        (
            chain("external"),
            regular([
                Rule::new([
                    compare(Compare::Eq, Value::Prefix(AddrKind::Source, prefix, prefix_len)),
                    Statement::Verdict(Verdict::Goto(chain("pick"))),
                ])
                .comment("short-circuit pod traffic"),
                Rule::new([
                    compare(
                        Compare::Ne,
                        Value::Prefix(AddrKind::Destination, pod, (family.addr_len() * 8) as u8),
                    ),
                    Statement::Counter,
                    Statement::Verdict(Verdict::Return),
                ]),
                external,
            ]),
        ),
        (
            chain("sticky"),
            regular([
                Rule::new([
                    compare(Compare::Eq, Value::L4Proto(L4Proto::Udp)),
                    Statement::Dnat { key: affinity.spec.key.clone(), map: affinity.name.clone() },
                ]),
                Rule::new([Statement::Verdict(Verdict::Jump(chain("pick")))]),
            ]),
        ),
        (
            chain("learn"),
            regular([
                Rule::new([learn]),
                Rule::new([Statement::Update {
                    set: seen.name.clone(),
                    key: [Field::OriginalDestinationAddr, Field::L4Proto].into_iter().collect(),
                    data: Default::default(),
                }]),
            ]),
        ),
        (
            chain("refuse"),
            regular([
                Rule::new([
                    compare(Compare::Eq, Value::L4Proto(L4Proto::Tcp)),
                    Statement::Reject(Reject::TcpReset),
                ]),
                Rule::new([Statement::Reject(Reject::PortUnreachable)]),
            ]),
        ),
        (
            chain("nat-prerouting"),
            based(
                ChainType::Nat,
                Hook::Prerouting,
                Priority::DSTNAT,
                [
                    Rule::new([
                        compare(Compare::Eq, Value::InputInterface { name: "cni".into(), wildcard: true }),
                        Statement::VerdictMap {
                            key: FRONTEND.into_iter().collect(),
                            map: services.name.clone(),
                        },
                    ]),
                    Rule::new([
                        compare(Compare::Ne, Value::InputInterface { name: "e*".into(), wildcard: false }),
                        Statement::Verdict(Verdict::Accept),
                    ]),
                ],
            ),
        ),
        (
            chain("guard"),
            based(
                ChainType::Filter,
                Hook::Prerouting,
                Priority::BEFORE_DSTNAT,
                [Rule::new([
                    Statement::CtStateNew,
                    in_set(Compare::Ne, &ranges),
                    Statement::Verdict(Verdict::Drop),
                ])],
            ),
        ),
        (
            chain("forward"),
            based(
                ChainType::Filter,
                Hook::Forward,
                Priority::FILTER,
                [Rule::new([
                    in_set(Compare::Eq, &cidrs),
                    Statement::Verdict(Verdict::Goto(chain("refuse"))),
                ])],
            ),
        ),
        (
            chain("nat-postrouting"),
            based(
                ChainType::Nat,
                Hook::Postrouting,
                Priority::SRCNAT,
                [Rule::new([
                    compare(Compare::Eq, Value::MarkBits(0x4000)),
                    Statement::FlipMarkBits(0x4000),
                    Statement::CtStatus(CtStatus::Dnat),
                    Statement::Masquerade,
                ])],
            ),
        ),
    ]);
    let tables = BTreeMap::from([(
        table(family),
        Table { comment: Some("rules \"for\" Services".into()), chains, sets },
    )]);
    Ruleset { tables }
}

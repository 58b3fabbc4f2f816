//! Owns rulesets to commit: the shape of the product's own, and the way from a table to its transaction. Knows
//! nothing of what is asserted.

use nft_ir::{
    AddrKind, BaseChain, Chain, ChainName, ChainType, Compare, CtStatus, Datum, Element, Family, Field, Hook,
    KeyBuilder, L4Proto, Op, Priority, Reject, Rule, Set, SetDecl, SetFlags, SetName, SetSpec, Statement,
    Table, TableId, TableName, Transaction, Value, Verdict,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The table of a test.
pub(crate) fn table_id(family: Family) -> TableId {
    TableId { family, name: TableName::literal("proxier") }
}

/// Everything of a table, in the order that the kernel wants: what is referred to comes first.
pub(crate) fn program(id: &TableId, table: &Table) -> Transaction {
    let mut transaction = Transaction::default();
    let ops = &mut transaction.ops;
    ops.push(Op::AddTable { table: id.clone(), comment: table.comment.clone() });
    ops.extend(table.chains.iter().map(|(name, chain)| Op::AddChain {
        table: id.clone(),
        chain: name.clone(),
        base: chain.base.clone(),
    }));
    ops.extend(table.sets.values().map(|set| Op::AddSet { set: Arc::clone(&set.decl) }));
    ops.extend(table.chains.iter().flat_map(|(name, chain)| {
        chain.rules.iter().map(|rule| Op::AddRule {
            table: id.clone(),
            chain: name.clone(),
            rule: rule.clone(),
        })
    }));
    ops.extend(table.sets.values().filter(|set| !set.elements.is_empty()).map(|set| Op::AddElements {
        set: Arc::clone(&set.decl),
        elements: set.elements.values().cloned().collect(),
    }));
    transaction
}

/// An address of this family by number.
pub(crate) fn addr(family: Family, number: u32) -> IpAddr {
    match family {
        Family::Ip => IpAddr::from((0x0a00_0000 + number).to_be_bytes()),
        Family::Ip6 => {
            IpAddr::from((0xfd00_0000_0000_0000_0000_0000_0000_0000 + u128::from(number)).to_be_bytes())
        }
    }
}

fn set(table: &mut Table, id: &TableId, name: &str, spec: SetSpec, elements: Vec<Element>) {
    let name = SetName::literal(name);
    let decl = Arc::new(SetDecl { table: id.clone(), name: name.clone(), spec });
    let elements = elements.into_iter().map(|element| (element.key.clone(), element)).collect();
    table.sets.insert(name, Set { decl, elements });
}

fn chain(table: &mut Table, name: &str, base: Option<BaseChain>, rules: Vec<Rule>) {
    table.chains.insert(ChainName::literal(name), Chain { base, rules });
}

/// Flags of a set of intervals.
pub(crate) fn intervals() -> SetFlags {
    SetFlags { interval: true, ..SetFlags::default() }
}

/// The shape of the product's ruleset: every kind of object and statement that it uses, one of each.
#[expect(clippy::too_many_lines, reason = "a ruleset is a list")]
pub(crate) fn product(family: Family) -> Table {
    use Field::{
        DestinationAddr, DestinationPort, L4Proto as Proto, OriginalDestinationAddr, OriginalDestinationPort,
        Slot, SourceAddr,
    };
    let id = table_id(family);
    let a = |number| addr(family, number);
    let goto = |name: &str| Verdict::Goto(ChainName::literal(name));
    let vip = |addr, port| KeyBuilder::new().addr(addr).proto(L4Proto::Tcp).port(port);
    let vip_fields = || [DestinationAddr, Proto, DestinationPort];
    let mut table = Table { comment: Some("kube services".into()), ..Table::default() };

    set(
        &mut table,
        &id,
        "services",
        SetSpec::verdict_map(vip_fields()),
        vec![
            Element::of_map(vip(a(1), 80).build(), Datum::Verdict(goto("pick-2")))
                .comment("default/web:http"),
            Element::of_map(vip(a(2), 80).build(), Datum::Verdict(goto("external-2"))),
            Element::of_map(vip(a(3), 80).build(), Datum::Verdict(Verdict::Drop)),
        ],
    );
    set(
        &mut table,
        &id,
        "endpoints",
        SetSpec::map(
            [DestinationAddr, Proto, DestinationPort, Slot(65536)],
            [DestinationAddr, DestinationPort],
        )
        .comment("slots"),
        (0..2)
            .map(|slot| {
                let to = KeyBuilder::new().addr(a(100 + slot)).port(8080).build();
                Element::of_map(vip(a(1), 80).slot(slot).build(), Datum::Value(to))
            })
            .collect(),
    );
    set(
        &mut table,
        &id,
        "node-ports",
        SetSpec::verdict_map([Proto, DestinationPort]),
        vec![Element::of_map(
            KeyBuilder::new().proto(L4Proto::Udp).port(30080).build(),
            Datum::Verdict(goto("node-port-2")),
        )],
    );
    set(
        &mut table,
        &id,
        "node-port-endpoints",
        SetSpec::map([Proto, DestinationPort, Slot(65536)], [DestinationAddr, DestinationPort]),
        vec![],
    );
    set(
        &mut table,
        &id,
        "cluster-ips",
        SetSpec::set([DestinationAddr]).comment("all of them"),
        vec![Element::of_set(KeyBuilder::new().addr(a(1)).build()).comment("default/web")],
    );
    set(
        &mut table,
        &id,
        "service-cidrs",
        SetSpec { flags: intervals(), ..SetSpec::set([DestinationAddr]) },
        vec![
            Element::of_set(KeyBuilder::new().addr(a(0x1000)).build())
                .through(KeyBuilder::new().addr(a(0x1fff)).build()),
            Element::of_set(KeyBuilder::new().addr(a(0x2000)).build())
                .through(KeyBuilder::new().addr(a(0x20ff)).build()),
            Element::of_set(KeyBuilder::new().addr(a(0x3000)).build()),
        ],
    );
    set(&mut table, &id, "source-guarded", SetSpec::set(vip_fields()), vec![]);
    set(
        &mut table,
        &id,
        "source-ranges",
        SetSpec { flags: intervals(), ..SetSpec::set([DestinationAddr, Proto, DestinationPort, SourceAddr]) },
        vec![
            Element::of_set(vip(a(2), 80).addr(a(0x1000)).build())
                .through(vip(a(2), 80).addr(a(0x1fff)).build()),
            Element::of_set(vip(a(2), 81).addr(a(0x4000)).build()),
        ],
    );
    set(
        &mut table,
        &id,
        "hairpin",
        SetSpec::set([SourceAddr, DestinationAddr, Proto, DestinationPort]),
        vec![],
    );
    set(
        &mut table,
        &id,
        "affinity-1",
        SetSpec {
            flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
            timeout: Some(Duration::from_secs(10_800)),
            size: Some(65_535),
            ..SetSpec::map([SourceAddr], [DestinationAddr, DestinationPort])
        },
        vec![],
    );
    set(
        &mut table,
        &id,
        "learn",
        SetSpec::verdict_map([OriginalDestinationAddr, Proto, OriginalDestinationPort]),
        vec![Element::of_map(vip(a(1), 80).build(), Datum::Verdict(goto("learn-1")))],
    );

    let in_set =
        |key: &[Field], op, set: &str| Statement::InSet { key: key.into(), op, set: SetName::literal(set) };
    let vmap =
        |key: &[Field], map: &str| Statement::VerdictMap { key: key.into(), map: SetName::literal(map) };
    let dnat = |key: &[Field], map: &str| Statement::Dnat { key: key.into(), map: SetName::literal(map) };
    let is = |value| Statement::Compare(Compare::Eq, value);
    let is_not = |value| Statement::Compare(Compare::Ne, value);
    let go = |name: &str| Statement::Verdict(goto(name));
    let tcp = is(Value::L4Proto(L4Proto::Tcp));
    let pods = |kind| Value::Prefix(kind, addr(family, 0), if family == Family::Ip { 8 } else { 61 });

    chain(
        &mut table,
        "reject-it",
        None,
        vec![
            Rule::new([tcp.clone(), Statement::Reject(Reject::TcpReset)]),
            Rule::new([Statement::Reject(Reject::PortUnreachable)]),
        ],
    );
    chain(
        &mut table,
        "pick-2",
        None,
        vec![Rule::new([dnat(&[DestinationAddr, Proto, DestinationPort, Slot(2)], "endpoints")])],
    );
    chain(
        &mut table,
        "node-port-2",
        None,
        vec![
            Rule::new([Statement::SetMarkBits(0x4000)]),
            Rule::new([dnat(&[Proto, DestinationPort, Slot(3)], "node-port-endpoints")]),
        ],
    );
    chain(
        &mut table,
        "external-2",
        None,
        vec![
            Rule::new([is(pods(AddrKind::Source)), go("pick-2")]).comment("short-circuit pod traffic"),
            Rule::new([is(Value::FibLocal(AddrKind::Source)), Statement::SetMarkBits(0x4000), go("pick-2")])
                .comment("short-circuit traffic of this node"),
            Rule::new([vmap(&vip_fields(), "services")]),
        ],
    );
    chain(
        &mut table,
        "sticky-1",
        None,
        vec![
            Rule::new([tcp, dnat(&[SourceAddr], "affinity-1")]).comment("known client"),
            Rule::new([go("pick-2")]),
        ],
    );
    chain(
        &mut table,
        "learn-1",
        None,
        vec![Rule::new([Statement::Update {
            set: SetName::literal("affinity-1"),
            key: [SourceAddr][..].into(),
            data: [DestinationAddr, DestinationPort][..].into(),
        }])],
    );
    chain(
        &mut table,
        "dispatch",
        None,
        vec![
            Rule::new([
                in_set(&[DestinationAddr], Compare::Eq, "cluster-ips"),
                is_not(pods(AddrKind::Source)),
                Statement::SetMarkBits(0x4000),
            ]),
            Rule::new([
                is(Value::FibLocal(AddrKind::Destination)),
                is_not(Value::Prefix(
                    AddrKind::Destination,
                    a(0),
                    if family == Family::Ip { 9 } else { 128 },
                )),
                vmap(&[Proto, DestinationPort], "node-ports"),
            ]),
            Rule::new([
                is(Value::InputInterface { name: "cni0".into(), wildcard: false }),
                Statement::Counter,
                Statement::Verdict(Verdict::Return),
            ]),
            Rule::new([
                is_not(Value::InputInterface { name: "veth".into(), wildcard: true }),
                Statement::Verdict(Verdict::Accept),
            ]),
        ],
    );
    let base = |chain_type, hook, priority, policy| Some(BaseChain { chain_type, hook, priority, policy });
    let jump = |name: &str| Statement::Verdict(Verdict::Jump(ChainName::literal(name)));
    chain(
        &mut table,
        "nat-prerouting",
        base(ChainType::Nat, Hook::Prerouting, Priority::DSTNAT, Verdict::Accept),
        vec![Rule::new([jump("dispatch")])],
    );
    chain(
        &mut table,
        "filter-input",
        base(ChainType::Filter, Hook::Input, Priority::FILTER, Verdict::Drop),
        vec![Rule::new([Statement::Verdict(Verdict::Accept)])],
    );
    chain(
        &mut table,
        "filter-forward",
        base(ChainType::Filter, Hook::Forward, Priority::FILTER, Verdict::Accept),
        vec![
            Rule::new([
                Statement::CtStateNew,
                in_set(&[DestinationAddr], Compare::Eq, "cluster-ips"),
                go("reject-it"),
            ]),
            Rule::new([
                Statement::CtStateNew,
                in_set(&[DestinationAddr], Compare::Eq, "service-cidrs"),
                Statement::Verdict(Verdict::Drop),
            ]),
        ],
    );
    chain(
        &mut table,
        "filter-prerouting",
        base(ChainType::Filter, Hook::Prerouting, Priority::BEFORE_DSTNAT, Verdict::Accept),
        vec![Rule::new([
            Statement::CtStateNew,
            in_set(&vip_fields(), Compare::Eq, "source-guarded"),
            in_set(&[DestinationAddr, Proto, DestinationPort, SourceAddr], Compare::Ne, "source-ranges"),
            Statement::Verdict(Verdict::Drop),
        ])],
    );
    chain(
        &mut table,
        "nat-postrouting",
        base(ChainType::Nat, Hook::Postrouting, Priority::SRCNAT, Verdict::Accept),
        vec![
            Rule::new([
                Statement::CtStatus(CtStatus::Dnat),
                vmap(&[OriginalDestinationAddr, Proto, OriginalDestinationPort], "learn"),
            ]),
            Rule::new([is(Value::MarkBits(0x4000)), Statement::FlipMarkBits(0x4000), Statement::Masquerade]),
            Rule::new([
                Statement::CtStatus(CtStatus::Dnat),
                in_set(&[SourceAddr, DestinationAddr, Proto, DestinationPort], Compare::Eq, "hairpin"),
                Statement::Masquerade,
            ]),
        ],
    );
    table
}

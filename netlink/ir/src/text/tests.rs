//! Owns the tests of the printed form, with `nft` as witness.

mod example;

use crate::*;
use example::{FRONTEND, addr, chain, decl, frontend, set, table, worked_example};
use std::time::Duration;

/// Lines in an order of their own, without what the kernel adds or nft takes away.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .flat_map(|line| line.split(", "))
        .map(|line| {
            line.trim()
                .trim_start_matches("elements = { ")
                .trim_end_matches([',', '}', ' '])
                .replace("meta l4proto tcp reject", "reject")
                .replace("counter packets 0 bytes 0", "counter")
                .to_owned()
        })
        // The clock runs on between load and list.
        .map(|line| match line.split_once(" expires ") {
            Some((before, after)) => {
                format!("{before}{}", after.split_once(' ').map_or("", |(_, rest)| rest))
            }
            None => line,
        })
        .filter(|line| !line.is_empty())
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_ruleset_prints_as_nft_lists_it() {
    for family in Family::ALL {
        let text = worked_example(family).to_string();
        let listed = crate::nft::load_and_list(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(lines(&text), lines(&listed), "{text}\n{listed}");
    }
}

#[test]
fn slots_print_in_the_order_of_their_numbers() {
    let text = worked_example(Family::Ip).to_string();
    let slots: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once(" . tcp . 80 . ")?.1.split_once(" : ").map(|(slot, _)| slot))
        .collect();
    assert_eq!(slots, ["0", "1", "2", "256"], "{text}");
}

#[test]
fn malformed_bytes_print_as_comments() {
    let decl = decl(Family::Ip, "s", SetSpec::verdict_map(FRONTEND));
    let short = Element::of_map(Key::from_slice(&[1, 2, 3]), Datum::Value(Key::from_slice(&[4])));
    let good = Element::of_map(frontend(addr("1.2.3.4"), 80).build(), Datum::Verdict(Verdict::Drop));
    let table = Table { sets: [set(&decl, [short.clone(), good])].into(), ..Table::default() };
    let text = Ruleset { tables: [(decl.table.clone(), table)].into() }.to_string();
    assert!(text.contains("# not of this set's type: 0x010203 : 0x04\n"), "{text}");
    crate::nft::check(&text).unwrap();

    let add = Op::AddElements { set: decl.clone(), elements: vec![short] };
    assert_eq!(add.to_string(), "# add element ip t s: not of this set's type: 0x010203 : 0x04");
}

/// The verb and the noun of an operation. A new [`Op`] does not compile until it stands here.
fn verb_and_noun(op: &Op) -> (&'static str, &'static str) {
    match op {
        Op::AddTable { .. } => ("add", "table"),
        Op::DeleteTable { .. } => ("delete", "table"),
        Op::AddChain { .. } => ("add", "chain"),
        Op::FlushChain { .. } => ("flush", "chain"),
        Op::DeleteChain { .. } => ("delete", "chain"),
        Op::AddRule { .. } => ("add", "rule"),
        Op::AddSet { .. } => ("add", "set"),
        Op::FlushSet { .. } => ("flush", "set"),
        Op::DeleteSet { .. } => ("delete", "set"),
        Op::AddElements { .. } => ("add", "element"),
        Op::DeleteElements { .. } => ("delete", "element"),
    }
}

#[test]
fn each_verb_on_each_noun_prints_and_loads() {
    let id = table(Family::Ip);
    let plain = decl(Family::Ip, "s", SetSpec::set([Field::SourceAddr]).comment("clients"));
    let map = decl(
        Family::Ip,
        "m",
        SetSpec {
            flags: SetFlags { timeout: true, ..SetFlags::default() },
            timeout: Some(Duration::from_secs(90)),
            size: Some(10),
            ..SetSpec::verdict_map(FRONTEND)
        },
    );
    let one = || Element::of_set(KeyBuilder::new().addr(addr("1.2.3.4")).build());
    let two = || Element::of_set(KeyBuilder::new().addr(addr("1.2.3.5")).build()).comment("b");
    let web = |expires: u64| Element {
        expires: Some(Duration::from_secs(expires)),
        ..Element::of_map(
            frontend(addr("1.2.3.4"), 80 + expires as u16).build(),
            Datum::Verdict(Verdict::Goto(chain("c"))),
        )
    };
    let base = BaseChain {
        chain_type: ChainType::Filter,
        hook: Hook::Prerouting,
        priority: Priority::BEFORE_DSTNAT,
        policy: Verdict::Drop,
    };
    let rows = [
        (Op::AddTable { table: id.clone(), comment: None }, "add table ip t"),
        (
            Op::AddTable {
                table: TableId { family: Family::Ip6, name: TableName::literal("u") },
                comment: Some("hello".into()),
            },
            "add table ip6 u { comment \"hello\"; }",
        ),
        (
            Op::DeleteTable { table: TableId { family: Family::Ip6, name: TableName::literal("u") } },
            "delete table ip6 u",
        ),
        (Op::AddChain { table: id.clone(), chain: chain("c"), base: None }, "add chain ip t c"),
        (
            Op::AddChain { table: id.clone(), chain: chain("b"), base: Some(base) },
            "add chain ip t b { type filter hook prerouting priority dstnat - 10; policy drop; }",
        ),
        (Op::AddSet { set: plain.clone() }, "add set ip t s { typeof ip saddr; comment \"clients\"; }"),
        (
            Op::AddSet { set: map.clone() },
            "add map ip t m { typeof ip daddr . meta l4proto . th dport : verdict; size 10; flags timeout; \
             timeout 1m30s; }",
        ),
        (
            Op::AddRule {
                table: id.clone(),
                chain: chain("b"),
                rule: Rule::new([Statement::Verdict(Verdict::Jump(chain("c")))]).comment("why"),
            },
            "add rule ip t b jump c comment \"why\"",
        ),
        (
            Op::AddElements { set: plain.clone(), elements: vec![one(), two()] },
            "add element ip t s {\n\t1.2.3.4,\n\t1.2.3.5 comment \"b\"\n}",
        ),
        (
            Op::AddElements { set: map.clone(), elements: vec![web(5)] },
            "add element ip t m { 1.2.3.4 . tcp . 85 expires 5s : goto c }",
        ),
        (
            Op::AddElements { set: map.clone(), elements: vec![web(100)] },
            "add element ip t m { 1.2.3.4 . tcp . 180 timeout 1m40s : goto c }",
        ),
        (
            Op::DeleteElements { set: map.clone(), elements: vec![web(5)] },
            "delete element ip t m { 1.2.3.4 . tcp . 85 }",
        ),
        (
            Op::DeleteElements { set: plain.clone(), elements: vec![one(), two()] },
            "delete element ip t s {\n\t1.2.3.4,\n\t1.2.3.5\n}",
        ),
        (Op::FlushSet { set: plain.clone() }, "flush set ip t s"),
        (Op::FlushSet { set: map.clone() }, "flush map ip t m"),
        (Op::DeleteSet { set: plain }, "delete set ip t s"),
        (Op::DeleteSet { set: map }, "delete map ip t m"),
        (Op::FlushChain { table: id.clone(), chain: chain("b") }, "flush chain ip t b"),
        (Op::DeleteChain { table: id, chain: chain("c") }, "delete chain ip t c"),
    ];
    let mut covered = std::collections::BTreeSet::new();
    for (op, text) in &rows {
        assert_eq!(op.to_string(), *text);
        covered.insert(verb_and_noun(op));
    }
    let nouns = ["table", "chain", "rule", "set", "element"];
    let missing: Vec<_> = ["add", "flush", "delete"]
        .into_iter()
        .flat_map(|verb| nouns.map(|noun| (verb, noun)))
        .filter(|pair| !covered.contains(pair))
        .collect();
    // A table is flushed by deleting it, a rule is deleted by flushing its chain, elements by flushing their set.
    assert_eq!(missing, [("flush", "table"), ("flush", "rule"), ("flush", "element"), ("delete", "rule")]);

    let script = Transaction { ops: rows.into_iter().map(|(op, _)| op).collect() }.to_string();
    let listed = crate::nft::load_and_list(&script).unwrap_or_else(|error| panic!("{error}\n{script}"));
    assert_eq!(
        lines(&listed),
        lines(
            "table ip t {\n chain b {\n type filter hook prerouting priority dstnat - 10; policy drop;\n }\n}"
        )
    );
}

#[test]
fn ct_original_prints_as_nft_1_1_parses_it() {
    let learn = Statement::VerdictMap {
        key: [Field::OriginalDestinationAddr, Field::L4Proto, Field::OriginalDestinationPort]
            .into_iter()
            .collect(),
        map: SetName::literal("learn"),
    };
    assert_eq!(
        learn.text(Family::Ip6).to_string(),
        "ct original ip6 daddr . meta l4proto . ct original proto-dst vmap @learn"
    );
}

/// The word of a statement. A new [`Statement`] or [`Value`] does not compile until it stands here.
fn word(statement: &Statement) -> &'static str {
    match statement {
        Statement::Compare(_, Value::Prefix(..)) => "prefix",
        Statement::Compare(_, Value::L4Proto(_)) => "l4proto",
        Statement::Compare(_, Value::InputInterface { .. }) => "iifname",
        Statement::Compare(_, Value::FibLocal(_)) => "fib",
        Statement::Compare(_, Value::MarkBits(_)) => "mark",
        Statement::CtStateNew => "ct state",
        Statement::CtStatus(CtStatus::Dnat) => "ct status",
        Statement::InSet { .. } => "in set",
        Statement::VerdictMap { .. } => "vmap",
        Statement::SetMarkBits(_) => "set mark",
        Statement::FlipMarkBits(_) => "flip mark",
        Statement::Dnat { .. } => "dnat",
        Statement::Masquerade => "masquerade",
        Statement::Reject(_) => "reject",
        Statement::Update { .. } => "update",
        Statement::Counter => "counter",
        Statement::Verdict(_) => "verdict",
    }
}

#[test]
fn the_worked_example_has_each_word() {
    let ruleset = worked_example(Family::Ip);
    let chains = ruleset.tables.values().flat_map(|table| table.chains.values());
    let words: std::collections::BTreeSet<_> =
        chains.flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements).map(word).collect();
    assert_eq!(words.len(), 17, "{words:?}");
}

#[test]
fn comparisons_print_both_ways() {
    let name = |name: &str, wildcard| Value::InputInterface { name: name.into(), wildcard };
    for (value, eq, ne) in [
        (
            Value::Prefix(AddrKind::Source, addr("10.0.0.0"), 8),
            "ip saddr 10.0.0.0/8",
            "ip saddr != 10.0.0.0/8",
        ),
        (
            Value::Prefix(AddrKind::Destination, addr("fd00::1"), 128),
            "ip6 daddr fd00::1",
            "ip6 daddr != fd00::1",
        ),
        (Value::L4Proto(L4Proto::Sctp), "meta l4proto sctp", "meta l4proto != sctp"),
        (name("cni", true), "iifname \"cni*\"", "iifname != \"cni*\""),
        (name("cni*", false), "iifname \"cni\\*\"", "iifname != \"cni\\*\""),
        (Value::FibLocal(AddrKind::Source), "fib saddr type local", "fib saddr type != local"),
        (
            Value::MarkBits(0x4000),
            "meta mark & 0x00004000 == 0x00004000",
            "meta mark & 0x00004000 != 0x00004000",
        ),
    ] {
        let text = |op| Statement::Compare(op, value.clone()).text(Family::Ip).to_string();
        assert_eq!([text(Compare::Eq), text(Compare::Ne)], [eq, ne]);
    }
}

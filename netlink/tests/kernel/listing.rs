//! Owns: what nft lists of our tables is what it lists of the same table loaded by `nft -f`, and what we read of
//! that one is the same too. Knows nothing of refusals.

use crate::ruleset::{product, program, table_id};
use netlink::{Nft, testns};
use nft_ir::{Family, Ruleset, Statement, Table};
use std::collections::BTreeMap;

fn list(family: Family) -> String {
    let listed =
        testns::command("nft", &["-s", "list", "table", &family.to_string(), "proxier"], "").unwrap();
    // Elements of hash sets come in an order that differs each time.
    let mut lines: Vec<&str> = Vec::new();
    let mut elements: Vec<&str> = Vec::new();
    for line in listed.lines() {
        let element = line.trim().trim_start_matches("elements = {").trim_end_matches([',', '}', ' ']).trim();
        if line.contains("elements = {") || (line.starts_with("\t\t\t") && !line.trim().is_empty()) {
            elements.push(element);
        } else {
            elements.sort_unstable();
            lines.append(&mut elements);
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// Without the statements that nft 1.0.6 cannot load from text, though it lists them: `ct original proto-dst` in a
/// concatenation, and for IPv6 an update of a map.
fn loadable(family: Family) -> Table {
    let mut table = product(family);
    for chain in table.chains.values_mut() {
        chain.rules.retain(|rule| {
            !rule.statements.iter().any(|statement| match statement {
                Statement::VerdictMap { map, .. } => map.as_str() == "learn",
                Statement::Update { .. } => family == Family::Ip6,
                _ => false,
            })
        });
    }
    table.sets.retain(|name, _| name.as_str() != "learn");
    table
}

#[test]
fn nft_lists_our_tables_as_if_it_had_loaded_them() {
    for family in Family::ALL {
        let table = loadable(family);
        let (listed, raw) = testns::run(|| {
            let mut nft = Nft::open().unwrap();
            nft.commit(&program(&table_id(family), &table), None).unwrap();
            let raw = testns::command("nft", &["list", "table", &family.to_string(), "proxier"], "").unwrap();
            (list(family), raw)
        });
        testns::run(|| {
            testns::command("nft", &["-f", "-"], &raw).unwrap_or_else(|error| panic!("{error}\n{raw}"));
            assert_eq!(list(family), listed);
            let dump = Nft::open().unwrap().dump_table(&table_id(family)).unwrap().unwrap();
            assert_eq!(dump.foreign, []);
            assert_eq!(dump.table, table);
        });
    }
}

#[test]
fn our_text_our_messages_and_nft_agree() {
    for family in Family::ALL {
        let id = table_id(family);
        let table = loadable(family);
        let transaction = program(&id, &table);
        let by_netlink = testns::run(|| {
            Nft::open().unwrap().commit(&transaction, None).unwrap();
            list(family)
        });
        let ruleset = Ruleset { tables: BTreeMap::from([(id.clone(), table.clone())]) };
        for text in [ruleset.to_string(), transaction.to_string()] {
            testns::run(|| {
                testns::command("nft", &["-f", "-"], &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_eq!(list(family), by_netlink);
                let dump = Nft::open().unwrap().dump_table(&id).unwrap().unwrap();
                assert_eq!(dump.foreign, []);
                assert_eq!(dump.table, table);
            });
        }
    }
}

#[test]
fn the_listing_reads_well() {
    for family in Family::ALL {
        let listed = testns::run(|| {
            let mut nft = Nft::open().unwrap();
            nft.commit(&program(&table_id(family), &product(family)), None).unwrap();
            list(family)
        });
        let ip = family.to_string();
        for line in [
            format!("typeof {ip} daddr . meta l4proto . th dport : verdict"),
            format!("typeof {ip} daddr . meta l4proto . th dport . numgen random mod 65536 : {ip} daddr . th dport"),
            format!("typeof {ip} daddr . meta l4proto . th dport . {ip} saddr"),
            format!("typeof ct original {ip} daddr . meta l4proto . ct original proto-dst : verdict"),
            "comment \"kube services\"".into(),
            "comment \"slots\"".into(),
            "flags dynamic,timeout".into(),
            "timeout 3h".into(),
            format!("dnat {ip} to {ip} daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints"),
            "meta mark set meta mark | 0x00004000".into(),
            "meta mark & 0x00004000 == 0x00004000 meta mark set meta mark ^ 0x00004000 masquerade fully-random"
                .into(),
            "reject with tcp reset".into(),
            "reject".into(),
            format!("update @affinity-1 {{ {ip} saddr : {ip} daddr . th dport }}"),
            format!(
                "ct status dnat ct original {ip} daddr . meta l4proto . ct original proto-dst vmap @learn"
            ),
            "iifname \"cni0\" counter return".into(),
            "iifname != \"veth*\" accept".into(),
        ] {
            assert!(listed.lines().any(|it| it.trim() == line), "{line}\nin\n{listed}");
        }
    }
}

//! Owns the removal of whole tables, and of kube-proxy's rules from the tables that iptables-nft keeps. Knows nothing of
//! which rules those are.

use super::kube_proxy::{self, RuleView, TABLES};
use super::{Failure, stays};
use netlink::{Error, ForeignTable, Nft, Removal};
use nft_ir::{ChainName, Family, Op, TableId, TableName, Transaction};
use tracing::info;

/// How often a removal is tried anew when others write at the same time.
const TRIES: usize = 10;

/// Deletes tables of this name of both families, each for itself, as far as they are there.
pub(super) fn delete_tables(nft: &mut Nft, name: &'static str, failures: &mut Vec<Failure>) {
    let tables = match nft.tables() {
        Ok(tables) => tables,
        Err(error) => return failures.push(Failure::new("the list of tables", error)),
    };
    for table in tables.into_iter().filter(|table| table.name.as_str() == name) {
        let what = format!("table {} {name}", table.family);
        match nft.commit(&Transaction { ops: vec![Op::DeleteTable { table }] }, None) {
            Ok(_) => info!("removed {what}"),
            Err(error) => failures.push(Failure::new(what, error)),
        }
    }
}

/// Takes kube-proxy's rules and chains out of the tables of iptables-nft.
pub(super) fn remove_rules(nft: &mut Nft, failures: &mut Vec<Failure>) {
    for family in Family::ALL {
        for name in TABLES {
            let table = TableId { family, name: TableName::literal(name) };
            if let Err(error) = remove_rules_of(nft, &table, failures) {
                failures.push(Failure::new(format!("table {family} {name}"), error));
            }
        }
    }
}

fn remove_rules_of(nft: &mut Nft, table: &TableId, failures: &mut Vec<Failure>) -> Result<(), Error> {
    let mut tries = 0;
    loop {
        let kernel = nft.foreign_table(table)?;
        let (removal, in_use) = removal(table, &kernel);
        let outcome = if removal.is_empty() {
            Ok(kernel.generation)
        } else {
            nft.remove(&removal, Some(kernel.generation))
        };
        match outcome {
            Err(Error::Stale { .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(error),
            Ok(_) => {
                if !removal.is_empty() {
                    let (rules, chains) = (removal.rules.len(), removal.chains.len());
                    info!(
                        "removed kube-proxy's {rules} rules and {chains} chains of table {} {}",
                        table.family, table.name
                    );
                }
                failures.extend(in_use);
                return Ok(());
            }
        }
    }
}

fn removal(table: &TableId, kernel: &ForeignTable) -> (Removal, Vec<Failure>) {
    let chains: Vec<&str> = kernel.chains.iter().map(ChainName::as_str).collect();
    let rules: Vec<RuleView<'_>> = kernel
        .rules
        .iter()
        .map(|rule| RuleView {
            chain: rule.chain.as_str(),
            comment: rule.comment.as_deref(),
            targets: rule.targets.iter().map(ChainName::as_str).collect(),
        })
        .collect();
    let found = kube_proxy::find(table.name.as_str(), &chains, &rules);
    let of = |index: &usize| kernel.rules.get(*index).map(|rule| (rule.chain.clone(), rule.handle));
    let in_use = found
        .in_use
        .iter()
        .map(|(chain, by)| stays(&format!("table {} {}", table.family, table.name), chain, by));
    let in_use = in_use.collect();
    let removal = Removal {
        table: table.clone(),
        rules: found.rules.iter().filter_map(of).collect(),
        chains: found.chains.into_iter().map(ChainName::from_kernel).collect(),
    };
    (removal, in_use)
}

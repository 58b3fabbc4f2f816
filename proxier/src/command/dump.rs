//! Owns `proxier dump`: prints what the kernel holds in our tables, as nft would. Knows nothing of what should be there.

use clap::Args;
use netlink::{Nft, TableDump};
use nft_ir::{Family, Ruleset};
use proxier_core::ruleset::table_id;
use std::io::Write as _;

/// Flags of `proxier dump`.
#[derive(Debug, Clone, Args)]
pub struct DumpFlags {
    /// Print only this family: `ip` or `ip6`
    #[arg(long, value_parser = family)]
    pub family: Option<Family>,
}

/// Why nothing could be printed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says what its source says")]
pub enum DumpError {
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    #[error("no table \"proxier\" in this network namespace: no proxier has written here")]
    NoTable,
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

fn family(text: &str) -> Result<Family, String> {
    Family::ALL
        .into_iter()
        .find(|family| family.to_string() == text)
        .ok_or_else(|| format!("{text:?} is neither \"ip\" nor \"ip6\""))
}

/// Prints our tables. What somebody else put into them follows as a comment each.
///
/// # Errors
/// [`DumpError`].
pub fn run(flags: &DumpFlags) -> Result<(), DumpError> {
    let mut nft = Nft::open()?;
    let mut ruleset = Ruleset::default();
    let mut foreign = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| flags.family.is_none_or(|only| only == *family)) {
        if let Some(TableDump { table, foreign: theirs }) = nft.dump_table(&table_id(family))? {
            ruleset.tables.insert(table_id(family), table);
            foreign.extend(theirs.into_iter().map(|what| format!("# {family}: not ours: {what}\n")));
        }
    }
    if ruleset.tables.is_empty() {
        return Err(DumpError::NoTable);
    }
    let mut text = ruleset.to_string();
    text.extend(foreign);
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

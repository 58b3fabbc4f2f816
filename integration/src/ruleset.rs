//! Owns the look at a host's nftables ruleset from outside of the proxier, and the edits that others make, by Debian's
//! `nft`. Knows nothing of what should be there.

use crate::Host;
use crate::wait;
use netlink::{Nft, TableDump};
use nft_ir::Family;
use proxier_core::ruleset::table_id;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long after a foreign edit the ruleset may need to be whole again. The repair itself takes milliseconds; the rest is
/// for machines that run other tests as well.
pub const REPAIR: Duration = Duration::from_secs(5);

/// What the kernel holds in the proxier's tables, with what somebody else put there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ours {
    /// By family, as far as there is a table.
    pub tables: Vec<(Family, TableDump)>,
    /// The generation that this is of, or an older one.
    pub generation: u32,
}

impl Ours {
    /// Reads the host's kernel.
    #[track_caller]
    pub fn of(host: &Host) -> Self {
        match host.run(read) {
            Ok(ours) => ours,
            Err(error) => panic!("{}: {error}", host.name()),
        }
    }

    /// Whether there is anything that nobody but a stranger can have put there.
    pub fn is_clean(&self) -> bool {
        self.tables.iter().all(|(_, dump)| dump.foreign.is_empty())
    }

    /// Number of elements of a set, over both families.
    pub fn count(&self, set: &str) -> usize {
        self.tables
            .iter()
            .flat_map(|(_, dump)| &dump.table.sets)
            .filter(|(name, _)| name.as_str() == set)
            .map(|(_, set)| set.elements.len())
            .sum()
    }

    /// Whether the tables are the same, whatever happened in between.
    pub fn same_tables(&self, other: &Self) -> bool {
        self.tables == other.tables
    }
}

fn read() -> Result<Ours, netlink::Error> {
    let mut nft = Nft::open()?;
    let generation = nft.generation()?.0;
    let mut tables = Vec::new();
    for family in Family::ALL {
        tables.extend(nft.dump_table(&table_id(family))?.map(|dump| (family, dump)));
    }
    Ok(Ours { tables, generation })
}

/// The generation of the host's ruleset: every commit of anybody makes a new one.
#[track_caller]
pub fn generation(host: &Host) -> u32 {
    match host.run(|| Nft::open()?.generation()) {
        Ok(generation) => generation.0,
        Err(error) => panic!("{}: {error}", host.name()),
    }
}

/// Asserts that nobody writes for a while. Time has to pass for that; it is the only way to see nothing happen.
#[track_caller]
pub fn stays_unwritten(host: &Host, since: u32, how_long: Duration) {
    let written = wait::try_until(how_long, || {
        let now = generation(host);
        if now == since { Err("nothing new") } else { Ok(now) }
    });
    assert!(written.is_err(), "{}: somebody wrote after generation {since}: {written:?}", host.name());
}

/// Runs Debian's `nft -f -` in the host's namespace, and returns what it printed. Panics if it refuses.
#[track_caller]
pub fn nft(host: &Host, text: &str) -> String {
    match host.run(|| run_nft(text)) {
        Ok(printed) => printed,
        Err(error) => panic!("{}: nft: {error}\n{text}", host.name()),
    }
}

fn run_nft(text: &str) -> Result<String, String> {
    let mut child = command()
        .args(["-a", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{error}; install the package nftables"))?;
    // Closed at the end of this statement, which is the end of nft's input.
    let sent = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if let Some(Err(error)) = sent {
        return Err(error.to_string());
    }
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// `nft`, found where Debian has it also without root's path.
pub fn command() -> Command {
    let mut command = Command::new("nft");
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    command
}

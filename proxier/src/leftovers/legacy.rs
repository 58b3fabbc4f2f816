//! Owns the removal of kube-proxy's rules from the tables of the older iptables, which netlink does not reach: through its
//! own programs, and only where such tables are in use. Knows nothing of which rules those are.

use super::kube_proxy::{self, RuleView, TABLES};
use super::{Failure, stays};
use std::io::Write as _;
use std::process::{Command, Stdio};
use tracing::{info, warn};

/// A family of the older iptables.
struct Legacy {
    /// Where the kernel lists the tables that are in use in this network namespace. Asking the programs would make tables.
    names: &'static str,
    /// `NAME-save` and `NAME-restore`.
    program: &'static str,
}

const LEGACY: [Legacy; 2] = [
    Legacy { names: "/proc/thread-self/net/ip_tables_names", program: "iptables-legacy" },
    Legacy { names: "/proc/thread-self/net/ip6_tables_names", program: "ip6tables-legacy" },
];

/// Takes kube-proxy's rules and chains out of the tables of the older iptables.
pub(super) fn remove_rules(failures: &mut Vec<Failure>) {
    for Legacy { names, program } in LEGACY {
        // The file is there only where the kernel has that iptables at all.
        let Ok(in_use) = std::fs::read_to_string(names) else { continue };
        for table in TABLES.into_iter().filter(|table| in_use.lines().any(|line| line == *table)) {
            if let Err(reason) = remove_rules_of(program, table, failures) {
                failures.push(Failure::new(format!("{program}, table {table}"), reason));
            }
        }
    }
}

fn remove_rules_of(program: &str, table: &str, failures: &mut Vec<Failure>) -> Result<(), String> {
    let saved = match run(&format!("{program}-save"), &["-t", table], "") {
        Ok(saved) => saved,
        Err(Fault::Missing) => {
            warn!(
                "table {table} is in use, and there is no {program}-save to see whether kube-proxy left rules in it"
            );
            return Ok(());
        }
        Err(Fault::Failed(reason)) => return Err(reason),
    };
    let (changes, in_use) = changes(table, &saved);
    failures.extend(in_use.iter().map(|(chain, by)| stays(&format!("{program}, table {table}"), chain, by)));
    if changes.is_empty() {
        return Ok(());
    }
    match run(&format!("{program}-restore"), &["--noflush", "-w", "5"], &changes) {
        Ok(_) => {
            info!("removed kube-proxy's rules and chains of {program}, table {table}");
            Ok(())
        }
        Err(Fault::Missing) => Err(format!("there is no {program}-restore")),
        Err(Fault::Failed(reason)) => Err(reason),
    }
}

/// What `iptables-restore --noflush` is to be given, and chains of kube-proxy's that others use.
fn changes(table: &str, saved: &str) -> (String, Vec<(String, String)>) {
    let chains: Vec<&str> =
        saved.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next()).collect();
    let added: Vec<(&str, Vec<String>)> =
        saved.lines().filter_map(|line| line.strip_prefix("-A ")).map(|rule| (rule, words(rule))).collect();
    let rules: Vec<RuleView<'_>> = added.iter().map(|(_, words)| view(words)).collect();
    let found = kube_proxy::find(table, &chains, &rules);
    let in_use = found.in_use.iter().map(|(chain, by)| ((*chain).to_owned(), (*by).to_owned())).collect();
    if found.rules.is_empty() && found.chains.is_empty() {
        return (String::new(), in_use);
    }
    let mut text = format!("*{table}\n");
    // To name a chain that is there empties it.
    text.extend(found.chains.iter().map(|chain| format!(":{chain} - [0:0]\n")));
    text.extend(
        found.rules.iter().filter_map(|index| added.get(*index)).map(|(rule, _)| format!("-D {rule}\n")),
    );
    text.extend(found.chains.iter().map(|chain| format!("-X {chain}\n")));
    text.push_str("COMMIT\n");
    (text, in_use)
}

/// What counts of a rule: `CHAIN ... --comment TEXT ... -j TARGET`.
fn view(words: &[String]) -> RuleView<'_> {
    let after = |options: &[&str]| {
        let at = words.iter().position(|word| options.contains(&word.as_str()))?;
        words.get(at + 1).map(String::as_str)
    };
    RuleView {
        chain: words.first().map_or("", String::as_str),
        comment: after(&["--comment"]),
        targets: after(&["-j", "-g"]).into_iter().collect(),
    }
}

/// The words of a line as iptables-save writes it: those with spaces in double quotes, with backslashes before quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut begun) = (false, false);
    let mut chars = line.chars();
    while let Some(next) = chars.next() {
        match next {
            '"' => (quoted, begun) = (!quoted, true),
            '\\' => word.extend(chars.next()),
            ' ' if !quoted => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            other => word.push(other),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    words
}

enum Fault {
    /// There is no such program.
    Missing,
    /// What it said.
    Failed(String),
}

fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, Fault> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Fault::Missing,
        _ => Fault::Failed(format!("{program}: {error}")),
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    let mut child = Command::new(found.ok_or(Fault::Missing)?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // It says why on standard error if it does not read all; neither program writes before it has read.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    match written {
        Some(Err(error)) if output.status.success() => Err(Fault::Failed(format!("{program}: {error}"))),
        _ if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Err(Fault::Failed(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_undo_what_kube_proxy_added() {
        let saved = "\
*nat
:PREROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABC - [0:0]
:KUBE-MARK-DROP - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A KUBE-SERVICES -d 10.96.0.1/32 -m comment --comment \"a \\\"b\\\" c\" -j KUBE-SVC-ABC
COMMIT
";
        let (changes, in_use) = changes("nat", saved);
        assert!(in_use.is_empty());
        assert_eq!(
            changes,
            "\
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABC - [0:0]
-D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-X KUBE-SERVICES
-X KUBE-SVC-ABC
COMMIT
"
        );
        assert_eq!(super::changes("nat", "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n").0, "");
    }

    #[test]
    fn words_are_those_of_iptables_save() {
        assert_eq!(
            words(r#"A -m comment --comment "a \"b\" c" -j X"#),
            ["A", "-m", "comment", "--comment", "a \"b\" c", "-j", "X"]
        );
        assert_eq!(words(r#"--comment """#), ["--comment", ""]);
    }
}

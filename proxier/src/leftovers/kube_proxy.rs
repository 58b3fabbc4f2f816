//! Owns which rules and chains of an iptables table are kube-proxy's: its iptables mode's, and what its IPVS mode keeps
//! there. Knows nothing of how a table is read or written.

use std::collections::BTreeSet;

/// The tables that kube-proxy writes into.
pub(super) const TABLES: [&str; 3] = ["filter", "nat", "mangle"];

/// A rule as far as it is looked at.
#[derive(Debug, Clone)]
pub(super) struct RuleView<'a> {
    /// The chain that it is in.
    pub(super) chain: &'a str,
    /// Its comment.
    pub(super) comment: Option<&'a str>,
    /// Chains that it jumps or goes to.
    pub(super) targets: Vec<&'a str>,
}

/// What is kube-proxy's in a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// Rules in chains of others, by their place in what was given.
    pub(super) rules: Vec<usize>,
    /// Chains, with all that is in them.
    pub(super) chains: Vec<&'a str>,
    /// Chains that rules of others refer to; they stay as they are: the chain, and who refers to it.
    pub(super) in_use: Vec<(&'a str, &'a str)>,
}

/// A rule that kube-proxy puts into a chain of the system.
struct Jump {
    table: &'static str,
    from: &'static [&'static str],
    to: &'static str,
    comment: &'static str,
}

const fn jump(
    table: &'static str,
    from: &'static [&'static str],
    to: &'static str,
    comment: &'static str,
) -> Jump {
    Jump { table, from, to, comment }
}

const JUMPS: [Jump; 13] = [
    jump(
        "filter",
        &["INPUT", "FORWARD"],
        "KUBE-EXTERNAL-SERVICES",
        "kubernetes externally-visible service portals",
    ),
    jump("filter", &["INPUT"], "KUBE-NODEPORTS", "kubernetes health check service ports"),
    jump("filter", &["FORWARD", "OUTPUT"], "KUBE-SERVICES", "kubernetes service portals"),
    jump("filter", &["FORWARD"], "KUBE-FORWARD", "kubernetes forwarding rules"),
    jump(
        "filter",
        &["INPUT", "OUTPUT", "FORWARD"],
        "KUBE-PROXY-FIREWALL",
        "kubernetes load balancer firewall",
    ),
    jump("nat", &["OUTPUT", "PREROUTING"], "KUBE-SERVICES", "kubernetes service portals"),
    jump("nat", &["POSTROUTING"], "KUBE-POSTROUTING", "kubernetes postrouting rules"),
    // Those of the IPVS mode that differ.
    jump("filter", &["INPUT"], "KUBE-NODE-PORT", "kubernetes health check rules"),
    jump("filter", &["INPUT", "FORWARD"], "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"),
    jump("filter", &["INPUT"], "KUBE-IPVS-FILTER", "kubernetes ipvs access filter"),
    jump("filter", &["OUTPUT"], "KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter"),
    jump("filter", &["FORWARD"], "KUBE-SOURCE-RANGES-FIREWALL", "kube-proxy firewall rules"),
    jump("nat", &["PREROUTING", "OUTPUT"], "KUBE-LOAD-BALANCER", "kubernetes service portals"),
];

/// Chains by table. kubelet's (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-MARK-DROP`) are not among them.
const CHAINS: [(&str, &[&str]); 3] = [
    (
        "filter",
        &[
            "KUBE-SERVICES",
            "KUBE-EXTERNAL-SERVICES",
            "KUBE-FORWARD",
            "KUBE-NODEPORTS",
            "KUBE-PROXY-FIREWALL",
            "KUBE-PROXY-CANARY",
            "KUBE-NODE-PORT",
            "KUBE-SOURCE-RANGES-FIREWALL",
            "KUBE-IPVS-FILTER",
            "KUBE-IPVS-OUT-FILTER",
        ],
    ),
    (
        "nat",
        &[
            "KUBE-SERVICES",
            "KUBE-NODEPORTS",
            "KUBE-POSTROUTING",
            "KUBE-MARK-MASQ",
            "KUBE-PROXY-CANARY",
            "KUBE-NODE-PORT",
            "KUBE-LOAD-BALANCER",
        ],
    ),
    ("mangle", &["KUBE-PROXY-CANARY"]),
];

/// Beginnings of the names of the chains that each Service has in `nat`.
const OF_SERVICES: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-"];

/// Finds what is kube-proxy's among the chains and rules of a table.
pub(super) fn find<'a>(table: &str, chains: &[&'a str], rules: &[RuleView<'a>]) -> Found<'a> {
    let mut going: BTreeSet<&str> = chains.iter().copied().filter(|chain| is_chain(table, chain)).collect();
    let mut found = Found::default();
    let mut staying: Vec<&RuleView<'_>> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        if going.contains(rule.chain) {
            continue;
        }
        if is_jump(table, rule) { found.rules.push(index) } else { staying.push(rule) }
    }
    // A chain that somebody else uses stays whole, and then what its own rules refer to does as well.
    while let Some(rule) = staying.pop() {
        for target in &rule.targets {
            if going.remove(target) {
                found.in_use.push((target, rule.chain));
                staying.extend(rules.iter().filter(|rule| rule.chain == *target));
            }
        }
    }
    found.chains = going.into_iter().collect();
    found
}

fn is_chain(table: &str, chain: &str) -> bool {
    CHAINS.iter().any(|(of, names)| *of == table && names.contains(&chain))
        || table == "nat" && OF_SERVICES.iter().any(|prefix| chain.starts_with(prefix))
}

fn is_jump(table: &str, rule: &RuleView<'_>) -> bool {
    JUMPS.iter().any(|jump| {
        jump.table == table
            && jump.from.contains(&rule.chain)
            && rule.targets == [jump.to]
            && rule.comment == Some(jump.comment)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule<'a>(chain: &'a str, comment: Option<&'a str>, targets: &[&'a str]) -> RuleView<'a> {
        RuleView { chain, comment, targets: targets.to_vec() }
    }

    #[test]
    fn only_kube_proxys_is_found() {
        let portals = Some("kubernetes service portals");
        let chains =
            ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC-A", "KUBE-MARK-DROP", "KUBE-KUBELET-CANARY", "DOCKER"];
        let rules = [
            rule("PREROUTING", portals, &["KUBE-SERVICES"]),
            rule("PREROUTING", None, &["DOCKER"]),
            rule("KUBE-SERVICES", None, &["KUBE-SVC-A"]),
            rule("DOCKER", portals, &["DOCKER"]),
        ];
        let found = find("nat", &chains, &rules);
        let expected = Found { rules: vec![0], chains: vec!["KUBE-SERVICES", "KUBE-SVC-A"], in_use: vec![] };
        assert_eq!(found, expected);
        assert_eq!(find("mangle", &chains, &[]), Found::default());
    }

    #[test]
    fn a_chain_that_others_use_stays_with_all_that_it_refers_to() {
        let chains = ["KUBE-SERVICES", "KUBE-SVC-A", "KUBE-SEP-A", "KUBE-MARK-MASQ", "CNI-HOSTPORT"];
        let rules = [
            rule("CNI-HOSTPORT", None, &["KUBE-SVC-A"]),
            rule("KUBE-SERVICES", None, &["KUBE-SVC-A"]),
            rule("KUBE-SVC-A", None, &["KUBE-SEP-A"]),
        ];
        let found = find("nat", &chains, &rules);
        assert_eq!(found.chains, ["KUBE-MARK-MASQ", "KUBE-SERVICES"]);
        assert_eq!(found.in_use, [("KUBE-SVC-A", "CNI-HOSTPORT"), ("KUBE-SEP-A", "KUBE-SVC-A")]);
    }

    #[test]
    fn a_jump_with_another_comment_is_somebody_elses_and_keeps_its_chain() {
        let found =
            find("nat", &["OUTPUT", "KUBE-SERVICES"], &[rule("OUTPUT", Some("mine"), &["KUBE-SERVICES"])]);
        assert_eq!((found.rules.len(), found.chains.len()), (0, 0));
        assert_eq!(found.in_use, [("KUBE-SERVICES", "OUTPUT")]);
    }
}

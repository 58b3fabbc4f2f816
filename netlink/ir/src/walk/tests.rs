//! Owns the tests of the walk: who dials what, and what becomes of it.

mod node;

use super::*;
use crate::apply::Errno;
use crate::diff::diff;
use crate::{
    BaseChain, Chain, ChainType, Hook, L4Proto, Priority, Rule, Statement, Table, TableName, Verdict,
};
use node::{MARK, OTHER_MARK, addr, ruleset, to};

fn world(family: Family) -> World {
    World::new([addr(family, "node")])
}

/// A TCP packet `from` someone of the scene (by the interface that they are behind) to `name:port`.
fn dial(family: Family, from: &str, destination: &str) -> Packet {
    let (source, destination) = (to(family, from), to(family, destination));
    let packet = match from {
        "node" => Packet::outgoing(source, destination),
        "pod-a" | "pod-b" => Packet::incoming("cni7", source, destination),
        _ => Packet::incoming("eth0", source, destination),
    };
    Packet { mark: OTHER_MARK, ..packet }
}

fn fates(family: Family, packet: &Packet) -> Vec<Fate> {
    walk(&ruleset(family), &world(family), packet).unwrap()
}

fn said(family: Family, packet: &Packet) -> Vec<String> {
    let fates = fates(family, packet);
    for fate in &fates {
        assert_eq!(fate.mark_left & OTHER_MARK, OTHER_MARK, "{fate}: the stranger's mark");
        if matches!(fate.outcome, Outcome::Delivered { .. }) {
            assert_eq!(fate.mark_left & MARK, 0, "{fate}: our mark");
        }
    }
    fates.iter().map(ToString::to_string).collect()
}

/// Names of the scene put in for addresses.
fn expected(family: Family, text: &str) -> String {
    let mut words = text.split(' ').map(|word| match word.trim_end_matches(',').split_once(":8080") {
        Some((name, _)) => {
            let comma = if word.ends_with(',') { "," } else { "" };
            format!("{}{comma}", to(family, &format!("{name}:8080")))
        }
        None => word.to_owned(),
    });
    let first = words.next().unwrap_or_default();
    words.fold(first, |text, word| text + " " + &word)
}

#[test]
fn what_becomes_of_whom() {
    let either = &["delivered to pod-a:8080", "delivered to pod-b:8080"][..];
    let either_masqueraded =
        &["delivered to pod-a:8080, masqueraded", "delivered to pod-b:8080, masqueraded"][..];
    let hairpin = &["delivered to pod-a:8080, masqueraded", "delivered to pod-b:8080"][..];
    let local = &["delivered to pod-a:8080"][..];
    let reset = &["rejected with a TCP reset"][..];
    let dropped = &["dropped"][..];
    let rows: &[(&str, &str, &[&str])] = &[
        // ClusterIP
        ("pod-b", "web:80", either),
        ("pod-a", "web:80", hairpin),
        ("node", "web:80", either_masqueraded),
        ("outside", "web:80", either_masqueraded),
        // ClusterIP, a port that no Service has; an address that no Service has
        ("pod-b", "web:81", reset),
        ("node", "web:81", reset),
        ("pod-b", "unused:80", dropped),
        ("node", "unused:80", dropped),
        // no endpoints
        ("pod-b", "empty:80", reset),
        ("node", "empty:80", reset),
        ("outside", "empty:80", reset),
        // NodePort
        ("outside", "node:30080", either_masqueraded),
        ("pod-b", "node:30080", either_masqueraded),
        ("node", "node:30080", either_masqueraded),
        // external, policy Local: with a local endpoint, and without
        ("outside", "lb:80", local),
        ("pod-b", "lb:80", either),
        ("pod-a", "lb:80", hairpin),
        ("node", "lb:80", either_masqueraded),
        ("outside", "lb-remote:80", dropped),
        ("pod-b", "lb-remote:80", either),
        // source ranges
        ("friend", "guarded:80", either_masqueraded),
        ("outside", "guarded:80", dropped),
        // affinity: pod-b is known to have been on pod-b
        ("pod-b", "sticky:80", &["delivered to pod-b:8080"]),
        ("pod-a", "sticky:80", hairpin),
    ];
    for family in Family::ALL {
        for (from, destination, fates) in rows {
            let packet = dial(family, from, destination);
            let fates: Vec<_> = fates.iter().map(|text| expected(family, text)).collect();
            assert_eq!(said(family, &packet), fates, "{family}: {from} dials {destination}");
        }
    }
}

#[test]
fn what_no_rule_is_about_passes() {
    for family in Family::ALL {
        let loopback = dial(family, "node", "loopback:30080");
        assert_eq!(said(family, &loopback), [format!("delivered to {} on this host", loopback.destination)]);
        let through = dial(family, "outside", "friend:22");
        assert_eq!(said(family, &through), [format!("delivered to {}", through.destination)]);
        let udp = dial(family, "outside", "node:30080").proto(L4Proto::Udp);
        assert_eq!(said(family, &udp), [format!("delivered to {} on this host", udp.destination)]);
    }
}

#[test]
fn other_protocols_are_rejected_by_icmp() {
    for family in Family::ALL {
        let packet = dial(family, "pod-b", "web:80").proto(L4Proto::Udp);
        assert_eq!(said(family, &packet), ["rejected with port unreachable"]);
    }
}

#[test]
fn an_established_flow_keeps_its_translation() {
    for family in Family::ALL {
        let flow = |from, destination, translated_to, masqueraded| Packet {
            flow: Flow::Established { translated_to, masqueraded },
            ..dial(family, from, destination)
        };
        // Of a Service that has no such endpoint, and no endpoint at all.
        let pod = to(family, "friend:8080");
        for destination in ["web:80", "empty:80", "unused:80"] {
            let packet = flow("pod-b", destination, Some(pod), false);
            assert_eq!(said(family, &packet), [format!("delivered to {pod}")]);
        }
        let packet = flow("outside", "guarded:80", Some(pod), true);
        assert_eq!(said(family, &packet), [format!("delivered to {pod}, masqueraded")]);
    }
}

#[test]
fn draws_tell_how_likely_a_fate_is() {
    let fates = fates(Family::Ip, &dial(Family::Ip, "pod-b", "web:80"));
    let draws: Vec<_> = fates.iter().map(|fate| &fate.draws[..]).collect();
    assert_eq!(draws, [&[Draw { number: 0, of: 2 }][..], &[Draw { number: 1, of: 2 }]]);
}

#[test]
fn affinity_is_learnt_after_translation() {
    let family = Family::Ip;
    let learnt = |from: &str| -> Vec<(String, bool)> {
        let fates = fates(family, &dial(family, from, "sticky:80"));
        let learnt = fates.iter().flat_map(|fate| &fate.learnt);
        learnt.map(|learnt| (Act::Learn(learnt.clone()).to_string(), learnt.known)).collect()
    };
    assert_eq!(
        learnt("pod-a"),
        [
            ("learn @affinity-1 10.0.0.1 : 10.0.0.1 . 8080".to_owned(), false),
            ("learn @affinity-1 10.0.0.1 : 10.0.1.2 . 8080".to_owned(), false),
        ]
    );
    assert_eq!(learnt("pod-b"), [("refresh @affinity-1 10.0.1.2 : 10.0.1.2 . 8080".to_owned(), true)]);
}

#[test]
fn the_trail_names_each_rule_and_what_it_found() {
    let fates = fates(Family::Ip, &dial(Family::Ip, "outside", "node:30080"));
    let trail: Vec<String> = fates[1].trail.iter().map(ToString::to_string).collect();
    assert_eq!(
        trail,
        [
            "prerouting: ip proxier nat-prerouting rule 0: jump dispatch",
            "prerouting: ip proxier dispatch rule 2: @node-ports has tcp . 30080 : goto node-port-2, goto node-port-2",
            "prerouting: ip proxier node-port-2 rule 0: mark 0x0000c000",
            "prerouting: ip proxier node-port-2 rule 0: goto node-port-pick-2",
            "prerouting: ip proxier node-port-pick-2 rule 0: \
             @node-port-endpoints has tcp . 30080 . 1 : 10.0.1.2 . 8080, dnat to 10.0.1.2:8080",
            "postrouting: ip proxier nat-postrouting rule 1: mark 0x00008000",
            "postrouting: ip proxier nat-postrouting rule 1: masquerade",
        ]
    );
}

#[test]
fn an_endpoint_on_this_host_is_reached_through_input() {
    for family in Family::ALL {
        // A web server in the host's own namespace, on the node's address.
        let world = World::new(["node", "pod-a"].map(|name| addr(family, name)));
        let fates = walk(&ruleset(family), &world, &dial(family, "outside", "sticky:80")).unwrap();
        let pod = to(family, "pod-a:8080");
        assert_eq!(fates[0].outcome, Outcome::Delivered { to: pod, place: Place::Here });
        // Nobody translates the source of what stays here; learnt is it in the NAT chain of input.
        assert!(!fates[0].masqueraded);
        assert_eq!(fates[0].learnt.len(), 1);
        assert_eq!(fates[0].trail.iter().filter(|step| step.hook == Hook::Input).count(), 2);

        // From the host to itself: decided in output and postrouting, not asked again in prerouting and input.
        let fates = walk(&ruleset(family), &world, &dial(family, "node", "sticky:80")).unwrap();
        assert_eq!(fates[0].outcome, Outcome::Delivered { to: pod, place: Place::Here });
        assert!(fates[0].masqueraded);
        assert_eq!(fates[0].learnt.len(), 1);
        assert!(fates[0].trail.iter().all(|step| matches!(step.hook, Hook::Output | Hook::Postrouting)));
    }
}

#[test]
fn the_scene_is_one_that_the_kernel_takes() {
    for family in Family::ALL {
        let mut kernel = Ruleset::default();
        kernel.apply(&diff(&kernel, &ruleset(family)).now).unwrap();
        // But for what was learnt, nothing is left to do.
        assert!(diff(&kernel, &ruleset(family)).is_empty(), "{}", diff(&kernel, &ruleset(family)).now);
    }
}

/// A table of one base chain in forward, with these rules, and regular chains.
fn forward(policy: Verdict, rules: Vec<Rule>, regular: Vec<(&str, Vec<Rule>)>) -> Ruleset {
    let base =
        BaseChain { chain_type: ChainType::Filter, hook: Hook::Forward, priority: Priority(0), policy };
    let chains = regular
        .into_iter()
        .map(|(name, rules)| (ChainName::literal(name), Chain { base: None, rules }))
        .chain([(ChainName::literal("forward"), Chain { base: Some(base), rules })])
        .collect();
    let id = TableId { family: Family::Ip, name: TableName::literal("t") };
    Ruleset { tables: [(id, Table { chains, ..Table::default() })].into() }
}

fn verdict(verdict: Verdict) -> Rule {
    Rule::new([Statement::Verdict(verdict)])
}

fn mark(bits: u32) -> Rule {
    Rule::new([Statement::SetMarkBits(bits)])
}

#[test]
fn jumps_come_back_and_gotos_do_not() {
    let chain = ChainName::literal;
    let ruleset = forward(
        Verdict::Drop,
        vec![verdict(Verdict::Jump(chain("a"))), mark(8), verdict(Verdict::Accept)],
        vec![
            ("a", vec![mark(1), verdict(Verdict::Goto(chain("b"))), mark(2)]),
            ("b", vec![mark(4), verdict(Verdict::Return), mark(2)]),
        ],
    );
    let packet = Packet { mark: 0, ..dial(Family::Ip, "outside", "friend:22") };
    let fate = &walk(&ruleset, &world(Family::Ip), &packet).unwrap()[0];
    assert_eq!((fate.mark_left, fate.to_string()), (13, "delivered to 203.0.113.200:22".to_owned()));

    // After a goto from the base chain, the end is the end: the policy.
    let ruleset = forward(
        Verdict::Drop,
        vec![verdict(Verdict::Goto(chain("a"))), verdict(Verdict::Accept)],
        vec![("a", vec![mark(1)])],
    );
    let fate = &walk(&ruleset, &world(Family::Ip), &packet).unwrap()[0];
    assert_eq!(fate.outcome, Outcome::Dropped);
    assert_eq!(
        fate.trail.last().map(ToString::to_string).as_deref(),
        Some("forward: ip t forward policy: drop")
    );
}

#[test]
fn a_ruleset_that_leads_nowhere_is_an_error_and_no_kernel_takes_it() {
    let to_itself = verdict(Verdict::Goto(ChainName::literal("a")));
    let looping = forward(Verdict::Accept, vec![to_itself.clone()], vec![("a", vec![to_itself.clone()])]);
    let missing = forward(Verdict::Accept, vec![to_itself], vec![]);
    for (ruleset, what, errno) in [
        (looping, "rule 0 of chain ip t a: leads deeper than 15 chains", Errno::EMLINK),
        (missing, "rule 0 of chain ip t forward: leads to a chain that is not there", Errno::ENOENT),
    ] {
        let packet = dial(Family::Ip, "outside", "friend:22");
        let error = walk(&ruleset, &world(Family::Ip), &packet).unwrap_err();
        assert_eq!(error.to_string(), what);
        let refusal = Ruleset::default().apply(&diff(&Ruleset::default(), &ruleset).now).unwrap_err();
        assert_eq!(refusal.reason.errno(), Some(errno));
    }
}

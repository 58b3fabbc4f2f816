//! Owns the table of endpoint choices, and a property test against a slow, obvious model.

use super::*;
use crate::model::Endpoint;
use proptest::prelude::*;

const HERE: Place<'static> = Place { node: "here", zone: Some("zone-a") };

/// An endpoint in words: `PORT NODE STATE [z=ZONES] [n=NODES]`, where STATE is `ready`, `leaving` (terminating, serving),
/// `gone` (terminating, not serving) or `unready`.
fn endpoint(words: &str) -> (Destination, Endpoint) {
    let mut words = words.split(' ');
    let port: u16 = words.next().unwrap().parse().unwrap();
    let node = words.next().unwrap();
    let (ready, serving, terminating) = match words.next().unwrap() {
        "ready" => (true, true, false),
        "leaving" => (false, true, true),
        "gone" => (false, false, true),
        "unready" => (false, true, false),
        other => panic!("{other}"),
    };
    let (mut zone_hints, mut node_hints) = (Vec::new(), Vec::new());
    for hint in words {
        let (kind, names) = hint.split_once('=').unwrap();
        let list = if kind == "z" { &mut zone_hints } else { &mut node_hints };
        list.extend(names.split(',').map(Into::into));
    }
    let addr = "10.0.0.1".parse().unwrap();
    let endpoint = Endpoint {
        addr,
        ready,
        serving,
        terminating,
        node: Some(node.into()),
        zone_hints: zone_hints.into(),
        node_hints: node_hints.into(),
    };
    (Destination { addr, port: port.try_into().unwrap() }, endpoint)
}

fn ports(list: &[Destination]) -> Vec<u16> {
    list.iter().map(|d| d.port.get()).collect()
}

fn ask(demand: Demand, place: Place<'_>, endpoints: &[&str]) -> Choice {
    let parsed: Vec<_> = endpoints.iter().map(|words| endpoint(words)).collect();
    let candidates: Vec<Candidate<'_>> = parsed
        .iter()
        .map(|(destination, endpoint)| Candidate { destination: *destination, endpoint })
        .collect();
    choose(demand, &candidates, place)
}

const CLUSTER: Demand = Demand { cluster: true, local: false };
const LOCAL: Demand = Demand { cluster: false, local: true };
const BOTH: Demand = Demand { cluster: true, local: true };

#[test]
fn choices() {
    use Reason::{Empty, Ready, SameNode, SameZone, Terminating, Unused};
    type Row<'a> = (&'a str, Demand, &'a [&'a str], (&'a [u16], Reason), (&'a [u16], Reason), bool);
    let rows: &[Row<'_>] = &[
        ("no endpoints", BOTH, &[], (&[], Empty), (&[], Empty), false),
        ("all ready", CLUSTER, &["1 here ready", "2 there ready"], (&[1, 2], Ready), (&[], Unused), true),
        (
            "unready is never used",
            CLUSTER,
            &["1 here unready", "2 there ready"],
            (&[2], Ready),
            (&[], Unused),
            true,
        ),
        (
            "one ready keeps terminating ones out",
            BOTH,
            &["1 here leaving", "2 there ready"],
            (&[2], Ready),
            (&[1], Terminating),
            true,
        ),
        (
            "all terminating: those that serve",
            CLUSTER,
            &["1 here leaving", "2 there leaving", "3 there gone"],
            (&[1, 2], Terminating),
            (&[], Unused),
            true,
        ),
        ("terminating, not serving", BOTH, &["1 here gone"], (&[], Empty), (&[], Empty), false),
        (
            "unready and not terminating is no fall-back",
            BOTH,
            &["1 here unready"],
            (&[], Empty),
            (&[], Empty),
            false,
        ),
        (
            "local: ready ones here",
            LOCAL,
            &["1 here ready", "2 there ready", "3 here leaving"],
            (&[], Unused),
            (&[1], Ready),
            true,
        ),
        (
            "local: serving elsewhere does not help",
            LOCAL,
            &["1 there leaving", "2 here gone"],
            (&[], Unused),
            (&[], Empty),
            true,
        ),
        (
            "local: nothing usable anywhere",
            LOCAL,
            &["1 there gone", "2 there unready"],
            (&[], Unused),
            (&[], Empty),
            false,
        ),
        (
            "local falls back though others are ready elsewhere",
            BOTH,
            &["1 here leaving", "2 there ready"],
            (&[2], Ready),
            (&[1], Terminating),
            true,
        ),
        (
            "zone hints",
            CLUSTER,
            &["1 x ready z=zone-a", "2 x ready z=zone-b", "3 x ready z=zone-b,zone-a"],
            (&[1, 3], SameZone),
            (&[], Unused),
            true,
        ),
        (
            "one ready endpoint without a hint",
            CLUSTER,
            &["1 x ready z=zone-a", "2 x ready"],
            (&[1, 2], Ready),
            (&[], Unused),
            true,
        ),
        (
            "an unready endpoint without a hint does not matter",
            CLUSTER,
            &["1 x ready z=zone-a", "2 x unready"],
            (&[1], SameZone),
            (&[], Unused),
            true,
        ),
        (
            "no hint for this zone",
            CLUSTER,
            &["1 x ready z=zone-b", "2 x ready z=zone-c"],
            (&[1, 2], Ready),
            (&[], Unused),
            true,
        ),
        (
            "the only endpoint hinted for us is not ready",
            CLUSTER,
            &["1 x ready z=zone-b", "2 x unready z=zone-a"],
            (&[1], Ready),
            (&[], Unused),
            true,
        ),
        (
            "node hints come first",
            CLUSTER,
            &["1 x ready n=here z=zone-b", "2 x ready n=there z=zone-a"],
            (&[1], SameNode),
            (&[], Unused),
            true,
        ),
        (
            "node hints that do not name us: zone hints",
            CLUSTER,
            &["1 x ready n=x z=zone-b", "2 x ready n=there z=zone-a"],
            (&[2], SameZone),
            (&[], Unused),
            true,
        ),
        (
            "partial node hints: zone hints",
            CLUSTER,
            &["1 x ready n=here z=zone-b", "2 x ready z=zone-a"],
            (&[2], SameZone),
            (&[], Unused),
            true,
        ),
        (
            "hints do not change the local list",
            BOTH,
            &["1 here ready z=zone-b", "2 x ready z=zone-a"],
            (&[2], SameZone),
            (&[1], Ready),
            true,
        ),
        (
            "hints do not hold back the fall-back",
            CLUSTER,
            &["1 x leaving z=zone-b", "2 x leaving z=zone-a"],
            (&[1, 2], Terminating),
            (&[], Unused),
            true,
        ),
    ];
    for (case, demand, endpoints, cluster, local, usable) in rows {
        let choice = ask(*demand, HERE, endpoints);
        assert_eq!(
            (&ports(&choice.cluster.destinations)[..], choice.cluster.reason),
            *cluster,
            "{case}: cluster"
        );
        assert_eq!((&ports(&choice.local.destinations)[..], choice.local.reason), *local, "{case}: local");
        assert_eq!(choice.usable_somewhere, *usable, "{case}: usable");
    }
}

#[test]
fn a_node_without_a_zone_heeds_no_zone_hints() {
    let place = Place { node: "here", zone: None };
    let choice = ask(CLUSTER, place, &["1 x ready z=zone-a", "2 x ready z=zone-b"]);
    assert_eq!(ports(&choice.cluster.destinations), [1, 2]);
}

/// The rules as a sentence each, without a thought for cost.
fn obvious(demand: Demand, all: &[(Destination, Endpoint)]) -> (Vec<Destination>, Vec<Destination>) {
    let ready: Vec<_> = all.iter().filter(|(_, e)| e.ready).collect();
    let leaving: Vec<_> = all.iter().filter(|(_, e)| !e.ready && e.serving && e.terminating).collect();
    let names = |hints: &[std::sync::Arc<str>], name: &str| hints.iter().any(|hint| &**hint == name);
    let by_node: Vec<_> = ready.iter().copied().filter(|(_, e)| names(&e.node_hints, "here")).collect();
    let by_zone: Vec<_> = ready.iter().copied().filter(|(_, e)| names(&e.zone_hints, "zone-a")).collect();
    let cluster = if ready.is_empty() {
        leaving.clone()
    } else if ready.iter().all(|(_, e)| !e.node_hints.is_empty()) && !by_node.is_empty() {
        by_node
    } else if ready.iter().all(|(_, e)| !e.zone_hints.is_empty()) && !by_zone.is_empty() {
        by_zone
    } else {
        ready.clone()
    };
    let here = |(_, e): &&&(Destination, Endpoint)| e.node.as_deref() == Some("here");
    let mut local: Vec<_> = ready.iter().filter(here).collect();
    if local.is_empty() {
        local = leaving.iter().filter(here).collect();
    }
    let list = |wanted, items: Vec<Destination>| if wanted { items } else { Vec::new() };
    (
        list(demand.cluster, cluster.iter().map(|(d, _)| *d).collect()),
        list(demand.local, local.iter().map(|(d, _)| *d).collect()),
    )
}

proptest! {
    #[test]
    fn the_choice_is_what_the_rules_say(
        endpoints in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), any::<bool>(), 0..3_usize, 0..4_usize, 0..4_usize), 0..7),
        cluster: bool,
        local: bool,
    ) {
        let hints = |n: usize, names: [&str; 3]| -> Box<[std::sync::Arc<str>]> {
            names.iter().take(n).skip(n.saturating_sub(1)).map(|name| (*name).into()).collect()
        };
        let all: Vec<(Destination, Endpoint)> = endpoints
            .into_iter()
            .enumerate()
            .map(|(i, (ready, serving, terminating, node, zone, hinted))| {
                let addr = "10.0.0.1".parse().unwrap();
                let node = [None, Some("here".into()), Some("there".into())][node].clone();
                let endpoint = Endpoint {
                    addr, ready, serving, terminating, node,
                    zone_hints: hints(zone, ["zone-a", "zone-b", "zone-c"]),
                    node_hints: hints(hinted, ["here", "there", "far"]),
                };
                (Destination { addr, port: u16::try_from(i + 1).unwrap().try_into().unwrap() }, endpoint)
            })
            .collect();
        let demand = Demand { cluster, local };
        let candidates: Vec<Candidate<'_>> =
            all.iter().map(|(destination, endpoint)| Candidate { destination: *destination, endpoint }).collect();
        let choice = choose(demand, &candidates, HERE);
        let (want_cluster, want_local) = obvious(demand, &all);
        prop_assert_eq!(&choice.cluster.destinations, &want_cluster);
        prop_assert_eq!(&choice.local.destinations, &want_local);
        // Never an endpoint that is neither ready nor serving while it terminates; never a preference that is an outage.
        let usable = |d: &Destination| all.iter().any(|(known, e)| known == d && (e.ready || (e.serving && e.terminating)));
        prop_assert!(want_cluster.iter().chain(&want_local).all(usable));
        if cluster {
            prop_assert_eq!(want_cluster.is_empty(), !all.iter().any(|(d, _)| usable(d)));
        }
    }
}

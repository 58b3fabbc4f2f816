use super::*;
use crate::engine::Engine;
use crate::fixtures::{host, no_service, no_slice, node, service, slice};
use crate::model::Service;
use crate::{Change, NodePortAddresses};
use std::num::NonZeroU16;

const VIP: &str = "10.96.0.10";

fn settings() -> Settings {
    Settings { families: vec![Family::Ip], ..Settings::new("here") }
}

/// An engine that has accepted these changes; flow rules of a later change are what the tests are about.
fn engine(settings: Settings, changes: Vec<Change>) -> Engine {
    let mut engine = Engine::new(settings);
    engine.apply(node("here", &["192.0.2.1"]));
    engine.apply(host(&["127.0.0.1", "192.0.2.1", "192.0.2.9"]));
    for change in changes {
        engine.apply(change);
    }
    let plan = engine.adopt([None, None]);
    engine.accept(plan);
    engine
}

fn change(engine: &mut Engine, changes: impl IntoIterator<Item = Change>) -> FlowRules {
    for change in changes {
        engine.apply(change);
    }
    let mut plan = engine.plan();
    let flows = std::mem::take(&mut plan.flows);
    engine.accept(plan);
    flows
}

fn dns() -> Service {
    service("dns", &[VIP])
        .port("", L4Proto::Udp, 53, 30053)
        .external(&["198.51.100.7"])
        .load_balancer(&["203.0.113.7"])
}

fn endpoints(service: &str, protocol: L4Proto, endpoints: &[&str]) -> Change {
    let mut slice = slice(&format!("{service}-1"), service, 1, endpoints);
    slice.ports.clear();
    slice.and_port("", protocol, 5353).upsert()
}

fn flow(protocol: L4Proto, dialled: &str, leads_to: &str) -> FlowEnds {
    FlowEnds {
        protocol,
        dialled: dialled.parse().unwrap(),
        answers: leads_to.parse().unwrap(),
        answered: true,
    }
}

fn udp(dialled: &str, leads_to: &str) -> FlowEnds {
    flow(L4Proto::Udp, dialled, leads_to)
}

/// Every way to dial the Service.
const DIALLED: [&str; 4] = ["10.96.0.10:53", "198.51.100.7:53", "203.0.113.7:53", "192.0.2.1:30053"];

#[test]
fn k01_flows_to_an_endpoint_that_left_go_and_others_stay() {
    let two = ["10.0.0.1@here", "10.0.0.2@there"];
    let mut engine = engine(settings(), vec![dns().upsert(), endpoints("dns", L4Proto::Udp, &two)]);
    let changes = change(&mut engine, [endpoints("dns", L4Proto::Udp, &two[..1])]);
    assert!(!changes.is_empty());
    let rules = changes;
    for dialled in DIALLED {
        assert!(rules.is_stale(udp(dialled, "10.0.0.2:5353")), "{dialled}");
        assert!(rules.is_stale(udp(dialled, "10.0.0.1:53")), "{dialled}: another port");
        assert!(!rules.is_stale(udp(dialled, "10.0.0.1:5353")), "{dialled}");
    }
    // k03: not ours.
    for (dialled, leads_to) in [
        ("192.0.2.77:30053", "192.0.2.77:30053"),
        ("192.0.2.9:30053", "192.0.2.9:30053"),
        ("10.96.0.11:53", "10.0.0.2:5353"),
        ("10.96.0.10:54", "10.0.0.2:5353"),
        ("10.0.0.2:5353", "10.0.0.2:5353"),
    ] {
        assert!(!rules.is_stale(udp(dialled, leads_to)), "{dialled}");
    }
    assert!(!rules.is_stale(flow(L4Proto::Tcp, "10.96.0.10:53", "10.0.0.2:5353")));
}

#[test]
fn only_what_may_leave_flows_behind_is_looked_for() {
    let some = |list: &[&str]| endpoints("dns", L4Proto::Udp, list);
    for (case, before, after, look) in [
        ("one joins", &["10.0.0.1@here"][..], &["10.0.0.1@here", "10.0.0.2@here"][..], false),
        ("one leaves", &["10.0.0.1@here", "10.0.0.2@here"], &["10.0.0.1@here"], true),
        ("the first comes", &[], &["10.0.0.1@here"], true),
        ("the last goes", &["10.0.0.1@here"], &[], true),
        ("k05: it terminates and serves", &["10.0.0.1@here"], &["10.0.0.1@here leaving"], false),
        (
            "k05: the same beside a ready one",
            &["10.0.0.1@here", "10.0.0.2@here"],
            &["10.0.0.1@here leaving", "10.0.0.2@here"],
            false,
        ),
        (
            "it stops serving",
            &["10.0.0.1@here", "10.0.0.2@here"],
            &["10.0.0.1@here gone", "10.0.0.2@here"],
            true,
        ),
    ] {
        let mut engine = engine(settings(), vec![dns().upsert(), some(before)]);
        assert_eq!(!change(&mut engine, [some(after)]).is_empty(), look, "{case}");
        assert!(change(&mut engine, [some(after)]).is_empty(), "{case}: again");
    }
}

#[test]
fn k02_flows_from_before_the_first_endpoint_go() {
    let mut engine = engine(settings(), vec![dns().upsert()]);
    let rules = change(&mut engine, [endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"])]);
    for dialled in DIALLED {
        assert!(rules.is_stale(udp(dialled, dialled)), "{dialled}");
    }
}

#[test]
fn f04_all_flows_go_with_the_last_endpoint_or_the_service() {
    let one = || endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"]);
    for last in [endpoints("dns", L4Proto::Udp, &[]), no_slice("dns-1"), no_service("dns")] {
        let mut engine = engine(settings(), vec![dns().upsert(), one()]);
        let rules = change(&mut engine, [last.clone()]);
        for dialled in DIALLED {
            assert!(rules.is_stale(udp(dialled, "10.0.0.1:5353")), "{last:?}: {dialled}");
        }
        assert!(!rules.is_stale(udp("192.0.2.77:30053", "10.0.0.1:5353")), "{last:?}: another host");
    }
}

#[test]
fn a_frontend_that_went_leaves_what_was_never_translated() {
    let one = endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"]);
    let mut engine = engine(settings(), vec![dns().upsert(), one]);
    let rules = change(&mut engine, [dns().external(&[]).upsert()]);
    assert!(rules.is_stale(udp("198.51.100.7:53", "10.0.0.1:5353")));
    assert!(!rules.is_stale(udp("198.51.100.7:53", "198.51.100.7:53")));
    assert!(!rules.is_stale(udp("203.0.113.7:53", "10.0.0.1:5353")), "still there");
}

#[test]
fn a_frontend_that_changes_hands_is_judged_by_its_new_owner() {
    let other = service("a-other", &["10.96.0.11"]).port("", L4Proto::Udp, 53, 0).created(9);
    let mut engine = engine(
        settings(),
        vec![
            dns().created(1).upsert(),
            endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"]),
            other.clone().external(&["198.51.100.7"]).upsert(),
            endpoints("a-other", L4Proto::Udp, &["10.0.0.2@here"]),
        ],
    );
    let rules = change(&mut engine, [no_service("dns")]);
    assert!(rules.is_stale(udp("198.51.100.7:53", "10.0.0.1:5353")));
    assert!(!rules.is_stale(udp("198.51.100.7:53", "10.0.0.2:5353")));
    assert!(rules.is_stale(udp("10.96.0.10:53", "10.0.0.1:5353")));
}

#[test]
fn sctp_associations_outlast_all_but_their_endpoint() {
    let sctp = || service("mme", &[VIP]).port("", L4Proto::Sctp, 53, 0);
    let of = |list: &[&str]| endpoints("mme", L4Proto::Sctp, list);
    let to = |leads_to| flow(L4Proto::Sctp, "10.96.0.10:53", leads_to);
    let both = ["10.0.0.1@here", "10.0.0.2@here"];
    let mut engine = engine(settings(), vec![sctp().upsert(), of(&both)]);
    assert!(change(&mut engine, [of(&["10.0.0.1@here gone", both[1]])]).is_empty());
    let gone = change(&mut engine, [of(&both[1..])]);
    assert!(!gone.is_empty());
    let rules = gone;
    assert!(rules.is_stale(to("10.0.0.1:5353")));
    assert!(!rules.is_stale(to("10.0.0.2:5353")));
    assert!(!rules.is_stale(to("10.96.0.10:53")), "answered, and never translated");
    assert!(rules.is_stale(FlowEnds { answered: false, ..to("10.96.0.10:53") }));
    assert!(change(&mut engine, [no_service("mme")]).is_empty());
}

#[test]
fn f18_tcp_is_left_alone_unless_asked_for() {
    let both = ["10.0.0.1@here", "10.0.0.2@here"];
    let web = || service("web", &[VIP]).tcp(53).upsert();
    let of = |list: &[&str]| endpoints("web", L4Proto::Tcp, list);
    let unanswered = |leads_to| FlowEnds { answered: false, ..flow(L4Proto::Tcp, "10.96.0.10:53", leads_to) };
    let mut plain = engine(settings(), vec![web(), of(&both)]);
    assert!(change(&mut plain, [of(&both[1..])]).is_empty());
    let mut freeing = engine(Settings { free_syn_sent: true, ..settings() }, vec![web(), of(&both)]);
    let rules = change(&mut freeing, [of(&both[1..])]);
    assert!(rules.is_stale(unanswered("10.0.0.1:5353")));
    assert!(!rules.is_stale(unanswered("10.0.0.2:5353")));
    assert!(!rules.is_stale(flow(L4Proto::Tcp, "10.96.0.10:53", "10.0.0.1:5353")), "a connection");
}

#[test]
fn an_address_that_begins_to_serve_node_ports_is_looked_at() {
    let everywhere = "192.0.2.0/24";
    let settings = Settings {
        node_port_addresses: vec![NodePortAddresses::Cidr(crate::fixtures::cidr(everywhere))],
        ..settings()
    };
    let one = endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"]);
    let mut engine = engine(settings, vec![dns().upsert(), one]);
    let less = change(&mut engine, [host(&["127.0.0.1", "192.0.2.1"])]);
    assert!(less.is_empty());
    let more = change(&mut engine, [host(&["127.0.0.1", "192.0.2.1", "192.0.2.50"])]);
    assert!(!more.is_empty());
    let rules = more;
    assert!(rules.is_stale(udp("192.0.2.50:30053", "192.0.2.50:30053")));
    assert!(!rules.is_stale(udp("192.0.2.50:30053", "10.0.0.1:5353")));
}

#[test]
fn an_address_of_the_node_that_is_another_services_own_is_left_alone() {
    let other = service("other", &["10.96.0.11"]).port("", L4Proto::Udp, 30053, 0).external(&["192.0.2.1"]);
    let mut engine = engine(
        settings(),
        vec![
            dns().upsert(),
            endpoints("dns", L4Proto::Udp, &["10.0.0.1@here", "10.0.0.2@here"]),
            other.upsert(),
            endpoints("other", L4Proto::Udp, &["10.0.0.3@here"]),
        ],
    );
    let changes = change(&mut engine, [endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"])]);
    let rules = changes;
    assert!(!rules.is_stale(udp("192.0.2.1:30053", "10.0.0.3:5353")));
    assert!(rules.is_stale(udp("10.96.0.10:53", "10.0.0.2:5353")));
}

#[test]
fn k04_the_first_plan_looks_at_everything_and_at_what_the_kernel_has_too_much() {
    let one = endpoints("dns", L4Proto::Udp, &["10.0.0.1@here"]);
    let changes = [node("here", &["192.0.2.1"]), host(&["192.0.2.1"]), dns().upsert(), one];
    let mut before = Engine::new(settings());
    changes.iter().for_each(|change| before.apply(change.clone()));
    let transaction = before.adopt([None, None]).transaction;
    let mut kernel = nft_ir::Ruleset::default();
    kernel.apply(&transaction).unwrap();
    let kernel = kernel.tables.into_values().next();
    let mut after = Engine::new(settings());
    changes[..2].iter().for_each(|change| after.apply(change.clone()));
    after.apply(service("web", &["10.96.0.99"]).port("", L4Proto::Udp, 80, 0).upsert());
    let rules = after.adopt([kernel, None]).flows;
    for dialled in DIALLED {
        assert!(rules.is_stale(udp(dialled, "10.0.0.1:5353")), "{dialled}");
        assert!(!rules.is_stale(udp(dialled, dialled)), "{dialled}");
    }
    assert!(rules.is_stale(udp("10.96.0.99:80", "10.0.0.9:80")));
}

#[test]
fn the_newest_word_counts() {
    let both = ["10.0.0.1@here", "10.0.0.2@here"];
    let mut engine = engine(settings(), vec![dns().upsert(), endpoints("dns", L4Proto::Udp, &both)]);
    let left = change(&mut engine, [endpoints("dns", L4Proto::Udp, &both[..1])]);
    let back = change(&mut engine, [endpoints("dns", L4Proto::Udp, &both)]);
    assert!(back.is_empty() && !back.says_nothing());
    let mut rules = left;
    let to_second = udp(DIALLED[0], "10.0.0.2:5353");
    assert!(rules.is_stale(to_second));
    rules.amend(&back);
    assert!(!rules.is_stale(to_second));
    assert!(rules.is_stale(udp(DIALLED[0], "10.0.0.3:5353")));
    // Nothing is looked for that was not before.
    let mut nothing = FlowRules::default();
    nothing.merge(back);
    assert!(nothing.is_empty());
}

#[test]
fn looks_are_few_and_narrow() {
    let search = |part| Search { family: Family::Ip, protocol: L4Proto::Udp, part };
    let dialled = |addr: Option<&str>, port| {
        search(Part::Dialled(addr.map(|addr| addr.parse().unwrap()), NonZeroU16::new(port).unwrap()))
    };
    let answered = |addr: &str| {
        let port = NonZeroU16::new(5353).unwrap();
        search(Part::Answered(Destination { addr: addr.parse().unwrap(), port }))
    };
    let first = |list: Vec<Service>| {
        let mut engine = engine(settings(), Vec::new());
        let mut changes: Vec<Change> = list.iter().map(|s| s.clone().upsert()).collect();
        changes.extend(list.iter().map(|s| endpoints(&s.name.name, L4Proto::Udp, &["10.0.0.1@here"])));
        change(&mut engine, changes).searches()
    };
    let internal = service("dns", &[VIP]).port("", L4Proto::Udp, 53, 0);
    assert_eq!(first(vec![internal]), [dialled(Some(VIP), 53)]);
    assert_eq!(first(vec![dns()]), [dialled(None, 53), dialled(None, 30053)]);
    let many = (0_u16..9)
        .map(|n| service(&format!("s{n}"), &[&format!("10.96.1.{n}")]).port("", L4Proto::Udp, 1000 + n, 0));
    assert_eq!(first(many.collect()), [search(Part::All)]);
    assert_eq!(first(Vec::new()), []);
    // Endpoints that left are looked for by themselves, however many frontends they had.
    let all = ["10.0.0.1@here", "10.0.0.2@here", "10.0.0.3@here", "10.0.0.4@here", "10.0.0.5@here"];
    let mut engine = engine(settings(), vec![dns().upsert(), endpoints("dns", L4Proto::Udp, &all)]);
    let mut leave = |list: &[&str]| change(&mut engine, [endpoints("dns", L4Proto::Udp, list)]).searches();
    assert_eq!(leave(&all[1..]), [answered("10.0.0.1")]);
    assert_eq!(leave(&all[..1]), [search(Part::All)]);
    assert_eq!(leave(&[]), [answered("10.0.0.1")]);
}

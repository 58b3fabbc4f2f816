//! Owns the packet tests of the behaviour table's parts P and T: traffic policies and terminating endpoints. One test a row,
//! named after it.

use integration::objects::{
    NAMESPACE, Object, ServiceText, node_in_zone, service, slice, slice_name, slices, tcp_slices,
};
use integration::stage::{Stage, at, dropped, of, reaches, reaches_seen, refused};
use integration::{Dial, Family, Host, L4Proto, Outcome, Pod, World};
use proxier_core::DetectLocal;
use std::net::{IpAddr, SocketAddr};

const IPS: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
const LB: [&str; 2] = ["203.0.113.7", "2001:db8::7"];
const EXTERNAL: [&str; 2] = ["198.51.100.7", "2001:db8::77"];
const NODE_PORT: u16 = 30080;

/// A Service with every kind of frontend.
fn web() -> ServiceText {
    service("web", &IPS).node_port("", L4Proto::Tcp, 80, NODE_PORT).external_ips(&EXTERNAL).load_balancer(&LB)
}

fn cluster_ip(family: Family) -> SocketAddr {
    at(of(family, IPS[0], IPS[1]), 80)
}

fn lb(family: Family) -> SocketAddr {
    at(of(family, LB[0], LB[1]), 80)
}

fn external(family: Family) -> SocketAddr {
    at(of(family, EXTERNAL[0], EXTERNAL[1]), 80)
}

/// Three nodes; pods `a` on the first and `b` on the second serve, the third has none; `pod-N` on each node dials.
struct Three {
    stage: Stage,
    dialling: Vec<Pod>,
    serving: Vec<Pod>,
    _servers: Vec<integration::Server>,
}

impl Three {
    fn new(name: &str) -> Self {
        let stage = Stage::with(World::new(name).nodes(3).build(), |_| {});
        let dialling = (0..3).map(|n| stage.node(n).pod(&format!("pod-{n}"))).collect();
        let serving = vec![stage.node(0).pod("a"), stage.node(1).pod("b")];
        let _servers = serving
            .iter()
            .flat_map(|pod: &Pod| L4Proto::ALL.map(|proto| pod.serve(proto, 8080, pod.name())))
            .collect();
        Self { stage, dialling, serving, _servers }
    }

    fn pods(&self) -> [&Pod; 2] {
        [&self.serving[0], &self.serving[1]]
    }

    /// The outside client sends what is for Services to this node.
    fn via(&self, node: usize) -> &Host {
        let client = self.stage.world.client();
        client.routes_services_via(self.stage.node(node));
        client
    }
}

/// What a cell of the policy table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// Every endpoint, and it sees the client's own address.
    All,
    /// Every endpoint, and it sees an address of the node that was dialled.
    AllMasqueraded,
    /// Endpoints of the node that was dialled, and they see the client's own address.
    Local,
    /// The same, and they see an address of that node.
    LocalMasqueraded,
    Dropped,
}

fn check(case: &str, from: &Host, to: SocketAddr, cell: Cell, via: &Host, local: &[&str]) {
    let own: Vec<IpAddr> = from.addrs().to_vec();
    match cell {
        Cell::Dropped => dropped(from, L4Proto::Tcp, to),
        Cell::All | Cell::AllMasqueraded | Cell::Local | Cell::LocalMasqueraded => {
            let who: &[&str] =
                if matches!(cell, Cell::All | Cell::AllMasqueraded) { &["a", "b"] } else { local };
            eprintln!("{case}: {} dials {to}", from.name());
            let answers = reaches(from, L4Proto::Tcp, to, who);
            let is_own = |addr: &IpAddr| own.contains(addr);
            let masqueraded = matches!(cell, Cell::AllMasqueraded | Cell::LocalMasqueraded);
            let of_node = |addr: &IpAddr| {
                via.addrs().contains(addr)
                    || addr.to_string().ends_with(".1")
                    || addr.to_string().ends_with("::1")
            };
            for seen in &answers.seen_from {
                assert!(
                    if masqueraded { of_node(seen) } else { is_own(seen) },
                    "{case}: {to}: seen from {seen}"
                );
            }
        }
    }
}

/// Rows p01 to p05 at once, since they are one table: every combination of policies, dialled on nodes with and without
/// local endpoints, from a pod there, from the node itself, from outside, and from a pod of another node.
fn policies(name: &str, internal_local: bool, external_local: bool) {
    let mut three = Three::new(name);
    let mut text = web();
    if internal_local {
        text = text.internal_local();
    }
    if external_local {
        text = text.external_local();
    }
    let mut objects = vec![text.object()];
    objects.extend(tcp_slices("web", 8080, &three.pods()));
    three.stage.apply(&objects);
    for index in 0..3 {
        let local: &[&str] = [&["a"][..], &["b"], &[]][index];
        let node = three.stage.node(index).clone();
        let pod = &three.dialling[index];
        let outside = three.via(index);
        for family in Family::ALL {
            let case = format!("{name}, node {index}, {family}");
            let narrow = |cell: Cell| match cell {
                Cell::Local | Cell::LocalMasqueraded if local.is_empty() => Cell::Dropped,
                cell => cell,
            };
            let masqueraded_cell = if internal_local { Cell::LocalMasqueraded } else { Cell::AllMasqueraded };
            let to = cluster_ip(family);
            let from_pod = if internal_local { Cell::Local } else { Cell::All };
            check(&case, pod, to, narrow(from_pod), &node, local);
            check(&case, &node, to, narrow(masqueraded_cell), &node, local);
            check(&case, outside, to, narrow(masqueraded_cell), &node, local);
            for to in [lb(family), external(family), node.at(family, NODE_PORT)] {
                let (from_pod, from_outside) = if external_local {
                    (Cell::All, Cell::Local)
                } else {
                    (Cell::AllMasqueraded, Cell::AllMasqueraded)
                };
                check(&case, pod, to, from_pod, &node, local);
                check(&case, &node, to, Cell::AllMasqueraded, &node, local);
                check(&case, outside, to, narrow(from_outside), &node, local);
            }
            // Another node's node port obeys that node's policy: whoever dials it is outside there.
            let elsewhere = narrow(if external_local { Cell::Local } else { Cell::AllMasqueraded });
            let to = node.at(family, NODE_PORT);
            check(&case, &three.dialling[(index + 1) % 3], to, elsewhere, &node, local);
            check(&case, three.stage.node((index + 1) % 3), to, elsewhere, &node, local);
        }
    }
}

#[test]
fn p01_external_policy_cluster() {
    policies("p01", false, false);
}

#[test]
fn p02_p03_external_policy_local() {
    policies("p02", false, true);
}

/// Also f12.
#[test]
fn p04_internal_policy_local() {
    policies("p04", true, false);
}

#[test]
fn p05_both_policies_local() {
    policies("p05", true, true);
}

/// Also f13: with no endpoint anywhere it is a rejection, and it does not count as a lack of local endpoints.
#[test]
fn p02_local_policies_without_any_endpoint_reject() {
    let mut three = Three::new("p02-none");
    three.stage.apply(&[web().internal_local().external_local().object()]);
    for index in 0..2 {
        let node = three.stage.node(index).clone();
        for family in Family::ALL {
            for to in [cluster_ip(family), lb(family), external(family), node.at(family, NODE_PORT)] {
                refused(&three.dialling[index], L4Proto::Tcp, to);
                refused(&node, L4Proto::Tcp, to);
                refused(three.via(index), L4Proto::Tcp, to);
            }
        }
    }
}

/// f07: without a way to tell pods from others, a pod here is treated as outside.
#[test]
fn p03_without_local_detection_a_pod_counts_as_outside() {
    let mut stage = Stage::with(World::new("p03").nodes(2).build(), |s| s.detect_local = DetectLocal::None);
    let (pod, b) = (stage.node(0).pod("pod"), stage.node(1).pod("b"));
    let _server = b.serve(L4Proto::Tcp, 8080, "b");
    stage.apply(&[web().external_local().object()]);
    stage.apply(&tcp_slices("web", 8080, &[&b]));
    for family in Family::ALL {
        dropped(&pod, L4Proto::Tcp, lb(family));
        reaches(stage.node(0), L4Proto::Tcp, lb(family), &["b"]);
    }
}

fn hinted(family: Family, pods: &[(&Pod, Option<&str>, Option<&str>)]) -> Object {
    let text = slice(&slice_name("web", family), "web", family).port("", L4Proto::Tcp, 8080);
    pods.iter()
        .fold(text, |text, (pod, zone, node)| {
            let mut hints = serde_json::Map::new();
            if let Some(zone) = zone {
                hints.insert("forZones".into(), serde_json::json!([{ "name": zone }]));
            }
            if let Some(node) = node {
                hints.insert("forNodes".into(), serde_json::json!([{ "name": node }]));
            }
            text.endpoint_json(serde_json::json!({
                "addresses": [pod.addr(family)], "nodeName": pod.node().name(),
                "conditions": { "ready": true }, "hints": hints,
            }))
        })
        .object()
}

#[test]
fn p06_zone_hints() {
    let mut three = Three::new("p06");
    for index in 0..3 {
        let node = three.stage.node(index).clone();
        let zone = ["zone-a", "zone-b", "zone-c"][index];
        three.stage.proxiers[index].apply(&[node_in_zone(node.name(), node.addrs(), zone)]);
    }
    three.stage.apply(&[web().object()]);
    for family in Family::ALL {
        let [a, b] = three.pods();
        let objects = hinted(family, &[(a, Some("zone-a"), None), (b, Some("zone-b"), None)]);
        three.stage.apply(&[objects]);
        reaches(&three.dialling[0], L4Proto::Tcp, cluster_ip(family), &["a"]);
        reaches(&three.dialling[1], L4Proto::Tcp, cluster_ip(family), &["b"]);
        // Nothing is hinted for this zone: all.
        reaches(&three.dialling[2], L4Proto::Tcp, cluster_ip(family), &["a", "b"]);
        reaches(three.via(0), L4Proto::Tcp, lb(family), &["a"]);
        // One endpoint without a hint: all, everywhere.
        let [a, b] = three.pods();
        let objects = hinted(family, &[(a, Some("zone-a"), None), (b, None, None)]);
        three.stage.apply(&[objects]);
        reaches(&three.dialling[0], L4Proto::Tcp, cluster_ip(family), &["a", "b"]);
        // The node's zone label changes live.
        let [a, b] = three.pods();
        let objects = hinted(family, &[(a, Some("zone-a"), None), (b, Some("zone-b"), None)]);
        three.stage.apply(&[objects]);
        let node = three.stage.node(0).clone();
        three.stage.proxiers[0].apply(&[node_in_zone(node.name(), node.addrs(), "zone-b")]);
        reaches(&three.dialling[0], L4Proto::Tcp, cluster_ip(family), &["b"]);
        three.stage.proxiers[0].apply(&[node_in_zone(node.name(), node.addrs(), "zone-a")]);
    }
}

#[test]
fn p07_node_hints_then_zone_hints_then_all() {
    let mut three = Three::new("p07");
    for index in 0..3 {
        let node = three.stage.node(index).clone();
        let zone = ["zone-a", "zone-b", "zone-b"][index];
        three.stage.proxiers[index].apply(&[node_in_zone(node.name(), node.addrs(), zone)]);
    }
    three.stage.apply(&[web().object()]);
    for family in Family::ALL {
        let [a, b] = three.pods();
        let hints = [(a, Some("zone-a"), Some("node-1")), (b, Some("zone-b"), Some("node-2"))];
        let objects = hinted(family, &hints);
        three.stage.apply(&[objects]);
        reaches(&three.dialling[0], L4Proto::Tcp, cluster_ip(family), &["a"]);
        reaches(&three.dialling[1], L4Proto::Tcp, cluster_ip(family), &["b"]);
        // No hint for this node: the zone's.
        reaches(&three.dialling[2], L4Proto::Tcp, cluster_ip(family), &["b"]);
        // Hints that name nobody here: all. A preference is never an outage.
        let [a, b] = three.pods();
        let hints = [(a, Some("far"), Some("far")), (b, Some("far"), Some("far"))];
        let objects = hinted(family, &hints);
        three.stage.apply(&[objects]);
        reaches(&three.dialling[0], L4Proto::Tcp, cluster_ip(family), &["a", "b"]);
    }
}

/// The endpoint that a client gets in twenty dials, if it is always the same.
fn sticks_to(from: &Host, proto: L4Proto, to: SocketAddr) -> String {
    let tally = from.dial_many(Dial::new(proto, to), 20);
    assert!(tally.failed.is_empty() && tally.by.len() == 1, "{} dials {to}/{proto}: {tally:?}", from.name());
    tally.by.into_keys().next().unwrap_or_default()
}

#[test]
fn p08_session_affinity() {
    let mut three = Three::new("p08");
    let ports: Vec<(&str, L4Proto, u16)> =
        L4Proto::ALL.into_iter().map(|proto| (proto.as_str(), proto, 8080)).collect();
    let sticky = |seconds| {
        service("web", &IPS)
            .all_protocols(80, NODE_PORT)
            .external_ips(&EXTERNAL)
            .load_balancer(&LB)
            .sticky(seconds)
    };
    let [a, b] = three.pods();
    let (objects_a, objects_b, objects) =
        (slices("web", &ports, &[a]), slices("web", &ports, &[b]), slices("web", &ports, &[a, b]));
    three.stage.apply(&[sticky(10_800).object()]);
    three.stage.apply(&objects);
    for family in Family::ALL {
        for proto in [L4Proto::Tcp, L4Proto::Udp] {
            let pod = &three.dialling[0];
            // One client, one endpoint, on every address of the Service.
            let first = sticks_to(pod, proto, cluster_ip(family));
            for to in
                [lb(family), external(family), three.stage.node(0).at(family, NODE_PORT), cluster_ip(family)]
            {
                assert_eq!(sticks_to(pod, proto, to), first, "{family} {proto} {to}");
            }
            let outside = three.via(0);
            let first = sticks_to(outside, proto, lb(family));
            assert_eq!(sticks_to(outside, proto, three.stage.node(0).at(family, NODE_PORT)), first);
        }
        sticks_to(&three.dialling[0], L4Proto::Sctp, cluster_ip(family));
    }
    // Other clients go elsewhere: with 16 of them, all on one endpoint would be one chance in 32,768.
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..16 {
        let addr: IpAddr = format!("192.168.77.{}", 120 + n).parse().expect("an address");
        let client = three.stage.world.client();
        client.add_address(addr).expect("an address for the client");
        let outcome = client.dial(Dial::new(L4Proto::Tcp, lb(Family::Ip)).from(addr));
        seen.insert(outcome.by().expect("an answer").to_owned());
    }
    assert_eq!(seen.len(), 2, "every client went to one endpoint");
    // A removed endpoint frees its clients at once; the others stay.
    let pod = three.dialling[0].clone();
    let first = sticks_to(&pod, L4Proto::Tcp, cluster_ip(Family::Ip));
    let (rest, other) = if first == "a" { (&objects_b, "b") } else { (&objects_a, "a") };
    three.stage.apply(rest);
    assert_eq!(sticks_to(&pod, L4Proto::Tcp, cluster_ip(Family::Ip)), other);
    three.stage.apply(&objects);
    assert_eq!(sticks_to(&pod, L4Proto::Tcp, cluster_ip(Family::Ip)), other, "sticks to the new one");
    // A change of the time-out, live, forgets nobody; nor does a restart of the proxier.
    three.stage.apply(&[sticky(600).object()]);
    assert_eq!(sticks_to(&pod, L4Proto::Tcp, cluster_ip(Family::Ip)), other);
    let restarted = Stage::with_running(three.stage);
    three.stage = restarted;
    let mut all = vec![sticky(600).object()];
    all.extend(objects.clone());
    let reports = three.stage.apply(&all);
    assert_eq!(reports[0].elements, [0, 0], "a restart on the same state writes nothing");
    assert_eq!(sticks_to(&pod, L4Proto::Tcp, cluster_ip(Family::Ip)), other);
    // Affinity switched off: both again.
    let text = service("web", &IPS).all_protocols(80, NODE_PORT);
    three.stage.apply(&[text.object()]);
    reaches(&pod, L4Proto::Tcp, cluster_ip(Family::Ip), &["a", "b"]);
}

#[test]
fn p08_a_client_is_forgotten_after_its_time() {
    let mut three = Three::new("p08-time");
    three.stage.apply(&[web().sticky(1).object()]);
    let objects = tcp_slices("web", 8080, &three.pods());
    three.stage.apply(&objects);
    let pod = &three.dialling[0];
    for family in Family::ALL {
        let first = sticks_to(pod, L4Proto::Tcp, cluster_ip(family));
        // Each pause is longer than the time-out, after it the draw is free: soon the other comes.
        integration::wait::until("another endpoint after the time-out", integration::wait::SOON, || {
            std::thread::sleep(std::time::Duration::from_millis(1100));
            pod.dials(L4Proto::Tcp, cluster_ip(family)).by().is_some_and(|by| by != first)
        });
    }
}

#[test]
fn p08_session_affinity_with_local_policies() {
    let mut three = Three::new("p08-local");
    three.stage.apply(&[web().sticky(600).external_local().object()]);
    let objects = tcp_slices("web", 8080, &three.pods());
    three.stage.apply(&objects);
    for family in Family::ALL {
        // Learnt through the ClusterIP, from outside: any endpoint. Through the load balancer address: this node's.
        for _ in 0..4 {
            sticks_to(three.via(0), L4Proto::Tcp, cluster_ip(family));
            assert_eq!(sticks_to(three.via(0), L4Proto::Tcp, lb(family)), "a");
            assert_eq!(sticks_to(three.via(1), L4Proto::Tcp, lb(family)), "b");
            dropped(three.via(2), L4Proto::Tcp, lb(family));
        }
    }
    three.stage.apply(&[web().sticky(600).internal_local().object()]);
    for family in Family::ALL {
        assert_eq!(sticks_to(&three.dialling[0], L4Proto::Tcp, cluster_ip(family)), "a");
        dropped(&three.dialling[2], L4Proto::Tcp, cluster_ip(family));
    }
}

/// f15: the client's endpoint becomes not ready while it dials on.
#[test]
fn p08_the_clients_endpoint_becomes_unready() {
    let mut three = Three::new("f15");
    three.stage.apply(&[web().sticky(600).object()]);
    let objects = tcp_slices("web", 8080, &three.pods());
    three.stage.apply(&objects);
    let pod = three.dialling[0].clone();
    for family in Family::ALL {
        let first = sticks_to(&pod, L4Proto::Tcp, cluster_ip(family));
        let text = slice(&slice_name("web", family), "web", family).port("", L4Proto::Tcp, 8080);
        let text = three.serving.iter().fold(text, |text, p| {
            text.endpoint_json(serde_json::json!({
                "addresses": [p.addr(family)], "nodeName": p.node().name(),
                "conditions": { "ready": p.name() != first },
            }))
        });
        three.stage.apply(&[text.object()]);
        let second = sticks_to(&pod, L4Proto::Tcp, cluster_ip(family));
        assert_ne!(first, second);
        three.stage.apply(&tcp_slices("web", 8080, &three.pods()));
        assert_eq!(sticks_to(&pod, L4Proto::Tcp, cluster_ip(family)), second);
    }
}

#[test]
fn p09_source_ranges() {
    let mut three = Three::new("p09");
    let ranges = |ranges: &[&str]| web().spec("loadBalancerSourceRanges", ranges).object();
    let objects = tcp_slices("web", 8080, &three.pods());
    three.stage.apply(&objects);
    let second = ["192.168.77.150", "fd00:77::150"];
    for addr in second {
        three
            .stage
            .world
            .client()
            .add_address(addr.parse().expect("an address"))
            .expect("an address for the client");
    }
    let from = |three: &Three, to: SocketAddr, addr: IpAddr| {
        three
            .via(0)
            .dial(Dial::new(L4Proto::Tcp, to).from(addr).within(std::time::Duration::from_millis(700)))
    };
    // Overlapping ranges, both families, nobody else.
    three.stage.apply(&[ranges(&["192.168.77.150/32", "192.168.77.150/31", "fd00:77::150/128"])]);
    for family in Family::ALL {
        let allowed: IpAddr = of(family, second[0], second[1]).parse().expect("an address");
        let other = three.stage.world.client().addr(family);
        assert!(from(&three, lb(family), allowed).by().is_some());
        assert_eq!(from(&three, lb(family), other), Outcome::TimedOut);
        // Pods and the node are dropped as well; node port, ClusterIP and external IP stay open.
        dropped(&three.dialling[0], L4Proto::Tcp, lb(family));
        dropped(three.stage.node(0), L4Proto::Tcp, lb(family));
        for to in [cluster_ip(family), external(family), three.stage.node(0).at(family, NODE_PORT)] {
            assert!(from(&three, to, other).by().is_some(), "{to}");
        }
    }
    // The node is let in when the ranges cover it.
    three.stage.apply(&[ranges(&["192.168.77.0/24", "fd00:77::/64"])]);
    for family in Family::ALL {
        reaches(three.stage.node(0), L4Proto::Tcp, lb(family), &["a", "b"]);
        reaches(three.via(0), L4Proto::Tcp, lb(family), &["a", "b"]);
        dropped(&three.dialling[0], L4Proto::Tcp, lb(family));
    }
    // A range of one family only guards that family.
    three.stage.apply(&[ranges(&["203.0.113.0/24"])]);
    dropped(three.via(0), L4Proto::Tcp, lb(Family::Ip));
    reaches(three.via(0), L4Proto::Tcp, lb(Family::Ip6), &["a", "b"]);
}

/// f08: two Services share a load balancer address on different ports, one with source ranges.
#[test]
fn p09_ranges_guard_only_their_own_port() {
    let mut three = Three::new("f08");
    let guarded = web().spec("loadBalancerSourceRanges", ["192.0.2.0/24", "2001:db8:1::/48"].as_slice());
    let open = service("open", &["10.96.0.11", "fd00:10:96::11"]).tcp(81).load_balancer(&LB);
    let mut objects = tcp_slices("web", 8080, &three.pods());
    objects.extend(tcp_slices("open", 8080, &three.pods()));
    objects.extend([guarded.object(), open.object()]);
    three.stage.apply(&objects);
    for family in Family::ALL {
        dropped(three.via(0), L4Proto::Tcp, lb(family));
        reaches(three.via(0), L4Proto::Tcp, at(of(family, LB[0], LB[1]), 81), &["a", "b"]);
    }
}

/// f09: two load balancer addresses on one Service, source ranges that cover the node; it reaches both.
#[test]
fn p09_the_node_reaches_both_of_its_addresses() {
    let mut three = Three::new("f09");
    let two = ["203.0.113.7", "203.0.113.8", "2001:db8::7", "2001:db8::8"];
    let ranges = ["192.168.77.0/24", "fd00:77::/64"];
    let text =
        service("web", &IPS).tcp(80).load_balancer(&two).spec("loadBalancerSourceRanges", ranges.as_slice());
    let mut objects = tcp_slices("web", 8080, &three.pods());
    objects.push(text.object());
    three.stage.apply(&objects);
    // A node that owns the address dials it with that address as source.
    for ip in two {
        three
            .stage
            .node(0)
            .add_address("lo", ip.parse().expect("an address"))
            .expect("an address for the node");
        reaches(three.stage.node(0), L4Proto::Tcp, at(ip, 80), &["a", "b"]);
    }
}

#[test]
fn p10_load_balancer_without_node_ports() {
    let mut three = Three::new("p10");
    let text = service("web", &IPS).tcp(80).load_balancer(&LB).spec("allocateLoadBalancerNodePorts", false);
    let mut objects = tcp_slices("web", 8080, &three.pods());
    objects.push(text.object());
    three.stage.apply(&objects);
    for family in Family::ALL {
        reaches(three.via(0), L4Proto::Tcp, lb(family), &["a", "b"]);
        refused(three.via(0), L4Proto::Tcp, three.stage.node(0).at(family, NODE_PORT));
    }
}

#[test]
fn p11_published_though_not_ready() {
    let mut three = Three::new("p11");
    // The slice controller says "ready" for such endpoints, also for terminating ones.
    let [a, b] = three.pods();
    let mut objects = vec![web().spec("publishNotReadyAddresses", true).object()];
    for family in Family::ALL {
        let text = slice(&slice_name("web", family), "web", family).port("", L4Proto::Tcp, 8080);
        let conditions = serde_json::json!({ "ready": true, "serving": false, "terminating": true });
        let text = [a, b].into_iter().fold(text, |text, pod| {
            text.endpoint_json(serde_json::json!({
                "addresses": [pod.addr(family)], "nodeName": pod.node().name(), "conditions": conditions,
            }))
        });
        objects.push(text.object());
    }
    three.stage.apply(&objects);
    for family in Family::ALL {
        reaches(&three.dialling[0], L4Proto::Tcp, cluster_ip(family), &["a", "b"]);
    }
}

/// One slice a family; each pod with its state: `ready`, `leaving` (terminating, serving) or `gone` (terminating).
fn states(pods: &[(&Pod, &str)]) -> Vec<Object> {
    let of_family = |family: Family| {
        let text = slice(&slice_name("web", family), "web", family).port("", L4Proto::Tcp, 8080);
        pods.iter()
            .fold(text, |text, (pod, state)| {
                let (ready, serving) = (*state == "ready", *state != "gone");
                text.endpoint_json(serde_json::json!({
                    "addresses": [pod.addr(family)], "nodeName": pod.node().name(),
                    "conditions": { "ready": ready, "serving": serving, "terminating": !ready },
                }))
            })
            .object()
    };
    Family::ALL.map(of_family).into()
}

#[test]
fn t01_t02_t03_terminating_endpoints() {
    let mut three = Three::new("t01");
    let policies: [(&str, ServiceText); 4] = [
        ("both Cluster", web()),
        ("internal Local", web().internal_local()),
        ("external Local", web().external_local()),
        ("both Local", web().internal_local().external_local()),
    ];
    for (case, text) in policies {
        let json = text.json()["spec"].clone();
        let internal_local = json["internalTrafficPolicy"] == "Local";
        let external_local = json["externalTrafficPolicy"] == "Local";
        three.stage.apply(&[text.object()]);
        // States of `a` (first node) and `b` (second); who answers: by Cluster, by Local on each of the two.
        for (a_state, b_state, cluster, local) in [
            // t01: while any is ready, terminating ones get nothing. Local decides for itself.
            ("ready", "leaving", &["a"][..], [&["a"][..], &["b"]]),
            ("leaving", "ready", &["b"], [&["a"], &["b"]]),
            // t02: all terminating: those that still serve.
            ("leaving", "leaving", &["a", "b"], [&["a"], &["b"]]),
            ("leaving", "gone", &["a"], [&["a"], &[]]),
            // t03: terminating and not serving: never. Serving elsewhere does not help Local.
            ("gone", "leaving", &["b"], [&[], &["b"]]),
            ("gone", "gone", &[], [&[], &[]]),
        ] {
            let [a, b] = three.pods();
            let objects = states(&[(a, a_state), (b, b_state)]);
            three.stage.apply(&objects);
            for (index, local) in local.iter().enumerate() {
                for family in Family::ALL {
                    eprintln!("{case}: a {a_state}, b {b_state}, node {index}, {family}");
                    let ask = |from: &Host, to: SocketAddr, is_local: bool| {
                        let who: &[&str] = if is_local { local } else { cluster };
                        match (who, cluster) {
                            ([], []) => refused(from, L4Proto::Tcp, to),
                            ([], _) => dropped(from, L4Proto::Tcp, to),
                            _ => drop(reaches(from, L4Proto::Tcp, to, who)),
                        }
                    };
                    ask(&three.dialling[index], cluster_ip(family), internal_local);
                    ask(three.via(index), lb(family), external_local);
                    ask(three.via(index), three.stage.node(index).at(family, NODE_PORT), external_local);
                }
            }
        }
    }
}

#[test]
fn p08_masqueraded_clients_are_told_apart() {
    // The client is noted before the masquerade, so two clients behind one node port stay two.
    let mut three = Three::new("p08-masq");
    three.stage.apply(&[web().sticky(600).object()]);
    let objects = tcp_slices("web", 8080, &three.pods());
    three.stage.apply(&objects);
    let to = three.stage.node(2).at(Family::Ip, NODE_PORT);
    let mut seen = std::collections::BTreeSet::new();
    for pod in &three.dialling {
        seen.insert(sticks_to(pod, L4Proto::Tcp, to));
    }
    for n in 0..16 {
        let addr: IpAddr = format!("192.168.77.{}", 120 + n).parse().expect("an address");
        three.stage.world.client().add_address(addr).expect("an address for the client");
        let tally = three.stage.world.client().dial_many(Dial::new(L4Proto::Tcp, to).from(addr), 5);
        assert_eq!(tally.by.len(), 1, "{tally:?}");
        seen.extend(tally.by.into_keys());
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn p02_seen_from_the_clients_own_address() {
    let mut three = Three::new("p02-seen");
    three.stage.apply(&[web().external_local().object()]);
    let objects = tcp_slices("web", 8080, &three.pods());
    three.stage.apply(&objects);
    assert_eq!(NAMESPACE, "test");
    for family in Family::ALL {
        let outside = three.via(1).clone();
        reaches_seen(&outside, L4Proto::Tcp, lb(family), &["b"], outside.addr(family));
    }
}

//! Owns the packet tests of the behaviour table's part K: flows and what becomes of them. One test a row, named after it.

use integration::objects::{Object, ServiceText, service, slice, slice_name, slices};
use integration::stage::{PATIENCE, Stage, at, of, refused};
use integration::{Dial, Family, Host, L4Proto, Outcome, Pod, World};
use netlink::conntrack::{Conntrack, Filter, Flow, Status, Tuple, Zone};
use std::net::SocketAddr;
use std::time::Duration;

const IPS: [&str; 2] = ["10.96.0.53", "fd00:10:96::53"];
const LB: [&str; 2] = ["203.0.113.53", "2001:db8::53"];
const NODE_PORT: u16 = 30053;
/// The source port that the UDP client keeps.
const FIXED: u16 = 5353;

fn dns() -> ServiceText {
    service("dns", &IPS).node_port("dns", L4Proto::Udp, 53, NODE_PORT).load_balancer(&LB)
}

fn dns_slices(pods: &[&Pod]) -> Vec<Object> {
    if pods.is_empty() {
        return Family::ALL
            .map(|family| {
                slice(&slice_name("dns", family), "dns", family).port("dns", L4Proto::Udp, 5300).object()
            })
            .into();
    }
    slices("dns", &[("dns", L4Proto::Udp, 5300)], pods)
}

fn vip(family: Family) -> SocketAddr {
    at(of(family, IPS[0], IPS[1]), 53)
}

/// Every frontend of the Service.
fn frontends(stage: &Stage, family: Family) -> [SocketAddr; 3] {
    [vip(family), at(of(family, LB[0], LB[1]), 53), stage.node(0).at(family, NODE_PORT)]
}

/// A query from the port that the client keeps.
fn asks(from: &Host, to: SocketAddr) -> Outcome {
    from.dial(Dial::new(L4Proto::Udp, to).from_port(FIXED).within(PATIENCE))
}

#[track_caller]
fn answers(from: &Host, to: SocketAddr, who: &str) {
    let outcome = asks(from, to);
    assert_eq!(outcome.by(), Some(who), "{} asks {to}: {outcome}", from.name());
}

/// Flows of a protocol in a host's table.
fn flows(host: &Host, family: Family, proto: L4Proto) -> Vec<Flow> {
    host.run(|| {
        let mut all = Vec::new();
        let mut conntrack = Conntrack::open()?;
        conntrack.dump(&Filter::of(family).proto(proto), |flow| all.push(flow))?;
        Ok::<_, netlink::Error>(all)
    })
    .unwrap_or_else(|error| panic!("{}: {error}", host.name()))
}

fn insert(host: &Host, all: &[Flow]) {
    host.run(|| Conntrack::open()?.insert(all, Duration::from_secs(600)))
        .unwrap_or_else(|error| panic!("{}: {error}", host.name()));
}

fn flow(proto: L4Proto, source: &str, dialled: SocketAddr, answers: SocketAddr) -> Flow {
    let source: SocketAddr = source.parse().unwrap_or_else(|error| panic!("{source}: {error}"));
    Flow {
        original: Tuple { proto, source, destination: dialled },
        reply: Tuple { proto, source: answers, destination: source },
        status: Status::SEEN_REPLY,
        zone: Zone::Both(0),
        id: 0,
    }
}

struct Lab {
    stage: Stage,
    client: Pod,
    a: Pod,
    b: Pod,
    _servers: Vec<integration::Server>,
}

impl Lab {
    fn new(name: &str) -> Self {
        let stage = Stage::new(name);
        let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
        let _servers = [&a, &b]
            .into_iter()
            .flat_map(|pod: &Pod| L4Proto::ALL.map(|proto| pod.serve(proto, 5300, pod.name())))
            .collect();
        Self { stage, client, a, b, _servers }
    }
}

#[test]
fn k01_a_client_with_one_port_moves_on_when_its_endpoint_goes() {
    let mut lab = Lab::new("k01");
    lab.stage.apply(&[dns().object()]);
    lab.stage.apply(&dns_slices(&[&lab.a]));
    let outside = lab.stage.world.client().clone();
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            for from in [&*lab.client, &*outside, &**lab.stage.node(0)] {
                answers(from, to, "a");
            }
        }
    }
    lab.stage.apply(&dns_slices(&[&lab.b]));
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            for from in [&*lab.client, &*outside, &**lab.stage.node(0)] {
                answers(from, to, "b");
            }
        }
    }
}

#[test]
fn k02_packets_sent_before_there_was_an_endpoint_or_a_service() {
    let mut lab = Lab::new("k02");
    lab.stage.apply(&[]);
    let outside = lab.stage.world.client().clone();
    // Before the Service: the address leads nowhere, and the kernel notes flows without a translation.
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            for from in [&*lab.client, &*outside] {
                let outcome = asks(from, to);
                assert!(outcome.by().is_none(), "{outcome}");
            }
        }
    }
    lab.stage.apply(&dns_slices(&[&lab.a]));
    lab.stage.apply(&[dns().object()]);
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            for from in [&*lab.client, &*outside] {
                answers(from, to, "a");
            }
        }
    }
    // A Service without endpoints that gets its first.
    lab.stage.apply(&dns_slices(&[]));
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            assert_eq!(asks(&lab.client, to), Outcome::Refused, "{to}");
        }
    }
    lab.stage.apply(&dns_slices(&[&lab.b]));
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            answers(&lab.client, to, "b");
        }
    }
}

#[test]
fn k03_only_our_own_flows_are_deleted() {
    let mut lab = Lab::new("k03");
    lab.stage.apply(&[dns().object()]);
    lab.stage.apply(&dns_slices(&[&lab.a]));
    for family in Family::ALL {
        let dead = lab.a.at(family, 5300);
        let host = of(family, "192.0.2.9", "2001:db8:9::9");
        let client = |port: u16| SocketAddr::new(lab.client.addr(family), port).to_string();
        let elsewhere = |port: u16| at(host, port);
        let strangers = [
            // Another host's address, the port number of our node port, or of our Service.
            flow(L4Proto::Udp, &client(1001), elsewhere(NODE_PORT), dead),
            flow(L4Proto::Udp, &client(1002), elsewhere(53), elsewhere(53)),
            // Our address, a port that is not the Service's.
            flow(L4Proto::Udp, &client(1003), SocketAddr::new(vip(family).ip(), 54), dead),
            // A flow straight to the endpoint that goes.
            flow(L4Proto::Udp, &client(1004), dead, dead),
            // Other protocols to the very frontend.
            flow(L4Proto::Tcp, &client(1005), vip(family), dead),
            flow(L4Proto::Sctp, &client(1006), vip(family), dead),
        ];
        let own = [
            flow(L4Proto::Udp, &client(1011), vip(family), dead),
            flow(L4Proto::Udp, &client(1012), lab.stage.node(0).at(family, NODE_PORT), dead),
        ];
        insert(lab.stage.node(0), &strangers);
        insert(lab.stage.node(0), &own);
    }
    let ports = |lab: &Lab, family: Family| {
        let mut ports: Vec<u16> = L4Proto::ALL
            .into_iter()
            .flat_map(|proto| flows(lab.stage.node(0), family, proto))
            .map(|flow| flow.original.source.port())
            .filter(|port| (1001..1020).contains(port))
            .collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!(ports(&lab, Family::Ip).len(), 8);
    lab.stage.apply(&dns_slices(&[&lab.b]));
    for family in Family::ALL {
        assert_eq!(ports(&lab, family), [1001, 1002, 1003, 1004, 1005, 1006], "{family}");
    }
    // The Service goes: what was translated for it goes too; what was not was never ours.
    for family in Family::ALL {
        let untranslated =
            flow(L4Proto::Udp, &format!("{}", lab.client.at(family, 1014)), vip(family), vip(family));
        let translated = flow(
            L4Proto::Udp,
            &format!("{}", lab.client.at(family, 1015)),
            vip(family),
            lab.b.at(family, 5300),
        );
        insert(lab.stage.node(0), &[untranslated, translated]);
    }
    lab.stage.apply(&[Object::NoService("dns".into())]);
    for family in Family::ALL {
        assert_eq!(ports(&lab, family), [1001, 1002, 1003, 1004, 1005, 1006, 1014], "{family}");
    }
}

/// Also f06: the proxier is away while endpoints change; when it comes back, the flow reaches a live endpoint at once.
#[test]
fn k04_flows_from_before_the_start() {
    let mut lab = Lab::new("k04");
    lab.stage.apply(&[dns().object()]);
    lab.stage.apply(&dns_slices(&[&lab.a]));
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            answers(&lab.client, to, "a");
        }
    }
    lab.stage = Stage::with_running(lab.stage);
    let mut objects = vec![dns().object()];
    objects.extend(dns_slices(&[&lab.b]));
    lab.stage.apply(&objects);
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            answers(&lab.client, to, "b");
        }
    }
    // A Service that went meanwhile: its flows go too, for nobody would ever look for them again.
    lab.stage = Stage::with_running(lab.stage);
    lab.stage.apply(&dns_slices(&[&lab.b]));
    for family in Family::ALL {
        let left = flows(lab.stage.node(0), family, L4Proto::Udp);
        let left: Vec<_> = left.iter().filter(|flow| flow.original.destination == vip(family)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// f05: a restart with nothing changed deletes or moves not one flow.
#[test]
fn k04_a_restart_on_the_same_deletes_nothing() {
    let mut lab = Lab::new("f05");
    let mut objects = vec![dns().object()];
    objects.extend(dns_slices(&[&lab.a, &lab.b]));
    lab.stage.apply(&objects);
    for family in Family::ALL {
        for port in 6000..6020 {
            let outcome = lab.client.dial(Dial::new(L4Proto::Udp, vip(family)).from_port(port));
            assert!(outcome.by().is_some(), "{outcome}");
        }
    }
    let all = |lab: &Lab| {
        let mut all: Vec<(SocketAddr, SocketAddr, u32)> = Family::ALL
            .into_iter()
            .flat_map(|family| flows(lab.stage.node(0), family, L4Proto::Udp))
            .map(|flow| (flow.original.source, flow.reply.source, flow.id))
            .collect();
        all.sort_unstable();
        all
    };
    let before = all(&lab);
    assert!(before.len() >= 40, "{before:?}");
    lab.stage = Stage::with_running(lab.stage);
    lab.stage.apply(&objects);
    assert_eq!(all(&lab), before);
}

#[test]
fn k05_an_endpoint_that_leaves_and_serves_on_keeps_its_flows() {
    let mut lab = Lab::new("k05");
    lab.stage.apply(&[dns().object()]);
    lab.stage.apply(&dns_slices(&[&lab.a]));
    let leaving = |pods: &[(&Pod, bool)]| -> Vec<Object> {
        let of_family = |family: Family| {
            let text = slice(&slice_name("dns", family), "dns", family).port("dns", L4Proto::Udp, 5300);
            pods.iter()
                .fold(text, |text, (pod, leaves)| {
                    if *leaves {
                        text.leaving(pod.addr(family), pod.node().name())
                    } else {
                        text.endpoint(pod.addr(family), pod.node().name())
                    }
                })
                .object()
        };
        Family::ALL.map(of_family).into()
    };
    let id = |lab: &Lab, family: Family| {
        let all = flows(lab.stage.node(0), family, L4Proto::Udp);
        all.iter().find(|flow| flow.original.destination == vip(family)).map(|flow| flow.id)
    };
    for family in Family::ALL {
        answers(&lab.client, vip(family), "a");
    }
    let ids = Family::ALL.map(|family| id(&lab, family));
    for states in [vec![(&lab.a, true)], vec![(&lab.a, true), (&lab.b, false)]] {
        let objects = leaving(&states);
        lab.stage.apply(&objects);
        for (family, before) in Family::ALL.into_iter().zip(ids) {
            answers(&lab.client, vip(family), "a");
            assert_eq!(id(&lab, family), before, "the very same flow");
        }
    }
    // Gone for good: now it moves.
    lab.stage.apply(&dns_slices(&[&lab.b]));
    for family in Family::ALL {
        answers(&lab.client, vip(family), "b");
    }
}

/// f04: one-way senders on a fixed port, the Service scaled to zero: port unreachable, and no packet for the dead pod.
#[test]
fn k01_one_way_senders_to_the_last_endpoint() {
    let mut lab = Lab::new("f04");
    lab.stage.apply(&[dns().object()]);
    lab.stage.apply(&dns_slices(&[&lab.a]));
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            answers(&lab.client, to, "a");
        }
    }
    lab.stage.apply(&dns_slices(&[]));
    for family in Family::ALL {
        for to in frontends(&lab.stage, family) {
            assert_eq!(asks(&lab.client, to), Outcome::Refused, "{to}");
        }
        let dead = lab.a.addr(family);
        let left = flows(lab.stage.node(0), family, L4Proto::Udp);
        assert!(!left.iter().any(|flow| flow.reply.source.ip() == dead), "{left:?}");
    }
}

/// Connections to an endpoint that went are left to finish, and new ones go elsewhere. (SCTP: `k_sctp.rs`.)
#[test]
fn k03_tcp_is_left_to_finish() {
    let mut lab = Lab::new("k03-tcp");
    let ports = [("", L4Proto::Tcp, 5300)];
    lab.stage.apply(&[service("web", &IPS).tcp(80).object()]);
    lab.stage.apply(&slices("web", &ports, &[&lab.a]));
    let dials = |lab: &Lab, family: Family, who: &str| {
        let to = SocketAddr::new(vip(family).ip(), 80);
        assert_eq!(lab.client.dials(L4Proto::Tcp, to).by(), Some(who));
    };
    let to_a = |lab: &Lab| -> usize {
        let answers = |flow: &Flow, family| flow.reply.source.ip() == lab.a.addr(family);
        let of_family = |family| {
            let all = flows(lab.stage.node(0), family, L4Proto::Tcp);
            all.iter().filter(|flow| answers(flow, family)).count()
        };
        Family::ALL.into_iter().map(of_family).sum()
    };
    Family::ALL.into_iter().for_each(|family| dials(&lab, family, "a"));
    let before = to_a(&lab);
    assert!(before >= 2, "{before}");
    lab.stage.apply(&slices("web", &ports, &[&lab.b]));
    assert_eq!(to_a(&lab), before);
    Family::ALL.into_iter().for_each(|family| dials(&lab, family, "b"));
}

/// f18: TCP flows stuck in SYN_SENT to an endpoint that is gone: left by default, freed if the operator asks.
#[test]
fn k03_syn_sent_flows_are_freed_if_asked_for() {
    for free in [false, true] {
        let mut stage =
            Stage::with(World::new("f18").nodes(1).build(), |settings| settings.free_syn_sent = free);
        let (client, a) = (stage.node(0).pod("client"), stage.node(0).pod("a"));
        let tcp = [("", L4Proto::Tcp, 5300)];
        stage.apply(&[service("web", &IPS).tcp(80).object()]);
        stage.apply(&slices("web", &tcp, &[&a]));
        for family in Family::ALL {
            let to = SocketAddr::new(vip(family).ip(), 80);
            let stuck = Flow {
                status: Status(0),
                ..flow(L4Proto::Tcp, &client.at(family, 4001).to_string(), to, a.at(family, 5300))
            };
            let lives = flow(L4Proto::Tcp, &client.at(family, 4002).to_string(), to, a.at(family, 5300));
            insert(stage.node(0), &[stuck, lives]);
        }
        stage.apply(&[
            Object::NoSlice(slice_name("web", Family::Ip)),
            Object::NoSlice(slice_name("web", Family::Ip6)),
        ]);
        for family in Family::ALL {
            let mut ports: Vec<u16> = flows(stage.node(0), family, L4Proto::Tcp)
                .iter()
                .map(|flow| flow.original.source.port())
                .collect();
            ports.sort_unstable();
            let want: &[u16] = if free { &[4002] } else { &[4001, 4002] };
            assert_eq!(ports, want, "{family}, free_syn_sent {free}");
            refused(&client, L4Proto::Tcp, SocketAddr::new(vip(family).ip(), 80));
        }
    }
}

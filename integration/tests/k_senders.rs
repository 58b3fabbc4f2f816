//! Owns the packet tests of clients that nobody answers: one-way senders (statsd-like), node ports on an address that came
//! later, TCP clients of an endpoint that fell silent.

use integration::objects::{Object, service, slice, slice_name, slices};
use integration::stage::{PATIENCE, Stage, at, of};
use integration::{Dial, Family, L4Proto, Outcome, Prefix, Style, World, wire};
use proxier_core::model::{Cidr, HostAddress};
use proxier_core::{Change, NodePortAddresses};
use std::net::SocketAddr;

const IPS: [&str; 2] = ["10.96.0.125", "fd00:10:96::125"];
const LB: [&str; 2] = ["203.0.113.125", "2001:db8::125"];
const NODE_PORT: u16 = 30125;
const FIXED: u16 = 8125;
const PORTS: [(&str, L4Proto, u16); 1] = [("statsd", L4Proto::Udp, 8125)];

fn frontends(stage: &Stage, family: Family) -> [SocketAddr; 3] {
    let vip = |of_both: [&str; 2]| at(of(family, of_both[0], of_both[1]), 8125);
    [vip(IPS), vip(LB), stage.node(0).at(family, NODE_PORT)]
}

/// A datagram from the port that the sender keeps. A sender that is not refused has not heard a thing.
fn sends(to: SocketAddr) -> Dial {
    Dial::new(L4Proto::Udp, to).from_port(FIXED).within(PATIENCE)
}

/// f04: the Service is scaled to zero and back. While there is no endpoint, senders get port unreachable and the address of
/// the dead pod not one packet; then the new pod gets them all.
#[test]
fn k01_one_way_senders_follow_the_service_to_zero_and_back() {
    let mut stage = Stage::new("f04-one-way");
    let outside = stage.world.client().clone();
    let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
    let [to_a, to_b] = [&a, &b].map(|pod| pod.serve_as(Style::Silent, L4Proto::Udp, 8125, pod.name()));
    let text = service("statsd", &IPS).node_port("statsd", L4Proto::Udp, 8125, NODE_PORT).load_balancer(&LB);
    stage.apply(&[text.object()]);
    stage.apply(&slices("statsd", &PORTS, &[&a]));
    let send_all = |stage: &Stage, want: &Outcome| {
        let mut sent = 0;
        for family in Family::ALL {
            for to in frontends(stage, family) {
                for from in [&*client, &*outside] {
                    assert_eq!(from.dial(sends(to)), *want, "{} sends to {to}", from.name());
                    sent += 1;
                }
            }
        }
        sent
    };
    let sent = send_all(&stage, &Outcome::TimedOut);
    assert_eq!(to_a.seen().len(), sent);
    stage.apply(&Family::ALL.map(|family| {
        slice(&slice_name("statsd", family), "statsd", family).port("statsd", L4Proto::Udp, 8125).object()
    }));
    send_all(&stage, &Outcome::Refused);
    assert_eq!(to_a.seen().len(), sent, "a packet for the pod that is gone");
    stage.apply(&slices("statsd", &PORTS, &[&b]));
    assert_eq!(send_all(&stage, &Outcome::TimedOut), sent);
    assert_eq!((to_a.seen().len(), to_b.seen().len()), (sent, sent));
}

/// An address that moves to this node, as a failover does, is dialled before its node ports are served there: the flow that
/// the first packet makes leads to a closed port of the node. It must not hold the client.
#[test]
fn k02_node_ports_on_an_address_that_came_later() {
    let all = ["192.168.77.0/24", "fd00:77::/64"].map(|text| Cidr::parse(text).expect("a prefix"));
    let mut stage = Stage::with(World::new("k02-later").nodes(1).build(), |settings| {
        settings.node_port_addresses = all.iter().copied().map(NodePortAddresses::Cidr).collect();
    });
    let a = stage.node(0).pod("a");
    let _server = a.serve(L4Proto::Udp, 8125, "a");
    let text = service("statsd", &IPS).node_port("statsd", L4Proto::Udp, 8125, NODE_PORT);
    stage.apply(&[text.object()]);
    stage.apply(&slices("statsd", &PORTS, &[&a]));
    let moved = ["192.168.77.222", "fd00:77::222"];
    for addr in moved {
        let addr = at(addr, 0).ip();
        wire::address(stage.node(0).ns(), "eth0", addr, if addr.is_ipv4() { 24 } else { 64 })
            .expect("an address");
    }
    let client = stage.world.client().clone();
    for addr in moved {
        let outcome = client.dial(sends(at(addr, NODE_PORT)));
        assert_eq!(outcome, Outcome::Refused, "{addr}");
    }
    let addresses = stage.node(0).ns().block_on(netlink::address::host_addresses).expect("addresses");
    let addresses = addresses.into_iter().map(|host| HostAddress { addr: host.addr, link: host.link });
    stage.proxiers[0].change(vec![Change::HostAddresses(addresses.collect())]);
    for addr in moved {
        let outcome = client.dial(sends(at(addr, NODE_PORT)));
        assert_eq!(outcome.by(), Some("a"), "{addr}: {outcome}");
    }
}

/// f18: a TCP client that dials again from one port, after its endpoint went away without a word. Left to the kernel's
/// time-out (two minutes) by default; with the option it is served anew at once.
#[test]
fn k03_a_tcp_client_that_waits_for_an_endpoint_that_is_gone() {
    for free in [false, true] {
        let mut stage = Stage::with(World::new("f18-dial").build(), |settings| settings.free_syn_sent = free);
        let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
        let _servers = [&a, &b].map(|pod| pod.serve(L4Proto::Tcp, 5300, pod.name()));
        let tcp = [("", L4Proto::Tcp, 5300)];
        stage.apply(&[service("web", &IPS).tcp(80).object()]);
        stage.apply(&slices("web", &tcp, &[&a]));
        for family in Family::ALL {
            // Packets reach the endpoint, and none comes back.
            wire::blackhole(a.ns(), Prefix::host(client.addr(family))).expect("a route");
        }
        let dials = |family: Family| {
            let to = at(of(family, IPS[0], IPS[1]), 80);
            client.dial(Dial::new(L4Proto::Tcp, to).from_port(4001).within(PATIENCE))
        };
        for family in Family::ALL {
            assert_eq!(dials(family), Outcome::TimedOut);
        }
        let objects: Vec<Object> = slices("web", &tcp, &[&b]);
        stage.apply(&objects);
        for family in Family::ALL {
            let outcome = dials(family);
            assert_eq!(outcome.by(), free.then_some("b"), "{family}, free_syn_sent {free}: {outcome}");
        }
    }
}

//! Owns the lab's own tests: that what other tests stand on carries them. Knows nothing of the proxier.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use integration::load::LoadPlan;
use integration::{
    Dial, Family, L4Proto, Netns, Outcome, Prefix, Process, SERVICE_RANGES, Style, World, WorldPlan, wait,
    wire,
};

/// A dial that is expected to hear nothing.
const QUICKLY: Duration = Duration::from_millis(300);

fn each_wiring(name: &str) -> [WorldPlan; 2] {
    [World::new(name), World::new(name).point_to_point("cali")]
}

#[test]
fn everyone_reaches_everyone_and_keeps_their_own_address() {
    for world in each_wiring("reach").map(WorldPlan::build) {
        let pods = [world.node(0).pod("a"), world.node(0).pod("b"), world.node(1).pod("c")];
        let hosts: Vec<&integration::Host> = pods
            .iter()
            .map(|pod| &**pod)
            .chain(world.nodes().iter().map(|node| &**node))
            .chain([&**world.client()])
            .collect();
        for proto in L4Proto::ALL {
            for server in &hosts {
                let _server = server.serve(proto, 8080, server.name());
                for dialler in &hosts {
                    for family in world.families() {
                        let outcome = dialler.dials(proto, server.at(family, 8080));
                        let context = format!("{proto} {family}: {} to {}", dialler.name(), server.name());
                        assert_eq!(outcome.by(), Some(server.name()), "{context}: {outcome}");
                        let seen = outcome.seen_from().map(|peer| peer.ip());
                        // Towards its own pods a node shows the address that is nearest to them.
                        let mut possible: Vec<IpAddr> = vec![dialler.addr(family)];
                        possible.extend(
                            world
                                .nodes()
                                .iter()
                                .filter(|node| node.name() == dialler.name())
                                .map(|node| node.plan().pod_gateway(family)),
                        );
                        assert!(seen.is_some_and(|seen| possible.contains(&seen)), "{context}: {outcome}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_closed_port_refuses_and_a_black_hole_is_silent() {
    let world = World::new("closed").build();
    let (a, b) = (world.node(0).pod("a"), world.node(1).pod("b"));
    for family in world.families() {
        for proto in [L4Proto::Tcp, L4Proto::Udp] {
            assert_eq!(a.dials(proto, b.at(family, 9)), Outcome::Refused, "{proto} {family}");
        }
        let lost = match family {
            Family::Ip => Prefix::new("192.0.2.0".parse().expect("an address"), 24),
            Family::Ip6 => Prefix::new("100::".parse().expect("an address"), 64),
        };
        wire::blackhole(world.node(0).ns(), lost).expect("a route");
        for proto in L4Proto::ALL {
            let dial = Dial::new(proto, (lost.addr, 80).into()).within(QUICKLY);
            assert_eq!(a.dial(dial), Outcome::TimedOut, "{proto} {family}");
        }
    }
}

#[test]
fn the_outside_sends_services_to_the_chosen_node() {
    let world = World::new("via").build();
    for node in world.nodes() {
        world.client().routes_services_via(node);
        for range in SERVICE_RANGES {
            // The node takes the address for its own, as a stand-in for what the proxier would do.
            node.add_address("services", range.addr).expect("an address");
            let at = (range.addr, 80).into();
            let _server = node.serve_at(Style::Answer, L4Proto::Tcp, &[at], node.name());
            assert_eq!(world.client().dials(L4Proto::Tcp, at).by(), Some(node.name()), "{range}");
            node.remove_address("services", range.addr).expect("an address");
        }
    }
}

#[test]
fn a_fixed_source_is_seen() {
    let world = World::new("source").build();
    let pod = world.node(0).pod("a");
    let second: IpAddr = "192.168.77.150".parse().expect("an address");
    world.client().add_address(second).expect("an address");
    for proto in L4Proto::ALL {
        let _server = pod.serve(proto, 8080, "a");
        let dial = Dial::new(proto, pod.at(Family::Ip, 8080)).from(second).from_port(4321);
        let outcome = world.client().dial(dial);
        assert_eq!(outcome.seen_from(), Some((second, 4321).into()), "{proto}: {outcome}");
    }
}

#[test]
fn a_silent_server_sees_and_says_nothing() {
    let world = World::new("silent").nodes(1).build();
    let (a, b) = (world.node(0).pod("a"), world.node(0).pod("b"));
    for proto in L4Proto::ALL {
        let server = b.serve_as(Style::Silent, proto, 8080, "b");
        let outcome = a.dial(Dial::new(proto, b.at(Family::Ip, 8080)).from_port(5555).within(QUICKLY));
        assert_eq!(outcome, Outcome::TimedOut, "{proto}");
        assert_eq!(server.seen(), [a.at(Family::Ip, 5555)], "{proto}");
    }
}

#[test]
fn a_stopped_server_is_gone_at_once() {
    let world = World::new("stopped").nodes(1).build();
    let pod = world.node(0).pod("a");
    for family in world.families() {
        drop(pod.serve(L4Proto::Tcp, 8080, "a"));
        assert_eq!(world.client().dials(L4Proto::Tcp, pod.at(family, 8080)), Outcome::Refused);
    }
}

/// What hairpin needs of the wiring: a packet that leaves a pod comes back to the same pod from its node.
#[test]
fn a_packet_comes_back_to_the_pod_that_sent_it() {
    for world in each_wiring("hairpin").map(WorldPlan::build) {
        let pod = world.node(0).pod("a");
        // The pod has this address, yet sends packets to it out to its node, which routes them back.
        for (family, twin) in [(Family::Ip, "198.18.0.1"), (Family::Ip6, "fd00:18::1")] {
            let twin: IpAddr = twin.parse().expect("an address");
            wire::route_via(world.node(0).ns(), Prefix::host(twin), pod.addr(family)).expect("a route");
            let server = pod.serve_as(Style::Silent, L4Proto::Udp, 8080, "a");
            let before = received(&pod);
            let _ = pod.dial(Dial::new(L4Proto::Udp, (twin, 8080).into()).within(QUICKLY));
            wait::until("the packet to come back", wait::SOON, || received(&pod) > before);
            drop(server);
        }
    }
}

/// Packets that a host's eth0 received so far.
fn received(host: &integration::Host) -> u64 {
    let table = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).expect("net/dev");
    let row = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).expect("eth0");
    row.split_whitespace().nth(1).and_then(|packets| packets.parse().ok()).expect("a number")
}

#[test]
fn thousands_of_dials_take_seconds() {
    let world = World::new("many").build();
    let (a, b) = (world.node(0).pod("a"), world.node(1).pod("b"));
    for proto in L4Proto::ALL {
        let _server = b.serve(proto, 8080, "b");
        let begin = Instant::now();
        let tally = a.dial_many(Dial::new(proto, b.at(Family::Ip, 8080)), 3_000);
        assert_eq!(tally.by.get("b"), Some(&3_000), "{proto}: {:?}", tally.failed.first());
        println!("3,000 dials by {proto}: {:?}", begin.elapsed());
        assert!(begin.elapsed() < wait::SOON);
    }
}

#[test]
fn processes_run_in_the_namespace_and_end_with_their_value() {
    let world = World::new("process").nodes(1).build();
    let mut command = std::process::Command::new("cat");
    command.arg("/proc/self/net/fib_trie");
    let mut cat = world.node(0).spawn_process(command).expect("cat");
    assert!(cat.wait(wait::SOON).success());
    wait::until("the log", wait::SOON, || cat.log().contains("10.244.1.1"));

    let mut command = std::process::Command::new("sleep");
    command.arg("1000");
    let sleep: Process = world.node(0).spawn_process(command).expect("sleep");
    let path = format!("/proc/{}", sleep.pid());
    assert!(std::fs::exists(&path).expect("/proc"));
    drop(sleep);
    assert!(!std::fs::exists(&path).expect("/proc"));
}

#[test]
fn a_dropped_world_is_gone() {
    let witness = Netns::new("witness").expect("a namespace");
    let world = World::new("dropped").build();
    let pod = world.node(0).pod("a");
    let _server = pod.serve(L4Proto::Tcp, 8080, "a");
    for (number, ns) in
        world.nodes().iter().map(|node| node.ns()).chain([pod.ns(), world.underlay()]).enumerate()
    {
        wire::veth(&witness, &format!("witness{number}"), ns, "witness").expect("a pair");
    }
    assert!(wire::index(&witness, "witness0").is_ok());
    drop((_server, pod, world));
    // The kernel ends a namespace when nobody holds it, and with it both ends of each pair.
    for number in 0..4 {
        wait::until("the namespaces to end", wait::SOON, || {
            wire::index(&witness, &format!("witness{number}")).is_err()
        });
    }
}

#[test]
fn load_counts_what_it_does_and_what_breaks() {
    let world = World::new("load").build();
    let (a, b) = (world.node(0).pod("a"), world.node(1).pod("b"));
    let server = b.serve(L4Proto::Tcp, 8080, "b");
    let load = LoadPlan::on(b.at(Family::Ip, 8080)).established(10).dials_per_second(500).start(&a);
    wait::until("a hundred dials", wait::SOON, || load.so_far().dials_answered() >= 100);
    let report = load.so_far();
    assert!(report.is_flawless(), "{report:?}");
    assert_eq!(report.established.get("b"), Some(&10));
    drop(server);
    wait::until("all connections to break", wait::SOON, || load.so_far().broken.len() == 10);
    wait::until("dials to fail", wait::SOON, || load.so_far().failed.contains(&Outcome::Refused));
    assert!(load.stop().exchanges >= 10);
}

//! Owns row s06: stopping leaves the rules, starting again writes nothing. Knows nothing of changes in between.

use crate::{cluster, serve};
use integration::objects::{Object, service, slice, slice_name, tcp_slices};
use integration::ruleset::{Ours, generation, stays_unwritten};
use integration::stage::{at, comes_to_reach, of, reaches};
use integration::{Family, L4Proto, Manifests, Node, Pod, ProgramPlan, World, wait};
use std::time::Duration;

/// Longer than it takes until chains that fell out of use are swept, a second.
const A_WHILE: Duration = Duration::from_millis(1500);

/// A Service of every kind that leaves its own traces in the kernel.
fn one_of_each(a: &Pod, b: &Pod) -> Vec<Object> {
    let ips = |n: u8| [format!("10.96.1.{n}"), format!("fd00:10:96::1:{n}")];
    let named = |name: &str, n: u8| {
        let [v4, v6] = ips(n);
        service(name, &[&v4, &v6])
    };
    let mut objects = vec![
        named("cluster-ip", 1).tcp(80).object(),
        named("node-port", 2).node_port("", L4Proto::Tcp, 80, 30002).object(),
        named("local", 3)
            .node_port("", L4Proto::Tcp, 80, 30003)
            .load_balancer(&["203.0.113.3", "2001:db8::3"])
            .external_local()
            .object(),
        named("internal-local", 4).tcp(80).internal_local().object(),
        named("sticky", 5).node_port("", L4Proto::Tcp, 80, 30005).sticky(60).object(),
        named("sticky-local", 6)
            .node_port("", L4Proto::Tcp, 80, 30006)
            .load_balancer(&["203.0.113.6", "2001:db8::6"])
            .external_local()
            .sticky(600)
            .object(),
        named("guarded", 7)
            .tcp(80)
            .load_balancer(&["203.0.113.7", "2001:db8::7"])
            .spec("loadBalancerSourceRanges", vec!["192.168.77.0/24", "192.168.0.0/16", "fd00:77::/64"])
            .object(),
        named("external", 8).tcp(80).external_ips(&["198.51.100.8", "2001:db8::8"]).object(),
        named("nothing", 9).node_port("", L4Proto::Tcp, 80, 30009).object(),
        named("many-ports", 10).all_protocols(80, 30010).object(),
    ];
    for name in [
        "cluster-ip",
        "node-port",
        "local",
        "internal-local",
        "sticky",
        "sticky-local",
        "guarded",
        "external",
    ] {
        let pods: &[&Pod] = if name == "internal-local" { &[b] } else { &[a, b] };
        objects.extend(tcp_slices(name, 8080, pods));
    }
    // Of all endpoints of this one, none is ready; and this one has more than the others.
    for family in Family::ALL {
        let leaving = slice(&slice_name("many-ports", family), "many-ports", family)
            .port("tcp", L4Proto::Tcp, 8080)
            .port("udp", L4Proto::Udp, 8080)
            .port("sctp", L4Proto::Sctp, 8080)
            .leaving(a.addr(family), a.node().name())
            .leaving(b.addr(family), b.node().name())
            .leaving(at(of(family, "10.244.9.9", "fd00:10:244:9::9"), 0).ip(), "node-9");
        objects.push(leaving.object());
    }
    objects
}

/// Waits until the tables are the same for longer than a sweep takes, and returns the generation.
fn settled(node: &Node) -> u32 {
    wait::until("the ruleset to come to rest", wait::SOON, || {
        let before = generation(node);
        wait::try_until(A_WHILE, || generation(node) != before).err().map(|_| before)
    })
}

#[test]
fn s06_stopping_leaves_the_rules_and_starting_again_writes_nothing() {
    let world = World::new("s06").build();
    let node = world.node(0);
    let (client, a, b) = (node.pod("client"), node.pod("a"), world.node(1).pod("b"));
    let _servers = serve(&[&a, &b]);
    let manifests = Manifests::new();
    let mut objects = cluster(&world);
    objects.extend(one_of_each(&a, &b));
    manifests.put("all", &objects);
    let plan = ProgramPlan::on(node).manifests(&manifests);
    let mut program = plan.start_healthy();
    for family in Family::ALL {
        // A client that is remembered: its note must survive as well.
        let sticky = at(of(family, "10.96.1.5", "fd00:10:96::1:5"), 80);
        assert!(client.dials(L4Proto::Tcp, sticky).by().is_some());
    }
    let before = settled(node);
    let tables = Ours::of(node);

    for signal in ["SIGTERM", "SIGKILL", "SIGINT"] {
        match signal {
            "SIGTERM" => assert!(program.terminate().success()),
            "SIGINT" => {
                program.signal(nix::sys::signal::Signal::SIGINT);
                assert!(program.wait(wait::SOON).success());
            }
            _ => program.kill(),
        }
        assert_eq!(generation(node), before, "after {signal}");
        for family in Family::ALL {
            reaches(&client, L4Proto::Tcp, at(of(family, "10.96.1.1", "fd00:10:96::1:1"), 80), &["a", "b"]);
        }
        program = plan.start_healthy();
        stays_unwritten(node, before, A_WHILE);
    }
    let again = Ours::of(node);
    assert_eq!(again.count("services"), tables.count("services"));
}

#[test]
fn s06_what_changed_while_nobody_looked_is_all_that_is_written() {
    let world = World::new("s06-changed").build();
    let node = world.node(0);
    let (client, a, b) = (node.pod("client"), node.pod("a"), world.node(1).pod("b"));
    let _servers = serve(&[&a, &b]);
    let manifests = Manifests::new();
    let mut objects = cluster(&world);
    objects.extend(one_of_each(&a, &b));
    manifests.put("all", &objects);
    let plan = ProgramPlan::on(node).manifests(&manifests);
    let mut program = plan.start_healthy();
    program.terminate();

    // A Service is gone, one has moved, one is remembered for another time, and one is new.
    let name_of = |object: &Object| object.json()["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let changed = ["cluster-ip", "external", "sticky"];
    objects.retain(|object| {
        let (name, is_service) = (name_of(object), matches!(object, Object::Service(_)));
        !(name.starts_with("cluster-ip-") || is_service && changed.contains(&name.as_str()))
    });
    objects.push(service("external", &["10.96.1.88", "fd00:10:96::1:88"]).tcp(80).object());
    objects.push(service("sticky", &["10.96.1.5", "fd00:10:96::1:5"]).tcp(80).sticky(1234).object());
    objects.push(service("new", &["10.96.1.1", "fd00:10:96::1:1"]).tcp(80).object());
    objects.extend(tcp_slices("new", 8080, &[&a]));
    manifests.put("all", &objects);
    let program = plan.start_healthy();
    for family in Family::ALL {
        for (n, who) in [("1", vec!["a"]), ("88", vec!["a", "b"]), ("2", vec!["a", "b"])] {
            let to = at(&format!("{}{n}", of(family, "10.96.1.", "fd00:10:96::1:")), 80);
            comes_to_reach(&client, L4Proto::Tcp, to, &who, wait::SOON);
        }
        let gone = at(of(family, "10.96.1.8", "fd00:10:96::1:8"), 80);
        integration::stage::dropped(&client, L4Proto::Tcp, gone);
        let sticky = at(of(family, "10.96.1.5", "fd00:10:96::1:5"), 80);
        let first = client.dials(L4Proto::Tcp, sticky);
        for _ in 0..10 {
            assert_eq!(client.dials(L4Proto::Tcp, sticky).by(), first.by());
        }
    }
    drop(program);
    let rest = settled(node);
    let _program = plan.start_healthy();
    stays_unwritten(node, rest, A_WHILE);
}

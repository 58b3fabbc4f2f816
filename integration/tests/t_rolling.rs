//! Owns row t04: a rolling restart behind a load balancer that honours health checks loses no connection. The real program, real
//! health checks over HTTP, real dials. Done also without the fall-back to terminating endpoints, to show that it can fail.

use integration::load::{LoadPlan, LoadReport};
use integration::objects::{self, Object, ServiceText, service, slice, slice_name};
use integration::stage::{at, of};
use integration::{Family, Host, L4Proto, Manifests, Pod, ProgramPlan, World, wait};
use std::net::SocketAddr;
use std::time::Duration;

const HEALTH_CHECK: u16 = 31_000;
/// How often the load balancer asks.
const INTERVAL: Duration = Duration::from_secs(1);
/// After so many failures in a row it sends a node nothing more.
const FAILURES: usize = 2;

fn web(family: Family) -> ServiceText {
    service("web", &[of(family, "10.96.0.10", "fd00:10:96::10")])
        .node_port("", L4Proto::Tcp, 80, 30080)
        .load_balancer(&[of(family, "203.0.113.7", "2001:db8::7")])
        .external_local()
        .spec("healthCheckNodePort", HEALTH_CHECK)
}

fn is_healthy(from: &Host, node: SocketAddr) -> bool {
    from.get(node, "/").is_ok_and(|answer| answer.status == 200)
}

/// A rolling restart of the one replica, from the first node to the second, in one family.
fn restart(name: &str, family: Family, serves_while_terminating: bool) -> LoadReport {
    let world = World::new(name).nodes(2).only(family).build();
    let (old, new) = (world.node(0).pod("old"), world.node(1).pod("new"));
    let old_server = old.serve(L4Proto::Tcp, 8080, "old");
    let _new_server = new.serve(L4Proto::Tcp, 8080, "new");
    let ready = [true, true, false];
    let leaving = [false, serves_while_terminating, true];
    let manifests = Manifests::new();
    let nodes: Vec<Object> =
        world.nodes().iter().map(|node| objects::node(node.name(), node.addrs())).collect();
    manifests.put("nodes", &nodes);
    manifests.put("web", &[web(family).object()]);
    let put = |pods: &[(&Pod, [bool; 3])]| manifests.put("slices", &[slice_of(pods, family)]);
    put(&[(&old, ready)]);
    let _programs: Vec<_> = world
        .nodes()
        .iter()
        .map(|node| ProgramPlan::on(node).manifests(&manifests).start_healthy())
        .collect();
    let client = world.client();
    let checks = [0, 1].map(|node| world.node(node).at(family, HEALTH_CHECK));
    wait::until("the health check of the first node", wait::SOON, || is_healthy(client, checks[0]));
    client.routes_services_via(world.node(0));
    let vip = at(of(family, "203.0.113.7", "2001:db8::7"), 80);
    let load = LoadPlan::on(vip).dials_per_second(200).start(client);
    wait::until("dials that are answered", wait::SOON, || load.so_far().dials_answered() > 50);

    // The new pod becomes ready, then the old one is told to go.
    put(&[(&old, ready), (&new, ready)]);
    wait::until("the health check of the second node", wait::SOON, || is_healthy(client, checks[1]));
    put(&[(&old, leaving), (&new, ready)]);
    // The load balancer finds out by itself, and meanwhile sends on.
    let mut failures = 0;
    while failures < FAILURES {
        std::thread::sleep(INTERVAL);
        failures = if is_healthy(client, checks[0]) { 0 } else { failures + 1 };
    }
    client.routes_services_via(world.node(1));
    let moved = load.so_far().dials_answered();
    wait::until("dials by way of the second node", wait::SOON, || {
        load.so_far().dials_answered() > moved + 20
    });
    // Only now is the old pod gone.
    put(&[(&new, ready)]);
    drop(old_server);
    let gone = load.so_far().dials_answered();
    wait::until("dials after the restart", wait::SOON, || load.so_far().dials_answered() > gone + 100);
    load.stop()
}

/// The slice of a family: each pod with whether it is ready, serving and terminating.
fn slice_of(pods: &[(&Pod, [bool; 3])], family: Family) -> Object {
    let text = slice(&slice_name("web", family), "web", family).port("", L4Proto::Tcp, 8080);
    let text = pods.iter().fold(text, |text, (pod, [ready, serving, terminating])| {
        text.endpoint_json(serde_json::json!({
            "addresses": [pod.addr(family)], "nodeName": pod.node().name(),
            "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
        }))
    });
    text.object()
}

/// A dial whose first packet was dropped is sent again after a second, by when the load balancer may have moved on: that is a
/// failure as well.
fn is_flawless(report: &LoadReport) -> bool {
    report.is_flawless() && report.longest_dial < Duration::from_millis(900)
}

#[test]
fn t04_a_rolling_restart_loses_no_connection() {
    for family in Family::ALL {
        let report = restart("t04", family, true);
        assert!(report.dials_answered() > 500 && is_flawless(&report), "{family}: {report:?}");
    }
}

#[test]
fn t04_without_the_fall_back_it_does() {
    let report = restart("t04-without", Family::Ip, false);
    assert!(!is_flawless(&report), "nothing failed, so the other test proves nothing");
}

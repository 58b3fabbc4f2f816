//! Owns row s01: the API server is not there yet, away, restarted, frozen, and has forgotten. Knows nothing of a server
//! that is well.

use crate::Scene;
use integration::objects::{service, slice_name, tcp_slices};
use integration::ruleset::{Ours, generation};
use integration::stage::{at, comes_to, comes_to_reach};
use integration::{ApiServer, Family, L4Proto, Outcome, wait};
use std::time::Duration;

const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
const GOES: [&str; 2] = ["10.96.0.11", "fd00:10:96::11"];
const COMES: [&str; 2] = ["10.96.0.12", "fd00:10:96::12"];

/// How long it may take until the program tries again: its pauses grow to half a minute.
const AGAIN: Duration = Duration::from_secs(60);

/// One server for all of it, since each start of one takes seconds; one act after the other.
#[test]
fn s01_the_api_server_comes_late_goes_away_forgets_and_freezes() {
    let api = ApiServer::start();
    let scene = Scene::new("s01", &api);
    scene.apply(&[service("web", &WEB).tcp(80).object(), service("goes", &GOES).tcp(80).object()]);
    for name in ["web", "goes"] {
        scene.apply(&tcp_slices(name, 8080, &[&scene.a]));
    }
    comes_late(&api, &scene);
    let mut program = scene.plan.start_healthy();
    goes_away_and_forgets(&api, &scene, &mut program);
    is_away_while_the_program_starts(&api, &scene, program);
    freezes(&api, &scene);
}

/// The program is there first: it writes nothing, says that it is not ready, and catches up.
fn comes_late(api: &ApiServer, scene: &Scene) {
    let node = scene.world.node(0);
    api.take_down();
    let before = generation(node);
    let mut program = scene.plan.start();
    program.wait_for_line("what is known stays in force, trying on", wait::SOON);
    assert_eq!(program.healthz().map(|response| response.status), Some(503));
    assert_eq!(generation(node), before, "something was written before anything was known");
    api.bring_up();
    wait::until("/healthz to be 200", AGAIN, || {
        program.healthz().is_some_and(|response| response.status == 200)
    });
    scene.reaches(WEB, 80, &["a"]);
    scene.reaches(GOES, 80, &["a"]);
    assert_eq!(program.log().matches("API server: cannot watch").count(), 1, "one line for one outage");
    program.terminate();
}

/// Objects come, change and go while the program cannot see it, and versions from before cannot be watched from any more.
fn goes_away_and_forgets(api: &ApiServer, scene: &Scene, program: &mut integration::Program) {
    let node = scene.world.node(0);
    let before = generation(node);
    api.take_down();
    program.wait_for_line("what is known stays in force, trying on", wait::SOON);
    scene.reaches(WEB, 80, &["a"]);
    // The server is back before this node's way to it is.
    api.cut_off(node.ns());
    api.bring_up();
    scene.kubectl.delete("v1/Service", "goes");
    scene.kubectl.delete("discovery.k8s.io/v1/EndpointSlice", &slice_name("web", Family::Ip6));
    scene.apply(&tcp_slices("web", 8080, &[&scene.b]));
    scene.apply(&[service("comes", &COMES).tcp(80).object()]);
    scene.apply(&tcp_slices("comes", 8080, &[&scene.a, &scene.b]));
    api.compact();
    scene.reaches(WEB, 80, &["a"]);
    scene.reaches(GOES, 80, &["a"]);
    assert_eq!(generation(node), before, "rules changed while nothing was known");
    api.wire_to(node.ns());
    for (web, comes) in WEB.iter().zip(COMES) {
        comes_to_reach(&scene.client, L4Proto::Tcp, at(web, 80), &["b"], AGAIN);
        comes_to_reach(&scene.client, L4Proto::Tcp, at(comes, 80), &["a", "b"], AGAIN);
    }
    for goes in GOES {
        comes_to(&scene.client, L4Proto::Tcp, at(goes, 80), &Outcome::TimedOut, AGAIN);
    }
    assert_eq!(Ours::of(node).count("cluster-ips"), 2 + 2 + 1, "web, comes and the API server's own Service");
    program.wait_for_line("API server: watching again", wait::SOON);
}

/// A node that reboots its program while the API server is away goes on with the rules that it has.
fn is_away_while_the_program_starts(api: &ApiServer, scene: &Scene, mut program: integration::Program) {
    let node = scene.world.node(0);
    api.take_down();
    program.terminate();
    let before = generation(node);
    let mut program = scene.plan.start();
    program.wait_for_line("what is known stays in force, trying on", wait::SOON);
    scene.reaches(WEB, 80, &["b"]);
    scene.reaches(COMES, 80, &["a", "b"]);
    assert_eq!(generation(node), before);
    api.bring_up();
    wait::until("/healthz to be 200", AGAIN, || {
        program.healthz().is_some_and(|response| response.status == 200)
    });
    assert_eq!(generation(node), before, "what is right was written anew");
    scene.reaches(WEB, 80, &["b"]);
}

/// A server that answers nothing and keeps its connections: the node serves on, and what happened comes when it thaws.
fn freezes(api: &ApiServer, scene: &Scene) {
    let program = scene.plan.start_healthy();
    let frozen = api.freeze();
    scene.reaches(WEB, 80, &["b"]);
    assert_eq!(program.healthz().map(|response| response.status), Some(200));
    std::thread::scope(|scope| {
        // The client's call waits as long as the server is frozen.
        let change = scope.spawn(|| scene.apply(&tcp_slices("web", 8080, &[&scene.a, &scene.b])));
        scene.reaches(COMES, 80, &["a", "b"]);
        drop(frozen);
        change.join().expect("the change");
    });
    for web in WEB {
        comes_to_reach(&scene.client, L4Proto::Tcp, at(web, 80), &["a", "b"], wait::SOON);
    }
}

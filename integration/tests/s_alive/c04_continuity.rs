//! Owns row c04: connections while the program is killed, stopped and replaced. Knows nothing of other rows.

use crate::{cluster, serve, web, web_service};
use integration::load::{Load, LoadPlan, LoadReport};
use integration::objects::tcp_slices;
use integration::ruleset::Ours;
use integration::{Family, Manifests, Pod, Program, ProgramPlan, World, wait};

#[test]
fn c04_no_connection_breaks_while_the_program_is_killed_stopped_and_upgraded() {
    let world = World::new("c04").build();
    let (first, second) = (world.node(0), world.node(1));
    let client = first.pod("client");
    let (a, b, c) = (first.pod("a"), second.pod("b"), second.pod("c"));
    let _servers = serve(&[&a, &b, &c]);
    let manifests = Manifests::new();
    let mut objects = cluster(&world);
    objects.push(web_service());
    manifests.put("web", &objects);
    let put_endpoints = |pods: &[&Pod]| manifests.put("endpoints", &tcp_slices("web", 8080, pods));
    put_endpoints(&[&a, &b, &c]);

    let plan = ProgramPlan::on(first).manifests(&manifests);
    // A second program at the same time needs other ports for its health and its metrics.
    let other = plan.clone().ports(20256, 20249);
    let mut program = plan.start_healthy();
    let loads: Vec<Load> = Family::ALL
        .into_iter()
        .flat_map(|family| {
            let load = LoadPlan::on(web(family)).established(12).dials_per_second(60);
            // A pod of this node, and somebody outside, who is masqueraded.
            [load.clone().start(&client), load.start(world.client())]
        })
        .collect();

    for round in 0..12 {
        let pods: &[&Pod] = if round % 2 == 0 { &[&a, &b] } else { &[&a, &b, &c] };
        match round % 4 {
            0 => {
                // The change is on its way.
                put_endpoints(pods);
                program.kill();
                program = plan.start_healthy();
            }
            1 => {
                program.terminate();
                // The change comes while nobody looks, and the next one is killed wherever it is by then.
                put_endpoints(pods);
                plan.start().kill();
                program = plan.start_healthy();
            }
            2 => {
                // Two at once, as when a DaemonSet's pod is replaced with a surge.
                let mut next = other.start_healthy();
                put_endpoints(pods);
                program.terminate();
                let mut next_but_one = plan.start_healthy();
                next.terminate();
                std::mem::swap(&mut program, &mut next_but_one);
            }
            _ => {
                put_endpoints(pods);
                kills_itself_out(&mut program, &plan);
            }
        }
        wait::until(&format!("{} endpoints in the kernel", pods.len()), wait::SOON, || {
            let slots = Ours::of(first).count("endpoints");
            if slots == 2 * pods.len() { Ok(()) } else { Err(format!("{slots} slots")) }
        });
        if pods.len() == 2 {
            for load in &loads {
                gets_no_new_connections("c", load);
            }
        }
    }
    for load in loads {
        let report = load.stop();
        assert!(report.is_flawless(), "{report:?}");
        assert!(report.established.len() == 3, "{:?}", report.established);
        assert!(report.exchanges > 0 && report.answered.len() == 3, "{report:?}");
    }
}

/// Ends the program at once, five times in a row, each a little later in its start.
fn kills_itself_out(program: &mut Program, plan: &ProgramPlan) {
    for lines in 0..5 {
        program.kill();
        *program = plan.start();
        wait::until("the program's log to grow", wait::SOON, || program.log().lines().count() >= lines);
    }
    program.wait_until_healthy();
}

/// What was under way when the kernel was written may still come; after that, nothing.
fn gets_no_new_connections(name: &str, load: &Load) {
    let more_dials = |count: u64| -> LoadReport {
        let before = load.so_far().dials_answered();
        wait::until("more dials", wait::SOON, || {
            let now = load.so_far();
            if now.dials_answered() >= before + count { Ok(now) } else { Err(format!("{now:?}")) }
        })
    };
    let settled = more_dials(10);
    let later = more_dials(20);
    assert_eq!(later.answered.get(name), settled.answered.get(name), "new connections reach {name}");
}

//! Owns row c05's last words: node ports on loopback are served when asked for, and only then. Knows nothing of other
//! addresses.

use integration::load::LoadPlan;
use integration::objects::{Object, ServiceText, node, service, service_cidr, tcp_slices};
use integration::stage::{at, comes_to_reach, of, reaches, refused};
use integration::{Dial, Family, L4Proto, Manifests, Pod, ProgramPlan, Server, Style, World, wait};
use std::net::SocketAddr;

const PORT: u16 = 30080;

fn localhost(family: Family) -> SocketAddr {
    at(of(family, "127.0.0.1", "::1"), PORT)
}

fn cluster(world: &World) -> Vec<Object> {
    let nodes = world.nodes().iter().map(|member| node(member.name(), member.addrs()));
    nodes.chain([service_cidr("kubernetes", &["10.96.0.0/16", "fd00:10:96::/112"])]).collect()
}

fn web() -> ServiceText {
    service("web", &["10.96.0.10", "fd00:10:96::10"]).node_port("", L4Proto::Tcp, 80, PORT)
}

fn serve(pods: &[&Pod]) -> Vec<Server> {
    pods.iter().map(|pod| pod.serve(L4Proto::Tcp, 8080, pod.name())).collect()
}

#[test]
fn c05_node_ports_on_loopback_follow_the_service() {
    let world = World::new("c05-loopback").build();
    let host = world.node(0);
    let (a, b) = (host.pod("a"), world.node(1).pod("b"));
    let _servers = serve(&[&a, &b]);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put("web", &[web().object()]);
    manifests.put("slices", &tcp_slices("web", 8080, &[&a, &b]));
    let plan = ProgramPlan::on(host).manifests(&manifests);
    let mut program = plan.clone().arg("--nodeport-addresses=primary,localhost").start_healthy();
    for family in Family::ALL {
        comes_to_reach(host, L4Proto::Tcp, localhost(family), &["a", "b"], wait::SOON);
        reaches(world.client(), L4Proto::Tcp, host.at(family, PORT), &["a", "b"]);
        // The endpoint sees this node, not loopback.
        let seen = host.dials(L4Proto::Tcp, localhost(family)).seen_from().map(|peer| peer.ip());
        assert!(seen.is_some_and(|addr| !addr.is_loopback()), "{seen:?}");
    }

    // Endpoints come and go, and connections stay with theirs.
    manifests.put("slices", &tcp_slices("web", 8080, &[&a]));
    for family in Family::ALL {
        comes_to_reach(host, L4Proto::Tcp, localhost(family), &["a"], wait::SOON);
    }
    let loads: Vec<_> = Family::ALL
        .iter()
        .map(|family| LoadPlan::on(localhost(*family)).established(5).start(host))
        .collect();
    manifests.put("slices", &tcp_slices("web", 8080, &[&b]));
    for family in Family::ALL {
        comes_to_reach(host, L4Proto::Tcp, localhost(family), &["b"], wait::SOON);
    }
    for load in loads {
        let report = load.stop();
        assert!(report.is_flawless(), "{report:?}");
    }

    // Policy Local: only endpoints of this node.
    manifests.put("slices", &tcp_slices("web", 8080, &[&a, &b]));
    manifests.put("web", &[web().external_local().object()]);
    for family in Family::ALL {
        comes_to_reach(host, L4Proto::Tcp, localhost(family), &["a"], wait::SOON);
    }
    // With affinity all clients of loopback are one.
    manifests.put("web", &[web().sticky(600).object()]);
    for family in Family::ALL {
        wait::until("affinity", wait::SOON, || {
            let tally = host.dial_many(Dial::new(L4Proto::Tcp, localhost(family)), 30);
            if tally.by.len() == 1 && tally.failed.is_empty() { Ok(()) } else { Err(format!("{tally:?}")) }
        });
    }
    // Without endpoints, and without the Service, nobody listens.
    manifests.put("slices", &tcp_slices("web", 8080, &[]));
    for family in Family::ALL {
        wait::until("the port to close", wait::SOON, || {
            let outcome = host.dials(L4Proto::Tcp, localhost(family));
            if outcome.by().is_none() { Ok(()) } else { Err(outcome) }
        });
        refused(host, L4Proto::Tcp, localhost(family));
    }
    program.terminate();
    drop(program);

    // Not unless loopback itself is named, nor where the gate is off.
    manifests.put("slices", &tcp_slices("web", 8080, &[&a]));
    for args in [
        vec!["--nodeport-addresses=0.0.0.0/0,::/0"],
        vec!["--nodeport-addresses=primary"],
        vec![
            "--nodeport-addresses=primary,localhost",
            "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=false",
        ],
    ] {
        let _program = args.iter().fold(plan.clone(), |plan, arg| plan.arg(*arg)).start_healthy();
        for family in Family::ALL {
            comes_to_reach(world.client(), L4Proto::Tcp, host.at(family, PORT), &["a"], wait::SOON);
            refused(host, L4Proto::Tcp, localhost(family));
        }
    }
}

#[test]
fn c05_a_port_of_loopback_that_is_taken_is_counted_and_served_later() {
    let world = World::new("c05-taken").nodes(1).build();
    let host = world.node(0);
    let a = host.pod("a");
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put("web", &[vec![web().object()], tcp_slices("web", 8080, &[&a])].concat());
    let taken = host.serve_at(Style::Answer, L4Proto::Tcp, &[localhost(Family::Ip)], "somebody else");
    let plan = ProgramPlan::on(host).manifests(&manifests).arg("--nodeport-addresses=localhost");
    let _program = plan.start_healthy();
    comes_to_reach(host, L4Proto::Tcp, localhost(Family::Ip6), &["a"], wait::SOON);
    let metric = |name: &str, family: &str| {
        let response = host.get(at("127.0.0.1", 10249), "/metrics").expect("metrics");
        let series = format!("kubeproxy_nftables_localhost_nodeport_{name}{{ip_family=\"{family}\"}} ");
        response.body.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok())
    };
    assert_eq!((metric("listeners", "IPv4"), metric("listeners", "IPv6")), (Some(0), Some(1)));
    assert!(metric("listener_creation_failures_total", "IPv4") >= Some(1));
    assert_eq!(metric("listener_creation_failures_total", "IPv6"), None);
    drop(taken);
    comes_to_reach(host, L4Proto::Tcp, localhost(Family::Ip), &["a"], wait::SOON);
    assert_eq!(metric("listeners", "IPv4"), Some(1));
    // Not outside, where only loopback is asked for.
    refused(world.client(), L4Proto::Tcp, host.at(Family::Ip, PORT));
}

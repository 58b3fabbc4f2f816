//! Owns row s04: the kernel refuses. Knows nothing of foreign edits that can be put right.

use crate::{cluster, serve, web, web_service};
use integration::objects::{service, tcp_slices};
use integration::ruleset::{Ours, command, nft as host_nft};
use integration::stage::{at, comes_to_reach, of, reaches};
use integration::{Family, Host, L4Proto, Manifests, Process, ProgramPlan, World, wait};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

const METRICS: u16 = 20249;
const FAILURES: &str = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";

/// The failures that the program has counted, over both families.
fn failures(host: &Host) -> u64 {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS));
    let text = host.get(at, "/metrics").map(|response| response.body).unwrap_or_default();
    let values =
        text.lines().filter(|line| line.starts_with(FAILURES)).filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<u64>().ok()).sum()
}

/// A table that belongs to a process: nobody else may write into it or delete it (`flags owner`, Linux 5.12).
struct Owner {
    nft: std::process::Child,
}

impl Owner {
    fn of(host: &Host, table: &str) -> Self {
        let mut nft = host
            .run(|| {
                command().arg("-i").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
            })
            .expect("nft -i");
        // In one transaction: the program would repair within milliseconds.
        let text = format!("add table {table}; delete table {table}; add table {table} {{ flags owner; }}\n");
        nft.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("nft reads");
        let this = Self { nft };
        wait::until("the owned table", wait::SOON, || {
            host_nft(host, &format!("list table {table}\n")).contains("flags owner")
        });
        this
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.nft.kill();
        let _ = self.nft.wait();
    }
}

#[test]
fn s04_what_the_kernel_refuses_is_tried_again_and_nothing_is_half_written() {
    let world = World::new("s04").build();
    let node = world.node(0);
    let (client, a) = (node.pod("client"), node.pod("a"));
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    let mut objects = cluster(&world);
    objects.push(web_service());
    objects.extend(tcp_slices("web", 8080, &[&a]));
    manifests.put("all", &objects);
    let plan =
        ProgramPlan::on(node).manifests(&manifests).ports(20256, METRICS).arg("--iptables-sync-period=1s");

    // From the start: our IPv4 table is somebody else's.
    let owner = Owner::of(node, "ip proxier");
    let mut program = plan.start();
    program.wait_for_line("nothing was written, next try in", wait::SOON);
    let line = program.wait_for_line("Operation not permitted", wait::SOON);
    assert!(line.contains("proxier"), "{line}");
    wait::until("failures to be counted", wait::SOON, || failures(node) > 0);
    assert_eq!(program.healthz().map(|response| response.status), Some(503));
    let held = Ours::of(node);
    assert!(held.tables.iter().all(|(_, dump)| dump.table.chains.is_empty()), "half is written: {held:?}");
    drop(owner);
    program.wait_until_healthy();
    for family in Family::ALL {
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a"], wait::SOON);
    }

    // In the middle of its life: the rules of the moment before go on serving nobody in that family, and come back.
    let whole = Ours::of(node);
    let owner = Owner::of(node, "ip proxier");
    let before = failures(node);
    manifests.put("more", &[service("more", &["10.96.0.40", "fd00:10:96::40"]).tcp(80).object()]);
    manifests.put("more-slices", &tcp_slices("more", 8080, &[&a]));
    wait::until("failures to be counted", wait::SOON, || failures(node) > before);
    // The other family's table is as it was.
    reaches(&client, L4Proto::Tcp, web(Family::Ip6), &["a"]);
    drop(owner);
    for family in Family::ALL {
        comes_to_reach(
            &client,
            L4Proto::Tcp,
            at(of(family, "10.96.0.40", "fd00:10:96::40"), 80),
            &["a"],
            wait::SOON,
        );
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a"], wait::SOON);
    }
    assert!(Ours::of(node).count("services") > whole.count("services"));
    program.wait_until_healthy();
}

#[test]
fn s04_a_service_that_the_kernel_cannot_hold_costs_itself() {
    let world = World::new("s04-name").build();
    let node = world.node(0);
    let (client, a) = (node.pod("client"), node.pod("a"));
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    let mut objects = cluster(&world);
    objects.push(web_service());
    objects.extend(tcp_slices("web", 8080, &[&a]));
    // Names of chains end at 255 bytes, and affinity chains carry the Service's name.
    let long = "n".repeat(300);
    objects.push(service(&long, &["10.96.0.50", "fd00:10:96::50"]).tcp(80).sticky(60).object());
    objects.extend(tcp_slices(&long, 8080, &[&a]));
    manifests.put("all", &objects);
    let mut program: integration::Program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    let process: &mut Process = &mut program;
    process.wait_for_line(&long[..100], wait::SOON);
    for family in Family::ALL {
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a"], wait::SOON);
    }
    // And without affinity it is like any other.
    manifests.put("without-affinity", &[service(&long, &["10.96.0.50", "fd00:10:96::50"]).tcp(80).object()]);
    for family in Family::ALL {
        comes_to_reach(
            &client,
            L4Proto::Tcp,
            at(of(family, "10.96.0.50", "fd00:10:96::50"), 80),
            &["a"],
            wait::SOON,
        );
    }
}

#[test]
fn s04_a_service_that_the_kernel_refuses_costs_itself() {
    let world = World::new("s04-held").build();
    let node = world.node(0);
    let (client, a) = (node.pod("client"), node.pod("a"));
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    let sticky =
        |seconds| service("sticky", &["10.96.0.50", "fd00:10:96::50"]).tcp(80).sticky(seconds).object();
    let mut objects = cluster(&world);
    objects.extend([web_service(), sticky(60)]);
    for name in ["web", "sticky"] {
        objects.extend(tcp_slices(name, 8080, &[&a]));
    }
    manifests.put("all", &objects);
    let mut program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    // A verdict may not lead to a chain that hooks in, and here somebody makes one of the name that the Service's has.
    let chain = "sticky-test/sticky/tcp/";
    host_nft(
        node,
        &format!(
            "flush map ip proxier sticky\ndelete chain ip proxier {chain}\n\
             add chain ip proxier {chain} {{ type filter hook input priority 0; }}\n"
        ),
    );
    let line = program.wait_for_line("the kernel refused it", wait::SOON);
    assert!(line.contains("Service test/sticky") && line.contains("the others are programmed"), "{line}");
    for family in Family::ALL {
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a"], wait::SOON);
    }
    // What is in the way is swept, and the Service is tried again when it changes, or after half a minute.
    wait::until("the chain to be swept", wait::SOON, || {
        Ours::of(node)
            .tables
            .iter()
            .all(|(_, dump)| !dump.table.chains.keys().any(|name| name.as_str() == chain))
    });
    *objects.iter_mut().find(|object| object.json()["metadata"]["name"] == "sticky").expect("it") =
        sticky(61);
    manifests.put("all", &objects);
    for family in Family::ALL {
        let to = at(of(family, "10.96.0.50", "fd00:10:96::50"), 80);
        comes_to_reach(&client, L4Proto::Tcp, to, &["a"], wait::SOON);
    }
}

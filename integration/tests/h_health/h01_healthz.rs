//! Owns rows h01 and h02: `/healthz` and `/livez` of the program. Knows nothing of Services' health checks.

use crate::{HEALTH, ask, cluster, scrape};
use integration::objects::{Object, service, tcp_slices};
use integration::{ApiServer, Manifests, ProgramPlan, Response, World, wait};
use serde_json::{Value, json};

const NEVER: &str = "0001-01-01T00:00:00Z";

fn body(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap_or_else(|error| panic!("{error}: {}", response.body))
}

#[track_caller]
fn wait_for(world: &World, path: &str, status: u16) -> Response {
    wait::until(&format!("{path} to be {status}"), wait::SOON, || match ask(world, HEALTH, path) {
        Some(response) if response.status == status => Ok(response),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn h01_503_until_the_first_full_sync_then_200() {
    let world = World::new("h01").nodes(1).build();
    let api = ApiServer::start();
    let kubectl = api.kubectl("h01");
    kubectl.apply("{apiVersion: v1, kind: Node, metadata: {name: node-h01}, status: {addresses: [{type: InternalIP, address: 192.168.77.11}]}}");
    let plan = ProgramPlan::on(world.node(0)).arg("--hostname-override=node-h01").api(&api);
    api.wire_to(world.node(0).ns());
    // The API server is away, so nothing is known of what to program.
    api.take_down();
    let mut program = plan.start();
    let early = wait_for(&world, "/healthz", 503);
    let said = body(&early);
    assert_eq!(said["lastUpdated"], NEVER);
    assert_eq!((&said["healthy"], &said["nodeEligible"]), (&json!(false), &json!(false)));
    let families = json!({"IPv4": {"lastUpdated": NEVER, "healthy": false}, "IPv6": {"lastUpdated": NEVER, "healthy": false}});
    assert_eq!(said["status"], families);
    let order: Vec<usize> = ["lastUpdated", "currentTime", "nodeEligible", "healthy", "status"]
        .iter()
        .map(|key| early.body.find(&format!("\"{key}\":")).expect(key))
        .collect();
    assert!(order.is_sorted(), "{}", early.body);
    assert!(!early.body.ends_with('\n'));
    assert_eq!(early.header("content-type"), Some("application/json"));
    assert_eq!(early.header("x-content-type-options"), Some("nosniff"));
    // A restart would not help: it is alive.
    assert_eq!(wait_for(&world, "/livez", 200).status, 200);

    api.bring_up();
    program.wait_until_healthy();
    let good = wait_for(&world, "/healthz", 200);
    let said = body(&good);
    assert_eq!((&said["healthy"], &said["nodeEligible"]), (&json!(true), &json!(true)));
    assert_eq!(said["lastUpdated"], said["currentTime"], "200 was updated just now, as upstream");
    for family in ["IPv4", "IPv6"] {
        assert_eq!(said["status"][family]["healthy"], true);
        assert_ne!(said["status"][family]["lastUpdated"], NEVER);
    }
    let livez = body(&wait_for(&world, "/livez", 200));
    assert!(livez.get("nodeEligible").is_none(), "{livez}");
    assert_eq!(ask(&world, HEALTH, "/other").map(|response| response.status), Some(404));
    let counted = scrape(&world);
    assert!(counted.value("kubeproxy_proxy_healthz_total", &[("code", "200")]) >= Some(1.0));
    assert!(counted.value("kubeproxy_proxy_healthz_total", &[("code", "503")]) >= Some(1.0));
    assert_eq!(counted.value("kubeproxy_proxy_livez_total", &[("code", "200")]), Some(2.0));
}

#[test]
fn h01_503_while_a_change_or_a_repair_waits_for_too_long() {
    let world = World::new("h01-late").nodes(1).build();
    let node = world.node(0);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    // The time-out is twice the sync period.
    let mut program =
        ProgramPlan::on(node).manifests(&manifests).arg("--iptables-sync-period=1s").start_healthy();
    let before = body(&wait_for(&world, "/healthz", 200))["status"]["IPv4"]["lastUpdated"].clone();

    // Somebody takes our table away, and keeps it: nothing in the cluster changed, and yet a repair waits.
    let owner = Owner::of(node, "ip proxier");
    let late = wait_for(&world, "/healthz", 503);
    let said = body(&late);
    assert_eq!((&said["healthy"], &said["nodeEligible"]), (&json!(false), &json!(true)));
    assert_eq!(said["status"]["IPv4"]["lastUpdated"], before);
    assert_eq!(wait_for(&world, "/livez", 503).status, 503);
    assert!(scrape(&world).value("proxier_staleness_seconds", &[("ip_family", "IPv4")]) >= Some(2.0));
    drop(owner);
    program.wait_until_healthy();
    assert_eq!(wait_for(&world, "/livez", 200).status, 200);
    assert_eq!(scrape(&world).value("proxier_staleness_seconds", &[("ip_family", "IPv4")]), Some(0.0));
}

/// A table that belongs to a process: nobody else may write into it or delete it (`flags owner`, Linux 5.12).
struct Owner {
    nft: std::process::Child,
}

impl Owner {
    fn of(host: &integration::Host, table: &str) -> Self {
        use std::io::Write as _;
        let start = || {
            integration::ruleset::command()
                .arg("-i")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
        };
        let mut nft = host.run(start).expect("nft -i");
        // In one transaction: the program would repair within milliseconds.
        let text = format!("add table {table}; delete table {table}; add table {table} {{ flags owner; }}\n");
        nft.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("nft reads");
        Self { nft }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.nft.kill();
        let _ = self.nft.wait();
    }
}

/// This node, as a manifest with further fields.
fn node_with(world: &World, fields: &Value) -> String {
    let mut node = cluster(world).first().map(Object::json).expect("a node");
    for part in ["metadata", "spec"] {
        for (key, value) in fields[part].as_object().into_iter().flatten() {
            node[part][key] = value.clone();
        }
    }
    node.to_string()
}

#[test]
fn h02_a_node_that_is_to_go_is_not_eligible_but_alive() {
    let world = World::new("h02").nodes(1).build();
    let manifests = Manifests::new();
    manifests.put_text("node.json", &node_with(&world, &json!({})));
    let mut program = ProgramPlan::on(world.node(0)).manifests(&manifests).start_healthy();
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    for (case, fields, status) in [
        ("marked by the autoscaler", taint("ToBeDeletedByClusterAutoscaler"), 503),
        ("another taint", taint("node.kubernetes.io/unschedulable"), 200),
        ("being deleted", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), 503),
        ("as before", json!({}), 200),
    ] {
        manifests.put_text("node.json", &node_with(&world, &fields));
        let said = wait_for(&world, "/healthz", status);
        let said = body(&said);
        assert_eq!(said["healthy"], true, "{case}: the rules are in sync");
        assert_eq!(said["nodeEligible"], status == 200, "{case}");
        assert_eq!(wait_for(&world, "/livez", 200).status, 200, "{case}");
    }
    assert!(program.is_running());
    // A Service keeps the program busy without touching what it says.
    manifests.put(
        "web",
        &[
            vec![service("web", &["10.96.0.10", "fd00:10:96::10"]).tcp(80).object()],
            tcp_slices("web", 80, &[]),
        ]
        .concat(),
    );
    assert_eq!(wait_for(&world, "/healthz", 200).status, 200);
}

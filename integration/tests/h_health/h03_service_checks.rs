//! Owns row h03 and the cases f13 and f14: the health check servers of Services. Knows nothing of the program's own health,
//! but that it counts.

use crate::{cluster, scrape};
use integration::objects::{Object, ServiceText, service, slice, slice_name, tcp_slices};
use integration::stage::{at, of, refused};
use integration::{ApiServer, Family, Host, L4Proto, Manifests, Pod, ProgramPlan, Style, World, wait};
use std::net::SocketAddr;

const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];
const VIPS: [&str; 2] = ["203.0.113.7", "2001:db8:7::7"];
const PORT: u16 = 30999;

/// A Service with a load balancer, policy Local and a health check on this port.
fn local(name: &str, health_check_port: u16) -> ServiceText {
    service(name, &WEB)
        .tcp(80)
        .load_balancer(&VIPS)
        .external_local()
        .spec("healthCheckNodePort", health_check_port)
}

/// A slice a family: pods that are ready, and pods that terminate and still serve.
fn backed_by(name: &str, ready: &[&Pod], leaving: &[&Pod]) -> Vec<Object> {
    Family::ALL
        .into_iter()
        .map(|family| {
            let mut text = slice(&slice_name(name, family), name, family).port("", L4Proto::Tcp, 8080);
            for pod in ready {
                text = text.endpoint(pod.addr(family), pod.node().name());
            }
            for pod in leaving {
                text = text.leaving(pod.addr(family), pod.node().name());
            }
            text.object()
        })
        .collect()
}

/// Waits for an answer with this status and this number of endpoints, and checks all of it.
#[track_caller]
fn answers(from: &Host, to: SocketAddr, name: &str, status: u16, endpoints: usize, healthy: bool) {
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"test\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\"localEndpoints\": \
         {endpoints},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
    );
    let response =
        wait::until(&format!("{to} to say {status}"), wait::SOON, || match from.get(to, "/any/path") {
            Ok(response) if response.status == status && response.body == body => Ok(response),
            other => Err(format!("{other:?}")),
        });
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.header("x-load-balancing-endpoint-weight"), Some(endpoints.to_string().as_str()));
}

#[test]
fn h03_a_server_for_each_service_says_whether_this_node_has_ready_endpoints() {
    let world = World::new("h03").build();
    let node = world.node(0);
    let second = ["192.168.77.201", "fd00:77::201"];
    for addr in second {
        node.add_address("eth0", at(addr, 0).ip()).expect("an address for the node");
    }
    let (a, b, elsewhere) = (node.pod("a"), node.pod("b"), world.node(1).pod("elsewhere"));
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put("web", &[local("web", PORT).object()]);
    manifests.put("slices", &backed_by("web", &[&a, &b, &elsewhere], &[]));
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    let client = world.client();
    for family in Family::ALL {
        answers(client, node.at(family, PORT), "web", 200, 2, true);
        // Only where node ports are served: by default the Node's own addresses.
        for other in [of(family, "127.0.0.1", "::1"), of(family, second[0], second[1])] {
            assert!(node.get(at(other, PORT), "/").is_err(), "{other} answers");
        }
    }
    for (ready, leaving, status, endpoints) in [
        (vec![&a], vec![&b], 200, 1),
        // t05: terminating ones serve on, and the load balancer goes elsewhere.
        (vec![], vec![&a, &b], 503, 0),
        (vec![&elsewhere], vec![], 503, 0),
        (vec![&a], vec![], 200, 1),
        (vec![], vec![], 503, 0),
    ] {
        manifests.put("slices", &backed_by("web", &ready, &leaving));
        for family in Family::ALL {
            answers(client, node.at(family, PORT), "web", status, endpoints, true);
        }
    }
    // The port moves; another Service takes the old one at the same moment.
    manifests.put("slices", &[backed_by("web", &[&a], &[]), backed_by("other", &[&b], &[])].concat());
    let other = service("other", &["10.96.0.11", "fd00:10:96::11"])
        .tcp(80)
        .load_balancer(&["203.0.113.8", "2001:db8:7::8"]);
    manifests.put(
        "web",
        &[local("web", PORT + 1).object(), other.external_local().spec("healthCheckNodePort", PORT).object()],
    );
    for family in Family::ALL {
        answers(client, node.at(family, PORT + 1), "web", 200, 1, true);
        answers(client, node.at(family, PORT), "other", 200, 1, true);
    }
    // With policy Cluster there is no check.
    manifests.put("web", &[service("web", &WEB).tcp(80).load_balancer(&VIPS).object()]);
    for family in Family::ALL {
        let to = node.at(family, PORT + 1);
        wait::until("the server to close", wait::SOON, || client.get(to, "/").is_err());
    }
}

#[test]
fn h03_everywhere_when_node_ports_are() {
    let world = World::new("h03-all").nodes(1).build();
    let node = world.node(0);
    let a = node.pod("a");
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put("web", &[vec![local("web", PORT).object()], backed_by("web", &[&a], &[])].concat());
    let plan = ProgramPlan::on(node).manifests(&manifests).arg("--nodeport-addresses=0.0.0.0/0,::/0");
    let _program = plan.start_healthy();
    for family in Family::ALL {
        answers(world.client(), node.at(family, PORT), "web", 200, 1, true);
        answers(node, at(of(family, "127.0.0.1", "::1"), PORT), "web", 200, 1, true);
    }
}

#[test]
fn h03_a_port_in_use_is_told_once_and_tried_again() {
    let world = World::new("h03-taken").nodes(1).build();
    let node = world.node(0);
    let api = ApiServer::shared();
    let kubectl = api.kubectl("h03-taken");
    kubectl.apply(
        "
apiVersion: v1
kind: Node
metadata: {name: node-h03}
status: {addresses: [{type: InternalIP, address: 192.168.77.11}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: '', port: 8080}]
endpoints: [{addresses: [10.244.1.9], nodeName: node-h03, conditions: {ready: true}}]
",
    );
    let port = kubectl.get("v1/Service", "web").data["spec"]["healthCheckNodePort"].as_u64();
    let port = u16::try_from(port.expect("a port")).expect("a port");
    api.wire_to(node.ns());
    let taken = node.serve_at(Style::Answer, L4Proto::Tcp, &[node.at(Family::Ip, port)], "somebody else");
    let mut program = ProgramPlan::on(node).arg("--hostname-override=node-h03").api(&api).start_healthy();
    program.wait_for_line("FailedToStartServiceHealthcheck", wait::SOON);
    let events = |reason: &str| -> Vec<serde_json::Value> {
        let all = kubectl.list("events.k8s.io/v1/Event").into_iter().map(|event| event.data);
        all.filter(|event| event["reason"] == reason).collect()
    };
    let told = wait::until("the Event", wait::SOON, || {
        Some(events("FailedToStartServiceHealthcheck")).filter(|events| !events.is_empty())
    });
    assert_eq!(told.len(), 1);
    let event = &told[0];
    assert_eq!((&event["type"], &event["action"]), (&"Warning".into(), &"Listen".into()));
    assert_eq!(
        (&event["regarding"]["kind"], &event["regarding"]["name"]),
        (&"Service".into(), &"web".into())
    );
    assert_eq!(event["reportingController"], "kube-proxy");
    let note = event["note"].as_str().unwrap_or_default();
    let expected = format!("node node-h03 failed to start healthcheck \"h03-taken/web\" on port {port}: ");
    assert!(note.starts_with(&expected), "{note}");
    drop(taken);
    wait::until("the server", wait::SOON, || {
        node.get(node.at(Family::Ip, port), "/").is_ok_and(|response| response.status == 200)
    });
    assert_eq!(events("FailedToStartServiceHealthcheck").len(), 1, "once");
    let started: Vec<_> = api.kubectl("default").list("events.k8s.io/v1/Event");
    let started = started.iter().filter(|event| {
        event.data["reason"] == "Starting"
            && event.data["regarding"]["name"] == "node-h03"
            && event.data["action"] == "StartKubeProxy"
    });
    assert_eq!(started.count(), 1);
    kubectl.delete("v1/Service", "web");
    kubectl.delete("v1/Node", "node-h03");
}

/// `no_local_endpoints` of both families, which agree: internal, external.
#[track_caller]
fn lacking_local(world: &World) -> (f64, f64) {
    let scrape = scrape(world);
    let of = |policy, family| {
        let labels = [("traffic_policy", policy), ("ip_family", family)];
        scrape.value("kubeproxy_sync_proxy_rules_no_local_endpoints_total", &labels).unwrap_or(-1.0)
    };
    let all = ["internal", "external"].map(|policy| {
        let (v4, v6) = (of(policy, "IPv4"), of(policy, "IPv6"));
        assert!(v4 == v6, "{policy}: {v4}, {v6}");
        v4
    });
    (all[0], all[1])
}

#[track_caller]
fn wait_for_lacking(world: &World, case: &str, wanted: (f64, f64)) {
    wait::until(case, wait::SOON, || {
        let now = lacking_local(world);
        if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

#[test]
fn h04_services_without_a_local_endpoint_are_counted_exactly() {
    let world = World::new("h04").build();
    let node = world.node(0);
    let (here, there) = (node.pod("here"), world.node(1).pod("there"));
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    assert_eq!(lacking_local(&world), (0.0, 0.0));
    let internal = service("internal", &["10.96.0.20", "fd00:10:96::20"]).tcp(80).internal_local();
    let both = service("both", &["10.96.0.21", "fd00:10:96::21"])
        .node_port("", L4Proto::Tcp, 80, 30081)
        .internal_local()
        .external_local();
    manifests.put("services", &[local("web", PORT).object(), internal.object(), both.object()]);
    wait_for_lacking(&world, "f13: no endpoint anywhere is not counted", (0.0, 0.0));
    for (case, pods, wanted) in [
        ("all elsewhere", vec![&there], (2.0, 2.0)),
        ("here too", vec![&there, &here], (0.0, 0.0)),
        ("only elsewhere again", vec![&there], (2.0, 2.0)),
        ("nowhere", vec![], (0.0, 0.0)),
        ("only here", vec![&here], (0.0, 0.0)),
    ] {
        let slices = ["web", "internal", "both"].map(|name| tcp_slices(name, 8080, &pods));
        manifests.put("slices", &slices.concat());
        wait_for_lacking(&world, case, wanted);
    }
    manifests
        .put("slices", &["web", "internal", "both"].map(|name| tcp_slices(name, 8080, &[&there])).concat());
    wait_for_lacking(&world, "elsewhere", (2.0, 2.0));
    manifests.put("services", &[local("web", PORT).object()]);
    wait_for_lacking(&world, "one Service left", (0.0, 1.0));
    manifests.remove("services.json");
    wait_for_lacking(&world, "none", (0.0, 0.0));
}

#[test]
fn f13_policy_local_without_any_endpoint_is_rejected_and_not_counted() {
    let world = World::new("f13").build();
    let node = world.node(0);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    let text = service("web", &WEB)
        .node_port("", L4Proto::Tcp, 80, 30080)
        .load_balancer(&VIPS)
        .external_local()
        .internal_local();
    manifests.put("web", &[text.object()]);
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    let client = node.pod("client");
    for family in Family::ALL {
        refused(world.client(), L4Proto::Tcp, node.at(family, 30080));
        refused(&client, L4Proto::Tcp, at(of(family, WEB[0], WEB[1]), 80));
        refused(&client, L4Proto::Tcp, at(of(family, VIPS[0], VIPS[1]), 80));
    }
    assert_eq!(lacking_local(&world), (0.0, 0.0));
}

#[test]
fn f14_the_check_turns_503_when_the_last_local_endpoint_moves_away() {
    let world = World::new("f14").build();
    let node = world.node(0);
    let (here, there) = (node.pod("here"), world.node(1).pod("there"));
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put("web", &[local("web", PORT).object()]);
    manifests.put("slices", &backed_by("web", &[&here], &[]));
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    for family in Family::ALL {
        answers(world.client(), node.at(family, PORT), "web", 200, 1, true);
    }
    manifests.put("slices", &backed_by("web", &[&there], &[]));
    for family in Family::ALL {
        answers(world.client(), node.at(family, PORT), "web", 503, 0, true);
    }
    wait_for_lacking(&world, "it is counted", (0.0, 1.0));
}

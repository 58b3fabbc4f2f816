//! Owns the tests of objects that come, change and go while the API server is well. They share one server: each has
//! Services, addresses and node ports of its own. Knows nothing of outages.

use crate::{SOON, Scene};
use integration::objects::{service, service_cidr, slice_name, tcp_slices};
use integration::stage::{at, comes_to, comes_to_reach, of, reaches};
use integration::{ApiServer, Family, L4Proto, Outcome, Prefix, Style, wait, wire};
use serde_json::json;

const SERVICE: &str = "v1/Service";
const SLICE: &str = "discovery.k8s.io/v1/EndpointSlice";

#[test]
fn api_services_and_endpoints_are_followed_from_creation_to_recreation() {
    const WEB: [&str; 2] = ["10.96.10.1", "fd00:10:96::a01"];
    const LATE: [&str; 2] = ["10.96.10.2", "fd00:10:96::a02"];
    const LB: [&str; 2] = ["203.0.113.10", "2001:db8::a01"];
    let api = ApiServer::shared();
    let scene = Scene::new("api-live", &api);
    // One Service is there before the program, one comes later.
    scene.apply(&[service("live", &WEB).tcp(80).object()]);
    scene.apply(&tcp_slices("live", 8080, &[&scene.a]));
    let program = scene.plan.start_healthy();
    scene.comes_to_reach(WEB, 80, &["a"]);
    scene.apply(&tcp_slices("live-late", 8080, &[&scene.b]));
    scene.apply(&[service("live-late", &LATE).tcp(80).object()]);
    scene.comes_to_reach(LATE, 80, &["b"]);

    // Endpoints come and go, to the last.
    scene.apply(&tcp_slices("live", 8080, &[&scene.a, &scene.b]));
    scene.comes_to_reach(WEB, 80, &["a", "b"]);
    scene.apply(&tcp_slices("live", 8080, &[&scene.b]));
    scene.comes_to_reach(WEB, 80, &["b"]);
    for family in Family::ALL {
        scene.kubectl.patch(SLICE, &slice_name("live", family), json!({ "endpoints": [] }));
    }
    scene.comes_to(WEB, 80, &Outcome::Refused);
    for family in Family::ALL {
        scene.kubectl.delete(SLICE, &slice_name("live", family));
    }
    scene.apply(&tcp_slices("live", 8080, &[&scene.a]));
    scene.comes_to_reach(WEB, 80, &["a"]);

    // The cloud gives it an address, and takes it back.
    scene.kubectl.patch(SERVICE, "live", json!({ "spec": { "type": "LoadBalancer" } }));
    scene.kubectl.set_ingress("live", &LB.map(|ip| at(ip, 0).ip()));
    scene.comes_to_reach(LB, 80, &["a"]);
    for ip in LB {
        comes_to_reach(scene.world.client(), L4Proto::Tcp, at(ip, 80), &["a"], SOON);
    }
    scene.kubectl.set_ingress("live", &[]);
    for ip in LB {
        wait::until("the address to be left alone", SOON, || {
            scene.client.dials(L4Proto::Tcp, at(ip, 80)).by().is_none()
        });
    }

    // Another port, and the old one is gone.
    scene.kubectl.patch(SERVICE, "live", json!({ "spec": { "ports": [{ "port": 81, "protocol": "TCP" }] } }));
    scene.comes_to_reach(WEB, 81, &["a"]);
    scene.comes_to(WEB, 80, &Outcome::Refused);

    // Deleted, and made again under the same addresses by another name.
    scene.kubectl.delete(SERVICE, "live");
    scene.comes_to(WEB, 81, &Outcome::TimedOut);
    scene.apply(&[service("live-again", &WEB).tcp(80).object()]);
    scene.comes_to(WEB, 80, &Outcome::Refused);
    scene.apply(&tcp_slices("live-again", 8080, &[&scene.b]));
    scene.comes_to_reach(WEB, 80, &["b"]);
    // And under the same name, whose endpoints have waited for it.
    scene.kubectl.delete(SERVICE, "live-late");
    scene.apply(&[service("live-late", &LATE).tcp(82).object()]);
    scene.comes_to_reach(LATE, 82, &["b"]);
    assert_eq!(program.healthz().map(|response| response.status), Some(200));
}

#[test]
fn c12_labels_and_types_hand_services_over_while_everything_runs() {
    const WEB: [&str; 2] = ["10.96.12.1", "fd00:10:96::c01"];
    const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
    const HEADLESS: &str = "service.kubernetes.io/headless";
    let api = ApiServer::shared();
    let scene = Scene::new("api-c12", &api);
    scene.apply(&[service("c12", &WEB).label(PROXY_NAME, "another").tcp(80).object()]);
    scene.apply(&tcp_slices("c12", 8080, &[&scene.a, &scene.b]));
    let _program = scene.plan.start_healthy();
    let label = |kind: &str, name: &str, key: &str, value: serde_json::Value| {
        scene.kubectl.patch(kind, name, json!({ "metadata": { "labels": { key: value } } }));
    };
    scene.comes_to(WEB, 80, &Outcome::TimedOut);
    // An empty value is a label as well.
    for value in ["another", "", "proxier"] {
        label(SERVICE, "c12", PROXY_NAME, json!(null));
        scene.comes_to_reach(WEB, 80, &["a", "b"]);
        label(SERVICE, "c12", PROXY_NAME, json!(value));
        scene.comes_to(WEB, 80, &Outcome::TimedOut);
    }
    label(SERVICE, "c12", PROXY_NAME, json!(null));
    scene.comes_to_reach(WEB, 80, &["a", "b"]);

    // Slices of headless Services carry a label too.
    for family in Family::ALL {
        label(SLICE, &slice_name("c12", family), HEADLESS, json!(""));
    }
    scene.comes_to(WEB, 80, &Outcome::Refused);
    for family in Family::ALL {
        label(SLICE, &slice_name("c12", family), HEADLESS, json!(null));
    }
    scene.comes_to_reach(WEB, 80, &["a", "b"]);

    // An alias has no address.
    scene.kubectl.patch(
        SERVICE,
        "c12",
        json!({ "spec": {
            "type": "ExternalName", "externalName": "web.example", "clusterIP": null, "clusterIPs": null,
            "ipFamilies": null, "ipFamilyPolicy": null,
        } }),
    );
    scene.comes_to(WEB, 80, &Outcome::TimedOut);
}

#[test]
fn api_the_node_and_the_service_cidrs_are_followed() {
    const WEB: [&str; 2] = ["10.96.14.1", "fd00:10:96::e01"];
    const UNUSED: [&str; 2] = ["10.96.14.9", "fd00:10:96::e09"];
    const NODE_PORT: u16 = 30014;
    let api = ApiServer::shared();
    let scene = Scene::new("api-node", &api);
    let second = ["192.168.77.214", "fd00:77::214"];
    let node = scene.world.node(0);
    for addr in second {
        node.add_address("eth0", at(addr, 0).ip()).expect("an address for the node");
    }
    scene.apply(&[service("node", &WEB).node_port("", L4Proto::Tcp, 80, NODE_PORT).object()]);
    scene.apply(&tcp_slices("node", 8080, &[&scene.a]));
    // The Node comes after the program, without addresses first, as where kubelet starts later.
    let plan = scene.plan.clone().arg("--hostname-override=node-14");
    let mut program = plan.start();
    wait::until("/healthz to listen", SOON, || program.healthz());
    assert_eq!(program.healthz().map(|response| response.status), Some(503), "before there is a Node");
    scene.apply(&[integration::objects::node("node-14", &[])]);
    scene.apply(&[integration::objects::node("node-14", node.addrs())]);
    program.wait_until_healthy();
    let client = scene.world.client();
    for family in Family::ALL {
        comes_to_reach(client, L4Proto::Tcp, node.at(family, NODE_PORT), &["a"], SOON);
        // `primary`: only the Node's own address.
        comes_to(
            client,
            L4Proto::Tcp,
            at(of(family, second[0], second[1]), NODE_PORT),
            &Outcome::Refused,
            SOON,
        );
    }

    // And it has said that it starts, where kubectl describe node shows it.
    let everywhere = api.kubectl("default");
    wait::until("an Event about the node", SOON, || {
        everywhere
            .list("events.k8s.io/v1/Event")
            .iter()
            .any(|event| event.data["reason"] == "Starting" && event.data["regarding"]["name"] == "node-14")
    });

    // The cluster's autoscaler marks the node; it is no longer eligible, and serves on.
    let mark = json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }]);
    scene.kubectl.patch("v1/Node", "node-14", json!({ "spec": { "taints": mark } }));
    wait::until("/healthz to be 503", SOON, || {
        program.healthz().is_some_and(|response| response.status == 503)
    });
    for family in Family::ALL {
        reaches(client, L4Proto::Tcp, node.at(family, NODE_PORT), &["a"]);
    }
    scene.kubectl.patch("v1/Node", "node-14", json!({ "spec": { "taints": null } }));
    program.wait_until_healthy();

    // An address of the cluster's range that nobody has is dropped; of another range, it is none of ours.
    scene.comes_to(UNUSED, 80, &Outcome::TimedOut);
    let elsewhere = ["10.97.14.9", "fd00:10:97::e09"].map(|addr| at(addr, 8080));
    let other = scene.world.node(1);
    for (to, family) in elsewhere.iter().zip(Family::ALL) {
        other.add_address("elsewhere", to.ip()).expect("an address elsewhere");
        wire::route_via(node.ns(), Prefix::host(to.ip()), other.addr(family)).expect("a route there");
    }
    let _server = other.serve_at(Style::Answer, L4Proto::Tcp, &elsewhere, "elsewhere");
    for to in elsewhere {
        reaches(&scene.client, L4Proto::Tcp, to, &["elsewhere"]);
    }
    scene.apply(&[service_cidr("api-14", &["10.97.14.0/24", "fd00:10:97::/112"])]);
    for to in elsewhere {
        comes_to(&scene.client, L4Proto::Tcp, to, &Outcome::TimedOut, SOON);
    }
}

#[test]
fn s03_objects_that_the_api_server_takes_and_nobody_can_serve_cost_only_themselves() {
    const WEB: [&str; 2] = ["10.96.3.1", "fd00:10:96::301"];
    let api = ApiServer::shared();
    let scene = Scene::new("api-s03", &api);
    let mut program = scene.plan.start_healthy();
    let bad = |n: u8| [format!("10.96.3.{n}"), format!("fd00:10:96::30{n}")];
    let bad_service = |name: &str, n: u8| {
        let [v4, v6] = bad(n);
        service(name, &[&v4, &v6]).tcp(80)
    };
    // Load balancer addresses are not looked at by the API server, beyond being addresses.
    scene.apply(&[
        bad_service("s03-lb", 2).load_balancer(&["127.0.0.1", "224.0.0.1", "::1", "203.0.113.3"]).object(),
        bad_service("s03-own", 3).external_ips(&["10.96.3.1", "10.96.3.3"]).object(),
    ]);
    scene.apply(&tcp_slices("s03-lb", 8080, &[&scene.a]));
    scene.apply(&tcp_slices("s03-own", 8080, &[&scene.a]));
    let slice = |name: &str, service: &str, fields: serde_json::Value| {
        let mut slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "ports": [], "endpoints": [],
        });
        if let (Some(slice), Some(fields)) = (slice.as_object_mut(), fields.as_object()) {
            slice.extend(fields.clone());
        }
        scene.kubectl.apply(&slice.to_string());
    };
    let endpoint = json!([{ "addresses": ["10.244.99.99"] }]);
    slice("s03-all-ports", "s03", json!({ "endpoints": endpoint, "ports": [{ "name": "" }] }));
    slice(
        "s03-names",
        "s03",
        json!({ "addressType": "FQDN", "endpoints": [{ "addresses": ["web.example"] }] }),
    );
    slice(
        "s03-no-service",
        "nobody",
        json!({ "endpoints": endpoint, "ports": [{ "name": "", "port": 8080 }] }),
    );
    slice("s03-no-ports", "s03", json!({ "endpoints": endpoint }));
    slice(
        "s03-other-port",
        "s03",
        json!({ "endpoints": endpoint, "ports": [{ "name": "x", "port": 8080 }] }),
    );

    scene.apply(&[service("s03", &WEB).tcp(80).object()]);
    scene.apply(&tcp_slices("s03", 8080, &[&scene.a, &scene.b]));
    scene.comes_to_reach(WEB, 80, &["a", "b"]);
    let [v4, v6] = bad(3);
    scene.comes_to_reach([&v4, &v6], 80, &["a"]);
    scene.comes_to_reach(["203.0.113.3", "fd00:10:96::302"], 80, &["a"]);
    for said in [
        "Service test/s03-lb: status.loadBalancer.ingress[0]: \"127.0.0.1\"",
        "Service test/s03-lb: status.loadBalancer.ingress[1]: \"224.0.0.1\"",
        "Service test/s03-lb: status.loadBalancer.ingress[2]: \"::1\"",
        "EndpointSlice test/s03-all-ports: ports[0].port",
        "10.96.3.1",
    ] {
        program.wait_for_line(said, SOON);
    }
}

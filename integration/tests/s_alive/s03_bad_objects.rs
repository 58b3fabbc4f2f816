//! Owns row s03 on a folder of manifests: a bad object costs itself and one line of the log. Knows nothing of what the API
//! server would have refused.

use crate::{cluster, serve, web, web_service};
use integration::objects::{NAMESPACE, Object, service, slice, tcp_slices};
use integration::ruleset::Ours;
use integration::stage::{at, comes_to_reach, of, reaches, refused};
use integration::{Family, L4Proto, Manifests, Pod, ProgramPlan, World, wait};
use serde_json::{Value, json};

/// What is wrong, the object, and what the log says of it.
type Row = (&'static str, Value, &'static [&'static str]);

fn bad_service(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec })
}

fn bad_slice(name: &str, fields: Value) -> Value {
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": "web" },
        },
        "addressType": "IPv4", "ports": [{ "name": "", "port": 8080 }], "endpoints": [],
    });
    if let (Some(slice), Some(fields)) = (slice.as_object_mut(), fields.as_object()) {
        slice.extend(fields.clone());
    }
    slice
}

fn endpoints(addrs: &[&str]) -> Value {
    json!({ "endpoints": addrs.iter().map(|addr| json!({ "addresses": [addr] })).collect::<Vec<_>>() })
}

fn rows() -> Vec<Row> {
    let tcp = |port: i64| json!([{ "port": port }]);
    let with = |ip: &str, port: i64| json!({ "clusterIP": ip, "clusterIPs": [ip], "ports": tcp(port) });
    vec![
        (
            "no address",
            bad_service("s1", with("10.96.0.300", 80)),
            &["Service test/s1: spec.clusterIP", "10.96.0.300"],
        ),
        (
            "a prefix for an address",
            bad_service("s3", with("10.96.0.21/32", 80)),
            &["Service test/s3", "10.96.0.21/32"],
        ),
        (
            "port 0",
            bad_service("s4", with("10.96.0.22", 0)),
            &["Service test/s4: spec.ports[0].port", "\"0\""],
        ),
        ("port 65536", bad_service("s5", with("10.96.0.23", 65536)), &["Service test/s5", "65536"]),
        (
            "a negative port",
            bad_service("s6", with("10.96.0.24", -1)),
            &["Service test/s6: spec.ports[0].port: \"-1\""],
        ),
        (
            "a protocol that there is not",
            bad_service(
                "s7",
                json!({ "clusterIP": "10.96.0.25", "ports": [{ "port": 80, "protocol": "DCCP" }] }),
            ),
            &["Service test/s7", "DCCP"],
        ),
        (
            "two ports of one name",
            bad_service(
                "s8",
                json!({ "clusterIP": "10.96.0.26", "ports": [{ "port": 80, "name": "x" }, { "port": 81, "name": "x" }] }),
            ),
            &["Service test/s8: spec.ports[1].name"],
        ),
        (
            "external addresses of no use",
            bad_service(
                "s9",
                json!({
                    "clusterIP": "10.96.0.27", "ports": tcp(80),
                    "externalIPs": ["127.0.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "fe80::1", "x"],
                }),
            ),
            &[
                "Service test/s9: spec.externalIPs[0]",
                "Service test/s9: spec.externalIPs[1]",
                "Service test/s9: spec.externalIPs[2]",
                "Service test/s9: spec.externalIPs[3]",
                "Service test/s9: spec.externalIPs[4]",
                "Service test/s9: spec.externalIPs[5]",
            ],
        ),
        ("no name", bad_service("", with("10.96.0.28", 80)), &["Service test/: metadata.name"]),
        (
            "a policy that there is not",
            {
                let mut spec = with("10.96.0.29", 80);
                spec["internalTrafficPolicy"] = "Nearest".into();
                bad_service("s10", spec)
            },
            &["Service test/s10: spec.internalTrafficPolicy", "Nearest"],
        ),
        (
            "a week of affinity",
            {
                let mut spec = with("10.96.0.30", 80);
                spec["sessionAffinity"] = "ClientIP".into();
                spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": 604_800 } });
                bad_service("s11", spec)
            },
            &["Service test/s11: spec.sessionAffinityConfig", "604800"],
        ),
        (
            "ranges that are none",
            {
                let mut spec = with("10.96.0.31", 80);
                spec["loadBalancerSourceRanges"] = json!(["192.168.77.0/33", "here"]);
                bad_service("s12", spec)
            },
            &[
                "Service test/s12: spec.loadBalancerSourceRanges[0]",
                "Service test/s12: spec.loadBalancerSourceRanges[1]",
            ],
        ),
        (
            "no address at all",
            bad_service("s13", json!({ "ports": tcp(80) })),
            &["Service test/s13: spec.clusterIP"],
        ),
        (
            "a port in words",
            bad_service("s14", json!({ "clusterIP": "10.96.0.32", "ports": [{ "port": "eighty" }] })),
            &["s14", "eighty"],
        ),
        ("a spec that is a list", bad_service("s15", json!([])), &["s15"]),
        (
            "loopback, link-local, nowhere",
            bad_slice("e1", endpoints(&["127.0.0.1", "169.254.0.1", "0.0.0.0"])),
            &[
                "EndpointSlice test/e1: endpoints[0]",
                "EndpointSlice test/e1: endpoints[1]",
                "EndpointSlice test/e1: endpoints[2]",
            ],
        ),
        (
            "the other family's endpoint",
            bad_slice("e3", endpoints(&["fd00:10:244:1::9"])),
            &["EndpointSlice test/e3"],
        ),
        (
            "an endpoint without address",
            bad_slice("e4", json!({ "endpoints": [{ "addresses": [] }] })),
            &["EndpointSlice test/e4"],
        ),
        (
            "an endpoint port beyond all ports",
            bad_slice("e5", json!({ "ports": [{ "name": "", "port": 65536 }] })),
            &["EndpointSlice test/e5: ports[0].port", "65536"],
        ),
        (
            "a family that there is not",
            bad_slice("e6", json!({ "addressType": "IPX" })),
            &["EndpointSlice test/e6: addressType", "IPX"],
        ),
        ("endpoints that are a word", bad_slice("e7", json!({ "endpoints": "all" })), &["e7"]),
        (
            "a prefix of no family",
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
                "metadata": { "name": "odd" }, "spec": { "cidrs": ["10.97.0.0/40"] },
            }),
            &["ServiceCIDR odd", "10.97.0.0/40"],
        ),
    ]
}

fn good(pods: &[&Pod]) -> Vec<Value> {
    let mut objects = vec![web_service()];
    objects.extend(tcp_slices("web", 8080, pods));
    objects.iter().map(Object::json).collect()
}

fn list(items: impl IntoIterator<Item = Value>) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": items.into_iter().collect::<Vec<_>>() }).to_string()
}

#[test]
fn s03_a_bad_object_costs_itself_and_is_named_in_the_log() {
    let world = World::new("s03").build();
    let (client, a, b) = (world.node(0).pod("client"), world.node(0).pod("a"), world.node(1).pod("b"));
    let _servers = serve(&[&a, &b]);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    // Good ones in the midst of bad ones, in one file as well as beside it.
    let rows = rows();
    let half = rows.len() / 2;
    let bad = |range: std::ops::Range<usize>| rows[range].iter().map(|(_, object, _)| object.clone());
    manifests.put_text("all.json", &list(bad(0..half).chain(good(&[&a])).chain(bad(half..rows.len()))));
    let mut program = ProgramPlan::on(world.node(0)).manifests(&manifests).start_healthy();
    for family in Family::ALL {
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a"], wait::SOON);
    }
    for (_, object, said) in &rows {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        for phrase in *said {
            program.wait_for_words(&[name, phrase], wait::SOON);
        }
    }
    // What is good of an object that is bad in part counts.
    for n in [26_u8, 27, 29, 30, 31] {
        refused(&client, L4Proto::Tcp, at(&format!("10.96.0.{n}"), 80));
    }
    // Leading zeros are read as the API server reads them: decimal.
    let zeros: Vec<String> =
        a.addr(Family::Ip).to_string().split('.').map(|part| format!("{part:0>3}")).collect();
    let mut endpoint = bad_slice("zeros", endpoints(&[&zeros.join(".")]));
    endpoint["metadata"]["labels"]["kubernetes.io/service-name"] = "zeros".into();
    let ports = json!([{ "port": 80 }]);
    let service = bad_service("zeros", json!({ "clusterIP": "010.096.000.020", "ports": ports }));
    manifests.put_text("zeros.json", &list([service, endpoint]));
    comes_to_reach(&client, L4Proto::Tcp, at("10.96.0.20", 80), &["a"], wait::SOON);
    // And everybody goes on: the good ones change among the bad.
    manifests.put_text("all.json", &list(bad(half..rows.len()).chain(good(&[&a, &b])).chain(bad(0..half))));
    for family in Family::ALL {
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a", "b"], wait::SOON);
    }
    assert!(program.is_running());
}

#[test]
fn s03_a_file_that_is_no_manifest_keeps_what_it_said() {
    let world = World::new("s03-file").build();
    let (client, a) = (world.node(0).pod("client"), world.node(0).pod("a"));
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put_text("web.json", &list(good(&[&a])));
    manifests.put_text("rubbish.yaml", "a: [1,\n  {\n");
    let mut program = ProgramPlan::on(world.node(0)).manifests(&manifests).start_healthy();
    program.wait_for_line("rubbish.yaml", wait::SOON);
    for family in Family::ALL {
        comes_to_reach(&client, L4Proto::Tcp, web(family), &["a"], wait::SOON);
    }
    let files = [
        ("not JSON", "{ \"kind\": "),
        ("not text", "\u{0}\u{1}"),
        ("no object", "[1, 2, 3]"),
        ("no kind", "{}"),
    ];
    for (what, text) in files {
        let before = program.log().lines().count();
        manifests.put_text("web.json", text);
        wait::until(what, wait::SOON, || {
            program.log().lines().skip(before).any(|line| line.contains("web.json"))
        });
        for family in Family::ALL {
            reaches(&client, L4Proto::Tcp, web(family), &["a"]);
        }
    }
    // The same object in two files: one counts, and the log names both.
    manifests.put_text("web.json", &list(good(&[&a])));
    manifests.put("web-again", &[web_service()]);
    let line = program.wait_for_line("web-again.json", wait::SOON);
    assert!(line.contains("Service test/web") && line.contains("web.json"), "{line}");
    manifests.remove("web-again.json");
    for family in Family::ALL {
        reaches(&client, L4Proto::Tcp, web(family), &["a"]);
    }
}

#[test]
fn s03_a_hundred_thousand_endpoints_hold_up_nobody_for_long() {
    const MANY: usize = 100_000;
    let world = World::new("s03-many").build();
    let node = world.node(0);
    let (client, a) = (node.pod("client"), node.pod("a"));
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put_text("web.json", &list(good(&[&a])));
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    let mut text = slice("many-1", "many", Family::Ip).port("", L4Proto::Tcp, 8080).json().clone();
    let addrs = (0..MANY).map(|n| format!("10.{}.{}.{}", 128 + n / 65_536, n / 256 % 256, n % 256));
    text["endpoints"] = addrs.map(|addr| json!({ "addresses": [addr] })).collect();
    manifests.put_text("many.json", &list([text]));
    manifests.put("many-service", &[service("many", &["10.96.0.40"]).tcp(80).object()]);
    for family in Family::ALL {
        reaches(&client, L4Proto::Tcp, web(family), &["a"]);
    }
    wait::until("all slots", 3 * wait::SOON, || {
        let slots = Ours::of(node).count("endpoints");
        if slots == MANY + 2 { Ok(()) } else { Err(slots) }
    });
    manifests.put("last", &[service("last", &["10.96.0.41", "fd00:10:96::41"]).tcp(80).object()]);
    manifests.put("last-slices", &tcp_slices("last", 8080, &[&a]));
    for family in Family::ALL {
        let last = at(of(family, "10.96.0.41", "fd00:10:96::41"), 80);
        comes_to_reach(&client, L4Proto::Tcp, last, &["a"], wait::SOON);
    }
    manifests.remove("many.json");
    wait::until("the slots to go", wait::SOON, || Ours::of(node).count("endpoints") == 4);
}

//! Owns the table tests of reading objects; one row is one rule.

use super::*;
use proxier_core::model as m;
use serde_json::{Value, json};

fn decoder() -> Decoder {
    Decoder::new("node-1", true)
}

/// The object `base` with the fields of `patch` laid over it; `null` removes.
fn merged(mut base: Value, patch: &Value) -> Value {
    fn merge(base: &mut Value, patch: &Value) {
        match (base, patch) {
            (Value::Object(base), Value::Object(patch)) => {
                for (key, value) in patch {
                    if value.is_null() {
                        base.remove(key);
                    } else {
                        merge(base.entry(key.clone()).or_insert_with(|| json!({})), value);
                    }
                }
            }
            (base, patch) => *base = patch.clone(),
        }
    }
    merge(&mut base, patch);
    base
}

fn service(patch: Value) -> (Option<m::Service>, Vec<Rejected>) {
    let base = json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.10", "ports": [{"port": 80}]},
    });
    let object: Service = serde_json::from_value(merged(base, &patch)).unwrap();
    let decoded = decoder().service(&object);
    match decoded.change {
        Some(Change::Service(name, service)) => {
            assert_eq!(name.to_string(), "shop/web");
            (service.map(Arc::unwrap_or_clone), decoded.rejected)
        }
        other => panic!("{other:?}"),
    }
}

fn slice(patch: Value) -> (Option<m::EndpointSlice>, Vec<Rejected>) {
    let base = json!({
        "metadata": {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.1.5"]}],
    });
    let object: EndpointSlice = serde_json::from_value(merged(base, &patch)).unwrap();
    let decoded = decoder().endpoint_slice(&object);
    match decoded.change {
        Some(Change::EndpointSlice(name, slice)) => {
            assert_eq!(name.to_string(), "shop/web-1");
            (slice.map(Arc::unwrap_or_clone), decoded.rejected)
        }
        other => panic!("{other:?}"),
    }
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// `field=value` of what was left out.
fn left_out(rejected: &[Rejected]) -> Vec<String> {
    rejected.iter().map(|r| format!("{}={}", r.field, r.value)).collect()
}

#[test]
fn services_that_are_not_ours() {
    for patch in [
        json!({"spec": {"clusterIP": "None"}}),
        json!({"spec": {"clusterIP": null, "clusterIPs": ["None"]}}),
        json!({"spec": {"clusterIP": ""}}),
        json!({"spec": {"clusterIP": null}}),
        json!({"spec": null}),
        json!({"spec": {"type": "ExternalName"}}),
        json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": ""}}}),
        json!({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "other"}}}),
    ] {
        assert_eq!(service(patch.clone()), (None, Vec::new()), "{patch}");
    }
}

#[test]
fn cluster_ips_are_one_a_family() {
    let rows = [
        (json!({}), vec!["10.96.0.10"], vec![]),
        (json!({"clusterIP": "010.096.0.010"}), vec!["10.96.0.10"], vec![]),
        (json!({"clusterIPs": ["10.96.0.11", "fd00::11"]}), vec!["10.96.0.11", "fd00::11"], vec![]),
        (
            json!({"clusterIPs": ["fd00::11", "10.96.0.11"], "ipFamilies": ["IPv6", "IPv4"]}),
            vec!["fd00::11", "10.96.0.11"],
            vec![],
        ),
        (
            json!({"clusterIPs": ["10.96.0.11", "fd00::11"], "ipFamilies": ["IPv4"]}),
            vec!["10.96.0.11"],
            vec!["spec.clusterIPs[1]=fd00::11"],
        ),
        (
            json!({"clusterIPs": ["10.96.0.11", "10.96.0.12"]}),
            vec!["10.96.0.11"],
            vec!["spec.clusterIPs[1]=10.96.0.12"],
        ),
        (
            json!({"clusterIPs": ["10.96.0.300", "fd00::11"]}),
            vec!["fd00::11"],
            vec!["spec.clusterIPs[0]=10.96.0.300"],
        ),
        (
            json!({"clusterIPs": ["127.0.0.1", "fd00::11"]}),
            vec!["fd00::11"],
            vec!["spec.clusterIPs[0]=127.0.0.1"],
        ),
    ];
    for (spec, want, rejected) in rows {
        let (service, left) = service(json!({ "spec": spec }));
        assert_eq!(texts(&service.unwrap().cluster_ips), want, "{spec}");
        assert_eq!(left_out(&left), rejected, "{spec}");
    }
    let (none, left) = service(json!({"spec": {"clusterIP": "10.96.0"}}));
    assert_eq!((none, left_out(&left)), (None, vec!["spec.clusterIP[0]=10.96.0".to_owned()]));
}

#[test]
fn external_ips_lose_only_the_bad_ones() {
    let (web, left) = service(json!({"spec": {"externalIPs": [
        "203.0.113.7", "203.0.113.007", "nonsense", "", "169.254.1.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1",
        "::1", "2001:db8::7", "::ffff:203.0.113.8",
    ]}}));
    assert_eq!(texts(&web.unwrap().external_ips), ["203.0.113.7", "2001:db8::7", "203.0.113.8"]);
    assert_eq!(left.len(), 7, "{left:?}");
    assert_eq!(
        left[0].to_string(),
        "Service shop/web: spec.externalIPs[2]: \"nonsense\": \"nonsense\" is not an IP address; left out"
    );
}

#[test]
fn external_ips_can_be_switched_off() {
    let object: Service = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"clusterIP": "10.96.0.10", "externalIPs": ["203.0.113.7"], "externalTrafficPolicy": "Local"},
    }))
    .unwrap();
    let decoded = Decoder::new("node-1", false).service(&object);
    let Some(Change::Service(name, Some(service))) = decoded.change else { panic!() };
    assert_eq!(name.to_string(), "default/web");
    assert!(service.external_ips.is_empty());
}

#[test]
fn load_balancer_ips_are_those_of_mode_vip() {
    let (web, left) = service(json!({"status": {"loadBalancer": {"ingress": [
        {"ip": "203.0.113.7"},
        {"ip": "203.0.113.7", "ipMode": "VIP"},
        {"ip": "203.0.113.8", "ipMode": "VIP"},
        {"ip": "203.0.113.9", "ipMode": "Proxy"},
        {"hostname": "lb.example.com"},
        {"ip": "bad"},
        {"ip": "203.0.113.10", "ipMode": "Odd"},
    ]}}}));
    assert_eq!(texts(&web.unwrap().load_balancer_ips), ["203.0.113.7", "203.0.113.8"]);
    assert_eq!(
        left_out(&left),
        ["status.loadBalancer.ingress[].ipMode=Odd", "status.loadBalancer.ingress[3]=bad"]
    );
}

#[test]
fn source_ranges_never_open_by_being_bad() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}});
    let rows = [
        (
            json!(["192.0.2.0/24", " 192.0.2.9/24 ", "2001:db8::/32"]),
            vec!["192.0.2.0/24", "2001:db8::/32"],
            1,
            0,
        ),
        (json!(["192.0.2.0/24", "192.0.2.0"]), vec!["192.0.2.0/24"], 1, 1),
        (json!(["192.0.2.0", "x/8"]), vec![], 0, 2),
        (json!([]), vec![], 1, 0),
    ];
    for (ranges, want, balancers, rejected) in rows {
        let patch = json!({"spec": {"loadBalancerSourceRanges": ranges}, "status": status});
        let (web, left) = service(patch);
        let web = web.unwrap();
        assert_eq!(texts(&web.source_ranges), want, "{ranges}");
        assert_eq!(web.load_balancer_ips.len(), balancers, "{ranges}");
        assert_eq!(left.len(), rejected, "{ranges}: {left:?}");
    }
}

#[test]
fn ports_lose_only_the_bad_ones() {
    let (web, left) = service(json!({"spec": {"ports": [
        {"name": "a", "port": 80, "nodePort": 30080},
        {"name": "b", "port": 0},
        {"name": "c", "port": 65536},
        {"name": "d", "port": 81, "protocol": "ICMP"},
        {"name": "a", "port": 82},
        {"name": "a", "port": 80, "protocol": "UDP", "nodePort": 30080},
        {"name": "e", "port": 80},
        {"name": "f", "port": 83, "nodePort": 30080},
        {"name": "g", "port": 84, "nodePort": -1},
        {"name": "h", "port": 85, "nodePort": 0, "protocol": "SCTP"},
    ]}}));
    let ports: Vec<_> = web
        .unwrap()
        .ports
        .iter()
        .map(|p| format!("{} {} {} {}", p.name, p.protocol, p.port, p.node_port.map_or(0, NonZeroU16::get)))
        .collect();
    assert_eq!(ports, ["a tcp 80 30080", "a udp 80 30080", "f tcp 83 0", "g tcp 84 0", "h sctp 85 0"]);
    assert_eq!(
        left_out(&left),
        [
            "spec.ports[1].port=0",
            "spec.ports[2].port=65536",
            "spec.ports[3].protocol=ICMP",
            "spec.ports[4].name=a",
            "spec.ports[6].port=80",
            "spec.ports[7].nodePort=30080",
            "spec.ports[8].nodePort=-1",
        ]
    );
}

#[test]
fn policies_and_where_local_counts() {
    use m::TrafficPolicy::{Cluster, Local};
    let rows = [
        (json!({}), Cluster, Cluster),
        (json!({"internalTrafficPolicy": "Local"}), Local, Cluster),
        (json!({"externalTrafficPolicy": "Local"}), Cluster, Cluster),
        (json!({"externalTrafficPolicy": "Local", "externalIPs": ["203.0.113.7"]}), Cluster, Local),
        (json!({"externalTrafficPolicy": "Local", "type": "NodePort"}), Cluster, Local),
        (json!({"externalTrafficPolicy": "Local", "type": "LoadBalancer"}), Cluster, Local),
        (json!({"externalTrafficPolicy": "Cluster", "type": "LoadBalancer"}), Cluster, Cluster),
    ];
    for (spec, internal, external) in rows {
        let (web, left) = service(json!({ "spec": spec }));
        let web = web.unwrap();
        assert_eq!((web.internal_policy, web.external_policy, left.len()), (internal, external, 0), "{spec}");
    }
    let (web, left) = service(json!({"spec": {"internalTrafficPolicy": "Near"}}));
    assert_eq!(web.unwrap().internal_policy, Cluster);
    assert_eq!(left_out(&left), ["spec.internalTrafficPolicy=Near"]);
}

#[test]
fn health_check_ports_are_of_local_load_balancers() {
    let rows = [
        ("LoadBalancer", "Local", 32000, Some(32000)),
        ("LoadBalancer", "Local", 0, None),
        ("LoadBalancer", "Cluster", 32000, None),
        ("NodePort", "Local", 32000, None),
    ];
    for (kind, policy, port, want) in rows {
        let (web, _) = service(json!({"spec": {
            "type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": port,
        }}));
        assert_eq!(web.unwrap().health_check_node_port.map(NonZeroU16::get), want, "{kind} {policy} {port}");
    }
}

#[test]
fn affinity_has_a_time_out_within_a_day() {
    let rows = [
        (json!({}), None, 0),
        (json!({"sessionAffinity": "None"}), None, 0),
        (json!({"sessionAffinity": "ClientIP"}), Some(10_800), 0),
        (timeout(30), Some(30), 0),
        (timeout(86_400), Some(86_400), 0),
        (timeout(86_401), Some(10_800), 1),
        (timeout(0), Some(10_800), 1),
        (json!({"sessionAffinity": "Cookie"}), None, 1),
    ];
    for (spec, want, rejected) in rows {
        let (web, left) = service(json!({ "spec": spec }));
        assert_eq!(web.unwrap().affinity.map(|a| a.timeout.as_secs()), want, "{spec}");
        assert_eq!(left.len(), rejected, "{spec}");
    }

    fn timeout(seconds: i32) -> Value {
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}})
    }
}

#[test]
fn age_is_the_creation_time() {
    let (web, _) = service(json!({"metadata": {"creationTimestamp": "1970-01-02T00:00:00Z"}}));
    assert_eq!(web.unwrap().created, 86_400);
}

#[test]
fn objects_without_a_name_say_nothing() {
    let object: Service = serde_json::from_value(json!({"metadata": {"namespace": "shop"}})).unwrap();
    let decoded = decoder().service(&object);
    assert_eq!((decoded.change, decoded.rejected.len()), (None, 1));
}

#[test]
fn slices_that_are_not_ours() {
    for (patch, rejected) in [
        (json!({"metadata": {"labels": {"service.kubernetes.io/headless": ""}}}), 0),
        (json!({"metadata": {"labels": null}}), 0),
        (json!({"metadata": {"labels": {"kubernetes.io/service-name": ""}}}), 0),
        (json!({"addressType": "FQDN"}), 0),
        (json!({"addressType": "IPX"}), 1),
    ] {
        let (slice, left) = slice(patch.clone());
        assert_eq!((slice, left.len()), (None, rejected), "{patch}");
    }
}

#[test]
fn endpoints_lose_only_the_bad_ones() {
    let rows = [
        ("IPv4", json!(["10.0.1.5", "10.0.1.6"]), Some("10.0.1.5")),
        ("IPv4", json!(["10.0.01.005"]), Some("10.0.1.5")),
        ("IPv6", json!(["fd00::5"]), Some("fd00::5")),
        ("IPv4", json!([]), None),
        ("IPv4", json!(["fd00::5"]), None),
        ("IPv6", json!(["10.0.1.5"]), None),
        ("IPv6", json!(["::ffff:10.0.1.5"]), None),
        ("IPv4", json!(["127.0.0.1"]), None),
        ("IPv4", json!(["169.254.0.1"]), None),
        ("IPv4", json!(["0.0.0.0"]), None),
        ("IPv4", json!(["224.0.0.1"]), None),
        ("IPv4", json!(["255.255.255.255"]), None),
        ("IPv6", json!(["fe80::1"]), None),
        ("IPv6", json!(["::1"]), None),
        ("IPv6", json!(["ff02::1"]), None),
        ("IPv4", json!(["pod-5"]), None),
    ];
    for (family, addresses, want) in rows {
        let good = if family == "IPv4" { "10.0.9.9" } else { "fd00::99" };
        let (slice, left) = slice(json!({
            "addressType": family,
            "endpoints": [{"addresses": addresses}, {"addresses": [good]}],
        }));
        let addrs: Vec<_> = slice.unwrap().endpoints.iter().map(|e| e.addr.to_string()).collect();
        let wanted: Vec<_> = want.into_iter().chain([good]).collect();
        assert_eq!(addrs, wanted, "{family} {addresses}");
        assert_eq!(left.len(), usize::from(want.is_none()), "{family} {addresses}: {left:?}");
    }
}

#[test]
fn a_hundred_thousand_bad_endpoints_are_a_few_lines() {
    let endpoints: Vec<_> = (0..100_000).map(|_| json!({"addresses": ["127.0.0.1"]})).collect();
    let (slice, left) = slice(json!({ "endpoints": endpoints }));
    assert!(slice.unwrap().endpoints.is_empty());
    assert_eq!(left.len(), 17);
    assert_eq!(left[16].value, "99984");
}

#[test]
fn conditions_have_their_defaults() {
    let rows = [
        (json!(null), (true, true, false)),
        (json!({}), (true, true, false)),
        (json!({"ready": false}), (false, true, false)),
        (json!({"ready": false, "serving": true, "terminating": true}), (false, true, true)),
        (json!({"serving": false}), (true, false, false)),
    ];
    for (conditions, want) in rows {
        let (slice, _) = slice(json!({"endpoints": [{"addresses": ["10.0.1.5"], "conditions": conditions}]}));
        let endpoint = &slice.unwrap().endpoints[0];
        assert_eq!((endpoint.ready, endpoint.serving, endpoint.terminating), want, "{conditions}");
    }
}

#[test]
fn endpoints_know_their_node_and_hints() {
    let (slice, _) = slice(json!({"endpoints": [{
        "addresses": ["10.0.1.5"], "nodeName": "node-1",
        "hints": {"forZones": [{"name": "a"}, {"name": "b"}], "forNodes": [{"name": "node-1"}]},
    }, {"addresses": ["10.0.1.6"]}]}));
    let slice = slice.unwrap();
    let [one, two] = &slice.endpoints[..] else { panic!() };
    assert_eq!(one.node.as_deref(), Some("node-1"));
    assert_eq!(texts(&one.zone_hints), ["a", "b"]);
    assert_eq!(texts(&one.node_hints), ["node-1"]);
    assert!(Arc::ptr_eq(&one.node_hints[0], one.node.as_ref().unwrap()));
    assert_eq!((two.node.clone(), two.zone_hints.len(), two.node_hints.len()), (None, 0, 0));
    assert_eq!((&*slice.service, slice.family), ("web", nft_ir::Family::Ip));
}

#[test]
fn slice_ports_lose_only_the_bad_ones() {
    let (slice, left) = slice(json!({"ports": [
        {"name": "a", "port": 8080, "protocol": "TCP"},
        {"port": 8081},
        {"name": "b", "port": 0},
        {"name": "c"},
        {"name": "d", "port": 70000},
        {"name": "a", "port": 8082, "protocol": "TCP"},
        {"name": "a", "port": 8080, "protocol": "UDP"},
        {"name": "e", "port": 8080, "protocol": "XTP"},
    ]}));
    let ports: Vec<_> =
        slice.unwrap().ports.iter().map(|p| format!("{} {} {}", p.name, p.protocol, p.port)).collect();
    assert_eq!(ports, ["a tcp 8080", " tcp 8081", "a udp 8080"]);
    assert_eq!(
        left_out(&left),
        [
            "ports[2].port=0",
            "ports[3].port=",
            "ports[4].port=70000",
            "ports[5].name=a",
            "ports[7].protocol=XTP"
        ]
    );
}

#[test]
fn trigger_times_are_rfc_3339_with_a_fraction() {
    let rows = [
        (json!("1970-01-01T00:00:01.5Z"), Some(1_500)),
        (json!("2026-01-02T03:04:05.678901234+02:00"), Some(1_767_315_845_678)),
        (json!("yesterday"), None),
        (json!("1969-12-31T23:59:59Z"), None),
        (json!(null), None),
    ];
    for (text, want) in rows {
        let key = "endpoints.kubernetes.io/last-change-trigger-time";
        let (slice, left) = slice(json!({"metadata": {"annotations": {key: text}}}));
        assert_eq!(slice.unwrap().trigger_time.map(|t| t.as_millis()), want, "{text}");
        assert!(left.is_empty());
    }
}

#[test]
fn nodes() {
    let object: Node = serde_json::from_value(json!({
        "metadata": {"name": "node-1", "deletionTimestamp": "2026-01-01T00:00:00Z",
                     "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "bad", "fd00:1::/64"],
                 "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
        "status": {"addresses": [
            {"type": "Hostname", "address": "node-1"},
            {"type": "ExternalIP", "address": "203.0.113.1"},
            {"type": "ExternalIP", "address": "2001:db8::1"},
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "192.0.2.2"},
            {"type": "InternalIP", "address": "x"},
        ]},
    }))
    .unwrap();
    let decoded = decoder().node(&object);
    let Some(Change::Node(Some(node))) = decoded.change else { panic!() };
    assert_eq!(texts(&node.addresses), ["192.0.2.1", "2001:db8::1"]);
    assert_eq!(texts(&node.pod_cidrs), ["10.1.0.0/24", "fd00:1::/64"]);
    assert_eq!((node.zone.as_deref(), node.being_deleted, node.to_be_deleted), (Some("a"), true, true));
    assert_eq!(left_out(&decoded.rejected), ["spec.podCIDRs[1]=bad", "status.addresses[5].address=x"]);

    let bare: Node = serde_json::from_value(json!({
        "metadata": {"name": "node-1", "labels": {"topology.kubernetes.io/zone": ""}},
        "spec": {"podCIDR": "10.1.0.0/24"},
    }))
    .unwrap();
    let Some(Change::Node(Some(node))) = decoder().node(&bare).change else { panic!() };
    assert_eq!((texts(&node.pod_cidrs), node.zone.clone()), (vec!["10.1.0.0/24".to_owned()], None));
    assert!(!node.being_deleted && !node.to_be_deleted && node.addresses.is_empty());

    let other: Node = serde_json::from_value(json!({"metadata": {"name": "node-2"}})).unwrap();
    assert_eq!(decoder().node(&other), Decoded { change: None, rejected: Vec::new() });
}

#[test]
fn service_cidrs() {
    let object: ServiceCIDR = serde_json::from_value(json!({
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12", "10.96.0.0/33", "fd00::/108"]},
    }))
    .unwrap();
    let decoded = decoder().service_cidr(&object);
    let Some(Change::ServiceCidr(name, cidrs)) = decoded.change else { panic!() };
    assert_eq!(
        (&*name, texts(&cidrs)),
        ("kubernetes", vec!["10.96.0.0/12".to_owned(), "fd00::/108".to_owned()])
    );
    assert_eq!(left_out(&decoded.rejected), ["spec.cidrs[1]=10.96.0.0/33"]);
}

#[test]
fn gone_is_the_change_without_a_value() {
    let name = m::ObjectName::new("shop", "web");
    assert_eq!(ObjectKey::Service(name.clone()).gone(), Change::Service(name.clone(), None));
    assert_eq!(ObjectKey::EndpointSlice(name.clone()).gone(), Change::EndpointSlice(name, None));
    assert_eq!(ObjectKey::Node("node-1".into()).gone(), Change::Node(None));
    assert_eq!(ObjectKey::ServiceCidr("k".into()).gone(), Change::ServiceCidr("k".into(), Vec::new()));
}

#[test]
fn bind_address_takes_the_place_of_the_nodes_address_of_its_family() {
    let object: Node = serde_json::from_value(json!({
        "metadata": {"name": "node-1"},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "192.168.0.1"},
            {"type": "InternalIP", "address": "fd00::1"},
        ]},
    }))
    .unwrap();
    let addresses = |bind_address: &str| {
        let decoded = decoder().bind_address(Some(bind_address.parse().unwrap())).node(&object);
        match decoded.change {
            Some(Change::Node(Some(node))) => texts(&node.addresses),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(addresses("10.0.0.7"), ["10.0.0.7", "fd00::1"]);
    assert_eq!(addresses("fd00::7"), ["fd00::7", "192.168.0.1"], "it is the primary one");
}

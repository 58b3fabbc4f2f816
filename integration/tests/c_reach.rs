//! Owns the packet tests of the behaviour table's part C, reaching a Service: one test a row, named after it.

use integration::objects::{Object, node, service, service_cidr, slice, slice_name, slices, tcp_slices};
use integration::stage::{Stage, at, dropped, of, reaches, reaches_seen, refused};
use integration::{Dial, Family, L4Proto, Outcome, World};
use proxier_core::model::Cidr;
use proxier_core::{DetectLocal, NodePortAddresses};

const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];

fn web(family: Family) -> &'static str {
    of(family, WEB[0], WEB[1])
}

/// Names and ports of a Service that is served over every protocol.
const ALL: [(&str, L4Proto, u16); 3] =
    [("tcp", L4Proto::Tcp, 8080), ("udp", L4Proto::Udp, 8080), ("sctp", L4Proto::Sctp, 8080)];

#[test]
fn c01_cluster_ip_from_a_pod_and_from_the_node() {
    let mut stage = Stage::new("c01");
    let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
    let _servers: Vec<_> = L4Proto::ALL
        .into_iter()
        .flat_map(|proto| [a.serve(proto, 8080, "a"), b.serve(proto, 8080, "b")])
        .collect();
    stage.apply(&[service("web", &WEB).all_protocols(80, 0).object()]);
    stage.apply(&slices("web", &ALL, &[&a, &b]));
    for family in Family::ALL {
        for proto in L4Proto::ALL {
            let to = at(web(family), 80);
            // The pod keeps its own address.
            reaches_seen(&client, proto, to, &["a", "b"], client.addr(family));
            // The node is not a pod: its own traffic is masqueraded, with the address that faces the endpoint.
            reaches(stage.node(0), proto, to, &["a", "b"]);
        }
    }
}

#[test]
fn c02_target_ports_by_number_and_by_name() {
    let mut stage = Stage::new("c02");
    let (client, old, new) =
        (stage.node(0).pod("client"), stage.node(0).pod("old"), stage.node(1).pod("new"));
    let _servers = [
        old.serve(L4Proto::Tcp, 8080, "old-http"),
        new.serve(L4Proto::Tcp, 9090, "new-http"),
        old.serve(L4Proto::Tcp, 53, "old-dns"),
        old.serve(L4Proto::Udp, 53, "old-dns-udp"),
    ];
    // A named target port is resolved by the slice controller: slices of one Service map one name to different numbers.
    for family in Family::ALL {
        let of_pod = |name: &str, pod: &integration::Pod, port| {
            slice(&format!("{name}-{family}"), "web", family)
                .port("http", L4Proto::Tcp, port)
                .endpoint(pod.addr(family), pod.node().name())
        };
        let old_slice =
            of_pod("old", &old, 8080).port("dns-tcp", L4Proto::Tcp, 53).port("dns", L4Proto::Udp, 53);
        stage.apply(&[old_slice.object(), of_pod("new", &new, 9090).object()]);
    }
    stage.apply(&[service("web", &WEB)
        .port("http", L4Proto::Tcp, 80)
        .port("dns-tcp", L4Proto::Tcp, 53)
        .port("dns", L4Proto::Udp, 53)
        .object()]);
    for family in Family::ALL {
        reaches(&client, L4Proto::Tcp, at(web(family), 80), &["old-http", "new-http"]);
        reaches(&client, L4Proto::Tcp, at(web(family), 53), &["old-dns"]);
        reaches(&client, L4Proto::Udp, at(web(family), 53), &["old-dns-udp"]);
    }
}

/// The 99.9th percentile of the chi-squared distribution with `n - 1` degrees of freedom, for the n of c03.
fn chi_squared_limit(n: usize) -> f64 {
    match n {
        2 => 10.828,
        3 => 13.816,
        7 => 22.458,
        50 => 85.351,
        other => panic!("no limit is noted for {other} endpoints"),
    }
}

#[test]
fn c03_each_endpoint_gets_its_share() {
    const CONNECTIONS: usize = 3000;
    let mut stage = Stage::with(World::new("c03").nodes(1).build(), |_| {});
    let (client, pod) = (stage.node(0).pod("client"), stage.node(0).pod("pod"));
    for (index, n) in [1_usize, 2, 3, 7, 50].into_iter().enumerate() {
        // One pod with n ports is n endpoints: a slice a port.
        let base = 20_000 + 100 * u16::try_from(index).unwrap_or(0);
        let ports: Vec<u16> = (base..).take(n).collect();
        let _servers: Vec<_> =
            ports.iter().map(|port| pod.serve(L4Proto::Tcp, *port, &port.to_string())).collect();
        let name = format!("web-{n}");
        let ips = [format!("10.96.1.{n}"), format!("fd00:10:96::1:{n}")];
        stage.apply(&[service(&name, &[&ips[0], &ips[1]]).tcp(80).object()]);
        for family in Family::ALL {
            let of_port = |port: &u16| {
                slice(&format!("{name}-{port}-{family}"), &name, family)
                    .port("", L4Proto::Tcp, *port)
                    .endpoint(pod.addr(family), pod.node().name())
                    .object()
            };
            stage.apply(&ports.iter().map(of_port).collect::<Vec<Object>>());
            let tally =
                client.dial_many(Dial::new(L4Proto::Tcp, at(of(family, &ips[0], &ips[1]), 80)), CONNECTIONS);
            assert_eq!(tally.failed, [], "{family}, {n} endpoints");
            assert_eq!(tally.by.len(), n, "{family}: {:?}", tally.by);
            #[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
            let chi_squared: f64 = {
                let expected = CONNECTIONS as f64 / n as f64;
                tally.by.values().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
            };
            if n > 1 {
                assert!(chi_squared < chi_squared_limit(n), "{family}, {n} endpoints: χ² = {chi_squared}");
            }
        }
    }
}

const NODE_PORT: u16 = 30080;

#[test]
fn c05_node_ports_on_the_addresses_that_are_selected() {
    let world = World::new("c05").nodes(2).build();
    // The first node has a second address of each family.
    let second = ["192.168.77.201", "fd00:77::201"];
    for addr in second {
        world.node(0).add_address("eth0", at(addr, 0).ip()).expect("an address for the node");
    }
    let mut stage = Stage::with(world, |settings| {
        if &*settings.node_name == "node-2" {
            settings.node_port_addresses = ["0.0.0.0/0", "::/0"]
                .iter()
                .filter_map(|c| Cidr::parse(c).ok())
                .map(NodePortAddresses::Cidr)
                .collect();
        }
    });
    let a = stage.node(0).pod("a");
    let _servers: Vec<_> = L4Proto::ALL.into_iter().map(|proto| a.serve(proto, 8080, "a")).collect();
    for addr in second {
        stage.node(1).add_address("lo", at(addr.replace("201", "202").as_str(), 0).ip()).expect("an address");
    }
    stage.apply(&[service("web", &WEB).all_protocols(80, NODE_PORT).object()]);
    stage.apply(&slices("web", &ALL, &[&a]));
    let client = stage.world.client();
    for family in Family::ALL {
        for proto in L4Proto::ALL {
            // `primary`: the Node's own address and no other.
            reaches_seen(
                client,
                proto,
                stage.node(0).at(family, NODE_PORT),
                &["a"],
                a.node().plan().pod_gateway(family),
            );
            // Every address, also one that came after the proxier: the second node's loopback interface has it.
            reaches(client, proto, stage.node(1).at(family, NODE_PORT), &["a"]);
            reaches(&a, proto, stage.node(0).at(family, NODE_PORT), &["a"]);
        }
        refused(client, L4Proto::Tcp, at(of(family, second[0], second[1]), NODE_PORT));
        // A late address answers on the node that serves every address; dialled from the node itself.
        let late = at(of(family, "192.168.77.202", "fd00:77::202"), NODE_PORT);
        reaches(stage.node(1), L4Proto::Tcp, late, &["a"]);
        // Never on loopback.
        let loopback = at(of(family, "127.0.0.1", "::1"), NODE_PORT);
        refused(stage.node(0), L4Proto::Tcp, loopback);
        refused(stage.node(1), L4Proto::Tcp, loopback);
    }
}

const LB: [&str; 2] = ["203.0.113.7", "2001:db8::7"];

#[test]
fn c06_load_balancer_addresses_are_short_circuited_unless_their_mode_is_proxy() {
    let mut stage = Stage::new("c06");
    let (client, a) = (stage.node(0).pod("client"), stage.node(1).pod("a"));
    let _servers: Vec<_> = L4Proto::ALL.into_iter().map(|proto| a.serve(proto, 8080, "a")).collect();
    stage.apply(&slices("web", &ALL, &[&a]));
    let with_mode = |mode: Option<&str>| {
        let text = service("web", &WEB).load_balancer(&LB).all_protocols(80, 0);
        mode.into_iter().fold(text, |text, mode| text.ip_mode(mode)).object()
    };
    for mode in [None, Some("VIP")] {
        stage.apply(&[with_mode(mode)]);
        for family in Family::ALL {
            for proto in L4Proto::ALL {
                let to = at(of(family, LB[0], LB[1]), 80);
                reaches(&client, proto, to, &["a"]);
                reaches(stage.node(0), proto, to, &["a"]);
                reaches(stage.world.client(), proto, to, &["a"]);
            }
        }
    }
    stage.apply(&[with_mode(Some("Proxy"))]);
    for family in Family::ALL {
        // Left alone: the packet goes on to the real load balancer, which the lab does not have.
        dropped(&client, L4Proto::Tcp, at(of(family, LB[0], LB[1]), 80));
    }
}

#[test]
fn c07_external_ips_behave_as_load_balancer_addresses() {
    let mut stage = Stage::new("c07");
    let (client, a) = (stage.node(0).pod("client"), stage.node(1).pod("a"));
    let _servers: Vec<_> = L4Proto::ALL.into_iter().map(|proto| a.serve(proto, 8080, "a")).collect();
    stage.apply(&[service("web", &WEB)
        .external_ips(&["198.51.100.7", "2001:db8::77"])
        .all_protocols(80, 0)
        .object()]);
    stage.apply(&slices("web", &ALL, &[&a]));
    for family in Family::ALL {
        for proto in L4Proto::ALL {
            let to = at(of(family, "198.51.100.7", "2001:db8::77"), 80);
            reaches(&client, proto, to, &["a"]);
            reaches(stage.node(0), proto, to, &["a"]);
            reaches(stage.world.client(), proto, to, &["a"]);
        }
        // Only the Service's port is served.
        dropped(&client, L4Proto::Tcp, at(of(family, "198.51.100.7", "2001:db8::77"), 81));
    }
}

#[test]
fn c08_hairpin_and_the_masquerade_bit() {
    for bit in [14_u8, 5] {
        let world = World::new("c08").nodes(1).build();
        let mut stage = Stage::with(world, |settings| settings.masquerade_bit = bit);
        let a = stage.node(0).pod("a");
        let _servers: Vec<_> = L4Proto::ALL.into_iter().map(|proto| a.serve(proto, 8080, "a")).collect();
        stage.apply(&[service("web", &WEB).all_protocols(80, NODE_PORT).object()]);
        stage.apply(&slices("web", &ALL, &[&a]));
        for family in Family::ALL {
            for proto in L4Proto::ALL {
                let node = a.node().plan().pod_gateway(family);
                reaches_seen(&a, proto, at(web(family), 80), &["a"], node);
                reaches_seen(&a, proto, stage.node(0).at(family, NODE_PORT), &["a"], node);
            }
        }
        // The bit, and no other, is what the rules set and take away.
        let mark = format!("0x{:08x}", 1_u32 << bit);
        let text = stage.proxiers[0].dump().to_string();
        assert!(text.contains(&format!("meta mark set meta mark | {mark}")), "{text}");
        assert!(text.contains(&format!(
            "meta mark & {mark} == {mark} meta mark set meta mark ^ {mark} masquerade fully-random"
        )));
        for line in text.lines().filter(|line| line.contains("mark")) {
            assert!(line.contains(&mark), "{line}");
        }
    }
}

/// A way to tell pods from others.
type Detect = fn() -> DetectLocal;

#[test]
fn c09_off_cluster_sources_are_masqueraded() {
    let cases: [(&str, Detect); 4] = [
        ("ClusterCIDR", || {
            DetectLocal::ClusterCidr(
                ["10.244.0.0/16", "fd00:10:244::/48"].iter().filter_map(|c| Cidr::parse(c).ok()).collect(),
            )
        }),
        ("NodeCIDR", || DetectLocal::NodeCidr),
        ("BridgeInterface", || DetectLocal::BridgeInterface("cni0".into())),
        ("InterfaceNamePrefix", || DetectLocal::InterfaceNamePrefix("veth".into())),
    ];
    for (case, detect) in cases {
        let plan = World::new("c09").nodes(2);
        let world = if case == "InterfaceNamePrefix" { plan.point_to_point("veth") } else { plan }.build();
        let mut stage = Stage::with(world, |settings| settings.detect_local = detect());
        let (pod, a) = (stage.node(0).pod("client"), stage.node(1).pod("a"));
        let _server = a.serve(L4Proto::Tcp, 8080, "a");
        for index in 0..2 {
            let host = stage.node(index).clone();
            let cidrs: Vec<String> =
                Family::ALL.map(|family| host.plan().pod_cidr(family).to_string()).into();
            stage.proxiers[index].apply(&[integration::objects::node_with_pods(
                host.name(),
                host.addrs(),
                &cidrs,
            )]);
        }
        stage.apply(&[service("web", &WEB).tcp(80).object()]);
        stage.apply(&tcp_slices("web", 8080, &[&a]));
        let outside = stage.world.client();
        for family in Family::ALL {
            let to = at(web(family), 80);
            reaches_seen(&pod, L4Proto::Tcp, to, &["a"], pod.addr(family));
            // From outside, and from the node: the endpoint sees the node.
            reaches_seen(outside, L4Proto::Tcp, to, &["a"], stage.node(0).addr(family));
            reaches_seen(stage.node(0), L4Proto::Tcp, to, &["a"], stage.node(0).addr(family));
        }
    }
    // Without a way to tell, nobody is masqueraded; with masqueradeAll, everybody is.
    for all in [false, true] {
        let mut stage = Stage::with(World::new("c09-all").nodes(2).build(), |settings| {
            settings.detect_local = DetectLocal::None;
            settings.masquerade_all = all;
        });
        let (pod, a) = (stage.node(0).pod("client"), stage.node(1).pod("a"));
        let _server = a.serve(L4Proto::Tcp, 8080, "a");
        stage.apply(&[service("web", &WEB).tcp(80).object()]);
        stage.apply(&tcp_slices("web", 8080, &[&a]));
        for family in Family::ALL {
            let seen = if all { stage.node(0).addr(family) } else { pod.addr(family) };
            reaches_seen(&pod, L4Proto::Tcp, at(web(family), 80), &["a"], seen);
        }
    }
}

#[test]
fn c10_no_usable_endpoint_is_refused_at_once() {
    let mut stage = Stage::new("c10");
    let pod = stage.node(0).pod("client");
    stage.apply(&[service("web", &WEB)
        .load_balancer(&LB)
        .external_ips(&["198.51.100.7", "2001:db8::77"])
        .all_protocols(80, NODE_PORT)
        .object()]);
    // One endpoint that is not ready is no endpoint.
    for family in Family::ALL {
        let unready =
            serde_json::json!({ "addresses": [pod.addr(family)], "conditions": { "ready": false } });
        let text =
            ALL.iter().fold(slice(&slice_name("web", family), "web", family), |text, (name, proto, port)| {
                text.port(name, *proto, *port)
            });
        stage.apply(&[text.endpoint_json(unready).object()]);
    }
    let (node, outside) = (stage.node(0), stage.world.client());
    for family in Family::ALL {
        let frontends = [
            at(web(family), 80),
            at(of(family, LB[0], LB[1]), 80),
            at(of(family, "198.51.100.7", "2001:db8::77"), 80),
            node.at(family, NODE_PORT),
        ];
        for to in frontends {
            for proto in L4Proto::ALL {
                for from in [&**node, &*pod, &**outside] {
                    let began = std::time::Instant::now();
                    refused(from, proto, to);
                    assert!(
                        began.elapsed().as_millis() < 700,
                        "{} dials {to}/{proto}: not at once",
                        from.name()
                    );
                }
            }
        }
    }
}

#[test]
fn c11_unused_cluster_ips_and_ports() {
    let mut stage = Stage::new("c11");
    let (client, a) = (stage.node(0).pod("client"), stage.node(0).pod("a"));
    let _server = a.serve(L4Proto::Tcp, 8080, "a");
    stage.apply(&[service("web", &WEB).tcp(80).object()]);
    stage.apply(&tcp_slices("web", 8080, &[&a]));
    for family in Family::ALL {
        for from in [&**stage.node(0), &*client, &**stage.world.client()] {
            refused(from, L4Proto::Tcp, at(web(family), 81));
            refused(from, L4Proto::Udp, at(web(family), 80));
            dropped(from, L4Proto::Tcp, at(of(family, "10.96.200.1", "fd00:10:96::2001"), 80));
        }
    }
    // Another range comes, and is guarded at once.
    stage.apply(&[service_cidr("more", &["198.51.100.0/24"])]);
    let text = stage.proxiers[0].dump().to_string();
    assert!(text.contains("ip daddr 198.51.100.0/24 drop"), "{text}");
}

#[test]
fn c12_what_is_left_alone() {
    let mut stage = Stage::new("c12");
    let (client, a) = (stage.node(0).pod("client"), stage.node(0).pod("a"));
    let _server = a.serve(L4Proto::Tcp, 8080, "a");
    stage.apply(&tcp_slices("web", 8080, &[&a]));
    let ours = || service("web", &WEB).tcp(80);
    let lives = |stage: &mut Stage| {
        for family in Family::ALL {
            reaches(&client, L4Proto::Tcp, at(web(family), 80), &["a"]);
        }
        stage.proxiers[0].dump().to_string()
    };
    let nothing = |stage: &mut Stage, case: &str| {
        for family in Family::ALL {
            dropped(&client, L4Proto::Tcp, at(web(family), 80));
        }
        let text = stage.proxiers[0].dump().to_string();
        assert!(!text.contains(WEB[0]) && !text.contains(WEB[1]), "{case}: {text}");
    };
    for (case, theirs) in [
        ("another proxy's", ours().label("service.kubernetes.io/service-proxy-name", "other")),
        ("headless", ours().spec("clusterIP", "None").spec("clusterIPs", ["None"].as_slice())),
        ("ExternalName", ours().spec("type", "ExternalName").spec("externalName", "example.org")),
    ] {
        stage.apply(&[theirs.clone().object()]);
        nothing(&mut stage, case);
        stage.apply(&[ours().object()]);
        lives(&mut stage);
        stage.apply(&[theirs.object()]);
        nothing(&mut stage, case);
    }
    // A slice labelled headless is not ours either; taking the label away brings it back.
    stage.apply(&[ours().object()]);
    lives(&mut stage);
    for family in Family::ALL {
        let labelled = slice(&slice_name("web", family), "web", family)
            .port("", L4Proto::Tcp, 8080)
            .endpoint(a.addr(family), a.node().name())
            .label("service.kubernetes.io/headless", "");
        stage.apply(&[labelled.object()]);
        refused(&client, L4Proto::Tcp, at(web(family), 80));
    }
    stage.apply(&tcp_slices("web", 8080, &[&a]));
    lives(&mut stage);
}

/// Also f10: the first of two claimants is deleted, and the other takes over.
#[test]
fn c13_two_services_claim_one_external_ip() {
    let mut stage = Stage::new("c13");
    let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
    let _servers = [a.serve(L4Proto::Tcp, 8080, "a"), b.serve(L4Proto::Tcp, 8080, "b")];
    let external = ["198.51.100.7", "2001:db8::77"];
    let claim = |name: &str, n: u8, created: &str| {
        service(name, &[&format!("10.96.0.{n}"), &format!("fd00:10:96::{n}")])
            .external_ips(&external)
            .tcp(80)
            .created(created)
            .object()
    };
    stage.apply(&tcp_slices("old", 8080, &[&a]));
    stage.apply(&tcp_slices("new", 8080, &[&b]));
    stage.apply(&[claim("new", 21, "2026-02-02T00:00:00Z")]);
    let dial = |who: &str| {
        for family in Family::ALL {
            reaches(&client, L4Proto::Tcp, at(of(family, external[0], external[1]), 80), &[who]);
        }
    };
    dial("b");
    // The older claimant comes later and has it. One warning a frontend names both.
    let reports = stage.apply(&[claim("old", 20, "2026-01-01T00:00:00Z")]);
    assert_eq!(reports[0].conflicts.len(), 2, "{:?}", reports[0].conflicts);
    for conflict in &reports[0].conflicts {
        let text = conflict.to_string();
        assert!(text.contains("test/old") && text.contains("test/new"), "{text}");
    }
    dial("a");
    let reports = stage.apply(&tcp_slices("new", 8080, &[&b, &b]));
    assert!(reports[0].conflicts.is_empty(), "said once");
    stage.apply(&[Object::NoService("old".into())]);
    dial("b");
    // Same age: the lower name.
    stage.apply(&[claim("old", 20, "2026-02-02T00:00:00Z")]);
    dial("b");
    stage.apply(&[claim("new", 21, "2026-03-03T00:00:00Z")]);
    dial("a");
}

#[test]
fn c14_dual_stack() {
    let mut stage = Stage::new("c14");
    let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
    let _servers = [a.serve(L4Proto::Tcp, 8080, "a"), b.serve(L4Proto::Tcp, 8080, "b")];
    // One pod a family, so that it shows which slice was used.
    let own = |family: Family, pod: &integration::Pod| {
        slice(&format!("web-{family}"), "web", family)
            .port("", L4Proto::Tcp, 8080)
            .endpoint(pod.addr(family), pod.node().name())
            .object()
    };
    stage.apply(&[service("web", &WEB).tcp(80).object(), own(Family::Ip, &a), own(Family::Ip6, &b)]);
    reaches(&client, L4Proto::Tcp, at(WEB[0], 80), &["a"]);
    reaches(&client, L4Proto::Tcp, at(WEB[1], 80), &["b"]);
    // A Service of one family has nothing of the other's slices.
    stage.apply(&[service("four", &["10.96.0.44"]).tcp(80).object()]);
    for family in Family::ALL {
        stage.apply(&[slice(&format!("four-{family}"), "four", family)
            .port("", L4Proto::Tcp, 8080)
            .endpoint(a.addr(family), a.node().name())
            .object()]);
    }
    reaches(&client, L4Proto::Tcp, at("10.96.0.44", 80), &["a"]);
    let ip6 = proxier_core::ruleset::table_id(Family::Ip6);
    let text = stage.proxiers[0].dump().tables[&ip6].clone();
    assert!(!format!("{text:?}").contains("test/four"));

    // A node without IPv6 runs without the IPv6 table.
    let mut stage = Stage::with(World::new("c14-v4").nodes(1).only(Family::Ip).build(), |_| {});
    let (client, a) = (stage.node(0).pod("client"), stage.node(0).pod("a"));
    let _server = a.serve(L4Proto::Tcp, 8080, "a");
    stage.apply(&[service("web", &WEB).tcp(80).object()]);
    stage.apply(&tcp_slices("web", 8080, &[&a]));
    reaches(&client, L4Proto::Tcp, at(WEB[0], 80), &["a"]);
    assert_eq!(stage.proxiers[0].dump().tables.len(), 1);
}

#[test]
fn c15_an_endpoint_that_moves_between_slices() {
    let mut stage = Stage::new("c15");
    let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
    let _servers = [a.serve(L4Proto::Tcp, 8080, "a"), b.serve(L4Proto::Tcp, 8080, "b")];
    stage.apply(&[service("web", &WEB).tcp(80).object()]);
    let of_pods = |name: &str, family: Family, pods: &[&integration::Pod]| {
        let text = slice(&format!("{name}-{family}"), "web", family).port("", L4Proto::Tcp, 8080);
        pods.iter().fold(text, |text, pod| text.endpoint(pod.addr(family), pod.node().name())).object()
    };
    for family in Family::ALL {
        stage.apply(&[of_pods("one", family, &[&a, &b]), of_pods("two", family, &[])]);
        // In both slices for a moment: it counts once, so nothing is written.
        let reports = stage.apply(&[of_pods("two", family, &[&a])]);
        assert_eq!(reports[0].operations, 0, "a duplicate is no change");
        let tally = client.dial_many(Dial::new(L4Proto::Tcp, at(web(family), 80)), 1000);
        assert!(tally.failed.is_empty() && tally.by["a"] < 600 && tally.by["b"] < 600, "{tally:?}");
        // The move ends: still nothing is written, so there is no moment without it.
        let reports = stage.apply(&[of_pods("one", family, &[&b])]);
        assert_eq!(reports[0].operations, 0, "the end of the move is no change");
        reaches(&client, L4Proto::Tcp, at(web(family), 80), &["a", "b"]);
        // Both slices in one event.
        stage.apply(&[of_pods("one", family, &[&a, &b]), of_pods("two", family, &[])]);
        reaches(&client, L4Proto::Tcp, at(web(family), 80), &["a", "b"]);
    }
}

#[test]
fn c16_changes_leave_nothing_of_the_old() {
    let mut stage = Stage::new("c16");
    let (client, a) = (stage.node(0).pod("client"), stage.node(0).pod("a"));
    let _servers = [
        a.serve(L4Proto::Tcp, 8080, "a"),
        a.serve(L4Proto::Udp, 8080, "a"),
        a.serve(L4Proto::Tcp, 9090, "a2"),
    ];
    stage.apply(&[node("node-1", stage.node(0).addrs())]);
    let node_at = |stage: &Stage, family: Family, port: u16| stage.node(0).at(family, port);
    let empty = {
        stage.proxiers[0].sweep();
        stage.proxiers[0].dump().to_string()
    };
    let other = ["10.96.0.99", "fd00:10:96::99"];
    let lb2 = ["203.0.113.8", "2001:db8::8"];
    let udp_slices = slices("web", &[("", L4Proto::Udp, 8080)], &[&a]);
    let steps: Vec<(&str, integration::objects::ServiceText, Vec<Object>)> = vec![
        ("ClusterIP", service("web", &WEB).tcp(80), tcp_slices("web", 8080, &[&a])),
        ("NodePort", service("web", &WEB).node_port("", L4Proto::Tcp, 80, 30080), vec![]),
        ("another node port", service("web", &WEB).node_port("", L4Proto::Tcp, 80, 30081), vec![]),
        (
            "LoadBalancer",
            service("web", &WEB).node_port("", L4Proto::Tcp, 80, 30081).load_balancer(&LB),
            vec![],
        ),
        (
            "another load balancer address",
            service("web", &WEB).node_port("", L4Proto::Tcp, 80, 30081).load_balancer(&lb2),
            vec![],
        ),
        ("another port", service("web", &WEB).tcp(81), vec![]),
        ("another protocol", service("web", &WEB).port("", L4Proto::Udp, 81), udp_slices),
        ("another address", service("web", &other).tcp(81), tcp_slices("web", 9090, &[&a])),
        ("ExternalName", service("web", &other).tcp(81).spec("type", "ExternalName"), vec![]),
        ("ClusterIP again", service("web", &WEB).tcp(80), tcp_slices("web", 8080, &[&a])),
    ];
    for (case, text, mut objects) in steps {
        let json = text.json().clone();
        objects.push(text.object());
        stage.apply(&objects);
        // What the object says now, and nothing else.
        let serves = json["spec"]["type"] != "ExternalName";
        let port = &json["spec"]["ports"][0];
        let udp = port["protocol"] == "UDP";
        for family in Family::ALL {
            for ip in [of(family, WEB[0], WEB[1]), of(family, other[0], other[1])] {
                for number in [80_u16, 81] {
                    for proto in [L4Proto::Tcp, L4Proto::Udp] {
                        let listed = json["spec"]["clusterIPs"]
                            .as_array()
                            .is_some_and(|ips| ips.iter().any(|i| i == ip));
                        let right =
                            serves && listed && port["port"] == number && udp == (proto == L4Proto::Udp);
                        let outcome = client.dial(
                            Dial::new(proto, at(ip, number)).within(std::time::Duration::from_millis(250)),
                        );
                        let answered = matches!(outcome, Outcome::Answered { .. });
                        assert_eq!(answered, right, "{case}: {ip} {number}/{proto}: {outcome}");
                    }
                }
            }
            for number in [30080_u16, 30081] {
                let outcome = stage.world.client().dials(L4Proto::Tcp, node_at(&stage, family, number));
                assert_eq!(
                    matches!(outcome, Outcome::Answered { .. }),
                    port["nodePort"] == number,
                    "{case}: {outcome}"
                );
            }
            for ip in [of(family, LB[0], LB[1]), of(family, lb2[0], lb2[1])] {
                let listed = json["status"]["loadBalancer"]["ingress"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|i| i["ip"] == ip));
                let outcome = client
                    .dial(Dial::new(L4Proto::Tcp, at(ip, 80)).within(std::time::Duration::from_millis(250)));
                assert_eq!(matches!(outcome, Outcome::Answered { .. }), listed, "{case}: {ip}: {outcome}");
            }
        }
    }
    stage.apply(&[Object::NoService("web".into())]);
    stage.proxiers[0].sweep();
    assert_eq!(stage.proxiers[0].dump().to_string(), empty, "nothing of the Service is left");
}

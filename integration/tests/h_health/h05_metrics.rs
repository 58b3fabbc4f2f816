//! Owns rows h05 and h06: the metrics server, its scrape against upstream's list, and the latency of network programming.
//! Knows nothing of single gauges' meaning.

use crate::{METRICS, ask, cluster, scrape};
use integration::objects::{service, slice};
use integration::{Family, L4Proto, Manifests, ProgramPlan, World, wait};
use std::collections::BTreeSet;
use std::time::SystemTime;

/// Name, type, labels, buckets, stability.
const UPSTREAM: &str = include_str!("../../../proxier/src/metrics/testdata/metrics.tsv");

/// Upper bounds by upstream's way of writing them.
fn bounds(text: &str) -> Vec<f64> {
    if text.is_empty() {
        Vec::new()
    } else if text.contains("2^k") {
        (0..15).map(|k| 0.001 * f64::from(1_u32 << k)).collect()
    } else {
        let seconds = (1..60).chain((60..=115).step_by(5)).chain((120..=300).step_by(30));
        [0.25, 0.5].into_iter().chain(seconds.map(f64::from)).collect()
    }
}

#[test]
fn h05_a_scrape_has_every_metric_of_upstream_by_name_type_labels_and_buckets() {
    let world = World::new("h05").nodes(1).build();
    let node = world.node(0);
    let a = node.pod("a");
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    let web = service("web", &["10.96.0.10", "fd00:10:96::10"]).tcp(80);
    manifests
        .put("web", &[vec![web.object()], integration::objects::tcp_slices("web", 8080, &[&a])].concat());
    ask(&world, crate::HEALTH, "/livez");
    let scrape = wait::until("a partial sync", wait::SOON, || {
        let scrape = scrape(&world);
        let is_there = scrape.sum("kubeproxy_sync_partial_proxy_rules_duration_seconds_count") >= 2.0;
        is_there.then_some(scrape)
    });
    let mut without_series = BTreeSet::new();
    for row in UPSTREAM.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [name, kind, labels, buckets, _] = columns[..] else { panic!("{row:?}") };
        // What was never observed is not even declared.
        let declared = scrape.types.get(name).map_or(kind, String::as_str);
        assert_eq!(declared, kind, "{name}");
        let mut expected: Vec<&str> = labels.split(',').filter(|label| !label.is_empty()).collect();
        expected.sort_unstable();
        let series = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let found = scrape.labels(&series);
        if found.is_empty() {
            without_series.insert(name);
            continue;
        }
        assert_eq!(found, BTreeSet::from([expected]), "{name}");
        let (found, expected) = (scrape.bounds(name), bounds(buckets));
        assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9), "{name}: {found:?}");
    }
    // As upstream, what was never observed has no series; all else has.
    let never = BTreeSet::from([
        "kubeproxy_network_programming_duration_seconds",
        "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
        "kubeproxy_nftables_localhost_nodeport_listeners",
        "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
        "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    ]);
    let conntrack = |name: &&&str| name.contains("conntrack");
    assert_eq!(
        without_series.iter().filter(|name| !conntrack(name)).copied().collect::<BTreeSet<_>>(),
        never
    );
    let names = scrape.names();
    for name in [
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "kubernetes_build_info",
        "proxier_build_info",
        "proxier_elements_written_total",
    ] {
        assert!(names.contains(name), "{name}");
    }
    for family in ["IPv4", "IPv6"] {
        let labels = [("ip_family", family)];
        let last = scrape.value("kubeproxy_sync_proxy_rules_last_timestamp_seconds", &labels);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        assert!(last.is_some_and(|last| (now - last).abs() < 60.0), "{last:?}");
    }
    assert_eq!(scrape.value("kubeproxy_sync_proxy_rules_service_changes_pending", &[]), Some(0.0));
    assert_eq!(scrape.value("kubeproxy_sync_proxy_rules_endpoint_changes_pending", &[]), Some(0.0));
    assert_eq!(scrape.value("kubeproxy_sync_proxy_rules_service_changes_total", &[]), Some(1.0));
    assert_eq!(scrape.value("kubeproxy_sync_proxy_rules_endpoint_changes_total", &[]), Some(2.0));
}

#[test]
fn h05_the_metrics_server_says_mode_configuration_and_that_it_lives() {
    let world = World::new("h05-server").nodes(1).build();
    let node = world.node(0);
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    let plan = ProgramPlan::on(node).manifests(&manifests);
    let program = plan.start_healthy();
    let answer = |path: &str| ask(&world, METRICS, path).expect("an answer");
    let mode = answer("/proxyMode");
    assert_eq!((mode.status, mode.body.as_str()), (200, "nftables"));
    assert_eq!(mode.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(mode.header("x-content-type-options"), Some("nosniff"));
    assert_eq!((answer("/healthz").body.as_str(), answer("/healthz/ping").body.as_str()), ("ok", "ok"));
    assert_eq!(answer("/healthz?verbose").body, "[+]ping ok\nhealthz check passed\n");
    let config = answer("/configz");
    assert_eq!(config.header("content-type"), Some("application/json"));
    let config: serde_json::Value = serde_json::from_str(&config.body).expect("JSON");
    let config = &config["kubeproxy.config.k8s.io"];
    assert_eq!((&config["kind"], &config["mode"]), (&"KubeProxyConfiguration".into(), &"nftables".into()));
    assert_eq!(config["hostnameOverride"], "node-1");
    let flagz = answer("/flagz");
    assert!(flagz.body.contains("\nhostname-override=node-1\n"), "{}", flagz.body);
    assert!(answer("/statusz").body.contains("\nBinary version: v1.37."));
    for path in ["/", "/debug/pprof/", "/debug/flags/v", "/other"] {
        assert_eq!(answer(path).status, 404, "{path}");
    }
    drop(program);
    let _program = plan.arg("--profiling").start_healthy();
    assert_eq!(answer("/debug/flags").status, 200);
}

#[test]
fn h06_latency_is_measured_from_the_trigger_of_the_change() {
    let world = World::new("h06").nodes(1).build();
    let node = world.node(0);
    let a = node.pod("a");
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    manifests.put("web", &[service("web", &["10.96.0.10", "fd00:10:96::10"]).tcp(80).object()]);
    let _program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    let triggered = |seconds_ago: i64| {
        let time =
            k8s_openapi::jiff::Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_secs(seconds_ago);
        let text = slice("web-4", "web", Family::Ip).port("", L4Proto::Tcp, 8080);
        let mut json = text.endpoint(a.addr(Family::Ip), node.name()).json().clone();
        json["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] =
            time.to_string().into();
        // Something has to change.
        json["ports"][0]["port"] = (8000 + seconds_ago).into();
        manifests.put_text("slice.json", &json.to_string());
    };
    let seen = |what: &str| {
        let series = format!("kubeproxy_network_programming_duration_seconds_{what}");
        scrape(&world).value(&series, &[("ip_family", "IPv4")]).unwrap_or_default()
    };
    // Before the program began it could not have served it: not counted.
    triggered(3600);
    wait::until("the change", wait::SOON, || {
        scrape(&world).value("kubeproxy_sync_proxy_rules_endpoint_changes_total", &[]) == Some(1.0)
            && scrape(&world).value("kubeproxy_sync_proxy_rules_endpoint_changes_pending", &[]) == Some(0.0)
    });
    assert_eq!(seen("count"), 0.0);
    triggered(0);
    wait::until("the change to be counted", wait::SOON, || seen("count") == 1.0);
    assert!(seen("sum") < 10.0, "{}", seen("sum"));
}

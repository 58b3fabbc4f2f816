//! Owns the tests of the metrics: upstream's list name by name, and what the server answers.

use super::*;
use crate::config::{Logging, defaults};
use crate::http_server::listen;
use crate::logging::Verbosity;
use axum::Router;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const UPSTREAM: &str = include_str!("testdata/metrics.tsv");

/// Everything observed at least once.
fn observed() -> Metrics {
    let health = Health::new(&NftFamily::ALL, Duration::from_secs(30), false);
    let metrics = Metrics::new("v1.37.2", Some(health));
    for family in NftFamily::ALL {
        metrics.sync_finished(family, Duration::from_millis(3), SyncKind::Full);
        metrics.sync_finished(family, Duration::from_millis(3), SyncKind::Partial);
        metrics.synced(family);
        metrics.queued(family);
        metrics.programmed(family, Duration::from_secs(1));
        metrics.no_local_endpoints(family, PolicyKind::Internal, 1);
        metrics.no_local_endpoints(family, PolicyKind::External, 2);
        metrics.sync_failed(family);
        metrics.cleanup_failed(family);
        metrics.conntrack_reconciled(family, Duration::from_millis(5), 7);
        metrics.localhost_listeners(family, 3);
        metrics.localhost_listener_failed(family);
        metrics.localhost_rejected(family, L4Proto::Udp, 11);
        metrics.elements_written(family, 5);
        metrics.repaired(family);
    }
    metrics.endpoint_changes(2);
    metrics.endpoint_changes_pending(1);
    metrics.service_changes(2);
    metrics.service_changes_pending(1);
    metrics.healthz(200);
    metrics.livez(503);
    metrics
}

/// Series of a scrape: name → label names without `le`, and the bounds of the buckets.
fn series(text: &str) -> BTreeMap<String, (Vec<String>, Vec<f64>)> {
    let mut series: BTreeMap<String, (Vec<String>, Vec<f64>)> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = match line.split_once('{') {
            Some((name, rest)) => (name, rest.split_once('}').unwrap().0),
            None => (line.split_once(' ').unwrap().0, ""),
        };
        let entry = series.entry(name.to_owned()).or_default();
        let mut names = Vec::new();
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            match label.split_once('=').unwrap() {
                ("le", "\"+Inf\"") => {}
                ("le", bound) => {
                    let bound = bound.trim_matches('"').parse().unwrap();
                    if !entry.1.contains(&bound) {
                        entry.1.push(bound);
                    }
                }
                (name, _) => names.push(name.to_owned()),
            }
        }
        entry.0 = names;
    }
    series
}

/// `0.001 × 2^k, k = 0…14`, or `0.25 0.5; 1…59 step 1; …`, as the list has it.
fn buckets(text: &str) -> Vec<f64> {
    if text.contains('×') {
        return (0..15).map(|k| 0.001 * f64::from(1 << k)).collect();
    }
    let mut bounds = Vec::new();
    for part in text.split(';') {
        let numbers: Vec<f64> = part
            .replace("step", " ")
            .split(|c: char| c.is_whitespace() || c == '…')
            .filter_map(|number| number.parse().ok())
            .collect();
        match (&numbers[..], part.contains("step")) {
            ([from, to, step], true) => {
                let mut bound = *from;
                while bound <= *to {
                    bounds.push(bound);
                    bound += step;
                }
            }
            (list, _) => bounds.extend(list),
        }
    }
    bounds
}

#[test]
fn h05_every_metric_of_upstream_is_here_as_upstream_has_it() {
    let text = observed().scrape().unwrap();
    let series = series(&text);
    for line in UPSTREAM.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let columns: Vec<_> = line.split('\t').collect();
        let [name, kind, labels, bounds, ..] = columns[..] else { panic!("{line}") };
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} {kind}:\n{text}");
        let sample = if kind == "histogram" { format!("{name}_bucket") } else { name.to_owned() };
        let (ours, our_bounds) = series.get(&sample).unwrap_or_else(|| panic!("{sample}:\n{text}"));
        let mut ours = ours.clone();
        let mut theirs: Vec<_> = labels.split(',').filter(|label| !label.is_empty()).collect();
        ours.sort();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{name}");
        if kind == "histogram" {
            assert_eq!(*our_bounds, buckets(bounds), "{name}");
            assert!(
                text.contains(&format!("{name}_count")) && text.contains(&format!("{name}_sum")),
                "{name}"
            );
        }
    }
}

#[test]
fn the_usual_metrics_are_here() {
    let text = observed().scrape().unwrap();
    for start in [
        "kubernetes_build_info{major=\"1\",minor=\"37\",git_version=\"v1.37.2\"",
        "proxier_build_info{version=",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_virtual_memory_bytes ",
        "process_start_time_seconds ",
        "process_open_fds ",
        "process_max_fds ",
        "proxier_elements_written_total{ip_family=\"IPv4\"} 5",
        "proxier_foreign_change_repairs_total{ip_family=\"IPv6\"} 1",
        "proxier_staleness_seconds{ip_family=\"IPv4\"} 0",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"external\",ip_family=\"IPv6\"} 2",
        "kubeproxy_nftables_localhost_nodeport_rejected_packets_total{ip_family=\"IPv4\",protocol=\"UDP\"} 11",
        "kubeproxy_proxy_healthz_total{code=\"200\"} 1",
    ] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}:\n{text}");
    }
}

#[test]
fn what_was_never_observed_has_no_series() {
    let text = Metrics::new("v1.37.2", None).scrape().unwrap();
    assert!(!text.contains("kubeproxy_sync_proxy_rules_duration_seconds_bucket"), "{text}");
    assert!(text.contains("kubeproxy_sync_proxy_rules_service_changes_pending 0\n"), "{text}");
}

fn about() -> About {
    About::new([("v".to_owned(), "2".to_owned()), ("config".to_owned(), "/a".to_owned())], "v1.37.2")
}

fn start(router: Router) -> SocketAddr {
    let listener = listen(([127, 0, 0, 1], 0).into(), false).unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

/// Status line, headers and body of an answer.
async fn ask(addr: SocketAddr, request: &str, body: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn h05_the_server_answers_as_upstreams() {
    let addr = start(router(observed(), &defaults(), about(), None));
    let rows = [
        ("GET /proxyMode", "200", "text/plain; charset=utf-8", "nftables"),
        ("GET /healthz", "200", "text/plain; charset=utf-8", "ok"),
        ("GET /healthz?verbose", "200", "text/plain; charset=utf-8", "[+]ping ok\nhealthz check passed\n"),
    ];
    for (request, code, content_type, body) in rows {
        let answer = ask(addr, request, "").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        assert!(answer.contains(&format!("content-type: {content_type}\r\n")), "{answer}");
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
    }
    let configz = ask(addr, "GET /configz", "").await;
    let json: serde_json::Value = serde_json::from_str(configz.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(json["kubeproxy.config.k8s.io"]["kind"], "KubeProxyConfiguration");
    let flagz = ask(addr, "GET /flagz", "").await;
    assert!(
        flagz.contains("\r\n\r\n\nkube-proxy flagz\nWarning: ") && flagz.ends_with("\n\nconfig=/a\nv=2\n"),
        "{flagz}"
    );
    let statusz = ask(addr, "GET /statusz", "").await;
    assert!(
        statusz.contains("\nUp: 0 hr 0 min ") && statusz.contains("\nBinary version: v1.37.2\n"),
        "{statusz}"
    );
    let scraped = ask(addr, "GET /metrics", "").await;
    assert!(scraped.contains("content-type: text/plain; version=0.0.4"), "{scraped}");
    assert!(ask(addr, "GET /debug/flags", "").await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn debug_is_there_only_when_asked_for() {
    let verbosity = Verbosity::new(&Logging { json: false, verbosity: 0, vmodule: Vec::new() });
    let addr = start(router(observed(), &defaults(), about(), Some(Debug { verbosity: verbosity.clone() })));
    assert!(ask(addr, "PUT /debug/flags/v", "4").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(verbosity.get(), 4);
    assert!(ask(addr, "PUT /debug/flags/v", "loud").await.starts_with("HTTP/1.1 400 "));
    assert!(ask(addr, "GET /debug/flags/v", "").await.starts_with("HTTP/1.1 406 "));
}

/// Every text under a key of this name, at any depth.
fn texts<'a>(value: &'a serde_json::Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get(key).and_then(serde_json::Value::as_str));
            fields.values().for_each(|value| texts(value, key, found));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_alerts_name_only_metrics_that_exist() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../deploy/grafana/proxier.json")).unwrap();
    let alerts: serde_json::Value =
        serde_saphyr::from_str(include_str!("../../../deploy/prometheus/alerts.yaml")).unwrap();
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    texts(&dashboard, "query", &mut expressions);
    let panels = expressions.len();
    texts(&alerts, "expr", &mut expressions);
    let rules = expressions.len() - panels;
    assert!(panels > 25 && rules >= 10, "{panels} expressions of panels, {rules} of alerts");

    let text = observed().scrape().unwrap();
    let series = series(&text);
    let mut named = BTreeSet::new();
    for expression in expressions {
        let depth =
            |open, close| expression.matches(open).count().abs_diff(expression.matches(close).count());
        assert_eq!((depth('(', ')'), depth('{', '}'), depth('[', ']')), (0, 0, 0), "{expression}");
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_metric = |word: &&str| {
            ["kubeproxy_", "proxier_", "process_", "kubernetes_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        };
        named.extend(words.filter(is_metric));
    }
    for name in &named {
        assert!(series.contains_key(*name), "{name} is not in a scrape:\n{text}");
    }
    // What upstream's nftables mode shows is worth a panel or an alert each.
    for line in UPSTREAM.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('\t').next().unwrap();
        // Read from counters that upstream's rules have, and ours do without.
        let is_named = named.iter().any(|named| named.starts_with(name)) || name.contains("rejected_packets");
        assert!(is_named, "{name} is nowhere");
    }
}

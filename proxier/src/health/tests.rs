//! Owns the tests of the health servers, over HTTP on loopback. Each test has a loopback address of its own.

use super::*;
use crate::events::Events;
use crate::http_server::listen;
use crate::metrics::Metrics;
use nft_ir::Family;
use proxier_core::model::{Node, ServiceName};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LONGEST: Duration = Duration::from_secs(10);

/// Code, headers in lower case, body.
type Answer = (u16, String, String);

async fn try_ask(addr: SocketAddr, request: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(addr).await?;
    stream
        .write_all(format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let code =
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((code, head.to_lowercase(), body.to_owned()))
}

async fn ask(addr: SocketAddr, request: &str) -> Answer {
    try_ask(addr, request).await.unwrap()
}

/// Asks until the answer is as wanted; servers open and close a moment after they were told.
async fn ask_until(
    addr: SocketAddr,
    wanted: impl Fn(&std::io::Result<Answer>) -> bool,
) -> std::io::Result<Answer> {
    let deadline = tokio::time::Instant::now() + LONGEST;
    loop {
        let answer = try_ask(addr, "GET /").await;
        if wanted(&answer) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "last answer: {answer:?}");
        tokio::task::yield_now().await;
    }
}

fn healthy() -> Health {
    let health = Health::new(&[Family::Ip], Duration::from_secs(30), false);
    health.synced(Family::Ip, Moment::now());
    health
}

fn service(name: &str, port: u16, local_endpoints: usize) -> ServiceHealth {
    let port = NonZeroU16::new(port).unwrap();
    ServiceHealth { service: ServiceName::new("shop", name), port, local_endpoints }
}

/// Loopback address of one test.
fn host(test: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, 1, test)
}

fn on(test: u8) -> Listen {
    Listen::On(vec![IpAddr::V4(host(test))])
}

fn at(test: u8, port: u16) -> SocketAddr {
    SocketAddr::from((host(test), port))
}

#[tokio::test]
async fn h01_h02_healthz_and_livez() {
    let health = Health::new(&Family::ALL, Duration::from_secs(30), true);
    let metrics = Metrics::new("v1.37.2", None);
    let listener = listen(([127, 0, 0, 1], 0).into(), false).unwrap();
    let addr = listener.local_addr().unwrap();
    let router = router(health.clone(), metrics.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let (code, head, body) = ask(addr, "GET /healthz").await;
    assert_eq!(code, 503, "no rules yet");
    assert!(
        head.contains("content-type: application/json") && head.contains("x-content-type-options: nosniff")
    );
    let json: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["lastUpdated"], "0001-01-01T00:00:00Z");
    assert_eq!((&json["healthy"], &json["nodeEligible"]), (&false.into(), &false.into()));
    assert_eq!(json["status"]["IPv6"]["healthy"], false);
    assert_eq!(ask(addr, "GET /livez").await.0, 200, "alive, though not ready");

    for family in Family::ALL {
        health.synced(family, Moment::now());
    }
    assert_eq!(ask(addr, "GET /healthz").await.0, 503, "the Node is not known");
    health.node(Some(&Node::default()));
    let (code, _, body) = ask(addr, "POST /healthz").await;
    assert_eq!(code, 200);
    let keys = ["lastUpdated", "currentTime", "nodeEligible", "healthy", "status"];
    let positions: Vec<_> = keys.iter().map(|key| body.find(&format!("\"{key}\"")).unwrap()).collect();
    assert!(positions.is_sorted() && !body.ends_with('\n'), "{body}");

    health.node(Some(&Node { to_be_deleted: true, ..Node::default() }));
    let (code, _, body) = ask(addr, "GET /healthz").await;
    assert_eq!(code, 503);
    assert!(body.contains("\"nodeEligible\":false,\"healthy\":true"), "{body}");
    let (code, _, body) = ask(addr, "GET /livez").await;
    assert_eq!(code, 200);
    assert!(!body.contains("nodeEligible"), "{body}");
    assert_eq!(ask(addr, "GET /other").await.0, 404);

    let text = metrics.scrape().unwrap();
    assert!(text.contains("kubeproxy_proxy_healthz_total{code=\"503\"} 3"), "{text}");
    assert!(text.contains("kubeproxy_proxy_livez_total{code=\"200\"} 2"), "{text}");
}

#[tokio::test]
async fn h03_a_service_says_whether_it_has_endpoints_here() {
    let health = healthy();
    let servers = ServiceHealthServers::start("node-1".into(), health.clone(), Events::log_only());
    servers.publish(Family::Ip, [service("web", 30001, 2)], on(1));
    let (code, head, body) = ask_until(at(1, 30001), Result::is_ok).await.unwrap();
    assert_eq!(code, 200);
    assert!(head.contains("x-load-balancing-endpoint-weight: 2"), "{head}");
    assert!(
        head.contains("content-type: application/json") && head.contains("x-content-type-options: nosniff")
    );
    assert_eq!(
        body,
        "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": \
         2,\n\t\"serviceProxyHealthy\": true\n}"
    );
    // f14: the last local endpoint goes.
    servers.publish(Family::Ip, [service("web", 30001, 0)], on(1));
    let (_, head, body) = ask_until(at(1, 30001), |a| matches!(a, Ok((503, ..)))).await.unwrap();
    assert!(
        head.contains("x-load-balancing-endpoint-weight: 0") && body.contains("\"localEndpoints\": 0"),
        "{body}"
    );
    // Endpoints, but rules that are out of date.
    servers.publish(Family::Ip, [service("web", 30001, 1)], on(1));
    ask_until(at(1, 30001), |a| matches!(a, Ok((200, ..)))).await.unwrap();
    let long_ago = Moment { at: std::time::Instant::now() - Duration::from_secs(100), ..Moment::now() };
    health.queued(Family::Ip, long_ago);
    let (code, _, body) = ask(at(1, 30001), "GET /anything").await;
    assert_eq!(code, 503);
    assert!(body.contains("\"serviceProxyHealthy\": false"), "{body}");
}

#[tokio::test]
async fn h03_servers_move_with_their_ports_and_addresses() {
    let servers = ServiceHealthServers::start("node-1".into(), healthy(), Events::log_only());
    servers.publish(Family::Ip, [service("a", 30001, 1), service("b", 30002, 1)], on(2));
    ask_until(at(2, 30001), Result::is_ok).await.unwrap();
    // Two Services exchange their ports, a third comes.
    servers.publish(
        Family::Ip,
        [service("a", 30002, 1), service("b", 30001, 1), service("c", 30003, 1)],
        on(2),
    );
    ask_until(at(2, 30003), Result::is_ok).await.unwrap();
    assert!(ask(at(2, 30001), "GET /").await.2.contains("\"b\""));
    assert!(ask(at(2, 30002), "GET /").await.2.contains("\"a\""));
    // An address is added, a Service goes.
    let both = Listen::On(vec![IpAddr::V4(host(2)), IpAddr::V4(host(3)), "::1".parse().unwrap()]);
    servers.publish(Family::Ip, [service("a", 30002, 1)], both);
    ask_until(at(3, 30002), Result::is_ok).await.unwrap();
    ask_until(at(2, 30001), Result::is_err).await.unwrap_err();
    ask(at(2, 30002), "GET /").await;
    drop(servers);
    ask_until(at(3, 30002), Result::is_err).await.unwrap_err();
}

#[tokio::test]
async fn h03_a_taken_port_is_told_once_and_tried_again() {
    let (events, mut told) = Events::channel();
    let taken = TcpListener::bind(at(4, 30001)).unwrap();
    let servers = ServiceHealthServers::start("node-1".into(), healthy(), events);
    servers.publish(Family::Ip, [service("web", 30001, 1), service("other", 30002, 1)], on(4));
    let notice = tokio::time::timeout(LONGEST, told.next()).await.unwrap();
    assert_eq!(
        (notice.reason, notice.action, notice.is_warning),
        ("FailedToStartServiceHealthcheck", "Listen", true)
    );
    let want = "node node-1 failed to start healthcheck \"shop/web\" on port 30001: 127.77.1.4:30001: ";
    assert!(notice.note.starts_with(want), "{}", notice.note);
    ask_until(at(4, 30002), Result::is_ok).await.unwrap();
    drop(taken);
    servers.publish(Family::Ip, [service("web", 30001, 2), service("other", 30002, 1)], on(4));
    ask_until(at(4, 30001), Result::is_ok).await.unwrap();
    assert!(told.is_empty(), "told once");
}

#[tokio::test]
async fn h03_hundreds_of_servers_are_tasks() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let servers = ServiceHealthServers::start("node-1".into(), healthy(), Events::log_only());
    let before = threads();
    let services: Vec<_> = (0..300).map(|n| service(&format!("s{n}"), 30_000 + n, 1)).collect();
    servers.publish(Family::Ip, services, on(5));
    ask_until(at(5, 30_299), Result::is_ok).await.unwrap();
    for port in 30_000..30_300 {
        assert_eq!(ask(at(5, port), "GET /").await.0, 200);
    }
    // Other tests of this process start threads of their own.
    assert!(threads() < before + 100, "{} threads, {before} before", threads());
}

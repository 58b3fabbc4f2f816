//! Owns the tests of the proxy on this machine's loopback.

use super::*;
use nft_ir::L4Proto;
use proxier_core::model::ServiceName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

fn name(port: &str) -> ServicePortName {
    ServicePortName { service: ServiceName::new("shop", "web"), port: port.into(), protocol: L4Proto::Tcp }
}

fn metric(metrics: &Metrics, name: &str) -> Option<String> {
    let text = metrics.scrape().unwrap();
    let line = text.lines().find(|line| line.starts_with(name) && line.contains("IPv4"))?;
    line.rsplit(' ').next().map(str::to_owned)
}

/// A free port of loopback, and the socket that keeps it.
async fn taken() -> (TcpListener, NonZeroU16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().try_into().unwrap();
    (listener, port)
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.unwrap();
}

#[tokio::test]
async fn a_half_closed_connection_still_gets_its_answer() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = server.local_addr().unwrap();
    let (free, port) = taken().await;
    drop(free);
    let metrics = Metrics::new("v1.37.2", None);
    let proxy = NodePortProxy::start(metrics.clone());
    let ports = [LocalNodePort { name: name(""), port, endpoints: [endpoint].into(), affinity: None }];
    proxy.publish(Family::Ip, ports.clone());
    until(async || {
        metric(&metrics, "kubeproxy_nftables_localhost_nodeport_listeners").as_deref() == Some("1")
    })
    .await;
    let mut client = TcpStream::connect(("127.0.0.1", port.get())).await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut served, _) = server.accept().await.unwrap();
    let mut text = String::new();
    served.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "question");
    served.write_all(b"answer").await.unwrap();
    drop(served);
    text.clear();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "answer");

    // A port that goes takes its connections along.
    let mut client = TcpStream::connect(("127.0.0.1", port.get())).await.unwrap();
    let (_served, _) = server.accept().await.unwrap();
    proxy.publish(Family::Ip, []);
    let ended = client.read(&mut [0; 8]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    until(async || TcpStream::connect(("127.0.0.1", port.get())).await.is_err()).await;
    assert_eq!(metric(&metrics, "kubeproxy_nftables_localhost_nodeport_listeners").as_deref(), Some("0"));
}

#[tokio::test]
async fn a_port_in_use_is_counted_and_tried_again() {
    let (taken, port) = taken().await;
    let metrics = Metrics::new("v1.37.2", None);
    let proxy = NodePortProxy::start(metrics.clone());
    let endpoints = [SocketAddr::from(([127, 0, 0, 1], 9))];
    let ports = [LocalNodePort { name: name(""), port, endpoints: endpoints.into(), affinity: None }];
    proxy.publish(Family::Ip, ports.clone());
    let failures = "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total";
    until(async || metric(&metrics, failures).as_deref() == Some("1")).await;
    drop(taken);
    // The next change tries again, as the clock would.
    proxy.publish(Family::Ip, ports);
    until(async || {
        metric(&metrics, "kubeproxy_nftables_localhost_nodeport_listeners").as_deref() == Some("1")
    })
    .await;
    // Nobody answers at the endpoint: the connection is closed.
    let mut client = TcpStream::connect(("127.0.0.1", port.get())).await.unwrap();
    let ended = client.read(&mut [0; 8]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

//! Owns the tests of the behaviour table's part H: what the program says over HTTP, asked with real requests. Knows nothing
//! of packets to Services, but where they must agree with it.

mod h01_healthz;
mod h03_service_checks;
mod h05_metrics;
mod scrape;

use integration::objects::{Object, node, service_cidr};
use integration::{Response, World};
use scrape::Scrape;
use std::net::{Ipv4Addr, SocketAddr};

const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);

/// What every folder holds: the nodes, the prefixes of ClusterIPs.
fn cluster(world: &World) -> Vec<Object> {
    let nodes = world.nodes().iter().map(|member| node(member.name(), member.addrs()));
    nodes.chain([service_cidr("kubernetes", &["10.96.0.0/16", "fd00:10:96::/112"])]).collect()
}

/// An answer on the first node; `None` if nobody listens.
fn ask(world: &World, at: SocketAddr, path: &str) -> Option<Response> {
    world.node(0).get(at, path).ok()
}

/// The metrics of the first node's program.
#[track_caller]
fn scrape(world: &World) -> Scrape {
    match ask(world, METRICS, "/metrics") {
        Some(response) if response.status == 200 => Scrape::read(&response.body),
        other => panic!("/metrics: {other:?}"),
    }
}

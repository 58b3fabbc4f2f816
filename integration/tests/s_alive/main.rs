//! Owns the tests of the program staying alive, on a folder of manifests: killed, replaced, disturbed, refused, fed with
//! nonsense. Knows nothing of an API server.

mod c04_continuity;
mod c14_families;
mod f11_userdata;
mod s02_repair;
mod s03_bad_objects;
mod s04_refused;
mod s06_restart;
mod s07_missing;

use integration::objects::{Object, node, service, service_cidr};
use integration::{Family, L4Proto, World, stage};

/// ClusterIPs of the Service `web`.
const WEB: [&str; 2] = ["10.96.0.10", "fd00:10:96::10"];

/// The address of `web` in a family.
fn web(family: Family) -> std::net::SocketAddr {
    stage::at(stage::of(family, WEB[0], WEB[1]), 80)
}

/// What every folder holds: the nodes, the prefixes of ClusterIPs.
fn cluster(world: &World) -> Vec<Object> {
    let nodes = world.nodes().iter().map(|member| node(member.name(), member.addrs()));
    nodes.chain([service_cidr("kubernetes", &["10.96.0.0/16", "fd00:10:96::/112"])]).collect()
}

/// The Service `web`.
fn web_service() -> Object {
    service("web", &WEB).tcp(80).object()
}

/// A TCP server on port 8080 of each pod, by the pod's name.
fn serve(pods: &[&integration::Pod]) -> Vec<integration::Server> {
    pods.iter().map(|pod| pod.serve(L4Proto::Tcp, 8080, pod.name())).collect()
}

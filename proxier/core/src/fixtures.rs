//! Owns objects for tests, said in a few words. Knows nothing of what is tested.

use crate::Change;
use crate::model::{
    Affinity, Cidr, Endpoint, EndpointSlice, HostAddress, Node, Service, ServiceName, ServicePort, SlicePort,
    TrafficPolicy,
};
use nft_ir::{Family, L4Proto};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A Service of namespace `ns` with this name and ClusterIPs, and no ports yet.
pub fn service(name: &str, cluster_ips: &[&str]) -> Service {
    Service {
        name: ServiceName::new("ns", name),
        created: 0,
        cluster_ips: addrs(cluster_ips),
        external_ips: Vec::new(),
        load_balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        ports: Vec::new(),
        internal_policy: TrafficPolicy::Cluster,
        external_policy: TrafficPolicy::Cluster,
        affinity: None,
        health_check_node_port: None,
    }
}

/// Sentences about a Service.
impl Service {
    /// With an unnamed TCP port.
    #[must_use]
    pub fn tcp(self, port: u16) -> Self {
        self.port("", L4Proto::Tcp, port, 0)
    }

    /// With a port; node port 0 means none.
    #[must_use]
    pub fn port(mut self, name: &str, protocol: L4Proto, port: u16, node_port: u16) -> Self {
        self.ports.push(ServicePort {
            name: name.into(),
            protocol,
            port: port.try_into().expect("a fixture's port is not 0"),
            node_port: node_port.try_into().ok(),
        });
        self
    }

    /// Created then.
    #[must_use]
    pub const fn created(mut self, seconds: i64) -> Self {
        self.created = seconds;
        self
    }

    /// With external IPs.
    #[must_use]
    pub fn external(mut self, ips: &[&str]) -> Self {
        self.external_ips = addrs(ips);
        self
    }

    /// With load balancer IPs.
    #[must_use]
    pub fn load_balancer(mut self, ips: &[&str]) -> Self {
        self.load_balancer_ips = addrs(ips);
        self
    }

    /// With source ranges.
    #[must_use]
    pub fn from(mut self, ranges: &[&str]) -> Self {
        self.source_ranges = ranges.iter().map(|range| cidr(range)).collect();
        self
    }

    /// With external policy Local.
    #[must_use]
    pub const fn external_local(mut self) -> Self {
        self.external_policy = TrafficPolicy::Local;
        self
    }

    /// With internal policy Local.
    #[must_use]
    pub const fn internal_local(mut self) -> Self {
        self.internal_policy = TrafficPolicy::Local;
        self
    }

    /// With session affinity.
    #[must_use]
    pub const fn sticky(mut self, seconds: u64) -> Self {
        self.affinity = Some(Affinity { timeout: Duration::from_secs(seconds) });
        self
    }

    /// As a change.
    pub fn upsert(self) -> Change {
        Change::Service(self.name.clone(), Some(Arc::new(self)))
    }
}

/// Its removal.
pub fn no_service(name: &str) -> Change {
    Change::Service(ServiceName::new("ns", name), None)
}

/// A slice of namespace `ns` for a Service, with one unnamed TCP port. Endpoints as `ADDRESS@NODE STATE`, where STATE is
/// `ready` (may be left out), `leaving` (terminating, serving), `gone` (terminating, not serving) or `unready`.
pub fn slice(name: &str, service: &str, port: u16, endpoints: &[&str]) -> EndpointSlice {
    let endpoints: Vec<Endpoint> = endpoints.iter().map(|words| endpoint(words)).collect();
    EndpointSlice {
        name: ServiceName::new("ns", name),
        service: service.into(),
        family: endpoints.first().map_or(Family::Ip, |e| Family::of(&e.addr)),
        ports: vec![SlicePort {
            name: "".into(),
            protocol: L4Proto::Tcp,
            port: port.try_into().expect("a fixture's port is not 0"),
        }],
        endpoints,
        trigger_time: None,
    }
}

/// Sentences about a slice.
impl EndpointSlice {
    /// With another port.
    #[must_use]
    pub fn and_port(mut self, name: &str, protocol: L4Proto, port: u16) -> Self {
        let port = port.try_into().expect("a fixture's port is not 0");
        self.ports.push(SlicePort { name: name.into(), protocol, port });
        self
    }

    /// As a change.
    pub fn upsert(self) -> Change {
        Change::EndpointSlice(self.name.clone(), Some(Arc::new(self)))
    }
}

/// The removal of a slice.
pub fn no_slice(name: &str) -> Change {
    Change::EndpointSlice(ServiceName::new("ns", name), None)
}

/// The Node, with its addresses.
pub fn node(name: &str, addresses: &[&str]) -> Change {
    Change::Node(Some(Arc::new(Node { name: name.into(), addresses: addrs(addresses), ..Node::default() })))
}

/// Addresses of the host, all on `eth0`.
pub fn host(addresses: &[&str]) -> Change {
    let on_eth0 = |addr| HostAddress { addr, link: "eth0".into() };
    Change::HostAddresses(addrs(addresses).into_iter().map(on_eth0).collect())
}

/// A prefix.
pub fn cidr(text: &str) -> Cidr {
    Cidr::parse(text).expect("a fixture's prefix can be read")
}

fn endpoint(words: &str) -> Endpoint {
    let (place, state) = words.split_once(' ').unwrap_or((words, "ready"));
    let (addr, node) = place.split_once('@').expect("a fixture's endpoint says its node");
    let (ready, serving, terminating) = match state {
        "ready" => (true, true, false),
        "leaving" => (false, true, true),
        "gone" => (false, false, true),
        "unready" => (false, true, false),
        other => panic!("a fixture's endpoint is not {other:?}"),
    };
    Endpoint {
        addr: addr.parse().expect("a fixture's address can be read"),
        ready,
        serving,
        terminating,
        node: Some(node.into()),
        zone_hints: Box::default(),
        node_hints: Box::default(),
    }
}

fn addrs(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("a fixture's address can be read")).collect()
}

//! Owns a synthetic cluster of any size, for measurements: Services with one port each, all endpoints ready, IPv4. Knows nothing
//! of what is measured.

use nft_ir::{Family, L4Proto};
use proxier::sync::Syncer;
use proxier_core::model::{
    Endpoint, EndpointSlice, HostAddress, Node, Service, ServiceName, ServicePort, SlicePort, TrafficPolicy,
};
use proxier_core::{Change, Settings};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

const PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();
const TARGET: NonZeroU16 = NonZeroU16::new(8080).unwrap();

/// A proxier that has seen the cluster and written nothing yet.
pub fn start(changes: &[Change]) -> Result<Syncer, String> {
    let settings = Settings { families: vec![Family::Ip], ..Settings::new("node-1") };
    let mut syncer = Syncer::new(settings).map_err(|error| error.to_string())?;
    changes.iter().cloned().for_each(|change| syncer.apply(change));
    Ok(syncer)
}

/// Takes our tables out of the namespace.
pub fn empty() -> Result<(), String> {
    let mut nft = netlink::Nft::open().map_err(|error| error.to_string())?;
    let mut transaction = nft_ir::Transaction::default();
    for table in nft.tables().map_err(|error| error.to_string())? {
        transaction.push(nft_ir::Op::DeleteTable { table });
    }
    nft.commit(&transaction, None).map(drop).map_err(|error| error.to_string())
}

/// All changes that a source would tell of it.
pub fn cluster(services: usize, endpoints: usize) -> Vec<Change> {
    let addr: IpAddr = Ipv4Addr::new(192, 168, 77, 11).into();
    let node = Node { name: "node-1".into(), addresses: vec![addr], ..Node::default() };
    let mut changes = vec![
        Change::Node(Some(Arc::new(node))),
        Change::HostAddresses(vec![HostAddress { addr, link: "eth0".into() }]),
    ];
    for service in 0..services {
        let name = service_name(service);
        let object = Service {
            name: name.clone(),
            created: 0,
            cluster_ips: vec![Ipv4Addr::from_bits(0x0a_60_00_00 + number(service) + 1).into()],
            external_ips: Vec::new(),
            load_balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            ports: vec![ServicePort {
                name: "http".into(),
                protocol: L4Proto::Tcp,
                port: PORT,
                node_port: None,
            }],
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Cluster,
            affinity: None,
            health_check_node_port: None,
        };
        changes.push(Change::Service(name, Some(Arc::new(object))));
        changes.push(slice(service, hosts(service, endpoints).collect()));
    }
    changes
}

fn service_name(service: usize) -> ServiceName {
    ServiceName::new("bench", format!("service-{service}"))
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Addresses of a Service's endpoints, from 10.128.0.0/9.
pub fn hosts(service: usize, endpoints: usize) -> impl Iterator<Item = u32> {
    (0..endpoints).map(move |endpoint| 0x0a_80_00_01 + number(service * endpoints + endpoint))
}

/// A Service's slice with these endpoints, as a change.
pub fn slice(service: usize, hosts: Vec<u32>) -> Change {
    let name = ServiceName::new("bench", format!("service-{service}-a"));
    let endpoint = |host: u32| Endpoint {
        addr: Ipv4Addr::from_bits(host).into(),
        ready: true,
        serving: true,
        terminating: false,
        node: Some("node-2".into()),
        zone_hints: Box::default(),
        node_hints: Box::default(),
    };
    let slice = EndpointSlice {
        name: name.clone(),
        service: service_name(service).name,
        family: Family::Ip,
        ports: vec![SlicePort { name: "http".into(), protocol: L4Proto::Tcp, port: TARGET }],
        endpoints: hosts.into_iter().map(endpoint).collect(),
        trigger_time: None,
    };
    Change::EndpointSlice(name, Some(Arc::new(slice)))
}

//! Owns the measurement of one sync: from a change in the model to the kernel's acknowledgement, in a network namespace of its
//! own. Prints a table, and with `--json` a line for programs. Knows nothing of kube-proxy.

use integration::Netns;
use nft_ir::{Family, L4Proto};
use proxier::sync::Syncer;
use proxier_core::model::{
    Endpoint, EndpointSlice, HostAddress, Node, Service, ServiceName, ServicePort, SlicePort, TrafficPolicy,
};
use proxier_core::{Change, Settings};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PORT: NonZeroU16 = NonZeroU16::new(80).unwrap();
const TARGET: NonZeroU16 = NonZeroU16::new(8080).unwrap();

/// Changes that each percentile is taken from.
const CHANGES: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args().any(|arg| arg == "--json");
    let sizes: Vec<(usize, usize)> = match std::env::args().skip(1).find(|arg| !arg.starts_with("--")) {
        Some(sizes) => sizes.split(',').map(size).collect::<Result<_, _>>()?,
        None => vec![(1_000, 2), (10_000, 2), (30_000, 2), (5_000, 50), (1, 1_000)],
    };
    let ns = Netns::new("measure")?;
    let table = ns.run(|| -> Result<Vec<Row>, String> {
        sizes.iter().map(|(services, endpoints)| Row::measure(*services, *endpoints)).collect()
    })?;
    println!(
        "{:>9} {:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6}",
        "Services",
        "endpoints",
        "first sync",
        "restart",
        "replaced p50",
        "p99",
        "added p50",
        "removed p50",
        "chains",
        "rules"
    );
    for row in &table {
        println!(
            "{:>9} {:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6}",
            row.services,
            row.endpoints,
            ms(row.first),
            ms(row.restart),
            ms(row.replaced.0),
            ms(row.replaced.1),
            ms(row.added.0),
            ms(row.removed.0),
            row.chains,
            row.rules,
        );
        if json {
            println!("{}", row.json());
        }
    }
    Ok(())
}

fn size(text: &str) -> Result<(usize, usize), Box<dyn Error>> {
    let (services, endpoints) =
        text.split_once('x').ok_or_else(|| format!("{text:?} is not SERVICESxENDPOINTS"))?;
    Ok((services.parse()?, endpoints.parse()?))
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

#[derive(Debug)]
struct Row {
    services: usize,
    endpoints: usize,
    /// Medians over a few rounds.
    first: Duration,
    restart: Duration,
    /// p50 and p99.
    replaced: (Duration, Duration),
    added: (Duration, Duration),
    removed: (Duration, Duration),
    chains: usize,
    rules: usize,
}

impl Row {
    fn measure(services: usize, endpoints: usize) -> Result<Self, String> {
        const ROUNDS: usize = 5;
        let changes = cluster(services, endpoints);
        let (mut firsts, mut restarts) = (Vec::new(), Vec::new());
        let mut last = None;
        for _ in 0..ROUNDS {
            drop(last.take());
            empty()?;
            let mut syncer = start(&changes)?;
            firsts.push(timed(&mut syncer)?);
            // The same again on what is there: a restart of the program, which reads the kernel and writes nothing.
            let mut restarted = start(&changes)?;
            restarts.push(timed(&mut restarted)?);
            last = Some(restarted);
        }
        let mut syncer = last.ok_or("no rounds")?;
        let (mut replaced, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..CHANGES {
            let service = round * 7919 % services;
            let mut change = |hosts: Vec<u32>| -> Result<Duration, String> {
                let began = Instant::now();
                syncer.apply(slice(service, hosts));
                syncer.sync().map_err(|error| error.to_string())?;
                Ok(began.elapsed())
            };
            let usual: Vec<u32> = hosts(service, endpoints).collect();
            let mut other = usual.clone();
            other[0] = 0x0a_f8_00_00 + u32::try_from(round).unwrap_or(0) + 1;
            replaced.push(change(other.clone())?);
            other.push(0x0a_f9_00_00 + u32::try_from(round).unwrap_or(0) + 1);
            added.push(change(other.clone())?);
            other.pop();
            removed.push(change(other)?);
            change(usual)?;
        }
        let ruleset = integration::proxied::dump().map_err(|error| error.to_string())?;
        let chains = ruleset.tables.values().map(|table| table.chains.len()).sum();
        let rules =
            ruleset.tables.values().flat_map(|t| t.chains.values()).map(|chain| chain.rules.len()).sum();
        Ok(Self {
            services,
            endpoints,
            first: percentile(&mut firsts, 50),
            restart: percentile(&mut restarts, 50),
            replaced: (percentile(&mut replaced, 50), percentile(&mut replaced, 99)),
            added: (percentile(&mut added, 50), percentile(&mut added, 99)),
            removed: (percentile(&mut removed, 50), percentile(&mut removed, 99)),
            chains,
            rules,
        })
    }

    fn json(&self) -> String {
        let us = |time: Duration| time.as_micros();
        serde_json::json!({
            "services": self.services, "endpoints": self.endpoints,
            "first_sync_us": us(self.first), "restart_us": us(self.restart),
            "replaced_p50_us": us(self.replaced.0), "replaced_p99_us": us(self.replaced.1),
            "added_p50_us": us(self.added.0), "added_p99_us": us(self.added.1),
            "removed_p50_us": us(self.removed.0), "removed_p99_us": us(self.removed.1),
            "chains": self.chains, "rules": self.rules,
        })
        .to_string()
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default()
}

fn timed(syncer: &mut Syncer) -> Result<Duration, String> {
    let began = Instant::now();
    syncer.sync().map_err(|error| error.to_string())?;
    Ok(began.elapsed())
}

/// A proxier that has seen the cluster and written nothing yet.
fn start(changes: &[Change]) -> Result<Syncer, String> {
    let settings = Settings { families: vec![Family::Ip], ..Settings::new("node-1") };
    let mut syncer = Syncer::new(settings).map_err(|error| error.to_string())?;
    changes.iter().cloned().for_each(|change| syncer.apply(change));
    Ok(syncer)
}

/// Takes our tables out of the namespace.
fn empty() -> Result<(), String> {
    let mut nft = netlink::Nft::open().map_err(|error| error.to_string())?;
    let mut transaction = nft_ir::Transaction::default();
    for table in nft.tables().map_err(|error| error.to_string())? {
        transaction.push(nft_ir::Op::DeleteTable { table });
    }
    nft.commit(&transaction, None).map(drop).map_err(|error| error.to_string())
}

fn cluster(services: usize, endpoints: usize) -> Vec<Change> {
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
fn hosts(service: usize, endpoints: usize) -> impl Iterator<Item = u32> {
    (0..endpoints).map(move |endpoint| 0x0a_80_00_01 + number(service * endpoints + endpoint))
}

fn slice(service: usize, hosts: Vec<u32>) -> Change {
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

//! Owns row k06: a table of 1,000,000 flows does not stall the sync, and one endpoint's removal is dealt with in a fraction of
//! the time that reading the whole table takes, and packets go on meanwhile. Needs a table of that size, whose limit is the machine's: it is raised for
//! the time of the test, and put back.

use integration::{Netns, Prefix, wire};
use netlink::conntrack::{Conntrack, Filter, Flow, Status, Tuple, Zone};
use nft_ir::{Family, L4Proto};
use proxier::sync::{FlowCleaner, Syncer, clean};
use proxier_core::fixtures::{host, node, service, slice};
use proxier_core::{Change, Settings};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const FLOWS: u32 = 1_000_000;
/// Every so many flows one is of UDP.
const UDP_EVERY: u32 = 50;
/// Every so many flows one is of UDP to the endpoint that goes.
const STALE_EVERY: u32 = 1000;
const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// The machine's limit of flows, raised; put back when dropped.
struct RaisedLimit(Option<String>);

impl RaisedLimit {
    fn to(wanted: u32) -> Self {
        let before = fs::read_to_string(LIMIT).unwrap_or_else(|error| panic!("{LIMIT}: {error}"));
        let before = before.trim().to_owned();
        if before.parse::<u32>().is_ok_and(|limit| limit >= wanted) {
            return Self(None);
        }
        fs::write(LIMIT, wanted.to_string()).unwrap_or_else(|error| {
            panic!(
                "{LIMIT}: {error}: run this test as root outside of a container, or set it to {wanted} before"
            )
        });
        Self(Some(before))
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(LIMIT, before);
        }
    }
}

fn at(addr: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(addr.into(), port)
}

const VIP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 53);
const STAYS: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 2);
const GOES: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 3);
const NODE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 11);
const ECHO: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 7);
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 7);

fn flow(n: u32) -> Flow {
    let source = at(Ipv4Addr::from_bits(0x0a_80_00_00 + n), 4000);
    let (proto, dialled, answers) = if n.is_multiple_of(STALE_EVERY) {
        (L4Proto::Udp, at(VIP, 53), at(GOES, 5300))
    } else if n.is_multiple_of(UDP_EVERY) {
        (L4Proto::Udp, at(VIP, 53), at(STAYS, 5300))
    } else if n.is_multiple_of(2) {
        // The same protocol and port, and none of ours.
        let resolver = at(Ipv4Addr::new(192, 0, 2, 53), 53);
        (L4Proto::Udp, resolver, resolver)
    } else {
        let other = at(Ipv4Addr::new(10, 96, 0, 80), 80);
        (L4Proto::Tcp, other, at(STAYS, 8080))
    };
    Flow {
        original: Tuple { proto, source, destination: dialled },
        reply: Tuple { proto, source: answers, destination: source },
        status: Status::SEEN_REPLY,
        zone: Zone::Both(0),
        id: 0,
    }
}

fn endpoints(all: &[Ipv4Addr]) -> Change {
    let words: Vec<String> = all.iter().map(|addr| format!("{addr}@here")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    slice("dns-1", "dns", 1, &words).and_port("dns", L4Proto::Udp, 5300).upsert()
}

/// The median of a few syncs, each of one endpoint of another Service replaced.
fn sync_latency(syncer: &mut Syncer) -> Duration {
    let mut times: Vec<Duration> = (0..50_u8)
        .map(|n| {
            syncer.apply(slice("web-1", "web", 8080, &[&format!("10.244.2.{}@there", n % 2 + 1)]).upsert());
            let began = Instant::now();
            syncer.sync().expect("a sync");
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median of round trips through the proxier's rules, each a flow of its own.
fn packet_latency() -> Duration {
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let client = UdpSocket::bind((NODE, 0)).expect("a socket");
            client.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
            client.connect((ECHO, 7)).expect("a route");
            let began = Instant::now();
            client.send(b"?").expect("sent");
            client.recv(&mut [0]).expect("an echo");
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Serves the Service `echo` at this node's own address, for as long as the process runs.
fn serve_echo(ns: &Netns) {
    for addr in [NODE, POD] {
        wire::address(ns, "lo", addr.into(), 32).expect("an address");
    }
    wire::route_on(ns, Prefix { addr: ECHO.into(), len: 32 }, "lo").expect("a route");
    let server = UdpSocket::bind((POD, 7)).expect("a socket");
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, from)) = server.recv_from(&mut byte) {
            let _ = server.send_to(&byte, from);
        }
    });
}

#[test]
fn k06_a_million_flows() {
    let _limit = RaisedLimit::to(FLOWS + 100_000);
    let ns = Netns::new("million").expect("a namespace");
    ns.run(|| {
        let settings = Settings { families: vec![Family::Ip], ..Settings::new("here") };
        let mut syncer = Syncer::new(settings).expect("a line to the kernel");
        let dns = service("dns", &["10.96.0.53"]).port("dns", L4Proto::Udp, 53, 30053);
        for change in [
            node("here", &["192.168.77.11"]),
            host(&["192.168.77.11"]),
            dns.upsert(),
            service("web", &["10.96.0.80"]).tcp(80).upsert(),
            service("echo", &["10.96.0.7"]).port("echo", L4Proto::Udp, 7, 0).upsert(),
            slice("echo-1", "echo", 1, &["10.244.1.7@here"]).and_port("echo", L4Proto::Udp, 7).upsert(),
            endpoints(&[STAYS, GOES]),
        ] {
            syncer.apply(change);
        }
        syncer.sync().expect("the first sync");
        serve_echo(&ns);
        let (on_empty, packet_on_empty) = (sync_latency(&mut syncer), packet_latency());

        let mut conntrack = Conntrack::open().expect("a line to the flows");
        for start in (0..FLOWS).step_by(50_000) {
            let run: Vec<Flow> = (start..start + 50_000).map(flow).collect();
            conntrack.insert(&run, Duration::from_secs(3600)).expect("flows");
        }
        let began = Instant::now();
        let mut all = 0;
        conntrack.dump(&Filter::of(Family::Ip), |_| all += 1).expect("the whole table");
        let whole = began.elapsed();
        assert!(all >= FLOWS, "{all} flows");

        // The endpoint goes.
        syncer.apply(endpoints(&[STAYS]));
        let report = syncer.sync().expect("a sync");
        let began = Instant::now();
        let cleaned = clean(&report.flows).expect("flows can be deleted");
        let took = began.elapsed();
        assert_eq!(cleaned.iter().map(|c| c.deleted).sum::<usize>(), (FLOWS / STALE_EVERY) as usize);
        assert!(took * 5 <= whole, "{took:?} for one endpoint, {whole:?} for the whole table");

        // And the other, while syncs go on beside the thread that looks for its flows.
        let (told, hears) = channel();
        let cleaner = FlowCleaner::start(move |cleaned| {
            let _ = told.send(cleaned);
        }).expect("a thread");
        syncer.apply(endpoints(&[]));
        let report = syncer.sync().expect("a sync");
        cleaner.clean(report.flows);
        let (beside, packet_beside) = (sync_latency(&mut syncer), packet_latency());
        assert!(hears.try_recv().is_err(), "the cleaning ended before its measurement");
        let cleaned = hears.recv_timeout(Duration::from_secs(60)).expect("the thread tells");
        assert_eq!(cleaned.deleted, (FLOWS / UDP_EVERY - FLOWS / STALE_EVERY) as usize);
        println!(
            "whole table {whole:?}, one endpoint {took:?}; a sync {on_empty:?}, beside the cleaning {beside:?}; \
             a packet there and back {packet_on_empty:?}, beside the cleaning {packet_beside:?}"
        );
        // Twice, and what a scheduler on a busy machine takes.
        let slack = Duration::from_millis(1);
        assert!(beside <= on_empty * 2 + slack, "a sync: {on_empty:?} before, {beside:?} beside");
        assert!(
            packet_beside <= packet_on_empty * 2 + slack,
            "a packet: {packet_on_empty:?} before, {packet_beside:?} beside"
        );
    });
}

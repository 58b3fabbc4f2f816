//! Measures filtered dumps and deletes of flows in a network namespace of its own, one in twenty of them of UDP.
//! Run with `--release`; argument: how many flows (200000). More than `net.netfilter.nf_conntrack_max` do not fit,
//! and only the initial namespace may raise it.

use netlink::conntrack::{Conntrack, Filter, Flow, Status, Tuple, Zone};
use netlink::testns;
use nft_ir::{Family, L4Proto};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn main() {
    let count = std::env::args().nth(1).map_or(200_000, |it| it.parse::<u32>().expect("a number"));
    testns::run(|| {
        testns::command(
            "nft",
            &["-f", "-"],
            "add table ip t\nadd chain ip t c { type nat hook output priority 0; }",
        )
        .expect("conntrack is on");
        let mut conntrack = Conntrack::open().expect("a socket");
        let flows: Vec<Flow> = (0..count).map(flow).collect();
        let timed = |what: &str, run: &mut dyn FnMut() -> usize| {
            let start = Instant::now();
            let result = run();
            println!("{what:44} {:>10.1?} {result:>9}", start.elapsed());
        };
        let hour = Duration::from_secs(3600);
        timed("insert", &mut || conntrack.insert(&flows, hour).expect("room"));
        let all = Filter::of(Family::Ip);
        let udp = all.proto(L4Proto::Udp);
        let one = udp.destination([10, 96, 0, 0].into()).destination_port(53);
        let mut found = Vec::new();
        for (what, filter) in
            [("dump all", all), ("dump UDP", udp), ("dump UDP to one address and port", one)]
        {
            timed(what, &mut || {
                found.clear();
                conntrack.dump(&filter, |flow| found.push(flow)).expect("a dump");
                found.len()
            });
        }
        timed("dump UDP again", &mut || {
            found.clear();
            conntrack.dump(&udp, |flow| found.push(flow)).expect("a dump");
            found.len()
        });
        timed("delete UDP", &mut || conntrack.delete(&found).expect("deleted"));
    });
}

fn flow(number: u32) -> Flow {
    let address = |base: u32, number: u32, port| SocketAddr::new((base + number).to_be_bytes().into(), port);
    let original = Tuple {
        proto: if number.is_multiple_of(20) { L4Proto::Udp } else { L4Proto::Tcp },
        source: address(0x0a01_0000, number / 1000, 1024 + (number % 1000) as u16),
        destination: address(0x0a60_0000, number % 100, 53),
    };
    Flow { original, reply: original.inverted(), status: Status::ASSURED, zone: Zone::default(), id: 0 }
}

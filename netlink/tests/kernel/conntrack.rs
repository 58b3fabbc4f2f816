//! Owns: flows are shown by filter and deleted by number, those that were made and those that packets made. Knows
//! nothing of nftables, but that conntrack only tracks where a table asks for it.

use netlink::conntrack::{Conntrack, Filter, Flow, Status, Tuple, Zone};
use netlink::testns;
use nft_ir::{Family, L4Proto};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs in a namespace where conntrack works in both families.
fn with_conntrack(test: impl FnOnce(&mut Conntrack) + Send) {
    testns::run(|| {
        testns::command("ip", &["link", "set", "lo", "up"], "").unwrap();
        let tables = "
            add table ip tracks
            add chain ip tracks o { type nat hook output priority -100; }
            add rule ip tracks o ct state new counter
            add table ip6 tracks
            add chain ip6 tracks o { type nat hook output priority -100; }
            add rule ip6 tracks o ct state new counter
        ";
        testns::command("nft", &["-f", "-"], tables).unwrap();
        test(&mut Conntrack::open().unwrap());
    });
}

fn flow(proto: L4Proto, source: &str, destination: &str) -> Flow {
    let original =
        Tuple { proto, source: source.parse().unwrap(), destination: destination.parse().unwrap() };
    let status = Status(Status::SEEN_REPLY.0 | Status::ASSURED.0);
    Flow { original, reply: original.inverted(), status, zone: Zone::default(), id: 0 }
}

fn to(flow: Flow, endpoint: &str) -> Flow {
    let reply = Tuple { source: endpoint.parse().unwrap(), ..flow.reply };
    Flow { reply, ..flow }
}

fn shown(conntrack: &mut Conntrack, filter: Filter) -> Vec<Flow> {
    let mut flows = Vec::new();
    conntrack.dump(&filter, |flow| flows.push(flow)).unwrap();
    flows.sort();
    flows
}

fn tuples(flows: &[Flow]) -> BTreeSet<(Tuple, Tuple, Zone)> {
    flows.iter().map(|flow| (flow.original, flow.reply, flow.zone)).collect()
}

#[test]
fn flows_are_shown_by_filter_and_deleted_alone() {
    with_conntrack(|conntrack| {
        use L4Proto::{Sctp, Tcp, Udp};
        let v4 = [
            to(flow(Udp, "10.1.0.1:1000", "10.96.0.10:53"), "10.1.0.7:5353"),
            to(flow(Udp, "10.1.0.2:1000", "10.96.0.10:53"), "10.1.0.8:5353"),
            flow(Udp, "10.1.0.1:1000", "192.0.2.1:53"),
            flow(Udp, "10.1.0.1:1001", "192.0.2.1:54"),
            to(flow(Tcp, "10.1.0.1:1000", "10.96.0.10:53"), "10.1.0.7:5353"),
            to(flow(Sctp, "10.1.0.1:1000", "10.96.0.10:53"), "10.1.0.7:5353"),
            Flow { zone: Zone::Both(7), ..flow(Udp, "10.1.0.1:1000", "192.0.2.1:53") },
        ];
        let v6 = [
            to(flow(Udp, "[fd00::1]:1000", "[fd00:96::10]:53"), "[fd00::7]:5353"),
            flow(Udp, "[fd00::1]:1000", "[2001:db8::1]:53"),
        ];
        assert_eq!(conntrack.insert(&v4, HOUR).unwrap(), v4.len());
        assert_eq!(conntrack.insert(&v6, HOUR).unwrap(), v6.len());
        assert_eq!(conntrack.insert(&v4[..2], HOUR).unwrap(), 0, "they are there");

        let all = Filter::of(Family::Ip);
        let vip = "10.96.0.10".parse().unwrap();
        for (filter, expected) in [
            (all, &v4[..]),
            (all.proto(Udp), &[v4[0], v4[1], v4[2], v4[3], v4[6]]),
            (all.proto(Udp).zone(0), &v4[..4]),
            (all.proto(Udp).zone(7), &v4[6..]),
            (all.zone(8), &[]),
            (all.destination(vip), &[v4[0], v4[1], v4[4], v4[5]]),
            (all.proto(Udp).destination(vip), &v4[..2]),
            (all.proto(Udp).destination_port(54), &v4[3..4]),
            (all.proto(Sctp).destination(vip).destination_port(53), &v4[5..6]),
            (all.proto(Sctp).destination(vip).destination_port(54), &[]),
            (all.answers("10.1.0.7".parse().unwrap()), &[v4[0], v4[4], v4[5]]),
            (all.proto(Udp).answers("10.1.0.7".parse().unwrap()).answers_port(5353), &v4[..1]),
            (all.proto(Udp).answers("10.1.0.7".parse().unwrap()).answers_port(53), &[]),
            (all.proto(Udp).destination(vip).answers_port(5353), &v4[..2]),
            (
                Filter::of(Family::Ip6).proto(Udp).answers("fd00::7".parse().unwrap()).answers_port(5353),
                &v6[..1],
            ),
            (Filter::of(Family::Ip6), &v6),
            (Filter::of(Family::Ip6).proto(Udp).destination("fd00:96::10".parse().unwrap()), &v6[..1]),
        ] {
            let flows = shown(conntrack, filter);
            assert_eq!(tuples(&flows), tuples(expected), "{filter:?}");
            for flow in flows {
                let translated = flow.reply != flow.original.inverted();
                assert_eq!(flow.status.contains(Status::DST_NAT), translated, "{flow:?}");
                assert!(flow.status.contains(Status::ASSURED));
                assert!(filter.matches(&flow));
            }
        }

        let gone = shown(conntrack, all.proto(Udp).destination(vip));
        assert_eq!(conntrack.delete(&gone).unwrap(), 2);
        assert_eq!(conntrack.delete(&gone).unwrap(), 0, "they are gone already");
        assert_eq!(tuples(&shown(conntrack, all)), tuples(&v4[2..]));
        // The same tuple again is another flow.
        conntrack.insert(&v4[..1], HOUR).unwrap();
        assert_eq!(conntrack.delete(&gone).unwrap(), 0);
        // By zone: the one in zone 7 has the tuple of one in zone 0.
        let zoned = shown(conntrack, all.zone(7));
        assert_eq!(conntrack.delete(&zoned).unwrap(), 1);
        assert_eq!(tuples(&shown(conntrack, all.proto(Udp))), tuples(&[v4[0], v4[2], v4[3]]));
        let v6_gone = shown(conntrack, Filter::of(Family::Ip6));
        assert_eq!(conntrack.delete(&v6_gone).unwrap(), 2);
    });
}

#[test]
fn flows_of_packets_are_shown_and_deleted() {
    with_conntrack(|conntrack| {
        for (family, localhost) in [(Family::Ip, "127.0.0.1"), (Family::Ip6, "::1")] {
            let server = UdpSocket::bind((localhost, 0)).unwrap();
            let client = UdpSocket::bind((localhost, 0)).unwrap();
            let port = server.local_addr().unwrap().port();
            client.connect(SocketAddr::new(localhost.parse().unwrap(), port)).unwrap();
            client.send(b"?").unwrap();
            let mut byte = [0];
            let (_, from) = server.recv_from(&mut byte).unwrap();
            server.send_to(b"!", from).unwrap();
            client.recv(&mut byte).unwrap();

            let filter = Filter::of(family).proto(L4Proto::Udp).destination_port(port);
            let flows = shown(conntrack, filter);
            let [flow] = flows[..] else { panic!("{flows:?}") };
            assert_eq!(flow.original.source, client.local_addr().unwrap());
            assert_eq!(flow.reply, flow.original.inverted());
            assert!(flow.status.contains(Status::SEEN_REPLY));
            assert_eq!(conntrack.delete(&flows).unwrap(), 1);
            assert_eq!(shown(conntrack, filter), []);
        }
    });
}

#[test]
fn flows_in_a_zone_of_one_direction_are_found_too() {
    with_conntrack(|conntrack| {
        for (statement, zone) in [
            ("ct original zone set 9", Zone::Original(9)),
            ("ct reply zone set 9", Zone::Reply(9)),
            ("ct zone set 9", Zone::Both(9)),
        ] {
            let table = format!(
                "add table ip zones
                 delete table ip zones
                 add table ip zones
                 add chain ip zones o {{ type filter hook output priority -300; }}
                 add rule ip zones o udp dport 9 {statement}
                 "
            );
            testns::command("nft", &["-f", "-"], &table).unwrap();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"?", "127.0.0.1:9").unwrap();
            let flows = shown(conntrack, Filter::of(Family::Ip).proto(L4Proto::Udp));
            assert_eq!(flows.iter().map(|flow| flow.zone).collect::<Vec<_>>(), [zone]);
            assert_eq!(conntrack.delete(&flows).unwrap(), 1, "{zone:?}");
        }
    });
}

#[test]
fn a_hundred_thousand_flows_go_in_runs() {
    with_conntrack(|conntrack| {
        let address =
            |base: u32, number: u32, port| SocketAddr::new((base + number).to_be_bytes().into(), port);
        let flows: Vec<_> = (0..100_000u32)
            .map(|number| {
                let proto = if number % 20 == 0 { L4Proto::Udp } else { L4Proto::Tcp };
                let original = Tuple {
                    proto,
                    source: address(0x0a01_0000, number / 100, 1024 + (number % 100) as u16),
                    destination: address(0x0a60_0000, number % 50, 53),
                };
                let reply = original.inverted();
                Flow { original, reply, status: Status::ASSURED, zone: Zone::default(), id: 0 }
            })
            .collect();
        assert_eq!(conntrack.insert(&flows, HOUR).unwrap(), flows.len());
        let udp = shown(conntrack, Filter::of(Family::Ip).proto(L4Proto::Udp));
        assert_eq!(udp.len(), 5_000);
        assert_eq!(conntrack.delete(&udp).unwrap(), 5_000);
        let rest = shown(conntrack, Filter::of(Family::Ip));
        assert_eq!(rest.len(), 95_000);
        assert!(rest.iter().all(|flow| flow.original.proto == L4Proto::Tcp));
        assert_eq!(conntrack.delete(&rest).unwrap(), 95_000);
        assert_eq!(shown(conntrack, Filter::of(Family::Ip)), []);
    });
}

//! Owns the proof of the simulator: what the packet walker says of a packet, on the ruleset that the kernel holds, is what the
//! kernel does to it. Every kind of frontend, policy and origin, both families, all protocols.

use integration::objects::{Object, service, slice, slices};
use integration::stage::{PATIENCE, Stage, at};
use integration::{Dial, Family, Host, L4Proto, Outcome};
use nft_ir::walk::{self, Fate, Flow, Origin, Packet, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// What the walker says, or what the kernel did, in the same words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// This server answers; it saw another address than the client's own.
    Answered {
        by: String,
        masqueraded: bool,
    },
    Refused,
    Dropped,
}

const PORTS: [(&str, L4Proto, u16); 3] =
    [("tcp", L4Proto::Tcp, 8080), ("udp", L4Proto::Udp, 8080), ("sctp", L4Proto::Sctp, 8080)];

/// Services with every combination of what matters, and the addresses to dial.
fn objects(stage: &Stage, pods: &[&integration::Pod; 3]) -> (Vec<Object>, Vec<SocketAddr>) {
    let [a, b, _] = pods;
    let (mut objects, mut targets) = (Vec::new(), Vec::new());
    let mut n = 10_u16;
    for backing in ["none", "here", "there", "both", "leaving"] {
        for (internal, external) in [(false, false), (true, false), (false, true), (true, true)] {
            n += 1;
            let name = format!("{backing}-{n}");
            let ips = [format!("10.96.0.{n}"), format!("fd00:10:96::{n}")];
            let lbs = [format!("203.0.113.{n}"), format!("2001:db8::{n}")];
            let externals = [format!("198.51.100.{n}"), format!("2001:db8:1::{n}")];
            let refs = |list: &'_ [String; 2]| -> [String; 2] { list.clone() };
            let (ip, lb, ext) = (refs(&ips), refs(&lbs), refs(&externals));
            let node_port = 30_000 + n;
            let mut text = service(&name, &[&ip[0], &ip[1]])
                .all_protocols(80, node_port)
                .external_ips(&[&ext[0], &ext[1]])
                .load_balancer(&[&lb[0], &lb[1]]);
            if internal {
                text = text.internal_local();
            }
            if external {
                text = text.external_local();
            }
            if n.is_multiple_of(3) {
                text = text.spec("loadBalancerSourceRanges", ["192.168.77.0/24", "fd00:77::/64"].as_slice());
            }
            objects.push(text.object());
            match backing {
                "here" => objects.extend(slices(&name, &PORTS, &[a])),
                "there" => objects.extend(slices(&name, &PORTS, &[b])),
                "both" => objects.extend(slices(&name, &PORTS, &[a, b])),
                "leaving" => {
                    for family in Family::ALL {
                        let text = slice(&format!("{name}-{family}"), &name, family);
                        let text =
                            PORTS.iter().fold(text, |t, (port, proto, number)| t.port(port, *proto, *number));
                        objects.push(text.leaving(a.addr(family), a.node().name()).object());
                    }
                }
                _ => {}
            }
            for list in [&ips, &lbs, &externals] {
                targets.extend(list.iter().map(|addr| at(addr, 80)));
            }
            // A port that the Service does not have.
            targets.extend(ips.iter().map(|addr| at(addr, 81)));
            targets.extend(stage.node(0).addrs().iter().map(|addr| SocketAddr::new(*addr, node_port)));
        }
    }
    targets.push(at("10.96.9.9", 80));
    targets.push(at("fd00:10:96::9999", 80));
    (objects, targets)
}

fn simulated(fates: &[Fate], names: &BTreeMap<SocketAddr, String>) -> BTreeSet<Seen> {
    fates
        .iter()
        .map(|fate| match fate.outcome {
            walk::Outcome::Delivered { to, place } => match names.get(&to) {
                Some(by) => Seen::Answered { by: by.clone(), masqueraded: fate.masqueraded },
                // Nobody listens there: this host refuses, the underlay's gateway swallows.
                None if place == Place::Here => Seen::Refused,
                None => Seen::Dropped,
            },
            walk::Outcome::Rejected(_) => Seen::Refused,
            walk::Outcome::Dropped => Seen::Dropped,
        })
        .collect()
}

fn dial(from: &Host, proto: L4Proto, to: SocketAddr) -> Seen {
    match from.dial(Dial::new(proto, to).within(PATIENCE)) {
        Outcome::Answered { by, seen_from } => {
            Seen::Answered { by, masqueraded: !from.addrs().contains(&seen_from.ip()) }
        }
        Outcome::Refused => Seen::Refused,
        Outcome::TimedOut => Seen::Dropped,
        other => panic!("{} dials {to}/{proto}: {other}", from.name()),
    }
}

#[test]
fn the_walker_says_what_the_kernel_does() {
    let mut stage = Stage::new("walk");
    let pods = [stage.node(0).pod("a"), stage.node(1).pod("b"), stage.node(0).pod("client")];
    let [a, b, client] = &pods;
    let mut names = BTreeMap::new();
    let mut servers = Vec::new();
    for pod in [a, b] {
        servers.extend(PORTS.iter().map(|(_, proto, port)| pod.serve(*proto, *port, pod.name())));
        names.extend(pod.addrs().iter().map(|addr| (SocketAddr::new(*addr, 8080), pod.name().to_owned())));
    }
    let (objects, targets) = objects(&stage, &[a, b, client]);
    stage.apply(&objects);
    let ruleset = stage.proxiers[0].dump();
    let node = stage.node(0);
    let own: Vec<IpAddr> = node
        .addrs()
        .iter()
        .copied()
        .chain(Family::ALL.map(|family| node.plan().pod_gateway(family)))
        .collect();
    let host = walk::World::new(own);
    let outside = stage.world.client();
    outside.routes_services_via(node);
    let froms: [(&Host, Origin); 4] = [
        (client, Origin::Interface("cni0".into())),
        (a, Origin::Interface("cni0".into())),
        (node, Origin::Host),
        (outside, Origin::Interface("eth0".into())),
    ];
    let mut asked = 0;
    let mut wrong = Vec::new();
    for (from, origin) in &froms {
        for to in &targets {
            let family = Family::of(&to.ip());
            for proto in L4Proto::ALL {
                let packet = Packet {
                    source: SocketAddr::new(from.addr(family), 40_000),
                    destination: *to,
                    proto,
                    mark: 0,
                    origin: origin.clone(),
                    flow: Flow::New,
                };
                let fates = walk::walk(&ruleset, &host, &packet).expect("the kernel's ruleset can be walked");
                let leaves = |fate: &Fate| matches!(fate.outcome, walk::Outcome::Delivered { .. });
                let marked = fates.iter().any(|fate| leaves(fate) && fate.mark_left != 0);
                assert!(
                    !marked,
                    "{} dials {to}/{proto}: a mark is left on a packet that leaves",
                    from.name()
                );
                let mut simulated = simulated(&fates, &names);
                // Drops take time to see: over UDP and SCTP every seventh is enough.
                if simulated == BTreeSet::from([Seen::Dropped])
                    && (proto != L4Proto::Tcp || !u32::is_multiple_of(asked, 7))
                {
                    asked += 1;
                    continue;
                }
                let mut real = dial(from, proto, *to);
                if matches!(origin, Origin::Host) {
                    // The node's own address is what a masqueraded packet shows as well.
                    simulated = simulated.into_iter().map(unmasked).collect();
                    real = unmasked(real);
                }
                asked += 1;
                // An ICMP error may be lost on a busy machine; a packet that is really dropped stays so.
                for _ in 0..3 {
                    if proto != L4Proto::Tcp && real == Seen::Dropped && !simulated.contains(&real) {
                        real = dial(from, proto, *to);
                    }
                }
                if !simulated.contains(&real) {
                    let trail: Vec<String> =
                        fates.iter().flat_map(|fate| fate.trail.iter().map(ToString::to_string)).collect();
                    wrong.push(format!(
                        "{} dials {to}/{proto}: kernel {real:?}, walker {simulated:?}\n  {}",
                        from.name(),
                        trail.join("\n  ")
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}

fn unmasked(seen: Seen) -> Seen {
    match seen {
        Seen::Answered { by, .. } => Seen::Answered { by, masqueraded: false },
        seen => seen,
    }
}

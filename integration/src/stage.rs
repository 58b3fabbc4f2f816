//! Owns the stage of a packet test: a world with a proxier on each node, and sentences about who reaches whom. Knows nothing
//! of single behaviours.

use crate::objects::{self, Object};
use crate::proxied::Proxied;
use crate::wait;
use crate::{Dial, Family, Host, L4Proto, Node, Outcome, World};
use proxier::sync::Report;
use proxier_core::model::Cidr;
use proxier_core::{DetectLocal, Settings};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A world with a proxier on each node.
#[derive(Debug)]
pub struct Stage {
    /// The world.
    pub world: World,
    /// The proxiers, by node.
    pub proxiers: Vec<Proxied>,
}

/// How often a client dials to see every endpoint that may answer. With n equal endpoints, the chance to miss one of them is
/// n·(1−1/n)^DIALS: for three endpoints less than 10⁻¹⁰.
const DIALS: usize = 60;

impl Stage {
    /// Two nodes, both families, pods told from others by the cluster's pod prefix.
    pub fn new(name: &str) -> Self {
        Self::with(World::new(name).nodes(2).build(), |_| {})
    }

    /// A world of one's own, with settings that differ from the usual.
    pub fn with(world: World, adjust: impl Fn(&mut Settings)) -> Self {
        let mut stage = Self { proxiers: start(&world, &adjust), world };
        stage.introduce_nodes();
        stage
    }

    /// The same world with new proxiers of the usual settings, as after a restart of the programs. They have seen the
    /// Nodes, and write nothing before the first objects are applied.
    pub fn with_running(before: Self) -> Self {
        let Self { world, proxiers } = before;
        drop(proxiers);
        let mut stage = Self { proxiers: start(&world, &|_| {}), world };
        stage.introduce_nodes();
        stage
    }

    fn introduce_nodes(&mut self) {
        let nodes: Vec<Object> =
            self.world.nodes().iter().map(|node| objects::node(node.name(), node.addrs())).collect();
        for proxied in &mut self.proxiers {
            proxied.queue(&nodes);
            proxied.queue(&[objects::service_cidr("kubernetes", &["10.96.0.0/16", "fd00:10:96::/112"])]);
        }
    }

    /// A node, by its place.
    pub fn node(&self, index: usize) -> &Node {
        self.world.node(index)
    }

    /// Takes objects in on every node. Panics if an entry is rejected or the kernel refuses.
    #[track_caller]
    pub fn apply(&mut self, objects: &[Object]) -> Vec<Report> {
        let mut reports = Vec::new();
        for proxied in &mut self.proxiers {
            let (report, rejected) = proxied.apply(objects);
            assert!(rejected.is_empty(), "{rejected:?}");
            assert!(report.held.is_empty(), "{:?}", report.held);
            reports.push(report);
        }
        reports
    }
}

fn start(world: &World, adjust: &dyn Fn(&mut Settings)) -> Vec<Proxied> {
    let pods = ["10.244.0.0/16", "fd00:10:244::/48"];
    let of_node = |node: &Node| {
        let mut settings = Settings {
            families: world.families().collect(),
            detect_local: DetectLocal::ClusterCidr(pods.iter().filter_map(|c| Cidr::parse(c).ok()).collect()),
            ..Settings::new(node.name())
        };
        adjust(&mut settings);
        Proxied::start(node, settings)
    };
    world.nodes().iter().map(of_node).collect()
}

/// Who answered, and from which addresses it saw the client come.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Names of the servers.
    pub by: BTreeSet<String>,
    /// Addresses that they saw.
    pub seen_from: BTreeSet<IpAddr>,
}

/// Dials until every endpoint has had its chance. Panics on any outcome that is not an answer.
#[track_caller]
pub fn answers(from: &Host, proto: L4Proto, to: SocketAddr) -> Answers {
    let mut answers = Answers::default();
    for _ in 0..DIALS {
        match from.dials(proto, to) {
            Outcome::Answered { by, seen_from } => {
                answers.by.insert(by);
                answers.seen_from.insert(seen_from.ip());
            }
            other => panic!("{} dials {to}/{proto}: {other}", from.name()),
        }
    }
    answers
}

/// Asserts who answers a client.
#[track_caller]
pub fn reaches(from: &Host, proto: L4Proto, to: SocketAddr, who: &[&str]) -> Answers {
    let answers = answers(from, proto, to);
    let want: BTreeSet<String> = who.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(answers.by, want, "{} dials {to}/{proto}", from.name());
    answers
}

/// Waits until exactly these answer a client, and nothing else becomes of its dials. For a proxier that is another process,
/// which takes its time.
#[track_caller]
pub fn comes_to_reach(from: &Host, proto: L4Proto, to: SocketAddr, who: &[&str], deadline: Duration) {
    let want: BTreeSet<&str> = who.iter().copied().collect();
    let what = format!("{want:?} to answer {} at {to}/{proto}", from.name());
    wait::until(&what, deadline, || {
        let tally = from.dial_many(Dial::new(proto, to).within(GLANCE), 1);
        if !tally.failed.is_empty() {
            return Err(format!("{:?}", tally.failed));
        }
        let tally = from.dial_many(Dial::new(proto, to).within(PATIENCE), DIALS);
        let by: BTreeSet<&str> = tally.by.keys().map(String::as_str).collect();
        if tally.failed.is_empty() && by == want { Ok(()) } else { Err(format!("{tally:?}")) }
    });
}

/// Waits until this becomes of a client's dial.
#[track_caller]
pub fn comes_to(from: &Host, proto: L4Proto, to: SocketAddr, outcome: &Outcome, deadline: Duration) {
    wait::until(&format!("{} at {to}/{proto}: {outcome}", from.name()), deadline, || {
        let seen = from.dial(Dial::new(proto, to).within(GLANCE));
        if seen == *outcome { Ok(()) } else { Err(seen) }
    });
}

/// Asserts who answers a client, and that each saw it come from this address.
#[track_caller]
pub fn reaches_seen(from: &Host, proto: L4Proto, to: SocketAddr, who: &[&str], seen_from: IpAddr) {
    let answers = reaches(from, proto, to, who);
    assert_eq!(answers.seen_from, BTreeSet::from([seen_from]), "{} dials {to}/{proto}", from.name());
}

/// Asserts that a client is refused at once.
#[track_caller]
pub fn refused(from: &Host, proto: L4Proto, to: SocketAddr) {
    let outcome = from.dials(proto, to);
    assert_eq!(outcome, Outcome::Refused, "{} dials {to}/{proto}", from.name());
}

/// How long a dropped packet is waited for. Longer than any answer in the lab takes, shorter than the first retransmission.
pub const PATIENCE: Duration = Duration::from_millis(700);

/// How long one dial of many may take while something is waited for.
const GLANCE: Duration = Duration::from_millis(200);

/// Asserts that a client hears nothing.
#[track_caller]
pub fn dropped(from: &Host, proto: L4Proto, to: SocketAddr) {
    let outcome = from.dial(Dial::new(proto, to).within(PATIENCE));
    assert_eq!(outcome, Outcome::TimedOut, "{} dials {to}/{proto}", from.name());
}

/// An address and a port, for both families: `at("10.96.0.10", 80)`.
pub fn at(addr: &str, port: u16) -> SocketAddr {
    SocketAddr::new(addr.parse().unwrap_or_else(|error| panic!("{addr}: {error}")), port)
}

/// The text of the family, of two.
pub const fn of<'a>(family: Family, v4: &'a str, v6: &'a str) -> &'a str {
    match family {
        Family::Ip => v4,
        Family::Ip6 => v6,
    }
}

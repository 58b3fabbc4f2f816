//! Owns the requests: who dials what, who answers, and what the answerer sees. Knows nothing of how the lab is built.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use integration::{Dial, L4Proto, Outcome};

use crate::stage::Stage;

/// Dials that show how connections spread.
const MANY: usize = 1_000;

/// A request: who dials, what that is in the manifests, where it is in both families, and what to see in it.
struct Request {
    by: &'static str,
    what: &'static str,
    proto: L4Proto,
    addrs: [&'static str; 2],
    port: u16,
    lesson: &'static str,
}

const REQUESTS: [Request; 7] = [
    Request {
        by: "client",
        what: "front, load balancer",
        proto: L4Proto::Tcp,
        addrs: ["203.0.113.10", "2001:db8:113::10"],
        port: 80,
        lesson: "From outside a node stands in for the client, so that answers come back through it.",
    },
    Request {
        by: "client",
        what: "admin, NodePort",
        proto: L4Proto::Tcp,
        addrs: ["192.168.77.12", "fd00:77::12"],
        port: 30081,
        lesson: "Any node will do, though the only pod is on node-1.",
    },
    Request {
        by: "front-1",
        what: "back, ClusterIP",
        proto: L4Proto::Tcp,
        addrs: ["10.96.0.20", "fd00:10:96::20"],
        port: 5000,
        lesson: "From pod to pod the address is kept: back sees the front end's own.",
    },
    Request {
        by: "front-1",
        what: "back, ClusterIP",
        proto: L4Proto::Udp,
        addrs: ["10.96.0.20", "fd00:10:96::20"],
        port: 5000,
        lesson: "The same port over UDP.",
    },
    Request {
        by: "node-1",
        what: "front, ClusterIP",
        proto: L4Proto::Tcp,
        addrs: ["10.96.0.10", "fd00:10:96::10"],
        port: 80,
        lesson: "A process of the node itself.",
    },
    Request {
        by: "front-1",
        what: "admin, ClusterIP",
        proto: L4Proto::Tcp,
        addrs: ["10.96.0.30", "fd00:10:96::30"],
        port: 80,
        lesson: "A pod that is its own endpoint: it sees its node, or it would answer itself behind the node's back.",
    },
    Request {
        by: "visitor",
        what: "idle, ClusterIP",
        proto: L4Proto::Tcp,
        addrs: ["10.96.0.40", "fd00:10:96::40"],
        port: 80,
        lesson: "No pod left: refused at once, not left to time out.",
    },
];

/// Sends each request in both families, and one of them many times.
pub(crate) fn send(stage: &mut Stage, out: &mut impl Write) -> io::Result<()> {
    for request in &REQUESTS {
        writeln!(out, "{} dials {} ({}). {}", request.by, request.what, request.proto, request.lesson)?;
        for addr in request.addrs {
            let to = at(addr, request.port);
            let outcome = stage.host(request.by).dials(request.proto, to);
            writeln!(out, "  {to:<26} {}", said(stage, &outcome))?;
        }
    }
    writeln!(out, "1,000 connections of the client to front, load balancer (tcp).")?;
    for addr in REQUESTS[0].addrs {
        let to = at(addr, REQUESTS[0].port);
        let tally = stage.host("client").dial_many(Dial::new(L4Proto::Tcp, to), MANY);
        let mut shares: Vec<String> =
            tally.by.iter().map(|(name, count)| format!("{name} {count}")).collect();
        shares.extend((!tally.failed.is_empty()).then(|| format!("failed {}", tally.failed.len())));
        writeln!(out, "  {:<26} {}", to.to_string(), shares.join(", "))?;
    }
    Ok(())
}

/// An address and a port, of the texts above.
pub(crate) fn at(addr: &str, port: u16) -> SocketAddr {
    SocketAddr::new(addr.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port)
}

fn said(stage: &Stage, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered { by, seen_from } => {
            let node = stage.node_of(by).unwrap_or("nowhere");
            format!("{by} on {node} answers, and sees {}", seen_from.ip())
        }
        other => other.to_string(),
    }
}

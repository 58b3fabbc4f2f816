//! Owns the packet tests of what becomes of SCTP flows: what the kernel makes of a second INIT from one port, and what the
//! proxier does about it.

use integration::objects::{Object, service, slice, slice_name, slices};
use integration::stage::{PATIENCE, Stage, at, of};
use integration::{Dial, Family, L4Proto, Outcome, Pod};
use std::net::SocketAddr;

const IPS: [&str; 2] = ["10.96.0.38", "fd00:10:96::38"];
const PORTS: [(&str, L4Proto, u16); 1] = [("m3ua", L4Proto::Sctp, 2905)];
/// The source port that the client keeps, as telephone exchanges do.
const FIXED: u16 = 2905;

struct Lab {
    stage: Stage,
    client: Pod,
    a: Pod,
    b: Pod,
    _servers: [integration::Server; 2],
}

impl Lab {
    /// A Service with one endpoint, `a`, and an association of the client with it in each family.
    fn new(name: &str) -> Self {
        let stage = Stage::new(name);
        let (client, a, b) = (stage.node(0).pod("client"), stage.node(0).pod("a"), stage.node(1).pod("b"));
        let _servers = [&a, &b].map(|pod| pod.serve(L4Proto::Sctp, 2905, pod.name()));
        let mut lab = Self { stage, client, a, b, _servers };
        lab.stage.apply(&[service("exchange", &IPS).port("m3ua", L4Proto::Sctp, 2905).object()]);
        lab.stage.apply(&slices("exchange", &PORTS, &[&lab.a]));
        for family in Family::ALL {
            let outcome = lab.client.dial(from_fixed(family).associates());
            assert_eq!(outcome.by(), Some("a"), "{outcome}");
        }
        lab
    }

    /// Who answers an INIT from the port that the client keeps.
    fn dials_again(&self, family: Family) -> Outcome {
        self.client.dial(from_fixed(family))
    }
}

fn vip(family: Family) -> SocketAddr {
    at(of(family, IPS[0], IPS[1]), 2905)
}

fn from_fixed(family: Family) -> Dial {
    Dial::new(L4Proto::Sctp, vip(family)).from_port(FIXED).within(PATIENCE)
}

/// Why SCTP is not left alone: with the association before it still there, an INIT goes where that one went. Here the endpoint
/// is one of two, so that nothing makes the proxier delete the flow.
#[test]
fn k03_an_init_goes_where_the_association_before_it_went() {
    let mut lab = Lab::new("k03-init");
    lab.stage.apply(&slices("exchange", &PORTS, &[&lab.a, &lab.b]));
    for family in Family::ALL {
        for _ in 0..20 {
            assert_eq!(lab.dials_again(family).by(), Some("a"));
        }
    }
}

#[test]
fn k01_an_association_with_an_endpoint_that_is_gone_does_not_hold_its_client() {
    let mut lab = Lab::new("k01-sctp");
    lab.stage.apply(&slices("exchange", &PORTS, &[&lab.b]));
    for family in Family::ALL {
        let outcome = lab.dials_again(family);
        assert_eq!(outcome.by(), Some("b"), "{outcome}");
    }
}

/// As t06 for TCP: what is merely unready, and what its Service no longer names an address for, may finish.
#[test]
fn k05_an_association_stays_while_its_endpoint_is_there() {
    let mut lab = Lab::new("k05-sctp");
    let unready = |pod: &Pod, family: Family| {
        serde_json::json!({
            "addresses": [pod.addr(family)], "nodeName": pod.node().name(),
            "conditions": { "ready": false, "serving": false, "terminating": true },
        })
    };
    let of_family = |family: Family| -> Object {
        slice(&slice_name("exchange", family), "exchange", family)
            .port("m3ua", L4Proto::Sctp, 2905)
            .endpoint_json(unready(&lab.a, family))
            .endpoint(lab.b.addr(family), lab.b.node().name())
            .object()
    };
    let objects = Family::ALL.map(of_family);
    lab.stage.apply(&objects);
    for family in Family::ALL {
        assert_eq!(lab.dials_again(family).by(), Some("a"), "unready");
    }
    lab.stage.apply(&[Object::NoService("exchange".into())]);
    for family in Family::ALL {
        assert_eq!(lab.dials_again(family).by(), Some("a"), "without its Service");
    }
}

//! The lab: a small cluster's network on this machine, and real parts to run in it. Owns namespaces, links, servers,
//! clients and processes of tests; knows nothing of how the proxier does its work.
//!
//! ```text
//!   client (192.168.77.100)         node-1 (192.168.77.11)                node-2 (192.168.77.12)
//!     eth0 │                          eth0 │   │ cni0 10.244.1.1            eth0 │   │ cni0 10.244.2.1
//!          │                               │   ├── pod a 10.244.1.2              │   ├── pod c 10.244.2.2
//!          │                               │   └── pod b 10.244.1.3              │   └── pod d 10.244.2.3
//!   ═══════╧═══════════════════════════════╧═══════ the underlay ════════════════╧═══════════════════════
//! ```
//!
//! Each box is a network namespace that lives as long as its value here; nothing has a name in `/var/run/netns`, so a
//! test that ends, in whatever way, leaves nothing behind. No external program is used. A test reads like this:
//!
//! ```no_run
//! use integration::{Family, L4Proto, Outcome, World};
//!
//! let world = World::new("example").nodes(2).build();
//! let (a, b) = (world.node(0).pod("a"), world.node(1).pod("b"));
//! let _server = b.serve(L4Proto::Tcp, 8080, "b");
//! for family in world.families() {
//!     let answer = a.dials(L4Proto::Tcp, b.at(family, 8080));
//!     assert_eq!(answer.by(), Some("b"));
//!     assert_eq!(answer.seen_from().map(|peer| peer.ip()), Some(a.addr(family)));
//! }
//! # let _: Option<Outcome> = None; let _: Family = Family::Ip;
//! ```
//!
//! # Privilege
//! Namespaces need `CAP_SYS_ADMIN`. Who runs the tests as an ordinary user gets it from a user namespace that every
//! program linked with this library enters before `main` ([`userns`]); where neither is to be had, making the first
//! namespace fails with an error that says what to do.
//!
//! # What the lab leaves out on purpose
//! * Bridge netfilter (`br_netfilter`, `bridge-nf-call-iptables`) is switched off everywhere, and not needed: a pod's
//!   address is a host address (/32, /128) with its node as the gateway, so even two pods on one bridge talk through
//!   their node's IP layer, which sees both directions of each flow.
//! * Reverse path filters are off and ICMP redirects are neither sent nor taken: a dropped packet is the proxier's.
//! * IPv6 duplicate address detection is off, so an address can be used as soon as it is there.
#![deny(unsafe_code)]

pub mod api_server;
mod error;
mod host;
mod http;
pub mod kube_proxy;
pub mod kubectl;
pub mod load;
mod manifests;
mod netns;
mod node;
pub mod objects;
pub mod parts;
mod plan;
mod probe;
mod process;
mod program;
pub mod proxied;
pub mod ruleset;
mod sctp;
mod serve;
mod shell;
pub mod stage;
pub mod synthetic;
pub mod userns;
pub mod wait;
pub mod wire;
mod world;

pub use api_server::ApiServer;
pub use error::Error;
pub use host::Host;
pub use http::Response;
pub use kube_proxy::KubeProxy;
pub use kubectl::Kubectl;
pub use manifests::Manifests;
pub use netns::Netns;
pub use nft_ir::{Family, L4Proto};
pub use node::{Client, Node, Pod};
pub use plan::{NodePlan, Prefix, SERVICE_RANGES};
pub use probe::{Dial, Outcome, Tally};
pub use process::Process;
pub use program::{Program, ProgramPlan};
pub use serve::{Server, Style};
pub use world::{Wiring, World, WorldPlan};

//! nftables in values. Owns the nouns (tables, chains, rules, sets, maps, elements), the verbs on them
//! ([`Transaction`]), and what can be said about both without a kernel: text, difference, effect, and the
//! walk of one packet. Knows nothing of sockets, of time, or of Kubernetes.
//!
//! # Nouns, verbs, views
//!
//! | noun | verb | view |
//! | --- | --- | --- |
//! | [`Ruleset`] of [`Table`]s of [`Chain`]s and [`Set`]s | [`Op`] in a [`Transaction`] | [`text`]: nft syntax |
//! | [`Rule`] of [`Statement`]s | [`diff`] makes a transaction of two rulesets | [`walk`]: the fate of one packet |
//! | [`Element`] of a set or map | [`apply`] makes a ruleset of a transaction | |
//!
//! The words are nft's own, and only those that this product says: a [`Statement`] is one of thirteen, so each
//! view is one exhaustive match, and a new word does not compile until all of them know it.
//!
//! # Keys
//!
//! A key is kept as the kernel keeps it: bytes in register layout (network order, each field padded to four
//! bytes). The fields of the set ([`SetSpec::key`]) say how to read it. So an element costs the same here, on
//! the wire and in a dump, and comparing two is comparing bytes.
//!
//! # An example
//!
//! A Service address with two endpoints, from nothing to the fate of a packet.
//!
//! ```
//! use nft_ir::walk::{Packet, World, walk};
//! use nft_ir::*;
//! use std::sync::Arc;
//!
//! // Where it all is, and a map from address, protocol, port and slot to an endpoint.
//! let id = TableId { family: Family::Ip, name: TableName::literal("example") };
//! let key = [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort, Field::Slot(65536)];
//! let endpoints = Arc::new(SetDecl {
//!     table: id.clone(),
//!     name: SetName::literal("endpoints"),
//!     spec: SetSpec::map(key, [Field::DestinationAddr, Field::DestinationPort]),
//! });
//! let slot = |slot, pod: [u8; 4]| {
//!     let service = KeyBuilder::new().addr([10, 96, 0, 10].into()).proto(L4Proto::Tcp).port(80);
//!     let pod = KeyBuilder::new().addr(pod.into()).port(8080).build();
//!     let element = Element::of_map(service.slot(slot).build(), Datum::Value(pod));
//!     (element.key.clone(), element)
//! };
//! let elements = [slot(0, [10, 0, 0, 1]), slot(1, [10, 0, 0, 2])].into();
//! let set = Set { decl: endpoints.clone(), elements };
//!
//! // One rule in a base chain: draw a slot, and send the flow there.
//! let base = BaseChain {
//!     chain_type: ChainType::Nat,
//!     hook: Hook::Prerouting,
//!     priority: Priority::DSTNAT,
//!     policy: Verdict::Accept,
//! };
//! let mut drawn = endpoints.spec.key.clone();
//! drawn[3] = Field::Slot(2);
//! let pick = Rule::new([Statement::Dnat { key: drawn, map: endpoints.name.clone() }]);
//! let table = Table {
//!     comment: None,
//!     chains: [(ChainName::literal("pick"), Chain { base: Some(base), rules: vec![pick] })].into(),
//!     sets: [(endpoints.name.clone(), set)].into(),
//! };
//! let wanted = Ruleset { tables: [(id, table)].into() };
//!
//! // What it takes to get there. Each operation prints as the nft command that does the same.
//! let mut kernel = Ruleset::default();
//! let difference = diff::diff(&kernel, &wanted);
//! assert_eq!(
//!     difference.now.to_string(),
//!     "\
//! add table ip example
//! add chain ip example pick { type nat hook prerouting priority dstnat; policy accept; }
//! add map ip example endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : \
//! ip daddr . th dport; }
//! add element ip example endpoints {
//! \t10.96.0.10 . tcp . 80 . 0 : 10.0.0.1 . 8080,
//! \t10.96.0.10 . tcp . 80 . 1 : 10.0.0.2 . 8080
//! }
//! add rule ip example pick dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints
//! "
//! );
//!
//! // What a kernel would make of it: all of it or nothing, and the same errno.
//! kernel.apply(&difference.now)?;
//! assert_eq!(kernel, wanted);
//! let set_in_use = Transaction { ops: vec![Op::DeleteSet { set: endpoints }] };
//! assert_eq!(
//!     kernel.apply(&set_in_use).unwrap_err().to_string(),
//!     "operation 0: map ip example endpoints: EBUSY: a rule refers to it"
//! );
//!
//! // What becomes of a packet: one fate for each slot.
//! let client = "192.0.2.1:40000".parse()?;
//! let fates = walk(&kernel, &World::default(), &Packet::incoming("eth0", client, "10.96.0.10:80".parse()?))?;
//! let said: Vec<String> = fates.iter().map(ToString::to_string).collect();
//! assert_eq!(said, ["delivered to 10.0.0.1:8080", "delivered to 10.0.0.2:8080"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the walk models
//!
//! Both families, all five hooks, filter and NAT chains, the packet that a host sends to itself; new flows and
//! established ones. It does not know routes, replies or time; [`walk`] has the whole list.
//!
//! # Features
//!
//! `arbitrary`: the module `arbitrary` with random rulesets and transactions for property tests.
#![forbid(unsafe_code)]

pub mod apply;
#[cfg(any(test, feature = "arbitrary"))]
pub mod arbitrary;
pub mod diff;
mod element;
mod expr;
mod family;
mod key;
mod name;
#[cfg(test)]
mod nft;
mod object;
mod ruleset;
pub mod text;
mod transaction;
pub mod walk;

pub use element::{Datum, Element, Key, KeyBuilder};
pub use expr::{AddrKind, CtStatus, Field, Op as Compare, Reject, Rule, Statement, Value, Verdict};
pub use family::{ChainType, Family, Hook, L4Proto, Priority};
pub use key::FieldKind;
pub use name::{ChainName, NameError, SetName, TableName};
pub use object::{BaseChain, Chain, Set, SetData, SetDecl, SetFlags, SetSpec, Table, TableId};
pub use ruleset::Ruleset;
pub use transaction::{Op, Transaction};

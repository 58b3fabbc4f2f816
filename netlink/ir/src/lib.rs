//! nftables in values. Owns the nouns (tables, chains, rules, sets, maps, elements), the verbs on them
//! ([`Transaction`]), and what can be said about both without a kernel: text, difference, effect, and the
//! walk of one packet. Knows nothing of sockets, of time, or of Kubernetes.
//!
//! | noun | verb | view |
//! | --- | --- | --- |
//! | [`Ruleset`] of [`Table`]s of [`Chain`]s and [`Set`]s | [`Op`] in a [`Transaction`] | [`text`]: nft syntax |
//! | [`Rule`] of [`Statement`]s | [`diff`] makes a transaction of two rulesets | [`walk`]: the fate of one packet |
//! | [`Element`] of a set or map | [`apply`] makes a ruleset of a transaction | |
//!
//! A key is kept as the kernel keeps it: bytes in register layout (network order, each field padded to four
//! bytes). The fields of the set ([`SetSpec::key`]) say how to read it. So an element costs the same here, on
//! the wire and in a dump, and comparing two is comparing bytes.
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

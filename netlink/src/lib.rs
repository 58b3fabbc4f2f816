//! The kernel side: nftables transactions, dumps and change notices, addresses of this host, and sysctls. Owns
//! the sockets; knows nothing of Kubernetes, and says nothing that [`nft_ir`] has no word for.
//!
//! | type | what it does | kernel side |
//! | --- | --- | --- |
//! | [`Nft`] | commits a [`nft_ir::Transaction`] whole or not at all, dumps a table | `NETLINK_NETFILTER`, nf_tables |
//! | [`Monitor`], [`readable`] | tells who committed what | multicast group `NFNLGRP_NFTABLES` |
//! | [`conntrack`] | dumps and deletes flows | `NETLINK_NETFILTER`, ctnetlink |
//! | [`address`] | the addresses of this host, live | `NETLINK_ROUTE` |
//! | [`sysctl`] | reads and writes settings | `/proc/sys` |
//!
//! # How a transaction is written
//! Tables, chains, and the rules that `rustables` has words for are built by `rustables`; its messages are taken
//! out of its batch and spliced into ours. Everything else (maps, elements, `numgen`, `fib`, NAT, dynamic sets)
//! is built with the generated bindings of the kernel's own netlink specification, and what those lack or have
//! wrong is in one small file, `nft/ext.rs`. All of it goes out in one send on a socket that stays open, checked
//! against the generation of the ruleset; only the end of the batch asks for an acknowledgement, since a refused
//! message reports itself.
//!
//! # What nft prints of it
//! Sets carry the same user data as those that `nft -f` loads, so `nft list ruleset` prints their `typeof`.
//!
//! ```no_run
//! # use netlink::Nft;
//! # use nft_ir::{Family, Op, TableId, TableName, Transaction};
//! # fn main() -> Result<(), netlink::Error> {
//! let mut nft = Nft::open()?;
//! let before = nft.generation()?;
//! let table = TableId { family: Family::Ip, name: TableName::literal("example") };
//! let mut transaction = Transaction::default();
//! transaction.push(Op::AddTable { table: table.clone(), comment: None });
//! let after = nft.commit(&transaction, Some(before))?; // Error::Stale if somebody else wrote in between
//! assert!(nft.dump_table(&table)?.is_some());
//! # let _ = after;
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

pub mod address;
mod batch;
pub mod conntrack;
mod describe;
mod error;
mod nft;
mod ready;
mod socket;
pub mod sysctl;
#[cfg(feature = "test")]
pub mod testns;
mod wire;

pub use error::{Error, Refusal};
pub use nft::{
    Commit, Foreign, ForeignObject, ForeignRule, ForeignTable, Generation, Missing, Monitor, Nft, Notice,
    Removal, TableDump, encode_len,
};
pub use ready::readable;

//! Owns what a refusal says. Knows nothing of when there is one.

use crate::{ChainName, SetDecl, TableId};
use std::fmt;

/// Why a transaction was refused; nothing of it was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {op}: {object}: {reason}")]
pub struct Refusal {
    /// Index of the operation in the transaction.
    pub op: usize,
    /// The object at fault in nft's words: `chain ip proxier pick-2`.
    pub object: String,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The kernel would refuse it with this errno.
    #[error("{0}: {1}")]
    Errno(Errno, &'static str),
    /// A chain is deleted in the transaction that drops the last element that led to it.
    #[error("is deleted in the transaction that drops the last element that led to it")]
    UnsafeChainDelete,
}

impl Reason {
    /// The kernel's answer, if the kernel would refuse.
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Errno(errno, _) => Some(*errno),
            Self::UnsafeChainDelete => None,
        }
    }
}

/// An error number (asm-generic/errno.h), as far as nf_tables answers it here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Errno {
    /// No such table, chain, set or element.
    ENOENT = 2,
    /// Something is in use.
    EBUSY = 16,
    /// It is there, and otherwise.
    EEXIST = 17,
    /// Parts do not fit each other.
    EINVAL = 22,
    /// The set is full.
    ENFILE = 23,
    /// Chains lead into each other more than 15 deep, or in a loop that a base chain reaches.
    EMLINK = 31,
    /// A number is out of its range.
    ERANGE = 34,
    /// Chains lead into each other in a loop.
    ELOOP = 40,
    /// Not in this kind of chain or set.
    EOPNOTSUPP = 95,
}

impl Errno {
    /// The number.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A refusal that does not yet know its operation.
pub(super) type Refused = (String, Reason);

pub(super) fn refused(object: impl fmt::Display, errno: Errno, why: &'static str) -> Refused {
    (object.to_string(), Reason::Errno(errno, why))
}

pub(super) fn no_table(id: &TableId) -> Refused {
    refused(format_args!("table {id}"), Errno::ENOENT, "is not there")
}

pub(super) fn no_chain(id: &TableId, name: &ChainName) -> Refused {
    refused(format_args!("chain {id} {name}"), Errno::ENOENT, "is not there")
}

pub(super) fn no_set(decl: &SetDecl) -> Refused {
    refused(SetObject(decl), Errno::ENOENT, "is not there")
}

pub(super) struct SetObject<'a>(pub(super) &'a SetDecl);

impl fmt::Display for SetObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.0.keyword(), self.0.table, self.0.name)
    }
}

pub(super) struct ElementObject<'a>(pub(super) &'a SetDecl, pub(super) &'a str);

impl fmt::Display for ElementObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {} {} {{ {} }}", self.0.table, self.0.name, self.1)
    }
}

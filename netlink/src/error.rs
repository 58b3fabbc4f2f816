//! Owns what can go wrong, by step, and whether trying again helps; knows nothing of who asks.

use crate::Generation;
use std::fmt;
use std::io;

/// What went wrong, by step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket could not be had. Not retryable: the kernel lacks nf_tables, or this process a privilege.
    #[error("netlink socket: {step}: {source}")]
    Open {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel did not take the bytes; nothing was changed. Retryable if the kernel was out of memory
    /// (`ENOMEM`, `ENOBUFS`); `EMSGSIZE` means that the send buffer may not grow enough (no `CAP_NET_ADMIN`).
    #[error("netlink send of {bytes} bytes: {source}")]
    Send {
        /// How much was sent at once.
        bytes: usize,
        /// Why it failed.
        source: io::Error,
    },
    /// An answer could not be read. Whether the request took effect is unknown. Not retryable as it is; read the
    /// state again first.
    #[error("netlink receive: {0}")]
    Receive(#[source] io::Error),
    /// The kernel refused the transaction, and nothing of it took effect. Retryable only once what the refusals
    /// name is put right.
    #[error("refused: {}", Refusals(refusals))]
    Refused {
        /// One for each message that was refused, at least one. A message is an operation or a run of its
        /// elements, and names the first element that was wrong in it.
        refusals: Vec<Refusal>,
    },
    /// Somebody else changed the ruleset since the expected generation; nothing of the transaction took effect.
    /// Retryable after reading the generation, and, if the table was touched, the table.
    #[error("the ruleset has moved on from generation {}", expected.0)]
    Stale {
        /// The generation that the transaction was meant for.
        expected: Generation,
    },
    /// Answers were lost because they were not read in time. Whether the transaction took effect is unknown.
    /// Retryable after reading the generation and the table.
    #[error("netlink overrun: answers were lost")]
    Overrun,
    /// A dump was cut by changes of the ruleset as often as it was tried. Retryable.
    #[error("{what}: the ruleset kept changing, {tries} dumps were interrupted")]
    Unsettled {
        /// What was dumped.
        what: String,
        /// How often it was tried.
        tries: usize,
    },
    /// The kernel refused a request that reads. Not retryable, unless `errno` is `ENOMEM` or `EINTR`.
    #[error("{what}: {}{}", io::Error::from_raw_os_error(*errno), remedy(*errno))]
    Read {
        /// What was asked for.
        what: String,
        /// Why not, positive.
        errno: i32,
    },
    /// An operation cannot be written as a message. Not retryable: the operation is at fault.
    #[error("operation {op}, {object}: {reason}")]
    Encode {
        /// Index in the transaction.
        op: usize,
        /// What it is about.
        object: String,
        /// What is wrong.
        reason: String,
    },
    /// The kernel said something that this crate does not understand. Not retryable.
    #[error("{what}: {reason}")]
    Decode {
        /// What was read.
        what: String,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    /// Whether the same call may succeed when it is made again, perhaps after reading the state again.
    pub fn is_retryable(&self) -> bool {
        const TRANSIENT: [i32; 3] = [ENOMEM, ENOBUFS, EINTR];
        match self {
            Self::Stale { .. } | Self::Overrun | Self::Unsettled { .. } => true,
            Self::Send { source, .. } => {
                source.raw_os_error().is_some_and(|errno| TRANSIENT.contains(&errno))
            }
            Self::Read { errno, .. } => TRANSIENT.contains(errno),
            Self::Refused { refusals } => refusals.iter().all(|refusal| TRANSIENT.contains(&refusal.errno)),
            Self::Open { .. } | Self::Receive(_) | Self::Encode { .. } | Self::Decode { .. } => false,
        }
    }
}

/// What would have helped, if it is a privilege.
const fn remedy(errno: i32) -> &'static str {
    if errno == nix::errno::Errno::EPERM as i32 { ": CAP_NET_ADMIN is needed" } else { "" }
}

const EINTR: i32 = nix::errno::Errno::EINTR as i32;
const ENOMEM: i32 = nix::errno::Errno::ENOMEM as i32;
const ENOBUFS: i32 = nix::errno::Errno::ENOBUFS as i32;

/// One message that the kernel refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Index in [`nft_ir::Transaction::ops`]; `None` when the batch as a whole was refused.
    pub op: Option<usize>,
    /// Index in the elements of that operation, when the kernel said which (`NLMSGERR_ATTR_OFFS`).
    pub element: Option<usize>,
    /// Errno, positive.
    pub errno: i32,
    /// What the kernel added in words (`NLMSGERR_ATTR_MSG`).
    pub message: Option<String>,
    /// The operation and its object in words.
    pub object: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, nix::errno::Errno::from_raw(self.errno).desc())?;
        if let Some(message) = &self.message {
            write!(f, " ({message})")?;
        }
        if self.op.is_none() {
            f.write_str(remedy(self.errno))?;
        }
        Ok(())
    }
}

/// The first few refusals, and how many there were.
struct Refusals<'a>(&'a [Refusal]);

impl fmt::Display for Refusals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (index, refusal) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{refusal}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

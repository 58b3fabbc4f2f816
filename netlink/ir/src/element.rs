//! Owns elements of sets and maps in the kernel's own layout. Knows nothing of which set they are in.

use crate::{ChainName, L4Proto, Verdict};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::time::Duration;

/// A key or datum in register layout: each field in network byte order and padded with zeros to four bytes,
/// except [`crate::Field::Slot`], which is the host's own order (that is what `numgen` writes).
pub type Key = SmallVec<[u8; 32]>;

/// Builds a [`Key`] field by field.
#[derive(Debug, Default, Clone)]
pub struct KeyBuilder(Key);

impl KeyBuilder {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address: 4 or 16 bytes.
    #[must_use]
    pub fn addr(mut self, addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => self.0.extend_from_slice(&addr.octets()),
            IpAddr::V6(addr) => self.0.extend_from_slice(&addr.octets()),
        }
        self
    }

    /// Adds a transport protocol.
    #[must_use]
    pub fn proto(mut self, proto: L4Proto) -> Self {
        self.0.extend_from_slice(&[proto.number(), 0, 0, 0]);
        self
    }

    /// Adds a port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        self.0.extend_from_slice(&[high, low, 0, 0]);
        self
    }

    /// Adds a slot number.
    #[must_use]
    pub fn slot(mut self, slot: u32) -> Self {
        self.0.extend_from_slice(&slot.to_ne_bytes());
        self
    }

    /// The finished key.
    pub fn build(self) -> Key {
        self.0
    }
}

/// What an element of a map maps to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Datum {
    /// A value in register layout.
    Value(Key),
    /// A verdict.
    Verdict(Verdict),
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// The key, or the first key of an interval.
    pub key: Key,
    /// The last key of an interval, itself included; only in interval sets, and only when it is another key.
    pub key_end: Option<Box<Key>>,
    /// What it maps to; only in maps.
    pub datum: Option<Datum>,
    /// What an operator reads beside it.
    pub comment: Option<Box<str>>,
    /// Its own time to live from now; only in sets with time-outs.
    pub expires: Option<Duration>,
}

impl Element {
    /// An element of a set.
    pub const fn of_set(key: Key) -> Self {
        Self { key, key_end: None, datum: None, comment: None, expires: None }
    }

    /// An element of a map.
    pub const fn of_map(key: Key, datum: Datum) -> Self {
        Self { key, key_end: None, datum: Some(datum), comment: None, expires: None }
    }

    /// The same element as an interval up to and including `end`; a single key stays one.
    #[must_use]
    pub fn through(mut self, end: Key) -> Self {
        self.key_end = (end != self.key).then(|| Box::new(end));
        self
    }

    /// The same element with a comment.
    #[must_use]
    pub fn comment(mut self, comment: &str) -> Self {
        self.comment = Some(comment.into());
        self
    }
    /// The chain that its verdict leads to.
    pub const fn chain(&self) -> Option<&ChainName> {
        match &self.datum {
            Some(Datum::Verdict(verdict)) => verdict.chain(),
            Some(Datum::Value(_)) | None => None,
        }
    }
}

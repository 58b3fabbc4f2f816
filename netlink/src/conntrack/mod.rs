//! Owns the conversations with conntrack (`NFNL_SUBSYS_CTNETLINK`): dumps filtered in the kernel, deletes by tuple
//! and number. Knows nothing of which flows ought to go.
//!
//! Only flows of TCP, UDP and SCTP are shown: those of other protocols have no ports.

mod delete;
mod dump;
mod filter;
mod flow;
#[cfg(feature = "test")]
mod insert;
mod tuple;

pub use filter::Filter;
pub use flow::{Flow, Status, Zone};
pub use tuple::Tuple;

use crate::Error;
use crate::socket::NetfilterSocket;
use rustables::sys;

/// `IPCTNL_MSG_CT_*` (linux/netfilter/nfnetlink_conntrack.h).
mod message {
    #[cfg(feature = "test")]
    pub(super) const NEW: u16 = 0;
    pub(super) const GET: u16 = 1;
    pub(super) const DELETE: u16 = 2;
}

/// `CTA_*` (linux/netfilter/nfnetlink_conntrack.h), those that are read.
mod cta {
    pub(super) const TUPLE_ORIG: u16 = 1;
    pub(super) const TUPLE_REPLY: u16 = 2;
    pub(super) const STATUS: u16 = 3;
    pub(super) const ID: u16 = 12;
    pub(super) const ZONE: u16 = 18;

    pub(super) const TUPLE_IP: u16 = 1;
    pub(super) const TUPLE_PROTO: u16 = 2;
    pub(super) const TUPLE_ZONE: u16 = 3;

    pub(super) const IP_V4_SRC: u16 = 1;
    pub(super) const IP_V4_DST: u16 = 2;
    pub(super) const IP_V6_SRC: u16 = 3;
    pub(super) const IP_V6_DST: u16 = 4;

    pub(super) const PROTO_NUM: u16 = 1;
    pub(super) const PROTO_SRC_PORT: u16 = 2;
    pub(super) const PROTO_DST_PORT: u16 = 3;
}

/// Messages in one send: enough that sending costs nothing, and short enough that a reply to each fits in the
/// receive buffer and that the kernel's lock is soon free again.
const RUN: usize = 500;

/// `nlmsg_type` of a conntrack message.
const fn kind(message: u16) -> u16 {
    (sys::NFNL_SUBSYS_CTNETLINK as u16) << 8 | message
}

/// The flows of this network namespace: one socket, kept open.
#[derive(Debug)]
pub struct Conntrack {
    socket: NetfilterSocket,
}

impl Conntrack {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Open`]. Privilege (`CAP_NET_ADMIN`) is only asked for by the first request.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: NetfilterSocket::for_requests()? })
    }
}

/// Reads whatever bytes as a flow. For tests of the decoder.
#[cfg(test)]
pub(crate) fn read_any(attributes: &[u8]) -> Option<Flow> {
    flow::read(attributes)
}

//! Owns the nf_tables socket and the order of its conversations: generation, commit, dump. Knows nothing of how
//! an object becomes bytes.

mod decode_element;
mod decode_object;
mod decode_rule;
mod dump;
pub(crate) mod encode;
mod encode_element;
mod encode_expr;
mod encode_plain;
mod ext;
mod foreign_rules;
mod layout;
mod monitor;
mod probe;
mod registers;
#[cfg(test)]
mod tests;
mod userdata;

pub use dump::{Foreign, ForeignObject, TableDump};
pub use foreign_rules::{ForeignRule, ForeignTable, Removal};
pub use monitor::{Commit, Monitor, Notice};
pub use probe::Missing;

use crate::batch::Batch;
use crate::socket::{Answered, NetfilterSocket, Received};
use crate::wire::{self, NLM_F_ACK};
use crate::{Error, Refusal};
use nft_ir::Transaction;
use rustables::sys;

/// The generation of the ruleset of this network namespace: every commit of anybody makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// `nlmsg_type` of an nf_tables message.
pub(crate) const fn kind(message: u32) -> u16 {
    ((sys::NFNL_SUBSYS_NFTABLES << 8) | message) as u16
}

/// The nf_tables side of this network namespace: one socket, kept open.
#[derive(Debug)]
pub struct Nft {
    socket: NetfilterSocket,
}

impl Nft {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Open`]. Privilege (`CAP_NET_ADMIN`) is only asked for by the first request.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: NetfilterSocket::for_requests()? })
    }

    /// The netlink port of the socket, by which [`Monitor`] tells these commits from those of others.
    pub fn port(&self) -> u32 {
        self.socket.port()
    }

    /// The generation of the ruleset now (`NFT_MSG_GETGEN`).
    ///
    /// # Errors
    /// [`Error::Read`] without privilege.
    pub fn generation(&mut self) -> Result<Generation, Error> {
        let mut request = Vec::with_capacity(wire::NFHEADER);
        let start = wire::begin(&mut request, kind(sys::NFT_MSG_GETGEN), NLM_F_ACK, 0, 0, 0);
        wire::end(&mut request, start);
        let mut generation = None;
        self.socket.request(&"generation of the ruleset", &mut request, &mut |message| {
            generation = wire::be32(message.attributes(), sys::NFTA_GEN_ID);
            Ok(())
        })?;
        generation.map(Generation).ok_or_else(|| Error::Decode {
            what: "generation of the ruleset".into(),
            reason: "the kernel did not tell it".into(),
        })
    }

    /// Carries out all operations, or none. With `expected`, none also when the ruleset is no longer of that
    /// generation. Returns the generation that it made, or the present one if nothing had to be changed.
    ///
    /// # Errors
    /// [`Error::Stale`] if the generation was another; [`Error::Refused`] if an operation was refused, and which;
    /// [`Error::Encode`] before anything is sent.
    pub fn commit(
        &mut self,
        transaction: &Transaction,
        expected: Option<Generation>,
    ) -> Result<Generation, Error> {
        self.socket.drain()?;
        let batch = Batch::encode(transaction, expected, |count| self.socket.sequence(count))?;
        self.commit_batch(&batch, transaction, expected)
    }

    /// Sends a batch that holds a transaction, and perhaps more before it.
    fn commit_batch(
        &mut self,
        batch: &Batch,
        transaction: &Transaction,
        expected: Option<Generation>,
    ) -> Result<Generation, Error> {
        self.socket.send(batch.bytes())?;
        let mut refusals: Vec<Refusal> = Vec::new();
        let mut generation = None;
        let mut acknowledged = false;
        let mut overrun = false;
        loop {
            let datagram = match self.socket.receive()? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    overrun = true;
                    continue;
                }
                Received::Nothing => break,
            };
            for message in wire::messages(datagram).filter(|message| batch.sent(message.seq)) {
                if message.kind == wire::NLMSG_ERROR {
                    match message.errno() {
                        0 => acknowledged = true,
                        errno => {
                            if errno == nix::errno::Errno::ERESTART as i32
                                && batch.is_begin(message.seq)
                                && let Some(expected) = expected
                            {
                                return Err(Error::Stale { expected });
                            }
                            refusals.push(batch.refusal(transaction, &message));
                        }
                    }
                } else if message.kind == kind(sys::NFT_MSG_NEWGEN) {
                    generation = wire::be32(message.attributes(), sys::NFTA_GEN_ID).map(Generation);
                }
            }
        }
        if !refusals.is_empty() {
            return Err(Error::Refused { refusals });
        }
        match generation {
            Some(generation) => Ok(generation),
            None if overrun && !acknowledged => Err(Error::Overrun),
            // Nothing was changed, so nothing was announced. Kernels before 6.10 do not acknowledge a batch end
            // either: silence is consent, since a refusal is queued before the send returns.
            None => self.generation(),
        }
    }
}

/// Bytes of the batch that [`Nft::commit`] would send. For measuring.
///
/// # Errors
/// [`Error::Encode`].
pub fn encode_len(transaction: &Transaction) -> Result<usize, Error> {
    Batch::encode(transaction, None, |_| 1).map(|batch| batch.bytes().len())
}

/// Whether all that was asked for came; `Err` when dumps were interrupted too often.
fn settled<T>(
    what: &dyn std::fmt::Display,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    /// Each is cut only by a commit that falls into it; so many in a row mean a writer that never rests.
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        if let Some(value) = attempt()? {
            return Ok(value);
        }
    }
    Err(Error::Unsettled { what: what.to_string(), tries: TRIES })
}

/// A request for a dump or for one object; `fill` writes its attributes.
fn request(
    socket: &mut NetfilterSocket,
    what: &dyn std::fmt::Display,
    (message, flags, family): (u32, u16, u8),
    fill: impl FnOnce(&mut Vec<u8>),
    each: &mut dyn FnMut(wire::Message<'_>) -> Result<(), Error>,
) -> Result<Answered, Error> {
    let mut bytes = Vec::with_capacity(128);
    let start = wire::begin(&mut bytes, kind(message), flags, 0, family, 0);
    fill(&mut bytes);
    wire::end(&mut bytes, start);
    socket.request(what, &mut bytes, each)
}

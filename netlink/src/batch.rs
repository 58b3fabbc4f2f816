//! Owns one batch: begin, messages in order, end; which sequence number is which operation, and which element an
//! offset in a message points at. Knows nothing of sockets, nor of how an operation becomes messages.

use crate::describe;
use crate::nft::encode::{self, EncodeError};
use crate::wire::{self, Message, NLM_F_ACK, NLM_F_ECHO};
use crate::{Error, Generation, Refusal};
use nft_ir::Transaction;
use rustables::sys;

const BEGIN: u16 = sys::NFNL_MSG_BATCH_BEGIN as u16;
const END: u16 = sys::NFNL_MSG_BATCH_END as u16;
const SUBSYSTEM: u16 = sys::NFNL_SUBSYS_NFTABLES as u16;
/// Longest attribute that holds elements; their length is 16 bits, and one element is at most some 700 bytes.
const RUN_MAX: usize = 0xf000;

/// Where a message came from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// Offset in the batch.
    start: usize,
    /// Index of the operation; `None` for begin and end.
    op: Option<usize>,
    /// Index of the first element of the run in the operation's elements.
    first_element: usize,
}

/// A finished batch.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    first_seq: u32,
    origins: Vec<Origin>,
}

impl Batch {
    /// Encodes a transaction. `sequence` gives the first of so many fresh sequence numbers.
    pub(crate) fn encode(
        transaction: &Transaction,
        expected: Option<Generation>,
        sequence: impl FnOnce(u32) -> u32,
    ) -> Result<Self, Error> {
        Self::encode_after(|_| {}, transaction, expected, sequence)
    }

    /// The same, with further messages before the transaction; a refusal of one of those is of the batch as a whole.
    pub(crate) fn encode_after(
        first: impl FnOnce(&mut BatchWriter),
        transaction: &Transaction,
        expected: Option<Generation>,
        sequence: impl FnOnce(u32) -> u32,
    ) -> Result<Self, Error> {
        let mut writer = BatchWriter::begin(transaction, expected);
        first(&mut writer);
        for (index, op) in transaction.ops.iter().enumerate() {
            writer.op = Some(index);
            encode::operation(&mut writer, op).map_err(|EncodeError(reason)| Error::Encode {
                op: index,
                object: describe::operation(op, None),
                reason,
            })?;
        }
        Ok(writer.end(sequence))
    }

    /// What is sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a message with this number is of this batch.
    pub(crate) fn sent(&self, seq: u32) -> bool {
        (seq.wrapping_sub(self.first_seq) as usize) < self.origins.len()
    }

    /// Whether the number is that of the batch's begin.
    pub(crate) fn is_begin(&self, seq: u32) -> bool {
        seq == self.first_seq
    }

    /// What an error message says about the transaction.
    pub(crate) fn refusal(&self, transaction: &Transaction, error: &Message<'_>) -> Refusal {
        let attributes = error.ack_attributes();
        let origin = self.origins.get(error.seq.wrapping_sub(self.first_seq) as usize);
        let element = origin.and_then(|origin| {
            let offset = wire::attribute(attributes, sys::NLMSGERR_ATTR_OFFS as u16)?;
            let offset = u32::from_ne_bytes(*offset.first_chunk()?) as usize;
            Some(origin.first_element + self.element_at(origin.start, offset)?)
        });
        let op = origin.and_then(|origin| origin.op);
        let described = op.and_then(|index| transaction.ops.get(index));
        Refusal {
            op,
            element,
            errno: error.errno(),
            message: wire::text(attributes, sys::NLMSGERR_ATTR_MSG as u16).map(str::to_owned),
            object: described.map_or_else(|| "batch".to_owned(), |op| describe::operation(op, element)),
        }
    }

    /// Which element of the message that begins at `start` an offset into it falls on.
    fn element_at(&self, start: usize, offset: usize) -> Option<usize> {
        let message = wire::messages(self.bytes.get(start..)?).next()?;
        let kind = u32::from(message.kind & 0xff);
        if kind != sys::NFT_MSG_NEWSETELEM && kind != sys::NFT_MSG_DELSETELEM {
            return None;
        }
        let elements = wire::attribute(message.attributes(), sys::NFTA_SET_ELEM_LIST_ELEMENTS)?;
        let base = elements.as_ptr() as usize - self.bytes.as_ptr() as usize - start;
        let mut at = base;
        let mut seen = 0;
        for (_, element) in wire::attributes(elements) {
            at += wire::align(element.len() + 4);
            // The end of an interval belongs to the element before it.
            if wire::be32(element, sys::NFTA_SET_ELEM_FLAGS) != Some(sys::NFT_SET_ELEM_INTERVAL_END) {
                seen += 1;
            }
            if offset < at {
                return if offset >= base { usize::checked_sub(seen, 1) } else { None };
            }
        }
        None
    }
}

/// A batch being written.
pub(crate) struct BatchWriter {
    bytes: Vec<u8>,
    origins: Vec<Origin>,
    op: Option<usize>,
    sets: u32,
}

impl BatchWriter {
    fn begin(transaction: &Transaction, expected: Option<Generation>) -> Self {
        // Measured: an element takes 48 to 120 bytes.
        let capacity = 4096 + transaction.ops.len() * 128 + transaction.element_count() * 96;
        let mut writer = Self { bytes: Vec::with_capacity(capacity), origins: Vec::new(), op: None, sets: 0 };
        // With this flag the kernel tells us, and not only the listeners, which generation the commit made.
        writer.message_to(BEGIN, NLM_F_ECHO, 0, SUBSYSTEM, 0, |bytes| {
            if let Some(Generation(expected)) = expected {
                netlink_bindings::nftables::PushBatchAttrs::new(bytes).push_genid(expected).end_nested();
            }
        });
        writer
    }

    /// Appends a message of nf_tables.
    pub(crate) fn message(&mut self, message: u32, flags: u16, family: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.message_to(crate::nft::kind(message), flags, family, 0, 0, fill);
    }

    /// Appends messages of elements: `each` appends one of `count`; a new message begins before the attribute
    /// that holds them grows too long.
    pub(crate) fn runs(
        &mut self,
        message: u32,
        flags: u16,
        family: u8,
        head: impl Fn(&mut Vec<u8>),
        count: usize,
        mut each: impl FnMut(&mut Vec<u8>, usize),
    ) {
        let mut next = 0;
        while next < count {
            let first_element = next;
            self.message_to(crate::nft::kind(message), flags, family, 0, first_element, |bytes| {
                head(bytes);
                let run =
                    netlink_bindings::utils::push_nested_header(bytes, sys::NFTA_SET_ELEM_LIST_ELEMENTS);
                while next < count && bytes.len() - run < RUN_MAX {
                    each(bytes, next);
                    next += 1;
                }
                netlink_bindings::utils::finalize_nested_header(bytes, run);
            });
        }
    }

    /// Appends the messages of a batch that `rustables` built, without its begin and end.
    pub(crate) fn splice(&mut self, batch: &[u8]) {
        let mut rest = batch;
        while let Some(message) = wire::messages(rest).next() {
            let len = message.payload.len() + wire::HEADER;
            if message.kind != BEGIN && message.kind != END {
                let start = self.bytes.len();
                self.origins.push(Origin { start, op: self.op, first_element: 0 });
                self.bytes.extend_from_slice(&rest[..len]);
                let flags = message.flags & !NLM_F_ACK;
                self.bytes[start + 6..start + 8].copy_from_slice(&flags.to_ne_bytes());
                wire::end(&mut self.bytes, start);
            }
            rest = rest.get(wire::align(len)..).unwrap_or_default();
        }
    }

    /// A number for a new set, unique in this batch (`NFTA_SET_ID`).
    pub(crate) fn set_id(&mut self) -> u32 {
        self.sets += 1;
        self.sets
    }

    fn message_to(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        resource: u16,
        first_element: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = wire::begin(&mut self.bytes, kind, flags, 0, family, resource);
        self.origins.push(Origin { start, op: self.op, first_element });
        fill(&mut self.bytes);
        wire::end(&mut self.bytes, start);
    }

    fn end(mut self, sequence: impl FnOnce(u32) -> u32) -> Batch {
        self.op = None;
        self.message_to(END, NLM_F_ACK, 0, SUBSYSTEM, 0, |_| {});
        let Self { mut bytes, origins, .. } = self;
        let first_seq = sequence(origins.len() as u32);
        for (seq, origin) in (first_seq..).zip(&origins) {
            bytes[origin.start + 8..origin.start + 12].copy_from_slice(&seq.to_ne_bytes());
        }
        Batch { bytes, first_seq, origins }
    }
}

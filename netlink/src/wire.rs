//! Owns the shape of netlink messages and attributes (linux/netlink.h); knows nothing of what they say.

use netlink_bindings::utils::{IterableChunks, find_attr, parse_be_u32, parse_be_u64};
use nft_ir::Family;

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;
/// Bytes of `struct nlmsghdr` and `struct nfgenmsg`.
pub(crate) const NFHEADER: usize = 20;

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLMSG_OVERRUN: u16 = 4;

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_ECHO: u16 = 0x8;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// In an error: the request is not repeated behind it.
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
/// In an error: extended acknowledgement attributes follow.
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;

/// A netlink message that was received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// `nlmsg_type`.
    pub(crate) kind: u16,
    /// `nlmsg_flags`.
    pub(crate) flags: u16,
    /// `nlmsg_seq`.
    pub(crate) seq: u32,
    /// `nlmsg_pid`.
    pub(crate) port: u32,
    /// What follows `struct nlmsghdr`.
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The attributes behind `struct nfgenmsg`.
    pub(crate) fn attributes(&self) -> &'a [u8] {
        self.payload.get(NFHEADER - HEADER..).unwrap_or_default()
    }

    /// `nfgen_family`.
    pub(crate) fn family(&self) -> u8 {
        self.payload.first().copied().unwrap_or_default()
    }

    /// The errno of an `NLMSG_ERROR`, positive; 0 for an acknowledgement. For `NLMSG_DONE`, that of the dump.
    pub(crate) fn errno(&self) -> i32 {
        self.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes).saturating_neg())
    }

    /// Extended acknowledgement attributes of an `NLMSG_ERROR`.
    pub(crate) fn ack_attributes(&self) -> &'a [u8] {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return &[];
        }
        // struct nlmsgerr is the errno and the header of the request; without NLM_F_CAPPED the rest follows too.
        let mut at = 4 + HEADER;
        if self.flags & NLM_F_CAPPED == 0 {
            let request = self.payload.get(4..).and_then(|request| request.first_chunk().copied());
            at = 4 + align(request.map_or(HEADER, |len| u32::from_ne_bytes(len) as usize));
        }
        self.payload.get(at..).unwrap_or_default()
    }
}

/// The messages of one datagram. Ends at the first that is cut short.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header: &[u8; HEADER] = rest.first_chunk()?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let len = u32::from_ne_bytes(word(0)) as usize;
        if len < HEADER || len > rest.len() {
            return None;
        }
        let message = Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            seq: u32::from_ne_bytes(word(8)),
            port: u32::from_ne_bytes(word(12)),
            payload: &rest[HEADER..len],
        };
        rest = rest.get(align(len)..).unwrap_or_default();
        Some(message)
    })
}

/// Appends a message header with an empty `struct nfgenmsg`; returns where it begins.
pub(crate) fn begin(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    seq: u32,
    family: u8,
    resource: u16,
) -> usize {
    let start = bytes.len();
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    bytes.extend_from_slice(&seq.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&[family, 0]);
    bytes.extend_from_slice(&resource.to_be_bytes());
    start
}

/// Closes the message that begins at `start`: pads it and writes its length.
pub(crate) fn end(bytes: &mut Vec<u8>, start: usize) {
    bytes.resize(start + align(bytes.len() - start), 0);
    let len = (bytes.len() - start) as u32;
    bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
}

/// Rounded up to the four bytes that netlink aligns to.
pub(crate) const fn align(len: usize) -> usize {
    (len + 3) & !3
}

/// Every attribute with its type, the nested bit taken off.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    IterableChunks::new(bytes).map(|(header, value)| (header.r#type, value))
}

/// The first attribute of a type.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    find_attr(bytes, kind)
}

/// The first attribute of a type as a number in network order.
pub(crate) fn be32(bytes: &[u8], kind: u16) -> Option<u32> {
    parse_be_u32(find_attr(bytes, kind)?)
}

/// The first attribute of a type as a long number in network order.
pub(crate) fn be64(bytes: &[u8], kind: u16) -> Option<u64> {
    parse_be_u64(find_attr(bytes, kind)?)
}

/// The first attribute of a type as text, with or without its terminating zero.
pub(crate) fn text(bytes: &[u8], kind: u16) -> Option<&str> {
    let value = find_attr(bytes, kind)?;
    std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
}

/// `NFPROTO_*` of a family (linux/netfilter.h).
pub(crate) const fn nfproto(family: Family) -> u8 {
    match family {
        Family::Ip => 2,
        Family::Ip6 => 10,
    }
}

/// The family of an `NFPROTO_*`; `None` for those that this crate leaves alone.
pub(crate) const fn family(nfproto: u8) -> Option<Family> {
    match nfproto {
        2 => Some(Family::Ip),
        10 => Some(Family::Ip6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_until_one_is_cut_short() {
        let mut bytes = Vec::new();
        for seq in 1..=3 {
            let start = begin(&mut bytes, 7, 0, seq, 2, 0);
            bytes.push(seq as u8);
            end(&mut bytes, start);
        }
        assert_eq!(messages(&bytes).map(|m| m.seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(messages(&bytes[..bytes.len() - 1]).count(), 2);
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(messages(&[1; 3]).count(), 0);
    }
}

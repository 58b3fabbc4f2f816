//! Owns the notes that nft keeps beside objects (`NFTA_*_USERDATA`): comments, and the `typeof` of a set. The
//! kernel stores them unread. Their form is nft's own: type and length in a byte each, then the value, without
//! padding; numbers in host order. Knows nothing of netlink.

use nft_ir::{Family, Field};
use smallvec::SmallVec;

/// Longest comment in bytes that nft and the kernel both take.
pub(crate) const COMMENT_MAX: usize = 127;

/// Comment of a table, rule or element.
const COMMENT: u8 = 0;

/// What a set's notes hold.
mod set {
    pub(super) const KEY_BYTEORDER: u8 = 0;
    pub(super) const DATA_BYTEORDER: u8 = 1;
    pub(super) const KEY_TYPEOF: u8 = 3;
    pub(super) const DATA_TYPEOF: u8 = 4;
    pub(super) const DATA_INTERVAL: u8 = 6;
    pub(super) const COMMENT: u8 = 7;
}

/// Within a `typeof`: which kind of expression, and its details.
mod typeof_part {
    pub(super) const KIND: u8 = 0;
    pub(super) const DETAILS: u8 = 1;
}

/// nft's own numbers for kinds of expressions.
mod kind {
    pub(super) const VERDICT: u32 = 1;
    pub(super) const PAYLOAD: u32 = 7;
    pub(super) const META: u32 = 9;
    pub(super) const CT: u32 = 12;
    pub(super) const CONCAT: u32 = 13;
    pub(super) const NUMGEN: u32 = 23;
}

/// nft's own numbers for headers and for fields in them.
mod header {
    pub(super) const TRANSPORT: u32 = 11;
    pub(super) const IP: u32 = 12;
    pub(super) const IP6: u32 = 13;
    pub(super) const SPORT: u32 = 1;
    pub(super) const DPORT: u32 = 2;
}

/// `meta l4proto` (`NFT_META_L4PROTO`).
const L4PROTO: u32 = rustables::sys::NFT_META_L4PROTO;
/// `IP_CT_DIR_ORIGINAL`.
const ORIGINAL: u32 = 0;
/// `NFT_NG_RANDOM`.
const RANDOM: u32 = rustables::sys::NFT_NG_RANDOM;
/// The modulus that the `typeof` of every slot is given: slots are 16 bits wide in print only.
pub(crate) const SLOT_MODULUS: u32 = 65536;

/// Byte order as nft numbers it: none (concatenations), host, network.
#[derive(Clone, Copy)]
#[repr(u32)]
enum ByteOrder {
    None = 0,
    Host = 1,
    Network = 2,
}

/// What an element of a set maps to, for nft's notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataType {
    /// Nothing.
    None,
    /// A verdict.
    Verdict,
    /// Fields.
    Fields(SmallVec<[Field; 5]>),
}

/// The note of a comment.
pub(crate) fn comment(text: &str) -> Vec<u8> {
    let mut notes = Vec::with_capacity(text.len() + 3);
    push(&mut notes, COMMENT, |value| push_text(value, text));
    notes
}

/// The comment in the notes of a table, rule or element.
pub(crate) fn read_comment(notes: &[u8]) -> Option<&str> {
    text(find(notes, COMMENT)?)
}

/// The notes of a set.
pub(crate) fn of_set(key: &[Field], data: &DataType, comment: Option<&str>, family: Family) -> Vec<u8> {
    let mut notes = Vec::with_capacity(192);
    push_number(&mut notes, set::KEY_BYTEORDER, byte_order(key) as u32);
    match data {
        DataType::None => {}
        DataType::Verdict => push_number(&mut notes, set::DATA_BYTEORDER, ByteOrder::None as u32),
        DataType::Fields(fields) => push_number(&mut notes, set::DATA_BYTEORDER, byte_order(fields) as u32),
    }
    push(&mut notes, set::KEY_TYPEOF, |value| push_typeof(value, key, family));
    match data {
        DataType::None => {}
        DataType::Verdict => push(&mut notes, set::DATA_TYPEOF, |value| {
            push_number(value, typeof_part::KIND, kind::VERDICT);
            push(value, typeof_part::DETAILS, |_| {});
        }),
        DataType::Fields(fields) => {
            push(&mut notes, set::DATA_TYPEOF, |value| push_typeof(value, fields, family));
        }
    }
    if *data != DataType::None {
        push_number(&mut notes, set::DATA_INTERVAL, 0);
    }
    if let Some(comment) = comment {
        push(&mut notes, set::COMMENT, |value| push_text(value, comment));
    }
    notes
}

/// A set's notes, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetNotes {
    /// Fields of the key.
    pub(crate) key: SmallVec<[Field; 5]>,
    /// Fields of the datum, if the notes have any.
    pub(crate) data: Option<SmallVec<[Field; 5]>>,
    /// Comment.
    pub(crate) comment: Option<String>,
}

/// Reads a set's notes; `Err` says which field is not one of ours.
pub(crate) fn read_set(notes: &[u8], is_value_map: bool, family: Family) -> Result<SetNotes, String> {
    let key = find(notes, set::KEY_TYPEOF).ok_or("key without typeof")?;
    let data = match find(notes, set::DATA_TYPEOF) {
        Some(data) if is_value_map => Some(read_typeof(data, family)?),
        None if is_value_map => return Err("data without typeof".into()),
        _ => None,
    };
    Ok(SetNotes {
        key: read_typeof(key, family)?,
        data,
        comment: find(notes, set::COMMENT).and_then(text).map(str::to_owned),
    })
}

/// `ct original ip daddr` by family (`NFT_CT_DST_IP`, `NFT_CT_DST_IP6`).
pub(crate) const fn ct_destination(family: Family) -> u32 {
    match family {
        Family::Ip => rustables::sys::NFT_CT_DST_IP,
        Family::Ip6 => rustables::sys::NFT_CT_DST_IP6,
    }
}

/// nft's numbers for header, source and destination address.
const fn addresses(family: Family) -> (u32, u32, u32) {
    match family {
        Family::Ip => (header::IP, 11, 12),
        Family::Ip6 => (header::IP6, 8, 9),
    }
}

fn byte_order(fields: &[Field]) -> ByteOrder {
    match fields {
        [Field::L4Proto | Field::Slot(_)] => ByteOrder::Host,
        [_] => ByteOrder::Network,
        _ => ByteOrder::None,
    }
}

fn push_typeof(value: &mut Vec<u8>, fields: &[Field], family: Family) {
    if let [field] = fields {
        return push_field(value, *field, family);
    }
    push_number(value, typeof_part::KIND, kind::CONCAT);
    push(value, typeof_part::DETAILS, |parts| {
        for (index, field) in fields.iter().enumerate() {
            push(parts, index as u8, |part| push_field(part, *field, family));
        }
    });
}

fn push_field(value: &mut Vec<u8>, field: Field, family: Family) {
    let (ip, saddr, daddr) = addresses(family);
    let (kind, details): (u32, &[u32]) = match field {
        Field::SourceAddr => (kind::PAYLOAD, &[ip, saddr]),
        Field::DestinationAddr => (kind::PAYLOAD, &[ip, daddr]),
        Field::L4Proto => (kind::META, &[L4PROTO]),
        Field::SourcePort => (kind::PAYLOAD, &[header::TRANSPORT, header::SPORT]),
        Field::DestinationPort => (kind::PAYLOAD, &[header::TRANSPORT, header::DPORT]),
        Field::OriginalDestinationAddr => (kind::CT, &[ct_destination(family), ORIGINAL]),
        Field::OriginalDestinationPort => (kind::CT, &[rustables::sys::NFT_CT_PROTO_DST, ORIGINAL]),
        Field::Slot(_) => (kind::NUMGEN, &[RANDOM, SLOT_MODULUS, 0]),
    };
    push_number(value, typeof_part::KIND, kind);
    push(value, typeof_part::DETAILS, |value| {
        for (index, number) in details.iter().enumerate() {
            push_number(value, index as u8, *number);
        }
    });
}

fn read_typeof(value: &[u8], family: Family) -> Result<SmallVec<[Field; 5]>, String> {
    if number(value, typeof_part::KIND) != Some(kind::CONCAT) {
        return Ok(SmallVec::from_iter([read_field(value, family)?]));
    }
    let parts = find(value, typeof_part::DETAILS).unwrap_or_default();
    (0u8..).map_while(|index| find(parts, index)).map(|part| read_field(part, family)).collect()
}

fn read_field(value: &[u8], family: Family) -> Result<Field, String> {
    let (ip, saddr, daddr) = addresses(family);
    let details = find(value, typeof_part::DETAILS).unwrap_or_default();
    let detail = |index| number(details, index).unwrap_or(u32::MAX);
    let kind = number(value, typeof_part::KIND).unwrap_or(u32::MAX);
    Ok(match (kind, detail(0), detail(1)) {
        (kind::PAYLOAD, at, field) if at == ip && field == saddr => Field::SourceAddr,
        (kind::PAYLOAD, at, field) if at == ip && field == daddr => Field::DestinationAddr,
        (kind::PAYLOAD, header::TRANSPORT, header::SPORT) => Field::SourcePort,
        (kind::PAYLOAD, header::TRANSPORT, header::DPORT) => Field::DestinationPort,
        (kind::META, L4PROTO, _) => Field::L4Proto,
        (kind::CT, key, ORIGINAL) if key == ct_destination(family) => Field::OriginalDestinationAddr,
        (kind::CT, rustables::sys::NFT_CT_PROTO_DST, ORIGINAL) => Field::OriginalDestinationPort,
        (kind::NUMGEN, RANDOM, modulus) => Field::Slot(modulus),
        (kind, first, second) => {
            return Err(format!("typeof of an unknown field (nft's numbers {kind}, {first}, {second})"));
        }
    })
}

/// Appends a note. A value longer than a byte can tell is cut away with its note: nft would do the same.
fn push(notes: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = notes.len();
    notes.extend_from_slice(&[kind, 0]);
    fill(notes);
    match u8::try_from(notes.len() - start - 2) {
        Ok(len) => notes[start + 1] = len,
        Err(_) => notes.truncate(start),
    }
}

fn push_number(notes: &mut Vec<u8>, kind: u8, number: u32) {
    push(notes, kind, |value| value.extend_from_slice(&number.to_ne_bytes()));
}

fn push_text(value: &mut Vec<u8>, text: &str) {
    value.extend_from_slice(text.as_bytes());
    value.push(0);
}

fn find(notes: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = notes;
    while let [kind, len, tail @ ..] = rest {
        let (value, tail) = tail.split_at_checked(usize::from(*len))?;
        if *kind == wanted {
            return Some(value);
        }
        rest = tail;
    }
    None
}

fn number(notes: &[u8], kind: u8) -> Option<u32> {
    Some(u32::from_ne_bytes(find(notes, kind)?.try_into().ok()?))
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Field::{DestinationAddr, DestinationPort, L4Proto, OriginalDestinationAddr, Slot, SourceAddr};

    /// What `nft -f` 1.0.6 on x86-64 sends for the same sets.
    #[test]
    #[cfg(target_endian = "little")]
    fn notes_are_those_of_nft() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (key, data, comment, family, expected) in [
            (
                &[SourceAddr][..],
                DataType::None,
                Some("hello set"),
                Family::Ip,
                "000402000000031400040700 0000010c00040c0000000104 0b000000070a68656c6c6f2073657400",
            ),
            (&[L4Proto], DataType::None, None, Family::Ip, "000401000000030e000409000000010600041000 0000"),
            (
                &[OriginalDestinationAddr],
                DataType::None,
                None,
                Family::Ip,
                "000402000000031400040c000000010c000414000000010400000000",
            ),
            (
                &[DestinationAddr, L4Proto, DestinationPort],
                DataType::Verdict,
                None,
                Family::Ip6,
                "0004000000000104000000000344 00040d000000013c0014000407000000010c00040d00000001040900\
                 0000010e0004090000000106000410000000021400040700 0000010c00040b00000001040200\
                 00000408000401000000010006 0400000000",
            ),
            (
                &[DestinationAddr, L4Proto, DestinationPort, Slot(65536)],
                DataType::Fields(SmallVec::from_slice(&[DestinationAddr, DestinationPort])),
                Some("cm"),
                Family::Ip,
                "00040000000001040000000003600004 0d0000000158001400040700 0000010c00040c000000\
                 01040c000000010e0004090000000106 000410000000021400040700 0000010c00040b000000\
                 010402000000031a0004170000000112 00040100000001040000010002040000000004340004\
                 0d000000012c001400040700 0000010c00040c00000001040c00000001140004 07000000\
                 010c00040b00000001040200 000006040000000007 03636d00",
            ),
        ] {
            let notes = of_set(key, &data, comment, family);
            assert_eq!(hex(&notes), expected.replace([' ', '\n'], ""), "{key:?}");
            let fields = match &data {
                DataType::Fields(fields) => Some(fields.clone()),
                _ => None,
            };
            let read = read_set(&notes, fields.is_some(), family).unwrap();
            assert_eq!((&read.key[..], &read.data, read.comment.as_deref()), (key, &fields, comment));
        }
        assert_eq!(hex(&super::comment("tc")), "000374 6300".replace(' ', ""));
    }

    #[test]
    fn broken_notes_are_no_notes() {
        assert_eq!(find(&[0, 5, 1], 0), None);
        assert_eq!(find(&[7], 7), None);
        assert!(read_set(&[3, 200, 0], false, Family::Ip).is_err());
        assert_eq!(read_comment(&[0, 2, 0xff, 0]), None);
    }
}

//! Owns the register layout: how long each field is, and how a key falls apart into its fields. Knows nothing
//! of sets or packets.

use crate::{Family, Field};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Field {
    /// Bytes that the field takes in a [`crate::Key`], its padding to a multiple of four included.
    pub const fn register_len(self, family: Family) -> usize {
        match self {
            Self::SourceAddr | Self::DestinationAddr | Self::OriginalDestinationAddr => family.addr_len(),
            Self::L4Proto
            | Self::SourcePort
            | Self::DestinationPort
            | Self::OriginalDestinationPort
            | Self::Slot(_) => 4,
        }
    }

    /// Bytes of the value itself, without padding.
    pub const fn value_len(self, family: Family) -> usize {
        match self {
            Self::SourceAddr | Self::DestinationAddr | Self::OriginalDestinationAddr => family.addr_len(),
            Self::L4Proto => 1,
            Self::SourcePort | Self::DestinationPort | Self::OriginalDestinationPort => 2,
            Self::Slot(_) => 4,
        }
    }

    /// What the field is to the kernel, which does not care whose address or port it is.
    pub const fn kind(self) -> FieldKind {
        match self {
            Self::SourceAddr | Self::DestinationAddr | Self::OriginalDestinationAddr => FieldKind::Addr,
            Self::L4Proto => FieldKind::L4Proto,
            Self::SourcePort | Self::DestinationPort | Self::OriginalDestinationPort => FieldKind::Port,
            Self::Slot(_) => FieldKind::Slot,
        }
    }

    /// Bytes in a key of these fields.
    pub fn key_len(fields: &[Self], family: Family) -> usize {
        fields.iter().map(|field| field.register_len(family)).sum()
    }
}

/// The data type of a field: `ipv4_addr`/`ipv6_addr`, `inet_proto`, `inet_service`, or a plain 32-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKind {
    /// An address of the table's family.
    Addr,
    /// An IP protocol number.
    L4Proto,
    /// A port.
    Port,
    /// A number in the host's byte order.
    Slot,
}

/// One field of a key, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FieldValue {
    Addr(IpAddr),
    L4Proto(u8),
    Port(u16),
    Slot(u32),
}

/// The fields of a key; `None` when its length is not that of the fields.
pub(crate) fn split(fields: &[Field], family: Family, key: &[u8]) -> Option<Vec<FieldValue>> {
    if Field::key_len(fields, family) != key.len() {
        return None;
    }
    let mut rest = key;
    fields
        .iter()
        .map(|field| {
            let (bytes, tail) = rest.split_at_checked(field.register_len(family))?;
            rest = tail;
            read(field.kind(), family, bytes)
        })
        .collect()
}

fn read(kind: FieldKind, family: Family, bytes: &[u8]) -> Option<FieldValue> {
    Some(match (kind, family) {
        (FieldKind::Addr, Family::Ip) => {
            FieldValue::Addr(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into())
        }
        (FieldKind::Addr, Family::Ip6) => {
            FieldValue::Addr(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
        }
        (FieldKind::L4Proto, _) => FieldValue::L4Proto(*bytes.first()?),
        (FieldKind::Port, _) => FieldValue::Port(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?)),
        (FieldKind::Slot, _) => FieldValue::Slot(u32::from_ne_bytes(bytes.try_into().ok()?)),
    })
}

/// The length of the prefix that is exactly `first..=last`, if there is one.
pub(crate) fn prefix_len(first: IpAddr, last: IpAddr) -> Option<u8> {
    let (first, last, width) = match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return None,
    };
    let host_bits = first ^ last;
    // A prefix is: the differing bits are a run of ones at the low end, all zero in `first`, all one in `last`.
    (host_bits & host_bits.wrapping_add(1) == 0 && first & host_bits == 0)
        .then(|| width - (128 - host_bits.leading_zeros() as u8))
}

/// Whether `addr`, its bits beyond `len` cleared, is `prefix`: as the kernel compares. So a prefix with such bits set
/// matches nothing.
pub(crate) fn in_prefix(addr: IpAddr, prefix: IpAddr, len: u8) -> bool {
    let mask = |width: u32| u128::MAX.checked_shl(width.saturating_sub(len.into())).unwrap_or(0);
    match (addr, prefix) {
        (IpAddr::V4(addr), IpAddr::V4(prefix)) => {
            u128::from(addr.to_bits()) & mask(32) == u128::from(prefix.to_bits())
        }
        (IpAddr::V6(addr), IpAddr::V6(prefix)) => addr.to_bits() & mask(128) == prefix.to_bits(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_are_seen() {
        for (first, last, len) in [
            ("10.0.0.0", "10.255.255.255", Some(8)),
            ("10.0.0.1", "10.0.0.1", Some(32)),
            ("0.0.0.0", "255.255.255.255", Some(0)),
            ("10.0.0.1", "10.0.0.2", None),
            ("10.0.0.128", "10.0.1.127", None),
            ("fd00::", "fd00::ffff:ffff:ffff:ffff", Some(64)),
            ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some(0)),
            ("fd00::1", "fd00::2", None),
        ] {
            assert_eq!(prefix_len(addr(first), addr(last)), len, "{first}-{last}");
        }
    }

    #[test]
    fn addresses_lie_in_prefixes() {
        for (a, prefix, len, inside) in [
            ("10.1.2.3", "10.0.0.0", 8, true),
            ("11.1.2.3", "10.0.0.0", 8, false),
            ("11.1.2.3", "0.0.0.0", 0, true),
            ("10.0.0.1", "10.0.0.1", 32, true),
            ("10.0.0.2", "10.0.0.1", 32, false),
            ("10.1.2.3", "10.0.0.1", 8, false),
            ("fd00::1", "::", 0, true),
            ("fd00::1", "fd00::", 64, true),
            ("10.0.0.1", "::", 0, false),
        ] {
            assert_eq!(in_prefix(addr(a), addr(prefix), len), inside, "{a} in {prefix}/{len}");
        }
    }

    #[test]
    fn a_key_of_another_length_is_none() {
        assert_eq!(split(&[Field::SourceAddr], Family::Ip, &[1, 2, 3]), None);
        assert_eq!(
            split(&[Field::L4Proto, Field::DestinationPort], Family::Ip6, &[6, 0, 0, 0, 0, 80, 0, 0]),
            Some(vec![FieldValue::L4Proto(6), FieldValue::Port(80)])
        );
    }
}

//! Owns address prefixes, and reading addresses as leniently as Kubernetes does. Knows nothing of who uses them.

use nft_ir::Family;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a text is no address or prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct CidrError {
    text: String,
    expected: &'static str,
}

/// Reads an address as Kubernetes' own lenient parser does: leading zeros of an IPv4 part are decimal, an IPv4-mapped
/// IPv6 address is IPv4.
pub fn parse_addr(text: &str) -> Result<IpAddr, CidrError> {
    let error = || CidrError { text: text.to_owned(), expected: "an IP address" };
    if let Ok(addr) = text.parse::<IpAddr>() {
        return Ok(addr.to_canonical());
    }
    let mut parts = text.split('.');
    let mut octets = [0_u8; 4];
    for octet in &mut octets {
        let part = parts.next().ok_or_else(error)?;
        if part.is_empty() || part.len() > 8 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        *octet = part.parse::<u32>().ok().and_then(|n| u8::try_from(n).ok()).ok_or_else(error)?;
    }
    if parts.next().is_some() { Err(error()) } else { Ok(IpAddr::V4(Ipv4Addr::from(octets))) }
}

/// An address prefix; bits beyond the length are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    addr: IpAddr,
    len: u8,
}

impl Cidr {
    /// A prefix of `len` bits; host bits of `addr` are cleared. `None` if the family has fewer bits.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let addr = match addr {
            IpAddr::V4(v4) if len <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) if len <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Self { addr, len })
    }

    /// The prefix that holds just this address.
    pub const fn host(addr: IpAddr) -> Self {
        Self {
            addr,
            len: match addr {
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            },
        }
    }

    /// Reads `ADDR/LEN` as leniently as [`parse_addr`]; host bits are cleared.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let error = || CidrError { text: text.to_owned(), expected: "an address prefix such as 10.0.0.0/8" };
        let (addr, len) = text.split_once('/').ok_or_else(error)?;
        if len.is_empty() || !len.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        let parsed = parse_addr(addr).map_err(|_| error())?;
        let mut len: u8 = len.parse().map_err(|_| error())?;
        if parsed.is_ipv4() && addr.contains(':') {
            // An IPv4-mapped prefix counts its bits from the start of the IPv6 form.
            len = len.checked_sub(96).ok_or_else(error)?;
        }
        Self::new(parsed, len).ok_or_else(error)
    }

    /// The first address.
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        match self.addr {
            IpAddr::V4(v4) => {
                let host = u32::MAX.checked_shr(u32::from(self.len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() | host))
            }
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(u32::from(self.len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() | host))
            }
        }
    }

    /// The length in bits.
    pub const fn prefix_len(&self) -> u8 {
        self.len
    }

    /// The family.
    pub const fn family(&self) -> Family {
        Family::of(&self.addr)
    }

    /// Whether the address lies in the prefix.
    pub fn contains(&self, addr: IpAddr) -> bool {
        Self::new(addr, self.len).is_some_and(|cidr| cidr.addr == self.addr)
    }

    /// Whether the other prefix lies in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_kubernetes_reads_them() {
        for (text, want) in [
            ("172.30.0.041", Some("172.30.0.41")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("fd00::1", Some("fd00::1")),
            ("10.0.0", None),
            ("10.0.0.256", None),
            ("10.0.0.1.", None),
            ("", None),
            ("10.0.0.-1", None),
        ] {
            assert_eq!(parse_addr(text).ok().map(|a| a.to_string()).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn prefixes_are_read_and_masked() {
        for (text, want) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("010.0.0.0/8", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("fd00::1/64", Some("fd00::/64")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/+8", None),
        ] {
            assert_eq!(Cidr::parse(text).ok().map(|c| c.to_string()).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn a_prefix_knows_its_ends() {
        let cidr = Cidr::parse("10.1.0.0/16").unwrap();
        assert_eq!(cidr.last().to_string(), "10.1.255.255");
        assert!(cidr.contains("10.1.2.3".parse().unwrap()));
        assert!(!cidr.contains("10.2.0.0".parse().unwrap()));
        assert!(!cidr.contains("fd00::1".parse().unwrap()));
        assert!(Cidr::parse("0.0.0.0/0").unwrap().covers(&cidr));
        assert!(!cidr.covers(&Cidr::parse("0.0.0.0/0").unwrap()));
    }
}

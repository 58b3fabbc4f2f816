//! Owns the small closed vocabularies of nftables: family, hook, chain type, priority, transport protocol.
//! Knows nothing of how they are encoded beyond the kernel's own numbers.

use std::fmt;

/// Address family of a table (`NFPROTO_*`, linux/netfilter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, nft's `ip`.
    Ip,
    /// IPv6, nft's `ip6`.
    Ip6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const ALL: [Self; 2] = [Self::Ip, Self::Ip6];

    /// Bytes in an address: 4 or 16.
    pub const fn addr_len(self) -> usize {
        match self {
            Self::Ip => 4,
            Self::Ip6 => 16,
        }
    }

    /// The family of an address.
    pub const fn of(addr: &std::net::IpAddr) -> Self {
        match addr {
            std::net::IpAddr::V4(_) => Self::Ip,
            std::net::IpAddr::V6(_) => Self::Ip6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

/// Netfilter hook (`NF_INET_*`, linux/netfilter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Hook {
    /// Every packet that arrives, before routing.
    Prerouting = 0,
    /// Packets for this host, after routing.
    Input = 1,
    /// Packets that pass through.
    Forward = 2,
    /// Packets that this host makes.
    Output = 3,
    /// Every packet that leaves, after routing.
    Postrouting = 4,
}

impl Hook {
    /// All hooks in the order of the kernel's numbers.
    pub const ALL: [Self; 5] =
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting];
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        })
    }
}

/// Type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainType {
    /// Sees every packet.
    Filter,
    /// Sees the first packet of each flow, and may give the flow an address translation.
    Nat,
}

impl ChainType {
    /// The kernel's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

impl fmt::Display for ChainType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Priority of a base chain within its hook; lower runs first (`NF_IP_PRI_*`, linux/netfilter_ipv4.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// Destination NAT (`NF_IP_PRI_NAT_DST`).
    pub const DSTNAT: Self = Self(-100);
    /// Just before destination NAT, where the packet still carries the address that the client dialled.
    pub const BEFORE_DSTNAT: Self = Self(-110);
    /// Filtering (`NF_IP_PRI_FILTER`).
    pub const FILTER: Self = Self(0);
    /// Source NAT (`NF_IP_PRI_NAT_SRC`).
    pub const SRCNAT: Self = Self(100);
}

/// Transport protocol, by its IP protocol number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum L4Proto {
    /// TCP, 6.
    Tcp = 6,
    /// UDP, 17.
    Udp = 17,
    /// SCTP, 132.
    Sctp = 132,
}

impl L4Proto {
    /// All three, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// From an IP protocol number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            132 => Some(Self::Sctp),
            _ => None,
        }
    }

    /// Lower-case name, as nft prints it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl fmt::Display for L4Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

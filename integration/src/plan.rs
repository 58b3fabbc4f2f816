//! Owns the lab's address plan: who has which address and which prefix. Knows nothing of namespaces.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Family;

/// An address prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Its first address.
    pub addr: IpAddr,
    /// Its length in bits.
    pub len: u8,
}

impl Prefix {
    /// A prefix, from its first address and its length in bits.
    pub const fn new(addr: IpAddr, len: u8) -> Self {
        Self { addr, len }
    }

    /// The prefix of a single address.
    pub const fn host(addr: IpAddr) -> Self {
        Self {
            addr,
            len: match addr {
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            },
        }
    }

    /// The prefix of all addresses of a family.
    pub const fn everything(family: Family) -> Self {
        match family {
            Family::Ip => Self::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            Family::Ip6 => Self::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        }
    }

    /// Its family.
    pub const fn family(&self) -> Family {
        Family::of(&self.addr)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// What a client outside sends to a node, besides the node's own address: the ClusterIPs (10.96.0.0/16,
/// fd00:10:96::/112), and the documentation prefixes for load balancer and external IPs (203.0.113.0/24,
/// 198.51.100.0/24, 2001:db8::/32).
pub const SERVICE_RANGES: [Prefix; 5] = [
    Prefix::new(v4(10, 96, 0, 0), 16),
    Prefix::new(v4(203, 0, 113, 0), 24),
    Prefix::new(v4(198, 51, 100, 0), 24),
    Prefix::new(v6(0xfd00, 0x10, 0x96, 0, 0), 112),
    Prefix::new(v6(0x2001, 0xdb8, 0, 0, 0), 32),
];

/// Length of the underlay's prefixes.
pub(crate) const fn underlay_len(family: Family) -> u8 {
    match family {
        Family::Ip => 24,
        Family::Ip6 => 64,
    }
}

/// The underlay's gateway, where packets to nobody vanish: 192.168.77.1, fd00:77::1.
pub(crate) const fn underlay_gateway(family: Family) -> IpAddr {
    match family {
        Family::Ip => v4(192, 168, 77, 1),
        Family::Ip6 => v6(0xfd00, 0x77, 0, 0, 1),
    }
}

/// Address of an outside client, counted from 0: 192.168.77.100, fd00:77::100 and on.
pub(crate) const fn client_addr(family: Family, client: u8) -> IpAddr {
    match family {
        Family::Ip => v4(192, 168, 77, 100 + client),
        Family::Ip6 => v6(0xfd00, 0x77, 0, 0, 0x100 + client as u16),
    }
}

/// Where a node stands in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePlan {
    /// Counted from 1.
    pub number: u8,
}

impl NodePlan {
    /// Its name in Kubernetes: node-1 and on.
    pub fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    /// Its address on the underlay: 192.168.77.11, fd00:77::11 and on.
    pub const fn addr(&self, family: Family) -> IpAddr {
        match family {
            Family::Ip => v4(192, 168, 77, 10 + self.number),
            Family::Ip6 => v6(0xfd00, 0x77, 0, 0, 0x10 + self.number as u16),
        }
    }

    /// The prefix of its pods: 10.244.1.0/24, fd00:10:244:1::/64 and on.
    pub const fn pod_cidr(&self, family: Family) -> Prefix {
        match family {
            Family::Ip => Prefix::new(self.pod_addr(family, 0), 24),
            Family::Ip6 => Prefix::new(self.pod_addr(family, 0), 64),
        }
    }

    /// Its address towards its pods, which is their gateway: 10.244.1.1, fd00:10:244:1::1 and on.
    pub const fn pod_gateway(&self, family: Family) -> IpAddr {
        self.pod_addr(family, 1)
    }

    /// Address of a pod by its number on this node; pods count from 2.
    pub const fn pod_addr(&self, family: Family, pod: u8) -> IpAddr {
        match family {
            Family::Ip => v4(10, 244, self.number, pod),
            Family::Ip6 => v6(0xfd00, 0x10, 0x244, self.number as u16, pod as u16),
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(a: u16, b: u16, c: u16, d: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, last))
}

//! Owns where node ports are served. Knows nothing of the ports.

use crate::model::{Cidr, HostAddress, Node};
use crate::settings::NodePortAddresses;
use nft_ir::Family;
use std::net::IpAddr;

/// Addresses of one family that node ports are served on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServedOn {
    /// Every address of this host but loopback.
    Every,
    /// These addresses of this host.
    These(Vec<IpAddr>),
}

/// Selects the addresses of a family. Loopback is never among them: a packet to it cannot be translated.
///
/// `primary` without a known Node address means every address, as upstream: a node that cannot learn its own address
/// still serves its node ports.
pub fn served_on(
    wanted: &[NodePortAddresses],
    family: Family,
    node: Option<&Node>,
    host_addresses: &[HostAddress],
) -> ServedOn {
    let node_addresses = node.map_or(&[][..], |node| &node.addresses);
    let mut prefixes: Vec<Cidr> = Vec::new();
    for entry in wanted {
        match entry {
            NodePortAddresses::Primary if node_addresses.is_empty() => return ServedOn::Every,
            NodePortAddresses::Primary => {
                prefixes.extend(node_addresses.iter().map(|addr| Cidr::host(*addr)))
            }
            NodePortAddresses::Cidr(cidr) => prefixes.push(*cidr),
        }
    }
    if prefixes.iter().any(|prefix| prefix.family() == family && prefix.prefix_len() == 0) {
        return ServedOn::Every;
    }
    let selected = |addr: &&IpAddr| {
        Family::of(addr) == family
            && !addr.is_loopback()
            && prefixes.iter().any(|prefix| prefix.contains(**addr))
    };
    let mut these: Vec<IpAddr> =
        host_addresses.iter().map(|host| host.addr).filter(|addr| selected(&addr)).collect();
    these.dedup();
    ServedOn::These(these)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ports_are_served_where_asked() {
        let host = ["127.0.0.1", "192.168.77.11", "10.0.0.5", "::1", "fd00::5"]
            .map(|addr| HostAddress { addr: addr.parse().unwrap(), link: "eth0".into() });
        let node = Node { addresses: vec!["192.168.77.11".parse().unwrap()], ..Node::default() };
        let cidr = |text: &str| NodePortAddresses::Cidr(Cidr::parse(text).unwrap());
        let these = |list: &[&str]| ServedOn::These(list.iter().map(|a| a.parse().unwrap()).collect());
        for (case, wanted, family, node, want) in [
            ("primary", vec![NodePortAddresses::Primary], Family::Ip, Some(&node), these(&["192.168.77.11"])),
            (
                "primary, but the Node has none of the family",
                vec![NodePortAddresses::Primary],
                Family::Ip6,
                Some(&node),
                these(&[]),
            ),
            ("primary, but no Node", vec![NodePortAddresses::Primary], Family::Ip, None, ServedOn::Every),
            ("all", vec![cidr("0.0.0.0/0")], Family::Ip, Some(&node), ServedOn::Every),
            ("all of the other family", vec![cidr("0.0.0.0/0")], Family::Ip6, Some(&node), these(&[])),
            ("a prefix", vec![cidr("10.0.0.0/8")], Family::Ip, Some(&node), these(&["10.0.0.5"])),
            (
                "loopback is not for the kernel",
                vec![cidr("127.0.0.0/8")],
                Family::Ip,
                Some(&node),
                these(&[]),
            ),
            (
                "both",
                vec![NodePortAddresses::Primary, cidr("10.0.0.0/8")],
                Family::Ip,
                Some(&node),
                these(&["192.168.77.11", "10.0.0.5"]),
            ),
            ("IPv6", vec![cidr("fd00::/8")], Family::Ip6, Some(&node), these(&["fd00::5"])),
        ] {
            assert_eq!(served_on(&wanted, family, node, &host), want, "{case}");
        }
    }
}

//! Owns who may dial a load balancer address. Knows nothing of ports or of the set that holds the answer.

use crate::model::Cidr;
use nft_ir::Family;
use std::net::IpAddr;

/// The prefixes that may dial a Service's load balancer addresses of one family; `None`: everybody may.
///
/// Everybody may when no range is of the family, or one of them is the whole family, as upstream. When a range covers an
/// address of the node, the load balancer addresses themselves are sources too: a node that owns such an address dials it
/// with that address. A prefix within another is left out, since an interval set takes no overlaps.
pub fn allowed(
    ranges: &[Cidr],
    family: Family,
    node_addresses: &[IpAddr],
    load_balancer_ips: &[IpAddr],
) -> Option<Vec<Cidr>> {
    let mut allowed: Vec<Cidr> = ranges.iter().filter(|range| range.family() == family).copied().collect();
    if allowed.is_empty() || allowed.iter().any(|range| range.prefix_len() == 0) {
        return None;
    }
    if node_addresses.iter().any(|addr| allowed.iter().any(|range| range.contains(*addr))) {
        allowed
            .extend(load_balancer_ips.iter().filter(|ip| Family::of(ip) == family).map(|ip| Cidr::host(*ip)));
    }
    // Sorted by first address and then length, a prefix comes right after those that cover it.
    allowed.sort_unstable();
    allowed.dedup_by(|next, kept| kept.covers(next));
    Some(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(ranges: &[&str], node: &str, lb: &[&str]) -> Option<Vec<String>> {
        let ranges: Vec<Cidr> = ranges.iter().map(|r| Cidr::parse(r).unwrap()).collect();
        let lb: Vec<IpAddr> = lb.iter().map(|a| a.parse().unwrap()).collect();
        allowed(&ranges, Family::Ip, &[node.parse().unwrap()], &lb)
            .map(|list| list.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ranges_of_a_service() {
        let some = |list: &[&str]| Some(list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>());
        for (case, ranges, lb, want) in [
            ("no ranges: everybody", &[][..], &[][..], None),
            ("the other family's ranges do not count", &["fd00::/8"], &[], None),
            ("the whole family: everybody", &["10.0.0.0/8", "0.0.0.0/0"], &[], None),
            ("one range", &["10.0.0.0/8"], &["203.0.113.1"], some(&["10.0.0.0/8"])),
            (
                "nested and repeated ranges count once",
                &["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "10.0.0.0/9", "11.0.0.0/8"],
                &[],
                some(&["10.0.0.0/8", "11.0.0.0/8"]),
            ),
            (
                "the node is inside: both addresses of the load balancer are let in",
                &["192.168.0.0/16"],
                &["203.0.113.1", "203.0.113.2", "2001:db8::1"],
                some(&["192.168.0.0/16", "203.0.113.1/32", "203.0.113.2/32"]),
            ),
        ] {
            assert_eq!(ask(ranges, "192.168.77.11", lb), want, "{case}");
        }
    }
}

//! Owns how an operation is named in an error: verb, object, and the one element it is about. Knows nothing of
//! why it went wrong.

use nft_ir::{Element, Family, Field, Op, SetDecl, TableId};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// "add element ip proxier services: 10.96.0.10 . tcp . 80".
pub(crate) fn operation(op: &Op, element: Option<usize>) -> String {
    let in_table =
        |verb: &str, table: &TableId, name: &str| format!("{verb} {} {} {name}", table.family, table.name);
    match op {
        Op::AddTable { table, .. } => format!("add table {} {}", table.family, table.name),
        Op::DeleteTable { table } => format!("delete table {} {}", table.family, table.name),
        Op::AddChain { table, chain, .. } => in_table("add chain", table, chain.as_str()),
        Op::FlushChain { table, chain } => in_table("flush chain", table, chain.as_str()),
        Op::DeleteChain { table, chain } => in_table("delete chain", table, chain.as_str()),
        Op::AddRule { table, chain, rule } => {
            let mut text = in_table("add rule", table, chain.as_str());
            if let Some(comment) = &rule.comment {
                let _ = write!(text, " ({comment})");
            }
            text
        }
        Op::AddSet { set } => in_table("add set", &set.table, set.name.as_str()),
        Op::FlushSet { set } => in_table("flush set", &set.table, set.name.as_str()),
        Op::DeleteSet { set } => in_table("delete set", &set.table, set.name.as_str()),
        Op::AddElements { set, elements } => elements_of("add element", set, elements, element),
        Op::DeleteElements { set, elements } => elements_of("delete element", set, elements, element),
    }
}

fn elements_of(verb: &str, set: &SetDecl, elements: &[Element], element: Option<usize>) -> String {
    let mut text = format!("{verb} {} {} {}", set.table.family, set.table.name, set.name);
    match element.and_then(|index| elements.get(index)) {
        Some(element) => {
            let _ = write!(text, ": {}", key(&element.key, &set.spec.key, set.table.family));
            if let Some(end) = &element.key_end {
                let _ = write!(text, " to {}", key(end, &set.spec.key, set.table.family));
            }
        }
        None => {
            let _ = write!(text, ": one of {}", elements.len());
        }
    }
    text
}

/// A key as nft prints it, field by field.
pub(crate) fn key(bytes: &[u8], fields: &[Field], family: Family) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            text.push_str(" . ");
        }
        let len = crate::nft::padded_len(*field, family);
        let Some((value, tail)) = rest.split_at_checked(len) else {
            text.push('?');
            break;
        };
        rest = tail;
        let _ = match (field, value) {
            (Field::L4Proto, [proto, ..]) => match nft_ir::L4Proto::from_number(*proto) {
                Some(proto) => write!(text, "{proto}"),
                None => write!(text, "{proto}"),
            },
            (Field::Slot(_), [a, b, c, d]) => write!(text, "{}", u32::from_ne_bytes([*a, *b, *c, *d])),
            (
                Field::SourcePort | Field::DestinationPort | Field::OriginalDestinationPort,
                [high, low, ..],
            ) => {
                write!(text, "{}", u16::from_be_bytes([*high, *low]))
            }
            (_, value) => match (<[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
                (Ok(octets), _) => write!(text, "{}", Ipv4Addr::from(octets)),
                (_, Ok(octets)) => write!(text, "{}", Ipv6Addr::from(octets)),
                _ => write!(text, "{value:02x?}"),
            },
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nft_ir::{KeyBuilder, L4Proto};

    #[test]
    fn keys_read_as_nft_prints_them() {
        let fields = [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort, Field::Slot(2)];
        let bytes = KeyBuilder::new()
            .addr("10.96.0.10".parse().unwrap())
            .proto(L4Proto::Udp)
            .port(53)
            .slot(1)
            .build();
        assert_eq!(key(&bytes, &fields, Family::Ip), "10.96.0.10 . udp . 53 . 1");
        assert_eq!(key(&bytes[..6], &fields, Family::Ip), "10.96.0.10 . ?");
    }
}

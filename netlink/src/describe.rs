//! Owns how an operation is named in an error: as nft would say it, but of many elements only the one that it is
//! about. Knows nothing of why it went wrong.

use nft_ir::{Element, Op, SetDecl};

/// "add element ip proxier services: 10.96.0.10 . tcp . 80".
pub(crate) fn operation(op: &Op, element: Option<usize>) -> String {
    match op {
        Op::AddElements { set, elements } => elements_of("add", set, elements, element),
        Op::DeleteElements { set, elements } => elements_of("delete", set, elements, element),
        op => op.to_string(),
    }
}

fn elements_of(verb: &str, set: &SetDecl, elements: &[Element], element: Option<usize>) -> String {
    let of = format!("{verb} element {} {}", set.table, set.name);
    match element.and_then(|index| elements.get(index)) {
        Some(Element { key, key_end: None, .. }) => format!("{of}: {}", set.key_text(key)),
        Some(Element { key, key_end: Some(end), .. }) => {
            format!("{of}: {} to {}", set.key_text(key), set.key_text(end))
        }
        None => format!("{of}: one of {}", elements.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nft_ir::{ChainName, Family, Field, KeyBuilder, SetName, SetSpec, TableId, TableName};
    use std::sync::Arc;

    #[test]
    fn operations_read_as_nft_says_them() {
        let table = TableId { family: Family::Ip, name: TableName::literal("proxier") };
        let spec = SetSpec::set([Field::DestinationAddr, Field::DestinationPort]);
        let set = Arc::new(SetDecl { table: table.clone(), name: SetName::literal("s"), spec });
        let key = |port| KeyBuilder::new().addr([10, 0, 0, 1].into()).port(port).build();
        let elements = vec![Element::of_set(key(80)), Element::of_set(key(1)).through(key(9))];
        let op = Op::AddElements { set, elements };
        for (element, expected) in [
            (Some(0), "add element ip proxier s: 10.0.0.1 . 80"),
            (Some(1), "add element ip proxier s: 10.0.0.1 . 1 to 10.0.0.1 . 9"),
            (None, "add element ip proxier s: one of 2"),
            (Some(7), "add element ip proxier s: one of 2"),
        ] {
            assert_eq!(operation(&op, element), expected);
        }
        let op = Op::DeleteChain { table, chain: ChainName::literal("c") };
        assert_eq!(operation(&op, None), "delete chain ip proxier c");
    }
}

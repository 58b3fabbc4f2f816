//! Owns taking over from kube-proxy: its tables go in the transaction that makes ours, so that no packet meets neither.
//! Knows nothing of our own tables.

use nft_ir::{Op, TableId};

/// Name of the tables that kube-proxy's nftables mode makes, one a family.
const KUBE_PROXY: &str = "kube-proxy";

/// Operations that remove kube-proxy's tables, as far as they are there.
pub(super) fn remove_kube_proxy(tables: &[TableId]) -> Vec<Op> {
    tables
        .iter()
        .filter(|table| table.name.as_str() == KUBE_PROXY)
        .map(|table| Op::DeleteTable { table: table.clone() })
        .collect()
}

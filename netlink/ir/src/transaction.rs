//! Owns the verbs on objects, in order. Knows nothing of sockets; `text` prints it, `apply` carries it out in
//! memory, the `netlink` crate carries it out in the kernel.

use crate::{BaseChain, ChainName, Element, Rule, SetDecl, TableId};
use std::sync::Arc;

/// One operation. The kernel takes or refuses all operations of a transaction together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Adds a table; no error if it is there.
    AddTable {
        /// Which.
        table: TableId,
        /// Its comment, ignored by the kernel when the table is there.
        comment: Option<String>,
    },
    /// Deletes a table and all that is in it; `ENOENT` if it is not there.
    DeleteTable {
        /// Which.
        table: TableId,
    },
    /// Adds a chain; no error if it is there with the same base.
    AddChain {
        /// In which table.
        table: TableId,
        /// Which.
        chain: ChainName,
        /// `None`: a regular chain.
        base: Option<BaseChain>,
    },
    /// Removes all rules of a chain.
    FlushChain {
        /// In which table.
        table: TableId,
        /// Which.
        chain: ChainName,
    },
    /// Deletes an empty chain that nothing refers to; else `EBUSY`.
    DeleteChain {
        /// In which table.
        table: TableId,
        /// Which.
        chain: ChainName,
    },
    /// Adds a rule at the end of a chain.
    AddRule {
        /// In which table.
        table: TableId,
        /// In which chain.
        chain: ChainName,
        /// The rule.
        rule: Rule,
    },
    /// Adds a set or map; no error if it is there with the same key, data and flags.
    AddSet {
        /// The set.
        set: Arc<SetDecl>,
    },
    /// Removes all elements of a set.
    FlushSet {
        /// The set.
        set: Arc<SetDecl>,
    },
    /// Deletes a set that no rule refers to; else `EBUSY`.
    DeleteSet {
        /// The set.
        set: Arc<SetDecl>,
    },
    /// Adds elements; `EEXIST` if a map has the key with another datum.
    AddElements {
        /// The set.
        set: Arc<SetDecl>,
        /// What to add.
        elements: Vec<Element>,
    },
    /// Deletes elements by key; `ENOENT` if one is not there.
    DeleteElements {
        /// The set.
        set: Arc<SetDecl>,
        /// Which; only key and interval end matter.
        elements: Vec<Element>,
    },
}

/// Operations in order, taken or refused together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// The operations.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds an operation at the end.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Elements added plus elements deleted.
    pub fn element_count(&self) -> usize {
        self.ops
            .iter()
            .map(|op| match op {
                Op::AddElements { elements, .. } | Op::DeleteElements { elements, .. } => elements.len(),
                _ => 0,
            })
            .sum()
    }
}

//! Owns a whole ruleset: tables by family and name. Knows nothing of how it came to be.

use crate::{Table, TableId};
use std::collections::BTreeMap;

/// Tables by family and name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruleset {
    /// The tables.
    pub tables: BTreeMap<TableId, Table>,
}

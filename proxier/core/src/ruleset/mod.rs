//! Owns the shape of the ruleset: names, fixed chains, and what one Service port adds to the maps. Knows nothing of what
//! the kernel holds at the moment.

pub mod affinity;
pub mod delta;
pub mod names;
pub mod pick;
pub mod skeleton;

pub use delta::{Delta, SetEdit, Shared};
pub use names::{SetId, TABLE_COMMENT, decl, family_index, set_name, table_id};
pub use pick::{PickChain, PickKind, Resolved};

//! stop-gap
use crate::{Op, Ruleset, Transaction};
/// x
pub struct Difference {
    /// x
    pub now: Transaction,
    /// x
    pub later: Transaction,
}
/// x
pub fn diff(old: &Ruleset, new: &Ruleset) -> Difference {
    let mut now = Transaction::default();
    let mut later = Transaction::default();
    let empty = crate::Table::default();
    for (id, table) in &new.tables {
        let before = old.tables.get(id);
        if before.is_none() {
            now.push(Op::AddTable { table: id.clone(), comment: table.comment.clone() });
        }
        let before = before.unwrap_or(&empty);
        for (name, set) in &table.sets {
            if !before.sets.contains_key(name) {
                now.push(Op::AddSet { set: set.decl.clone() });
            }
        }
        for (name, chain) in &table.chains {
            if !before.chains.contains_key(name) {
                now.push(Op::AddChain { table: id.clone(), chain: name.clone(), base: chain.base.clone() });
            }
        }
        for (name, chain) in &before.chains {
            if !table.chains.contains_key(name) {
                now.push(Op::FlushChain { table: id.clone(), chain: name.clone() });
                later.push(Op::DeleteChain { table: id.clone(), chain: name.clone() });
            }
        }
        for (name, chain) in &table.chains {
            let rules = before.chains.get(name).map_or(&[][..], |c| &c.rules);
            if rules != chain.rules {
                if !rules.is_empty() {
                    now.push(Op::FlushChain { table: id.clone(), chain: name.clone() });
                }
                for rule in &chain.rules {
                    now.push(Op::AddRule { table: id.clone(), chain: name.clone(), rule: rule.clone() });
                }
            }
        }
        for (name, set) in &before.sets {
            if !table.sets.contains_key(name) {
                now.push(Op::DeleteSet { set: set.decl.clone() });
            }
        }
        for (name, set) in &table.sets {
            let none = Default::default();
            let elements = before.sets.get(name).map_or(&none, |s| &s.elements);
            let del: Vec<_> =
                elements.values().filter(|e| set.elements.get(&e.key) != Some(e)).cloned().collect();
            let add: Vec<_> =
                set.elements.values().filter(|e| elements.get(&e.key) != Some(e)).cloned().collect();
            if !del.is_empty() {
                now.push(Op::DeleteElements { set: set.decl.clone(), elements: del });
            }
            if !add.is_empty() {
                now.push(Op::AddElements { set: set.decl.clone(), elements: add });
            }
        }
    }
    Difference { now, later }
}

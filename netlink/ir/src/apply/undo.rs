//! Owns the way back of a refused transaction. Knows nothing of why it was refused.

use crate::{Chain, ChainName, Element, Key, Rule, Ruleset, Set, SetDecl, Table, TableId, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was done, with all that is needed to undo it.
pub(super) enum Undo {
    AddedTable(TableId),
    DeletedTable(TableId, Box<Table>),
    AddedChain(TableId, ChainName),
    ChangedPolicy(TableId, ChainName, Verdict),
    FlushedChain(TableId, ChainName, Vec<Rule>),
    DeletedChain(TableId, ChainName, Chain),
    AddedRule(TableId, ChainName),
    AddedSet(Arc<SetDecl>),
    FlushedSet(Arc<SetDecl>, BTreeMap<Key, Element>),
    DeletedSet(Arc<SetDecl>, Set),
    AddedElements(Arc<SetDecl>, Vec<Key>),
    DeletedElements(Arc<SetDecl>, Vec<Element>),
}

/// Undoes all, last first.
pub(super) fn roll_back(ruleset: &mut Ruleset, done: Vec<Undo>) {
    for undo in done.into_iter().rev() {
        one(ruleset, undo);
    }
}

fn one(ruleset: &mut Ruleset, undo: Undo) {
    let tables = &mut ruleset.tables;
    match undo {
        Undo::AddedTable(id) => {
            tables.remove(&id);
        }
        Undo::DeletedTable(id, table) => {
            tables.insert(id, *table);
        }
        Undo::AddedChain(id, name) => {
            if let Some(table) = tables.get_mut(&id) {
                table.chains.remove(&name);
            }
        }
        Undo::ChangedPolicy(id, name, policy) => {
            let chain = tables.get_mut(&id).and_then(|table| table.chains.get_mut(&name));
            if let Some(base) = chain.and_then(|chain| chain.base.as_mut()) {
                base.policy = policy;
            }
        }
        Undo::FlushedChain(id, name, rules) => {
            if let Some(chain) = tables.get_mut(&id).and_then(|table| table.chains.get_mut(&name)) {
                chain.rules = rules;
            }
        }
        Undo::DeletedChain(id, name, chain) => {
            if let Some(table) = tables.get_mut(&id) {
                table.chains.insert(name, chain);
            }
        }
        Undo::AddedRule(id, name) => {
            if let Some(chain) = tables.get_mut(&id).and_then(|table| table.chains.get_mut(&name)) {
                chain.rules.pop();
            }
        }
        Undo::AddedSet(decl) => {
            if let Some(table) = tables.get_mut(&decl.table) {
                table.sets.remove(&decl.name);
            }
        }
        Undo::FlushedSet(decl, elements) => {
            if let Some(set) = set(ruleset, &decl) {
                set.elements = elements;
            }
        }
        Undo::DeletedSet(decl, old) => {
            if let Some(table) = tables.get_mut(&decl.table) {
                table.sets.insert(decl.name.clone(), old);
            }
        }
        Undo::AddedElements(decl, keys) => {
            if let Some(set) = set(ruleset, &decl) {
                for key in keys {
                    set.elements.remove(&key);
                }
            }
        }
        Undo::DeletedElements(decl, elements) => {
            if let Some(set) = set(ruleset, &decl) {
                set.elements.extend(elements.into_iter().map(|element| (element.key.clone(), element)));
            }
        }
    }
}

fn set<'a>(ruleset: &'a mut Ruleset, decl: &SetDecl) -> Option<&'a mut Set> {
    ruleset.tables.get_mut(&decl.table)?.sets.get_mut(&decl.name)
}

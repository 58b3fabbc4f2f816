//! Owns the reading of a whole table: which dumps, in which order, and when they have to be made again. Knows
//! nothing of the form of an object.

use super::decode_element::ElementReader;
use super::decode_object::{self, Reason};
use super::decode_rule;
use super::ext::push_text;
use super::{Nft, request, settled};
use crate::Error;
use crate::socket::Answered;
use crate::wire::{self, Message, NLM_F_ACK, NLM_F_DUMP};
use nft_ir::{Chain, ChainName, Element, Key, Set, SetDecl, SetName, Table, TableId, Transaction};
use rustables::sys;
use std::fmt;
use std::sync::Arc;

/// A table as it is in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDump {
    /// All of it that `nft_ir` has words for.
    pub table: Table,
    /// What it has none for: somebody else put it there. A repair replaces each of these by what should be there:
    /// flushes the chain, deletes the set or the element, makes the table anew.
    pub foreign: Vec<Foreign>,
}

/// Something in a table that `nft_ir` has no word for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// What it is.
    pub object: ForeignObject,
    /// What was not understood.
    pub reason: String,
}

/// Where something foreign is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignObject {
    /// The table itself has flags: nobody's packets meet a dormant table. It has to be made anew.
    Table,
    /// A rule; the chain is dumped without it.
    Rule {
        /// In which chain.
        chain: ChainName,
        /// How many rules of that chain come before it.
        index: usize,
        /// The kernel's number for it.
        handle: u64,
    },
    /// A chain that hooks in where none of ours does; it is dumped as a regular chain.
    Chain(ChainName),
    /// A set or map; it is not dumped, and every rule that refers to it is foreign as well.
    Set(SetName),
    /// An element; the set is dumped without it.
    Element {
        /// Of which set.
        set: Arc<SetDecl>,
        /// Its key, as far as it was understood.
        key: Key,
    },
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            ForeignObject::Table => write!(f, "the table's flags"),
            ForeignObject::Rule { chain, index, handle } => {
                write!(f, "rule {index} (handle {handle}) of chain {chain}")
            }
            ForeignObject::Chain(chain) => write!(f, "chain {chain}"),
            ForeignObject::Set(set) => write!(f, "set {set}"),
            ForeignObject::Element { set, key } => {
                write!(f, "element {} of set {}", set.key_text(key), set.name)
            }
        }?;
        write!(f, ": {}", self.reason)
    }
}

/// `enum nft_table_flags`, as nft calls them.
fn table_flags(flags: u32) -> Reason {
    let names = [(1, "dormant"), (2, "owner"), (4, "persist")];
    let known = names.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, name)| *name);
    format!("{flags:#x} {}", known.collect::<Vec<_>>().join(",")).trim_end().to_owned()
}

impl Nft {
    /// The tables of families `ip` and `ip6`; those of other families are skipped.
    ///
    /// # Errors
    /// [`Error::Read`] without privilege, [`Error::Unsettled`].
    pub fn tables(&mut self) -> Result<Vec<TableId>, Error> {
        settled(&"tables", || {
            let mut tables = Vec::new();
            let answered = self.dump(&"tables", sys::NFT_MSG_GETTABLE, 0, |_| {}, &mut |message| {
                let family = wire::family(message.family());
                let table = decode_object::table(message.attributes());
                if let (Some(family), Some((name, _))) = (family, table) {
                    tables.push(TableId { family, name });
                }
                Ok(())
            })?;
            Ok((answered != Answered::Interrupted).then_some(tables))
        })
    }

    /// Reads a table with its chains, rules, sets and elements, all of one generation; `None` if it is not there.
    /// Numbers of counters are not read, and the time that elements have left is that of the moment.
    ///
    /// # Errors
    /// [`Error::Read`] without privilege; [`Error::Unsettled`] if commits of others kept coming in between.
    pub fn dump_table(&mut self, id: &TableId) -> Result<Option<TableDump>, Error> {
        let what = format!("table {} {}", id.family, id.name);
        settled(&what, || {
            // An empty batch waits for whoever commits now. The kernel counts the generation up before it is done
            // with a commit: a policy of drop, for one, reads as accept until the end.
            let before = self.commit(&Transaction::default(), None)?;
            let dump = self.try_dump_table(id, &what)?;
            Ok(dump.filter(|_| self.generation().is_ok_and(|after| after == before)))
        })
    }

    /// Reads the elements of a set or map; none if it is not there.
    ///
    /// # Errors
    /// [`Error::Decode`] if an element is not one that the set can have; [`Error::Unsettled`].
    pub fn dump_elements(&mut self, set: &Arc<SetDecl>) -> Result<Vec<Element>, Error> {
        let what = format!("set {} {} {}", set.table.family, set.table.name, set.name);
        let (elements, foreign) = settled(&what, || self.try_dump_elements(set, &what))?;
        match foreign.into_iter().next() {
            None => Ok(elements),
            Some((key, reason)) => {
                Err(Error::Decode { what: format!("{what}: element {}", set.key_text(&key)), reason })
            }
        }
    }

    /// `Ok(None)`: interrupted. `Ok(Some(None))`: there is no such table.
    fn try_dump_table(
        &mut self,
        id: &TableId,
        what: &dyn fmt::Display,
    ) -> Result<Option<Option<TableDump>>, Error> {
        let mut dump: Option<TableDump> = None;
        let family = wire::nfproto(id.family);
        let name = id.name.as_str();
        let head = (sys::NFT_MSG_GETTABLE, NLM_F_ACK, family);
        let by_name = |bytes: &mut Vec<u8>| push_text(bytes, sys::NFTA_TABLE_NAME, name);
        let answered = request(&mut self.socket, what, head, by_name, &mut |message| {
            let comment = decode_object::table(message.attributes()).and_then(|(_, comment)| comment);
            let flags = wire::be32(message.attributes(), sys::NFTA_TABLE_FLAGS).filter(|flags| *flags != 0);
            let foreign =
                flags.map(|flags| Foreign { object: ForeignObject::Table, reason: table_flags(flags) });
            let table = Table { comment, ..Table::default() };
            dump = Some(TableDump { table, foreign: foreign.into_iter().collect() });
            Ok(())
        })?;
        match (answered, dump) {
            (Answered::Interrupted, _) => Ok(None),
            (Answered::Missing, _) | (Answered::Whole, None) => Ok(Some(None)),
            (Answered::Whole, Some(mut dump)) => {
                let whole = self.fill_chains(id, what, &mut dump)?
                    && self.fill_sets(id, what, &mut dump)?
                    && self.fill_rules(id, what, &mut dump)?;
                Ok(whole.then_some(Some(dump)))
            }
        }
    }

    fn fill_chains(
        &mut self,
        id: &TableId,
        what: &dyn fmt::Display,
        dump: &mut TableDump,
    ) -> Result<bool, Error> {
        let family = wire::nfproto(id.family);
        // The kernel does not filter chains by table in every version.
        let answered = self.dump(what, sys::NFT_MSG_GETCHAIN, family, |_| {}, &mut |message| {
            let attributes = message.attributes();
            if wire::text(attributes, sys::NFTA_CHAIN_TABLE) != Some(id.name.as_str()) {
                return Ok(());
            }
            let Some((name, base)) = decode_object::chain(attributes) else { return Ok(()) };
            let base = base.unwrap_or_else(|reason| {
                let object = ForeignObject::Chain(name.clone());
                dump.foreign.push(Foreign { object, reason });
                None
            });
            dump.table.chains.insert(name, Chain { base, rules: Vec::new() });
            Ok(())
        })?;
        Ok(answered != Answered::Interrupted)
    }

    fn fill_sets(
        &mut self,
        id: &TableId,
        what: &dyn fmt::Display,
        dump: &mut TableDump,
    ) -> Result<bool, Error> {
        let mut decls = Vec::new();
        let in_table = |bytes: &mut Vec<u8>| push_text(bytes, sys::NFTA_SET_TABLE, id.name.as_str());
        let family = wire::nfproto(id.family);
        let answered = self.dump(what, sys::NFT_MSG_GETSET, family, in_table, &mut |message| {
            match decode_object::set(message.attributes(), id) {
                Some((_, Ok(decl))) => decls.push(Arc::new(decl)),
                Some((name, Err(reason))) => {
                    dump.foreign.push(Foreign { object: ForeignObject::Set(name), reason });
                }
                None => {}
            }
            Ok(())
        })?;
        if answered == Answered::Interrupted {
            return Ok(false);
        }
        for decl in decls {
            let Some((elements, foreign)) = self.try_dump_elements(&decl, what)? else { return Ok(false) };
            dump.foreign.extend(foreign.into_iter().map(|(key, reason)| {
                let object = ForeignObject::Element { set: Arc::clone(&decl), key };
                Foreign { object, reason }
            }));
            let elements = elements.into_iter().map(|element| (element.key.clone(), element)).collect();
            dump.table.sets.insert(decl.name.clone(), Set { decl, elements });
        }
        Ok(true)
    }

    fn fill_rules(
        &mut self,
        id: &TableId,
        what: &dyn fmt::Display,
        dump: &mut TableDump,
    ) -> Result<bool, Error> {
        let in_table = |bytes: &mut Vec<u8>| push_text(bytes, sys::NFTA_RULE_TABLE, id.name.as_str());
        let family = wire::nfproto(id.family);
        let TableDump { table, foreign } = dump;
        let mut last: Option<(ChainName, usize)> = None;
        let answered = self.dump(what, sys::NFT_MSG_GETRULE, family, in_table, &mut |message| {
            let attributes = message.attributes();
            let (Some(chain), Some(handle)) =
                (wire::text(attributes, sys::NFTA_RULE_CHAIN), wire::be64(attributes, sys::NFTA_RULE_HANDLE))
            else {
                return Ok(());
            };
            let index = match &last {
                Some((name, index)) if name.as_str() == chain => index + 1,
                _ => 0,
            };
            let chain = ChainName::from_kernel(chain);
            last = Some((chain.clone(), index));
            match decode_rule::rule(attributes, id.family, &table.sets) {
                Ok(rule) => table.chains.entry(chain).or_default().rules.push(rule),
                Err(reason) => {
                    foreign.push(Foreign { object: ForeignObject::Rule { chain, index, handle }, reason });
                }
            }
            Ok(())
        })?;
        Ok(answered != Answered::Interrupted)
    }

    #[expect(clippy::type_complexity, reason = "elements, and what is not one of ours")]
    fn try_dump_elements(
        &mut self,
        set: &SetDecl,
        what: &dyn fmt::Display,
    ) -> Result<Option<(Vec<Element>, Vec<(Key, Reason)>)>, Error> {
        let mut reader = ElementReader::new(set);
        let in_set = |bytes: &mut Vec<u8>| {
            push_text(bytes, sys::NFTA_SET_ELEM_LIST_TABLE, set.table.name.as_str());
            push_text(bytes, sys::NFTA_SET_ELEM_LIST_SET, set.name.as_str());
        };
        let family = wire::nfproto(set.table.family);
        let answered = self.dump(what, sys::NFT_MSG_GETSETELEM, family, in_set, &mut |message| {
            reader.read(message.attributes());
            Ok(())
        })?;
        Ok((answered != Answered::Interrupted).then(|| reader.finish()))
    }

    fn dump(
        &mut self,
        what: &dyn fmt::Display,
        message: u32,
        family: u8,
        fill: impl FnOnce(&mut Vec<u8>),
        each: &mut dyn FnMut(Message<'_>) -> Result<(), Error>,
    ) -> Result<Answered, Error> {
        request(&mut self.socket, what, (message, NLM_F_DUMP, family), fill, each)
    }
}

//! Owns the removal of single rules and chains from tables of others, such as those that iptables-nft keeps: what must be
//! known of a rule to recognise it, and a transaction that takes out just that. Knows nothing of what rules do.

use super::ext::push_text;
use super::{Generation, Nft, decode_object, request, settled};
use crate::Error;
use crate::batch::Batch;
use crate::socket::Answered;
use crate::wire::{self, Message, NLM_F_DUMP};
use nft_ir::{ChainName, Op, TableId, Transaction};
use rustables::sys;
use std::fmt;

/// `NFTA_MATCH_NAME` and `NFTA_MATCH_INFO` (linux/netfilter/nf_tables_compat.h).
const MATCH_NAME: u16 = 1;
const MATCH_INFO: u16 = 3;

/// A table of somebody else, as far as is needed to recognise rules in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTable {
    /// Generation of the ruleset that it was read in.
    pub generation: Generation,
    /// Its chains, base chains among them; none if there is no such table.
    pub chains: Vec<ChainName>,
    /// Its rules, chain by chain in order.
    pub rules: Vec<ForeignRule>,
}

/// A rule of somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignRule {
    /// The chain that it is in.
    pub chain: ChainName,
    /// The kernel's number for it, unique in the table.
    pub handle: u64,
    /// Its comment: nft's, or that of iptables' `comment` match.
    pub comment: Option<String>,
    /// Chains that it jumps or goes to; those behind a verdict map are not known.
    pub targets: Vec<ChainName>,
}

/// What to take out of a table of somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The table.
    pub table: TableId,
    /// Rules, by chain and handle.
    pub rules: Vec<(ChainName, u64)>,
    /// Regular chains, with all their rules.
    pub chains: Vec<ChainName>,
}

impl Removal {
    /// Whether there is nothing to take out.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.chains.is_empty()
    }
}

impl Nft {
    /// Reads chains and rules of a table of somebody else.
    ///
    /// # Errors
    /// [`Error::Read`] without privilege; [`Error::Unsettled`] if commits of others kept coming in between.
    pub fn foreign_table(&mut self, id: &TableId) -> Result<ForeignTable, Error> {
        let what = format!("table {} {}", id.family, id.name);
        settled(&what, || {
            let generation = self.generation()?;
            let mut table = ForeignTable { generation, chains: Vec::new(), rules: Vec::new() };
            let is_whole = self.read_chains(id, &what, &mut table.chains)?
                && self.read_rules(id, &what, &mut table.rules)?
                && self.generation()? == generation;
            Ok(is_whole.then_some(table))
        })
    }

    /// Takes rules and chains out of a table of somebody else: all of them or, when the kernel refuses one, none. With
    /// `expected`, none also when the ruleset is no longer of that generation.
    ///
    /// # Errors
    /// As [`Nft::commit`]; `EBUSY` for a chain that another rule still refers to.
    pub fn remove(&mut self, removal: &Removal, expected: Option<Generation>) -> Result<Generation, Error> {
        let Removal { table, rules, chains } = removal;
        let op = |op: fn(TableId, ChainName) -> Op| {
            chains.iter().map(move |chain| op(table.clone(), chain.clone()))
        };
        // All are emptied before the first goes: they refer to each other.
        let ops = op(|table, chain| Op::FlushChain { table, chain })
            .chain(op(|table, chain| Op::DeleteChain { table, chain }));
        let transaction = Transaction { ops: ops.collect() };
        self.socket.drain()?;
        let family = wire::nfproto(table.family);
        let first = |batch: &mut crate::batch::BatchWriter| {
            for (chain, handle) in rules {
                batch.message(sys::NFT_MSG_DELRULE, 0, family, |bytes| {
                    push_text(bytes, sys::NFTA_RULE_TABLE, table.name.as_str());
                    push_text(bytes, sys::NFTA_RULE_CHAIN, chain.as_str());
                    super::ext::push_be64(bytes, sys::NFTA_RULE_HANDLE, *handle);
                });
            }
        };
        let batch = Batch::encode_after(first, &transaction, expected, |count| self.socket.sequence(count))?;
        self.commit_batch(&batch, &transaction, expected)
    }

    fn read_chains(
        &mut self,
        id: &TableId,
        what: &dyn fmt::Display,
        chains: &mut Vec<ChainName>,
    ) -> Result<bool, Error> {
        self.read(what, sys::NFT_MSG_GETCHAIN, wire::nfproto(id.family), |_| {}, &mut |message| {
            let attributes = message.attributes();
            let is_in = wire::text(attributes, sys::NFTA_CHAIN_TABLE) == Some(id.name.as_str());
            let name = wire::text(attributes, sys::NFTA_CHAIN_NAME).filter(|_| is_in);
            chains.extend(name.map(ChainName::from_kernel));
        })
    }

    fn read_rules(
        &mut self,
        id: &TableId,
        what: &dyn fmt::Display,
        rules: &mut Vec<ForeignRule>,
    ) -> Result<bool, Error> {
        let in_table = |bytes: &mut Vec<u8>| push_text(bytes, sys::NFTA_RULE_TABLE, id.name.as_str());
        self.read(what, sys::NFT_MSG_GETRULE, wire::nfproto(id.family), in_table, &mut |message| {
            rules.extend(foreign_rule(message.attributes()));
        })
    }

    /// Whether all came.
    fn read(
        &mut self,
        what: &dyn fmt::Display,
        message: u32,
        family: u8,
        fill: impl FnOnce(&mut Vec<u8>),
        each: &mut dyn FnMut(Message<'_>),
    ) -> Result<bool, Error> {
        let head = (message, NLM_F_DUMP, family);
        let answered = request(&mut self.socket, what, head, fill, &mut |message| {
            each(message);
            Ok(())
        })?;
        Ok(answered != Answered::Interrupted)
    }
}

fn foreign_rule(rule: &[u8]) -> Option<ForeignRule> {
    let mut comment = decode_object::comment(rule, sys::NFTA_RULE_USERDATA);
    let mut targets = Vec::new();
    let expressions = wire::attribute(rule, sys::NFTA_RULE_EXPRESSIONS).unwrap_or_default();
    for (_, expression) in wire::attributes(expressions) {
        let data = wire::attribute(expression, sys::NFTA_EXPR_DATA).unwrap_or_default();
        match wire::text(expression, sys::NFTA_EXPR_NAME) {
            Some("immediate") => targets.extend(target(data).map(ChainName::from_kernel)),
            Some("match") if wire::text(data, MATCH_NAME) == Some("comment") => {
                comment = comment.or_else(|| xt_comment(data));
            }
            _ => {}
        }
    }
    Some(ForeignRule {
        chain: ChainName::from_kernel(wire::text(rule, sys::NFTA_RULE_CHAIN)?),
        handle: wire::be64(rule, sys::NFTA_RULE_HANDLE)?,
        comment,
        targets,
    })
}

/// The chain that an `immediate` expression jumps or goes to.
fn target(immediate: &[u8]) -> Option<&str> {
    let value = wire::attribute(immediate, sys::NFTA_IMMEDIATE_DATA)?;
    wire::text(wire::attribute(value, sys::NFTA_DATA_VERDICT)?, sys::NFTA_VERDICT_CHAIN)
}

/// The text of a `struct xt_comment_info`, which ends at its first zero.
fn xt_comment(matched: &[u8]) -> Option<String> {
    let text = wire::attribute(matched, MATCH_INFO)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

//! Owns the way from an operation to its messages. Knows nothing of sequence numbers or of sending.

use super::encode_element::push_element;
use super::ext::SetExt;
use super::layout::{ElementLayout, wire_len};
use super::userdata::{self, COMMENT_MAX, DataType};
use super::{encode_expr, encode_plain};
use crate::batch::BatchWriter;
use crate::wire::{self, NLM_F_APPEND, NLM_F_CREATE};
use netlink_bindings::nftables::{PushRuleAttrs, PushSetAttrs, PushSetelemListAttrs};
use netlink_bindings::traits::Pusher;
use nft_ir::{Element, Family, Field, Op, Rule, SetData, SetDecl, SetSpec, TableId};
use rustables::sys;

/// Longest user data in bytes that the kernel takes (`NFT_USERDATA_MAXLEN`).
const USERDATA_MAX: usize = sys::NFT_USERDATA_MAXLEN as usize;

/// Why an operation cannot be written.
#[derive(Debug)]
pub(crate) struct EncodeError(pub(crate) String);

/// Appends the messages of an operation.
pub(crate) fn operation(batch: &mut BatchWriter, op: &Op) -> Result<(), EncodeError> {
    match op {
        Op::AddTable { table, comment } => {
            batch.splice(&encode_plain::add_table(table, notes(comment.as_deref())?));
        }
        Op::DeleteTable { table } => batch.splice(&encode_plain::delete_table(table)),
        Op::AddChain { table, chain, base } => {
            batch.splice(&encode_plain::add_chain(table, chain, base.as_ref())?);
        }
        Op::DeleteChain { table, chain } => batch.splice(&encode_plain::delete_chain(table, chain)),
        Op::FlushChain { table, chain } => batch.splice(&encode_plain::flush_chain(table, chain)?),
        Op::AddRule { table, chain, rule } => add_rule(batch, table, chain.as_str(), rule)?,
        Op::AddSet { set } => add_set(batch, set)?,
        Op::DeleteSet { set } => delete_set(batch, set),
        Op::FlushSet { set } => {
            batch.message(sys::NFT_MSG_DELSETELEM, 0, wire::nfproto(set.table.family), |bytes| {
                list_head(bytes, set);
            });
        }
        Op::AddElements { set, elements } => {
            change_elements(batch, sys::NFT_MSG_NEWSETELEM, NLM_F_CREATE, set, elements)?;
        }
        Op::DeleteElements { set, elements } => {
            change_elements(batch, sys::NFT_MSG_DELSETELEM, 0, set, elements)?;
        }
    }
    Ok(())
}

/// The notes of an object that has at most a comment.
fn notes(comment: Option<&str>) -> Result<Option<Vec<u8>>, EncodeError> {
    match comment {
        Some(comment) if comment.len() > COMMENT_MAX => {
            Err(EncodeError(format!("comment of {} bytes, {COMMENT_MAX} are allowed", comment.len())))
        }
        comment => Ok(comment.map(userdata::comment)),
    }
}

fn add_rule(batch: &mut BatchWriter, table: &TableId, chain: &str, rule: &Rule) -> Result<(), EncodeError> {
    let notes = notes(rule.comment.as_deref())?;
    if let Some(message) = encode_plain::add_rule(table, chain, rule, notes.as_deref())? {
        batch.splice(&message);
        return Ok(());
    }
    let mut expressions = Vec::with_capacity(512);
    encode_expr::push_statements(&mut expressions, table.family, &rule.statements)?;
    let flags = NLM_F_CREATE | NLM_F_APPEND;
    batch.message(sys::NFT_MSG_NEWRULE, flags, wire::nfproto(table.family), |bytes| {
        let mut rule = PushRuleAttrs::new(bytes)
            .push_table_bytes(table.name.as_str().as_bytes())
            .push_chain_bytes(chain.as_bytes())
            .nested_expressions();
        rule.as_vec_mut().extend_from_slice(&expressions);
        let rule = rule.end_nested();
        if let Some(notes) = &notes {
            rule.push_userdata(notes).end_nested();
        }
    });
    Ok(())
}

fn add_set(batch: &mut BatchWriter, set: &SetDecl) -> Result<(), EncodeError> {
    let SetDecl { table, name, spec } = set;
    let family = table.family;
    if spec.key.is_empty() {
        return Err(EncodeError("key without fields".into()));
    }
    let (data_type, data) = match &spec.data {
        SetData::None => (None, DataType::None),
        SetData::Verdict => (Some((sys::NFT_DATA_VERDICT, 0)), DataType::Verdict),
        SetData::Fields(fields) => (
            Some((type_id(fields, family), wire_len(fields, family) as u32)),
            DataType::Fields(fields.clone()),
        ),
    };
    let notes = userdata::of_set(&spec.key, &data, spec.comment.as_deref(), family);
    if notes.len() > USERDATA_MAX {
        return Err(EncodeError(format!(
            "comment and typeof take {} bytes, {USERDATA_MAX} are allowed",
            notes.len()
        )));
    }
    let id = batch.set_id();
    batch.message(sys::NFT_MSG_NEWSET, NLM_F_CREATE, wire::nfproto(family), |bytes| {
        let mut attributes = PushSetAttrs::new(bytes)
            .push_table_bytes(table.name.as_str().as_bytes())
            .push_name_bytes(name.as_str().as_bytes())
            .push_flags(flags(spec))
            .push_key_type(type_id(&spec.key, family))
            .push_key_len(wire_len(&spec.key, family) as u32);
        if let Some((data_type, data_len)) = data_type {
            attributes = attributes.push_data_type(data_type).push_data_len(data_len);
        }
        attributes = attributes.push_set_id(id);
        attributes = describe_size_and_fields(attributes, spec, family);
        if let Some(timeout) = spec.timeout {
            attributes = attributes.push_timeout_ms(timeout.as_millis() as u64);
        }
        attributes.push_userdata(&notes).end_nested();
    });
    Ok(())
}

/// `NFTA_SET_DESC`: the size, and for intervals of several fields the length of each, without padding.
fn describe_size_and_fields<P: Pusher>(
    attributes: PushSetAttrs<P>,
    spec: &SetSpec,
    family: Family,
) -> PushSetAttrs<P> {
    let concatenated = spec.flags.interval && spec.key.len() > 1;
    if spec.size.is_none() && !concatenated {
        return attributes;
    }
    let mut desc = attributes.nested_desc();
    if let Some(size) = spec.size {
        desc = desc.push_size(size);
    }
    if concatenated {
        let mut concat = desc.nested_concat();
        for field in &spec.key {
            concat = concat.nested_elem().push_len(field.value_len(family) as u32).end_nested();
        }
        desc = concat.end_nested();
    }
    desc.end_nested()
}

fn delete_set(batch: &mut BatchWriter, set: &SetDecl) {
    batch.message(sys::NFT_MSG_DELSET, 0, wire::nfproto(set.table.family), |bytes| {
        PushSetAttrs::new(bytes)
            .push_table_bytes(set.table.name.as_str().as_bytes())
            .push_name_bytes(set.name.as_str().as_bytes())
            .end_nested();
    });
}

fn change_elements(
    batch: &mut BatchWriter,
    message: u32,
    flags: u16,
    set: &SetDecl,
    elements: &[Element],
) -> Result<(), EncodeError> {
    let layout = ElementLayout::of(&set.spec, set.table.family);
    let deletes = message == sys::NFT_MSG_DELSETELEM;
    let mut wrong = None;
    let head = |bytes: &mut Vec<u8>| list_head(bytes, set);
    batch.runs(message, flags, wire::nfproto(set.table.family), head, elements.len(), |bytes, index| {
        let pushed = push_element(bytes, &set.spec, layout, &elements[index], deletes);
        if let Err(EncodeError(reason)) = pushed {
            wrong.get_or_insert(EncodeError(format!("element {index}: {reason}")));
        }
    });
    wrong.map_or(Ok(()), Err)
}

/// The table and the set of an element message.
fn list_head(bytes: &mut Vec<u8>, set: &SetDecl) {
    PushSetelemListAttrs::new(bytes)
        .push_table_bytes(set.table.name.as_str().as_bytes())
        .push_set_bytes(set.name.as_str().as_bytes())
        .end_nested();
}

/// `NFT_SET_*` flags of a set.
pub(crate) fn flags(spec: &SetSpec) -> u32 {
    [
        (spec.flags.interval, sys::NFT_SET_INTERVAL),
        (spec.flags.interval && spec.key.len() > 1, sys::NFT_SET_CONCAT),
        (spec.is_map(), sys::NFT_SET_MAP),
        (spec.flags.timeout, sys::NFT_SET_TIMEOUT),
        (spec.flags.dynamic, sys::NFT_SET_EVAL),
    ]
    .into_iter()
    .filter_map(|(holds, flag)| holds.then_some(flag))
    .sum()
}

/// nft's number for the type of a key or datum: six bits for each field.
fn type_id(fields: &[Field], family: Family) -> u32 {
    fields.iter().fold(0, |id, field| {
        id << 6
            | match (field, family) {
                (Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr, Family::Ip) => {
                    7
                }
                (
                    Field::SourceAddr | Field::DestinationAddr | Field::OriginalDestinationAddr,
                    Family::Ip6,
                ) => 8,
                (Field::L4Proto, _) => 12,
                (Field::SourcePort | Field::DestinationPort | Field::OriginalDestinationPort, _) => 13,
                (Field::Slot(_), _) => 4,
            }
    })
}

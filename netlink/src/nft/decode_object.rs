//! Owns the reading of tables, chains and sets from a dump. Knows nothing of rules and elements.

use super::encode;
use super::userdata;
use crate::wire;
use nft_ir::{
    BaseChain, ChainName, ChainType, Family, Hook, Priority, SetData, SetDecl, SetFlags, SetName, SetSpec,
    TableId, TableName, Verdict,
};
use rustables::sys;
use std::time::Duration;

/// Why an object is not one of ours.
pub(crate) type Reason = String;

/// Name and comment of a table.
pub(crate) fn table(attributes: &[u8]) -> Option<(TableName, Option<String>)> {
    let name = wire::text(attributes, sys::NFTA_TABLE_NAME)?;
    Some((TableName::from_kernel(name), comment(attributes, sys::NFTA_TABLE_USERDATA)))
}

/// The comment in an object's user data.
pub(crate) fn comment(attributes: &[u8], userdata: u16) -> Option<String> {
    let notes = wire::attribute(attributes, userdata)?;
    userdata::read_comment(notes).map(str::to_owned)
}

/// Name of a chain, and what makes it a base chain.
pub(crate) fn chain(attributes: &[u8]) -> Option<(ChainName, Result<Option<BaseChain>, Reason>)> {
    let name = ChainName::from_kernel(wire::text(attributes, sys::NFTA_CHAIN_NAME)?);
    Some((name, base_chain(attributes)))
}

fn base_chain(attributes: &[u8]) -> Result<Option<BaseChain>, Reason> {
    let Some(hook) = wire::attribute(attributes, sys::NFTA_CHAIN_HOOK) else { return Ok(None) };
    let number = wire::be32(hook, sys::NFTA_HOOK_HOOKNUM).ok_or("hook without number")?;
    let priority = wire::be32(hook, sys::NFTA_HOOK_PRIORITY).ok_or("hook without priority")?;
    Ok(Some(BaseChain {
        chain_type: match wire::text(attributes, sys::NFTA_CHAIN_TYPE) {
            Some("filter") => ChainType::Filter,
            Some("nat") => ChainType::Nat,
            other => return Err(format!("chain type {other:?}")),
        },
        hook: Hook::ALL
            .into_iter()
            .find(|hook| *hook as u32 == number)
            .ok_or_else(|| format!("hook number {number}"))?,
        priority: Priority(priority.cast_signed()),
        policy: match wire::be32(attributes, sys::NFTA_CHAIN_POLICY) {
            Some(0) => Verdict::Drop,
            Some(1) => Verdict::Accept,
            other => return Err(format!("policy number {other:?}")),
        },
    }))
}

/// Name of a set, and what it is.
pub(crate) fn set(attributes: &[u8], table: &TableId) -> Option<(SetName, Result<SetDecl, Reason>)> {
    let name = SetName::from_kernel(wire::text(attributes, sys::NFTA_SET_NAME)?);
    let decl = set_spec(attributes, table.family).map(|spec| SetDecl {
        table: table.clone(),
        name: name.clone(),
        spec,
    });
    Some((name, decl))
}

fn set_spec(attributes: &[u8], family: Family) -> Result<SetSpec, Reason> {
    let flags = wire::be32(attributes, sys::NFTA_SET_FLAGS).unwrap_or_default();
    let is_map = flags & sys::NFT_SET_MAP != 0;
    let data_type = wire::be32(attributes, sys::NFTA_SET_DATA_TYPE);
    let is_verdict_map = is_map && data_type == Some(sys::NFT_DATA_VERDICT);
    let notes = wire::attribute(attributes, sys::NFTA_SET_USERDATA).ok_or("no typeof")?;
    let notes = userdata::read_set(notes, is_map && !is_verdict_map, family)?;
    let spec = SetSpec {
        key: notes.key,
        data: match notes.data {
            Some(fields) => SetData::Fields(fields),
            None if is_verdict_map => SetData::Verdict,
            None => SetData::None,
        },
        flags: SetFlags {
            interval: flags & sys::NFT_SET_INTERVAL != 0,
            dynamic: flags & sys::NFT_SET_EVAL != 0,
            timeout: flags & sys::NFT_SET_TIMEOUT != 0,
        },
        timeout: wire::be64(attributes, sys::NFTA_SET_TIMEOUT)
            .filter(|timeout| *timeout > 0)
            .map(Duration::from_millis),
        size: wire::attribute(attributes, sys::NFTA_SET_DESC)
            .and_then(|desc| wire::be32(desc, sys::NFTA_SET_DESC_SIZE))
            .filter(|size| *size > 0),
        comment: notes.comment,
    };
    let expected = encode::flags(&spec);
    if flags != expected {
        return Err(format!("set flags {flags:#x}, {expected:#x} expected"));
    }
    let key_len = super::layout::wire_len(&spec.key, family);
    match wire::be32(attributes, sys::NFTA_SET_KEY_LEN) {
        Some(len) if len as usize == key_len => Ok(spec),
        other => Err(format!("key of {other:?} bytes, {key_len} expected")),
    }
}

//! Owns tables, chains and sets as values. Knows nothing of the order in which they are written.

use crate::{
    ChainName, ChainType, Element, Family, Field, Hook, Key, Priority, Rule, SetName, TableName, Verdict,
};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Family and name: what identifies a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId {
    /// The family.
    pub family: Family,
    /// The name.
    pub name: TableName,
}

/// A table and all that is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// What an operator reads beside it.
    pub comment: Option<String>,
    /// Chains by name.
    pub chains: BTreeMap<ChainName, Chain>,
    /// Sets and maps by name.
    pub sets: BTreeMap<SetName, Set>,
}

/// What makes a chain a base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    /// Filter or NAT.
    pub chain_type: ChainType,
    /// Where it hooks in.
    pub hook: Hook,
    /// When it runs among the chains of that hook.
    pub priority: Priority,
    /// What becomes of a packet that reaches its end. Only accept and drop are policies.
    pub policy: Verdict,
}

/// A chain and its rules, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// `None`: a regular chain, reached only by jump and goto.
    pub base: Option<BaseChain>,
    /// Rules in order.
    pub rules: Vec<Rule>,
}

/// What the elements of a set map to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SetData {
    /// Nothing: a plain set.
    None,
    /// A verdict: a verdict map.
    Verdict,
    /// A value made of these fields: a map.
    Fields(SmallVec<[Field; 5]>),
}

/// Flags of a set (`NFT_SET_*`, linux/netfilter/nf_tables.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SetFlags {
    /// Elements are intervals.
    pub interval: bool,
    /// Rules may add elements.
    pub dynamic: bool,
    /// Elements expire.
    pub timeout: bool,
}

/// What a set is, apart from its elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetSpec {
    /// The fields of the key, as nft's `typeof` says them. The number in [`Field::Slot`] does not matter here.
    pub key: SmallVec<[Field; 5]>,
    /// What elements map to.
    pub data: SetData,
    /// Flags.
    pub flags: SetFlags,
    /// Default time to live of an element; only with [`SetFlags::timeout`].
    pub timeout: Option<Duration>,
    /// Greatest number of elements; `None`: no limit of ours.
    pub size: Option<u32>,
    /// What an operator reads beside it.
    pub comment: Option<String>,
}

impl SetSpec {
    /// A plain set of `key`.
    pub fn set(key: impl IntoIterator<Item = Field>) -> Self {
        Self {
            key: key.into_iter().collect(),
            data: SetData::None,
            flags: SetFlags::default(),
            timeout: None,
            size: None,
            comment: None,
        }
    }

    /// A verdict map of `key`.
    pub fn verdict_map(key: impl IntoIterator<Item = Field>) -> Self {
        Self { data: SetData::Verdict, ..Self::set(key) }
    }

    /// A map of `key` to `data`.
    pub fn map(key: impl IntoIterator<Item = Field>, data: impl IntoIterator<Item = Field>) -> Self {
        Self { data: SetData::Fields(data.into_iter().collect()), ..Self::set(key) }
    }

    /// The same set with a comment.
    #[must_use]
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }

    /// Whether it maps to something.
    pub fn is_map(&self) -> bool {
        self.data != SetData::None
    }
}

/// A set with its place and name; what an element operation refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetDecl {
    /// The table.
    pub table: TableId,
    /// The name.
    pub name: SetName,
    /// What it is.
    pub spec: SetSpec,
}

/// A set or map and its elements by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// What it is.
    pub decl: Arc<SetDecl>,
    /// Elements by (first) key.
    pub elements: BTreeMap<Key, Element>,
}

//! Owns how keys and data are laid out for the kernel where that differs from `nft_ir`. Knows nothing of bytes.

use nft_ir::{Family, Field, SetData, SetSpec};

/// Bytes in one 32-bit register; every field of a concatenation begins at one.
pub(crate) const REGISTER: usize = 4;

/// Bytes of a key or datum as the kernel wants it: a lone field is not padded.
pub(crate) fn wire_len(fields: &[Field], family: Family) -> usize {
    match fields {
        [field] => field.value_len(family),
        fields => Field::key_len(fields, family),
    }
}

/// What the encoding of elements needs to know of their set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementLayout {
    /// Bytes of the key in `nft_ir`.
    pub(crate) key: usize,
    /// Bytes of the key for the kernel.
    pub(crate) wire_key: usize,
    /// Bytes of the datum in `nft_ir` and for the kernel, if it is a value.
    pub(crate) data: Option<(usize, usize)>,
    /// How intervals are told.
    pub(crate) interval: Interval,
}

/// How the kernel is told of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interval {
    /// Not at all: every element is one key.
    None,
    /// Sets of one field: an element for the first key, and one flagged as end for the key behind the last.
    TwoElements,
    /// Sets of several fields: both keys in one element.
    KeyEnd,
}

impl ElementLayout {
    /// The layout of a set's elements.
    pub(crate) fn of(spec: &SetSpec, family: Family) -> Self {
        let interval = match (spec.flags.interval, spec.key.len()) {
            (false, _) => Interval::None,
            (true, 1) => Interval::TwoElements,
            (true, _) => Interval::KeyEnd,
        };
        let data = match &spec.data {
            SetData::None | SetData::Verdict => None,
            SetData::Fields(fields) => Some((Field::key_len(fields, family), wire_len(fields, family))),
        };
        Self { key: Field::key_len(&spec.key, family), wire_key: wire_len(&spec.key, family), data, interval }
    }
}

//! Owns the reading of elements from a dump. Knows nothing of which messages they came in.

use super::decode_object::{Reason, comment};
use super::encode_element::{NF_ACCEPT, NF_DROP, predecessor};
use super::layout::{ElementLayout, Interval};
use crate::wire;
use nft_ir::{ChainName, Datum, Element, Key, SetData, SetDecl, Verdict};
use rustables::sys;
use std::time::Duration;

/// Collects the elements of one set.
#[derive(Debug)]
pub(crate) struct ElementReader<'a> {
    set: &'a SetDecl,
    layout: ElementLayout,
    elements: Vec<Element>,
    /// Keys behind the last of an interval.
    ends: Vec<Key>,
    foreign: Vec<(Key, Reason)>,
}

impl<'a> ElementReader<'a> {
    /// A reader of this set's elements.
    pub(crate) fn new(set: &'a SetDecl) -> Self {
        Self {
            set,
            layout: ElementLayout::of(&set.spec, set.table.family),
            elements: Vec::new(),
            ends: Vec::new(),
            foreign: Vec::new(),
        }
    }

    /// Reads the elements of one message (`NFTA_SET_ELEM_LIST_ELEMENTS`).
    pub(crate) fn read(&mut self, message: &[u8]) {
        let Some(list) = wire::attribute(message, sys::NFTA_SET_ELEM_LIST_ELEMENTS) else { return };
        for (_, attributes) in wire::attributes(list) {
            let flags = wire::be32(attributes, sys::NFTA_SET_ELEM_FLAGS).unwrap_or_default();
            let key = self.key(attributes, sys::NFTA_SET_ELEM_KEY);
            match (flags, key) {
                (0, Ok(Some(key))) => match self.element(key.clone(), attributes) {
                    Ok(element) => self.elements.push(element),
                    Err(reason) => self.foreign.push((key, reason)),
                },
                (sys::NFT_SET_ELEM_INTERVAL_END, Ok(Some(key))) => self.ends.push(key),
                (_, Ok(None)) => self.foreign.push((Key::new(), "element without key".into())),
                (flags, Ok(Some(key))) => self.foreign.push((key, format!("element flags {flags:#x}"))),
                (_, Err(reason)) => self.foreign.push((Key::new(), reason)),
            }
        }
    }

    /// All elements, in no order, and the keys of those that are not understood.
    pub(crate) fn finish(mut self) -> (Vec<Element>, Vec<(Key, Reason)>) {
        if self.layout.interval == Interval::TwoElements {
            self.close_intervals();
        }
        (self.elements, self.foreign)
    }

    /// Gives each first key the next end behind it. An end without a beginning is nft's own: it writes one at
    /// zero where the first interval begins later.
    fn close_intervals(&mut self) {
        self.elements.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        self.ends.sort_unstable();
        let mut ends = self.ends.iter().peekable();
        for element in &mut self.elements {
            while ends.next_if(|end| **end <= element.key).is_some() {}
            let last = match ends.peek() {
                Some(behind) => predecessor(&behind[..self.layout.wire_key]),
                None => Some(Key::from_elem(u8::MAX, self.layout.wire_key)),
            };
            let Some(mut last) = last else { continue };
            last.resize(self.layout.key, 0);
            element.key_end = (last != element.key).then(|| Box::new(last));
        }
    }

    fn element(&self, key: Key, attributes: &[u8]) -> Result<Element, Reason> {
        let key_end =
            self.key(attributes, sys::NFTA_SET_ELEM_KEY_END)?.filter(|end| *end != key).map(Box::new);
        let datum = match (&self.set.spec.data, wire::attribute(attributes, sys::NFTA_SET_ELEM_DATA)) {
            (SetData::None, _) => None,
            (SetData::Verdict, Some(data)) => Some(Datum::Verdict(verdict(data)?)),
            (SetData::Fields(_), Some(data)) => {
                let (len, wire_len) = self.layout.data.unwrap_or_default();
                Some(Datum::Value(padded(data, wire_len, len).ok_or("datum of the wrong length")?))
            }
            // The closing element of nft's own carries none.
            (SetData::Verdict | SetData::Fields(_), None) => return Err("no datum in a map".into()),
        };
        Ok(Element {
            key,
            key_end,
            datum,
            comment: comment(attributes, sys::NFTA_SET_ELEM_USERDATA).map(String::into_boxed_str),
            expires: wire::be64(attributes, sys::NFTA_SET_ELEM_EXPIRATION).map(Duration::from_millis),
        })
    }

    fn key(&self, attributes: &[u8], kind: u16) -> Result<Option<Key>, Reason> {
        let Some(data) = wire::attribute(attributes, kind) else { return Ok(None) };
        match padded(data, self.layout.wire_key, self.layout.key) {
            Some(key) => Ok(Some(key)),
            None => Err(format!("key is not of {} bytes", self.layout.wire_key)),
        }
    }
}

/// A value of `wire_len` bytes, padded to `len`.
fn padded(data: &[u8], wire_len: usize, len: usize) -> Option<Key> {
    let value = wire::attribute(data, sys::NFTA_DATA_VALUE)?;
    (value.len() == wire_len).then(|| {
        let mut key = Key::from_slice(value);
        key.resize(len, 0);
        key
    })
}

/// A verdict (`NFTA_DATA_VERDICT`).
pub(crate) fn verdict(data: &[u8]) -> Result<Verdict, Reason> {
    let verdict = wire::attribute(data, sys::NFTA_DATA_VERDICT).ok_or("no verdict")?;
    let code = wire::be32(verdict, sys::NFTA_VERDICT_CODE).ok_or("verdict without code")?.cast_signed();
    let chain = || {
        wire::text(verdict, sys::NFTA_VERDICT_CHAIN)
            .map(ChainName::from_kernel)
            .ok_or("verdict without chain")
    };
    Ok(match code {
        NF_DROP => Verdict::Drop,
        NF_ACCEPT => Verdict::Accept,
        sys::NFT_JUMP => Verdict::Jump(chain()?),
        sys::NFT_GOTO => Verdict::Goto(chain()?),
        sys::NFT_RETURN => Verdict::Return,
        code => return Err(format!("verdict code {code}")),
    })
}

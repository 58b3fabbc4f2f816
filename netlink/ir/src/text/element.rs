//! Owns the printed form of elements, read by the fields of their set. Knows nothing of commands around them.

use super::{Quoted, Span};
use crate::key::{FieldValue, prefix_len, split};
use crate::{Datum, Element, Family, Field, Key, L4Proto, SetData, SetDecl};
use std::fmt::{self, Display, Formatter, Write};

impl SetDecl {
    /// An element of this set as nft syntax, or a comment line (`# …`) if its bytes do not fit the set.
    pub fn element_text(&self, element: &Element) -> String {
        well_formed(self, element, Part::All).unwrap_or_else(|| malformed(element))
    }

    /// The key of an element of this set as nft syntax, or in hex if its bytes do not fit the set.
    pub fn key_text(&self, key: &Key) -> String {
        key_range(self, key, None).unwrap_or_else(|| hex(key))
    }

    /// A datum of this map as nft syntax, or in hex if its bytes do not fit the map.
    pub fn datum_text(&self, datum: &Datum) -> String {
        datum_value(self, datum).unwrap_or_else(|| match datum {
            Datum::Value(value) => hex(value),
            Datum::Verdict(verdict) => verdict.to_string(),
        })
    }
}

/// The elements of a set as text, those that can be read apart from those that can not.
pub(super) struct Texts {
    pub(super) well_formed: Vec<String>,
    pub(super) malformed: Vec<String>,
}

impl Texts {
    /// In the order of the keys, slots by number.
    pub(super) fn of<'a>(set: &SetDecl, elements: impl Iterator<Item = &'a Element>) -> Self {
        Self::read(set, elements, Part::All)
    }

    /// The same, keys only.
    pub(super) fn of_keys<'a>(set: &SetDecl, elements: impl Iterator<Item = &'a Element>) -> Self {
        Self::read(set, elements, Part::Key)
    }

    fn read<'a>(set: &SetDecl, elements: impl Iterator<Item = &'a Element>, part: Part) -> Self {
        let mut elements: Vec<&Element> = elements.collect();
        if set.spec.key.iter().any(|field| matches!(field, Field::Slot(_))) {
            // Slots are in the host's byte order, so the order of the bytes is not theirs.
            elements.sort_by_cached_key(|element| split(&set.spec.key, set.table.family, &element.key));
        }
        let mut texts = Self { well_formed: Vec::new(), malformed: Vec::new() };
        for element in elements {
            match well_formed(set, element, part) {
                Some(text) => texts.well_formed.push(text),
                None => texts.malformed.push(malformed(element)),
            }
        }
        texts
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Key,
}

fn well_formed(set: &SetDecl, element: &Element, part: Part) -> Option<String> {
    let mut text = key_range(set, &element.key, element.key_end.as_deref())?;
    if part == Part::Key {
        return Some(text);
    }
    if let Some(left) = element.expires {
        // `expires` alone means: the set's own time-out, of which this much is left. So it can not be longer.
        let word = if set.spec.timeout.is_some_and(|whole| left <= whole) { "expires" } else { "timeout" };
        let _ = write!(text, " {word} {}", Span(left));
    }
    if let Some(comment) = &element.comment {
        let _ = write!(text, " comment {}", Quoted(comment));
    }
    match (&set.spec.data, &element.datum) {
        (SetData::None, None) => {}
        (_, Some(datum)) => {
            let _ = write!(text, " : {}", datum_value(set, datum)?);
        }
        (_, None) => return None,
    }
    Some(text)
}

fn key_range(set: &SetDecl, first: &Key, last: Option<&Key>) -> Option<String> {
    let (fields, family) = (&set.spec.key, set.table.family);
    let first = split(fields, family, first)?;
    let last = last.map_or_else(|| Some(first.clone()), |last| split(fields, family, last))?;
    let parts = first.iter().zip(&last).map(|(a, b)| range(*a, *b)).collect::<Vec<_>>();
    Some(parts.join(" . "))
}

fn range(first: FieldValue, last: FieldValue) -> String {
    match (first, last) {
        _ if first == last => first.to_string(),
        (FieldValue::Addr(a), FieldValue::Addr(b)) => match prefix_len(a, b) {
            Some(len) => format!("{a}/{len}"),
            None => format!("{a}-{b}"),
        },
        (FieldValue::L4Proto(a), FieldValue::L4Proto(b)) => format!("{a}-{b}"),
        _ => format!("{first}-{last}"),
    }
}

fn datum_value(set: &SetDecl, datum: &Datum) -> Option<String> {
    match (&set.spec.data, datum) {
        (SetData::Verdict, Datum::Verdict(verdict)) => Some(verdict.to_string()),
        (SetData::Fields(fields), Datum::Value(value)) => concat(fields, set.table.family, value),
        _ => None,
    }
}

fn concat(fields: &[Field], family: Family, value: &[u8]) -> Option<String> {
    Some(split(fields, family, value)?.iter().map(ToString::to_string).collect::<Vec<_>>().join(" . "))
}

impl Display for FieldValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => write!(f, "{addr}"),
            Self::L4Proto(number) => match L4Proto::from_number(*number) {
                Some(proto) => write!(f, "{proto}"),
                None => write!(f, "{number}"),
            },
            Self::Port(port) => write!(f, "{port}"),
            Self::Slot(slot) => write!(f, "{slot}"),
        }
    }
}

fn malformed(element: &Element) -> String {
    let mut text = format!("# not of this set's type: {}", hex(&element.key));
    if let Some(end) = &element.key_end {
        let _ = write!(text, "-{}", hex(end));
    }
    match &element.datum {
        Some(Datum::Value(value)) => {
            let _ = write!(text, " : {}", hex(value));
        }
        Some(Datum::Verdict(verdict)) => {
            let _ = write!(text, " : {verdict}");
        }
        None => {}
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

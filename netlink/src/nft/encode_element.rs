//! Owns the bytes of one element. Knows nothing of messages. The way is short because it is gone a million times.

use super::encode::EncodeError;
use super::ext::ElementExt;
use super::layout::{ElementLayout, Interval};
use super::userdata::{self, COMMENT_MAX};
use netlink_bindings::nftables::{PushSetelemAttrs, PushSetelemListElemAttrs};
use netlink_bindings::traits::Pusher;
use nft_ir::{Datum, Element, Key, SetData, SetSpec, Verdict};
use rustables::sys;
use std::time::Duration;

/// Appends an element, or two where the kernel is told of an interval by two. `deletes`: only what names it.
pub(crate) fn push_element(
    bytes: &mut Vec<u8>,
    spec: &SetSpec,
    layout: ElementLayout,
    element: &Element,
    deletes: bool,
) -> Result<(), EncodeError> {
    let key = wire(&element.key, layout.key, layout.wire_key, "key")?;
    let end = match &element.key_end {
        Some(_) if layout.interval == Interval::None => {
            return Err(EncodeError("an interval in a set without intervals".into()));
        }
        Some(end) => wire(end, layout.key, layout.wire_key, "end of the interval")?,
        None => key,
    };
    let comment = match element.comment.as_deref() {
        Some(comment) if comment.len() > COMMENT_MAX => {
            return Err(EncodeError(format!("comment of {} bytes", comment.len())));
        }
        comment => comment,
    };
    let mut attributes = PushSetelemListElemAttrs::new(&mut *bytes).nested_elem();
    attributes = attributes.nested_key().push_value(key).end_nested();
    if layout.interval == Interval::KeyEnd {
        attributes = attributes.push_key_end(end);
    }
    if !deletes {
        attributes = push_datum(attributes, spec, layout, element.datum.as_ref())?;
        attributes = push_expiry(attributes, spec, element.expires)?;
        if let Some(comment) = comment {
            attributes = attributes.push_userdata(&userdata::comment(comment));
        }
    }
    attributes.end_nested().end_nested();
    if layout.interval != Interval::TwoElements {
        return Ok(());
    }
    // The last key of all has none behind it: its interval stays open.
    let Some(behind) = successor(end) else { return Ok(()) };
    PushSetelemListElemAttrs::new(bytes)
        .nested_elem()
        .push_flags(&sys::NFT_SET_ELEM_INTERVAL_END.to_be_bytes())
        .nested_key()
        .push_value(&behind)
        .end_nested()
        .end_nested()
        .end_nested();
    Ok(())
}

fn push_datum<P: Pusher>(
    attributes: PushSetelemAttrs<P>,
    spec: &SetSpec,
    layout: ElementLayout,
    datum: Option<&Datum>,
) -> Result<PushSetelemAttrs<P>, EncodeError> {
    Ok(match (&spec.data, datum, layout.data) {
        (SetData::None, None, _) => attributes,
        (SetData::Verdict, Some(Datum::Verdict(verdict)), _) => {
            let (code, chain) = verdict_code(verdict);
            let mut nested = attributes.nested_data().nested_verdict().push_code(code as u32);
            if let Some(chain) = chain {
                nested = nested.push_chain_bytes(chain.as_bytes());
            }
            nested.end_nested().end_nested()
        }
        (SetData::Fields(_), Some(Datum::Value(value)), Some((len, wire_len))) => {
            let value = wire(value, len, wire_len, "datum")?;
            attributes.nested_data().push_value(value).end_nested()
        }
        (SetData::None, Some(_), _) => return Err(EncodeError("a datum in a set".into())),
        (SetData::Verdict, ..) => return Err(EncodeError("no verdict in a verdict map".into())),
        (SetData::Fields(_), ..) => return Err(EncodeError("no value in a map".into())),
    })
}

/// What is left to live. Beside a default of the set that is longer, so that a refresh by a rule gives the default
/// again; else as the element's own time.
fn push_expiry<P: Pusher>(
    attributes: PushSetelemAttrs<P>,
    spec: &SetSpec,
    expires: Option<Duration>,
) -> Result<PushSetelemAttrs<P>, EncodeError> {
    let Some(left) = expires else { return Ok(attributes) };
    if !spec.flags.timeout {
        return Err(EncodeError("a time to live in a set without time-outs".into()));
    }
    let milliseconds = left.as_millis().max(1) as u64;
    Ok(match spec.timeout {
        Some(default) if left <= default => attributes.push_expiration_ms(milliseconds),
        _ => attributes.push_timeout_ms(milliseconds),
    })
}

/// The kernel's code for a verdict, and the chain it names.
pub(crate) fn verdict_code(verdict: &Verdict) -> (i32, Option<&str>) {
    match verdict {
        Verdict::Drop => (NF_DROP, None),
        Verdict::Accept => (NF_ACCEPT, None),
        Verdict::Jump(chain) => (sys::NFT_JUMP, Some(chain.as_str())),
        Verdict::Goto(chain) => (sys::NFT_GOTO, Some(chain.as_str())),
        Verdict::Return => (sys::NFT_RETURN, None),
    }
}

/// `NF_DROP` (linux/netfilter.h).
pub(crate) const NF_DROP: i32 = 0;
/// `NF_ACCEPT` (linux/netfilter.h).
pub(crate) const NF_ACCEPT: i32 = 1;

/// The bytes of a key or datum as the kernel wants them.
fn wire<'a>(key: &'a Key, len: usize, wire_len: usize, what: &str) -> Result<&'a [u8], EncodeError> {
    if key.len() == len {
        Ok(&key[..wire_len])
    } else {
        Err(EncodeError(format!("{what} of {} bytes where the set has {len}", key.len())))
    }
}

/// The key behind a key, in network order; `None` behind the last.
fn successor(key: &[u8]) -> Option<Key> {
    let mut key = Key::from_slice(key);
    for byte in key.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(key);
        }
    }
    None
}

/// The key before a key; `None` before the first.
pub(crate) fn predecessor(key: &[u8]) -> Option<Key> {
    let mut key = Key::from_slice(key);
    for byte in key.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            return Some(key);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_keys() {
        assert_eq!(successor(&[10, 255, 255]).as_deref(), Some(&[11, 0, 0][..]));
        assert_eq!(successor(&[255, 255]), None);
        assert_eq!(predecessor(&[11, 0, 0]).as_deref(), Some(&[10, 255, 255][..]));
        assert_eq!(predecessor(&[0, 0]), None);
    }
}

//! Owns durations as Go writes and reads them (`1h0m0s`, `1.5s`); knows nothing of what they are for.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration in nanoseconds, which may be negative until it has been validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GoDuration(i64);

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 30s, 1h0m0s or 1.5s")]
pub struct GoDurationError(String);

impl GoDuration {
    /// No time at all; in most fields it stands for the default.
    pub const ZERO: Self = Self(0);

    /// So many seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(NANOS))
    }

    /// So many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// As the standard library has it; a negative one is none.
    pub fn as_duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

const NANOS: i64 = 1_000_000_000;

/// Go's units with their length in nanoseconds. The two ways to write micro are both read.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3_600 * NANOS),
];

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || GoDurationError(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(error());
        }
        let mut nanos: i64 = 0;
        while !rest.is_empty() {
            let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
            let (number, tail) = rest.split_at(number_len);
            let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
            let part = scaled(number, *unit).ok_or_else(error)?;
            nanos = nanos.checked_add(part).ok_or_else(error)?;
            rest = tail;
        }
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

/// A decimal number of units in nanoseconds.
fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        nanos = nanos.checked_add(i64::from(digit.checked_sub(b'0').filter(|d| *d <= 9)?) * scale)?;
    }
    Some(nanos)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let unit = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => {
                let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
                let seconds = decimal(rest, 1_000_000_000);
                return match (minutes / 60, minutes % 60) {
                    (0, 0) => write!(f, "{sign}{seconds}s"),
                    (0, minutes) => write!(f, "{sign}{minutes}m{seconds}s"),
                    (hours, minutes) => write!(f, "{sign}{hours}h{minutes}m{seconds}s"),
                };
            }
        };
        write!(f, "{sign}{}{}", decimal(nanos, unit.0), unit.1)
    }
}

/// `nanos / unit` as a decimal number without trailing zeros. `unit` is a power of ten.
fn decimal(nanos: u64, unit: u64) -> String {
    let (whole, fraction) = (nanos / unit, nanos % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{:0width$}", fraction, width = unit.ilog10() as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text { nanos: false })
    }
}

/// For `logging.flushFrequency`, which may also be a number of nanoseconds.
pub(super) fn duration_or_nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    deserializer.deserialize_any(Text { nanos: true })
}

struct Text {
    nanos: bool,
}

impl Visitor<'_> for Text {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 30s or 1h0m0s")?;
        if self.nanos { f.write_str(", or a number of nanoseconds") } else { Ok(()) }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        if text.is_empty() { Ok(GoDuration::ZERO) } else { text.parse().map_err(E::custom) }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<GoDuration, E> {
        let nanos = i64::try_from(number).ok().filter(|_| self.nanos || number == 0);
        nanos.map(GoDuration).ok_or_else(|| E::invalid_type(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<GoDuration, E> {
        let nanos = Some(number).filter(|_| self.nanos || number == 0);
        nanos.map(GoDuration).ok_or_else(|| E::invalid_type(de::Unexpected::Signed(number), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, nanos, written) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("30s", 30 * NANOS, "30s"),
            ("1h", 3_600 * NANOS, "1h0m0s"),
            ("24h0m0s", 86_400 * NANOS, "24h0m0s"),
            ("15m", 900 * NANOS, "15m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("1m30.25s", 90_250_000_000, "1m30.25s"),
            ("100ms", 100_000_000, "100ms"),
            (".5ms", 500_000, "500µs"),
            ("1.5us", 1_500, "1.5µs"),
            ("2ns", 2, "2ns"),
            ("-5s", -5 * NANOS, "-5s"),
            ("+1h1s", 3_601 * NANOS, "1h0m1s"),
        ] {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!((duration.as_nanos(), duration.to_string()), (nanos, written.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_an_error() {
        for text in ["", "5", "s", "1x", "1s2", ".s", "1.2.3s", "1 s", "--1s", "9999999999h", "1S"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?}");
        }
    }
}

//! Owns the printed form of rules, statements and fields. Knows nothing of chains.

use super::{Quoted, Text};
use crate::{AddrKind, Compare, CtStatus, Family, Field, Reject, Rule, Statement, Value};
use std::fmt::{self, Display, Formatter};

impl Rule {
    /// The rule as nft syntax, on one line.
    pub const fn text(&self, family: Family) -> Text<'_, Self> {
        Text::new(self, family)
    }
}

impl Statement {
    /// The statement as nft syntax.
    pub const fn text(&self, family: Family) -> Text<'_, Self> {
        Text::new(self, family)
    }
}

impl Field {
    /// The field as nft syntax in a rule.
    pub const fn text(&self, family: Family) -> Text<'_, Self> {
        Text::new(self, family)
    }
}

impl Display for Text<'_, Rule> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, statement) in self.what.statements.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { " " }, statement.text(self.family))?;
        }
        match &self.what.comment {
            Some(comment) => write!(f, " comment {}", Quoted(comment)),
            None => Ok(()),
        }
    }
}

impl Display for Text<'_, Statement> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let family = self.family;
        let fields = |fields| Fields { fields, family, declared: false };
        match self.what {
            Statement::Compare(op, value) => compare(f, *op, value),
            Statement::CtStateNew => f.write_str("ct state new"),
            Statement::CtStatus(CtStatus::Dnat) => f.write_str("ct status dnat"),
            Statement::InSet { key, op, set } => write!(f, "{} {}@{set}", fields(key), prefix(*op)),
            Statement::VerdictMap { key, map } => write!(f, "{} vmap @{map}", fields(key)),
            Statement::SetMarkBits(bits) => write!(f, "meta mark set meta mark | {bits:#010x}"),
            Statement::FlipMarkBits(bits) => write!(f, "meta mark set meta mark ^ {bits:#010x}"),
            Statement::Dnat { key, map } => write!(f, "dnat {family} to {} map @{map}", fields(key)),
            Statement::Masquerade => f.write_str("masquerade fully-random"),
            Statement::Reject(Reject::PortUnreachable) => f.write_str("reject"),
            Statement::Reject(Reject::TcpReset) => f.write_str("reject with tcp reset"),
            Statement::Update { set, key, data } if data.is_empty() => {
                write!(f, "update @{set} {{ {} }}", fields(key))
            }
            Statement::Update { set, key, data } => {
                write!(f, "update @{set} {{ {} : {} }}", fields(key), fields(data))
            }
            Statement::Counter => f.write_str("counter"),
            Statement::Verdict(verdict) => write!(f, "{verdict}"),
        }
    }
}

fn compare(f: &mut Formatter<'_>, op: Compare, value: &Value) -> fmt::Result {
    let op_text = prefix(op);
    match value {
        Value::Prefix(kind, addr, len) => {
            let family = Family::of(addr);
            write!(f, "{family} {} {op_text}{addr}", addr_kind(*kind))?;
            if usize::from(*len) == family.addr_len() * 8 { Ok(()) } else { write!(f, "/{len}") }
        }
        Value::L4Proto(proto) => write!(f, "meta l4proto {op_text}{proto}"),
        Value::InputInterface { name, wildcard } => {
            // A star that belongs to the name is escaped; only nft's trailing star is a wildcard.
            let (name, end) = match (name.strip_suffix('*'), wildcard) {
                (_, true) => (name.as_str(), "*"),
                (Some(stem), false) => (stem, "\\*"),
                (None, false) => (name.as_str(), ""),
            };
            write!(f, "iifname {op_text}{}", Quoted(&format!("{name}{end}")))
        }
        Value::FibLocal(kind) => write!(f, "fib {} type {op_text}local", addr_kind(*kind)),
        Value::MarkBits(bits) => {
            let op = match op {
                Compare::Eq => "==",
                Compare::Ne => "!=",
            };
            write!(f, "meta mark & {bits:#010x} {op} {bits:#010x}")
        }
    }
}

const fn prefix(op: Compare) -> &'static str {
    match op {
        Compare::Eq => "",
        Compare::Ne => "!= ",
    }
}

const fn addr_kind(kind: AddrKind) -> &'static str {
    match kind {
        AddrKind::Source => "saddr",
        AddrKind::Destination => "daddr",
    }
}

impl Display for Text<'_, Field> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let family = self.family;
        match self.what {
            Field::SourceAddr => write!(f, "{family} saddr"),
            Field::DestinationAddr => write!(f, "{family} daddr"),
            Field::L4Proto => f.write_str("meta l4proto"),
            Field::SourcePort => f.write_str("th sport"),
            Field::DestinationPort => f.write_str("th dport"),
            Field::OriginalDestinationAddr => write!(f, "ct original {family} daddr"),
            Field::OriginalDestinationPort => f.write_str("ct original proto-dst"),
            Field::Slot(of) => write!(f, "numgen random mod {of}"),
        }
    }
}

/// Fields joined to a key, in a rule or (`declared`) in the `typeof` of a set.
pub(super) struct Fields<'a> {
    pub(super) fields: &'a [Field],
    pub(super) family: Family,
    pub(super) declared: bool,
}

impl Display for Fields<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            let field = if self.declared { declared(*field) } else { *field };
            write!(f, "{}{}", if index == 0 { "" } else { " . " }, field.text(self.family))?;
        }
        Ok(())
    }
}

/// The field as a set declares it: of the same data type, and a word that each nft can parse. The number of
/// slots is that of a rule, a set holds slots for all of them.
const fn declared(field: Field) -> Field {
    match field {
        Field::Slot(_) => Field::Slot(65536),
        Field::OriginalDestinationAddr => Field::DestinationAddr,
        Field::OriginalDestinationPort => Field::DestinationPort,
        Field::SourceAddr
        | Field::DestinationAddr
        | Field::L4Proto
        | Field::SourcePort
        | Field::DestinationPort => field,
    }
}

//! Owns the printed form: nft syntax that `nft -f -` loads, in stable order. Knows nothing of what is meant.
//!
//! [`Ruleset`] and [`Transaction`] print by themselves. A table, chain, rule, statement or element needs to be
//! told its family (`ip saddr` or `ip6 saddr`), so it prints through [`Text`]: `rule.text(family)`. An element
//! prints through its set, [`SetDecl::element_text`], which knows the fields of the key.
//!
//! A ruleset prints as `nft list ruleset` prints it, but in the order of the names, without counter values, and
//! with `meta l4proto tcp` kept before `reject with tcp reset`. Bytes that do not fit the fields of their set
//! print as a comment line with the bytes in hex.
//!
//! Two rules that the kernel takes are beyond nft 1.0.6: it can not parse `ct original proto-dst` (nft 1.1 can), and
//! it aborts on `update @map { … : ip6 daddr . th dport }`, an IPv6 address in a concatenated datum. In the `typeof`
//! of a set, the `ct original` fields print as the plain address and port, which is the same data type.

mod element;
mod rule;

use crate::{
    BaseChain, Chain, Element, Family, Hook, Op, Priority, Ruleset, Set, SetData, SetDecl, SetFlags, Table,
    TableId, Transaction, Verdict,
};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// A thing and the family that it needs to know to print.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a, T: ?Sized> {
    what: &'a T,
    family: Family,
}

impl<'a, T: ?Sized> Text<'a, T> {
    pub(crate) const fn new(what: &'a T, family: Family) -> Self {
        Self { what, family }
    }
}

impl Table {
    /// The table's content as nft syntax: what stands between the braces.
    pub const fn text(&self, family: Family) -> Text<'_, Self> {
        Text::new(self, family)
    }
}

impl Chain {
    /// The chain's content as nft syntax: what stands between the braces.
    pub const fn text(&self, family: Family) -> Text<'_, Self> {
        Text::new(self, family)
    }
}

impl Display for TableId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

impl Display for Ruleset {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (id, table) in &self.tables {
            write!(f, "table {id} {{\n{}}}\n", table.text(id.family))?;
        }
        Ok(())
    }
}

impl Display for Text<'_, Table> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut gap = |f: &mut Formatter<'_>| if std::mem::take(&mut first) { Ok(()) } else { writeln!(f) };
        if let Some(comment) = &self.what.comment {
            writeln!(f, "\tcomment {}", Quoted(comment))?;
        }
        for set in self.what.sets.values() {
            gap(f)?;
            write!(f, "{set}")?;
        }
        for (name, chain) in &self.what.chains {
            gap(f)?;
            write!(f, "\tchain {name} {{\n{}\t}}\n", chain.text(self.family))?;
        }
        Ok(())
    }
}

impl Display for Text<'_, Chain> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(base) = &self.what.base {
            writeln!(f, "\t\t{base}")?;
        }
        for rule in &self.what.rules {
            writeln!(f, "\t\t{}", rule.text(self.family))?;
        }
        Ok(())
    }
}

impl Display for BaseChain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { chain_type, hook, priority, policy } = self;
        write!(
            f,
            "type {chain_type} hook {hook} priority {}; policy {policy};",
            PriorityText(*priority, *hook)
        )
    }
}

/// A priority as nft prints it: relative to a named one where the hook has a name near it.
struct PriorityText(Priority, Hook);

impl Display for PriorityText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(priority, hook) = *self;
        // nft knows `dstnat` only in prerouting and `srcnat` only in postrouting, and goes up to 10 away.
        let names: &[(&str, Priority)] = match hook {
            Hook::Prerouting => &[("dstnat", Priority::DSTNAT), ("filter", Priority::FILTER)],
            Hook::Postrouting => &[("srcnat", Priority::SRCNAT), ("filter", Priority::FILTER)],
            Hook::Input | Hook::Forward | Hook::Output => &[("filter", Priority::FILTER)],
        };
        for (name, named) in names {
            match i64::from(priority.0) - i64::from(named.0) {
                0 => return f.write_str(name),
                over @ 1..=10 => return write!(f, "{name} + {over}"),
                under @ -10..=-1 => return write!(f, "{name} - {}", -under),
                _ => {}
            }
        }
        write!(f, "{}", priority.0)
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Return => f.write_str("return"),
        }
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let decl = &self.decl;
        writeln!(f, "\t{} {} {{", decl.keyword(), decl.name)?;
        decl.parts(|part| writeln!(f, "\t\t{part}"))?;
        let texts = element::Texts::of(decl, self.elements.values());
        for malformed in &texts.malformed {
            writeln!(f, "\t\t{malformed}")?;
        }
        for (index, text) in texts.well_formed.iter().enumerate() {
            let before = if index == 0 { "\t\telements = { " } else { ",\n\t\t\t     " };
            write!(f, "{before}{text}")?;
        }
        f.write_str(if texts.well_formed.is_empty() { "\t}\n" } else { " }\n\t}\n" })
    }
}

impl SetDecl {
    /// `map` or `set`.
    pub fn keyword(&self) -> &'static str {
        if self.spec.is_map() { "map" } else { "set" }
    }

    /// Calls `line` for each part of the declaration, in nft's order.
    fn parts(&self, mut line: impl FnMut(&dyn Display) -> fmt::Result) -> fmt::Result {
        let spec = &self.spec;
        let key = rule::Fields { fields: &spec.key, family: self.table.family, declared: true };
        match &spec.data {
            SetData::None => line(&format_args!("typeof {key}"))?,
            SetData::Verdict => line(&format_args!("typeof {key} : verdict"))?,
            SetData::Fields(fields) => {
                let data = rule::Fields { fields, family: self.table.family, declared: true };
                line(&format_args!("typeof {key} : {data}"))?;
            }
        }
        if let Some(size) = spec.size {
            line(&format_args!("size {size}"))?;
        }
        let SetFlags { interval, dynamic, timeout } = spec.flags;
        let flags: Vec<&str> = [(interval, "interval"), (dynamic, "dynamic"), (timeout, "timeout")]
            .into_iter()
            .filter_map(|(set, word)| set.then_some(word))
            .collect();
        if !flags.is_empty() {
            line(&format_args!("flags {}", flags.join(",")))?;
        }
        if let Some(timeout) = spec.timeout {
            line(&format_args!("timeout {}", Span(timeout)))?;
        }
        if let Some(comment) = &spec.comment {
            line(&format_args!("comment {}", Quoted(comment)))?;
        }
        Ok(())
    }
}

impl Display for Transaction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.ops.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

impl Display for Op {
    /// One command, without a line end. Several elements stand on a line each.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTable { table, comment: None } => write!(f, "add table {table}"),
            Self::AddTable { table, comment: Some(comment) } => {
                write!(f, "add table {table} {{ comment {}; }}", Quoted(comment))
            }
            Self::DeleteTable { table } => write!(f, "delete table {table}"),
            Self::AddChain { table, chain, base: None } => write!(f, "add chain {table} {chain}"),
            Self::AddChain { table, chain, base: Some(base) } => {
                write!(f, "add chain {table} {chain} {{ {base} }}")
            }
            Self::FlushChain { table, chain } => write!(f, "flush chain {table} {chain}"),
            Self::DeleteChain { table, chain } => write!(f, "delete chain {table} {chain}"),
            Self::AddRule { table, chain, rule } => {
                write!(f, "add rule {table} {chain} {}", rule.text(table.family))
            }
            Self::AddSet { set } => {
                write!(f, "add {} {} {} {{", set.keyword(), set.table, set.name)?;
                set.parts(|part| write!(f, " {part};"))?;
                f.write_str(" }")
            }
            Self::FlushSet { set } => write!(f, "flush {} {} {}", set.keyword(), set.table, set.name),
            Self::DeleteSet { set } => write!(f, "delete {} {} {}", set.keyword(), set.table, set.name),
            Self::AddElements { set, elements } => element_command(f, "add", set, elements.iter()),
            Self::DeleteElements { set, elements } => {
                // Only the key says which element; nft refuses a delete whose datum or comment it can not parse.
                let keys: Vec<Element> = elements
                    .iter()
                    .map(|element| Element {
                        key_end: element.key_end.clone(),
                        ..Element::of_set(element.key.clone())
                    })
                    .collect();
                element_command(f, "delete", set, keys.iter())
            }
        }
    }
}

fn element_command<'a>(
    f: &mut Formatter<'_>,
    verb: &str,
    set: &'a SetDecl,
    elements: impl ExactSizeIterator<Item = &'a Element>,
) -> fmt::Result {
    let command = format!("{verb} element {} {}", set.table, set.name);
    let texts = if verb == "delete" {
        element::Texts::of_keys(set, elements)
    } else {
        element::Texts::of(set, elements)
    };
    for (index, malformed) in texts.malformed.iter().enumerate() {
        let end = if index + 1 == texts.malformed.len() && texts.well_formed.is_empty() { "" } else { "\n" };
        write!(f, "# {command}: {}{end}", malformed.trim_start_matches("# "))?;
    }
    match &texts.well_formed[..] {
        [] if texts.malformed.is_empty() => write!(f, "# {command}: nothing"),
        [] => Ok(()),
        [one] => write!(f, "{command} {{ {one} }}"),
        many => write!(f, "{command} {{\n\t{}\n}}", many.join(",\n\t")),
    }
}

/// A time span as nft prints it: `1d2h3m4s5ms`, parts that are zero left out.
struct Span(Duration);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        let parts = [
            (millis / 86_400_000, "d"),
            (millis / 3_600_000 % 24, "h"),
            (millis / 60_000 % 60, "m"),
            (millis / 1000 % 60, "s"),
            (millis % 1000, "ms"),
        ];
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

/// A string between quotes. nft has no escapes, so what would end the string or the line is replaced.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text: String = self
            .0
            .chars()
            .map(|c| match c {
                '"' => '\'',
                c if c.is_control() => ' ',
                c => c,
            })
            .collect();
        write!(f, "\"{text}\"")
    }
}

#[cfg(test)]
mod tests;

//! Owns what each statement does to a packet, and the stack of chains. Knows nothing of hooks beyond passing them on.

use super::path::{At, Path};
use super::{Act, Found, Learnt, Packet, Step, WalkError};
use crate::key::{FieldValue, in_prefix, split};
use crate::{
    AddrKind, ChainName, Compare, CtStatus, Datum, Element, Family, Field, Key, KeyBuilder, L4Proto, Reject,
    Set, SetData, SetName, Statement, Value, Verdict,
};
use std::net::SocketAddr;

/// Chains lead into each other no deeper than this (`NFT_JUMP_STACK_SIZE`).
const DEPTH_MAX: usize = 16;

/// What is read and changed on the way.
pub(super) struct State {
    pub(super) family: Family,
    source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// The destination as dialled.
    original: SocketAddr,
    proto: L4Proto,
    pub(super) mark: u32,
    /// Empty for a packet that this host makes.
    pub(super) input_interface: String,
    new: bool,
    dnatted: bool,
}

impl State {
    pub(super) fn new(packet: &Packet, family: Family) -> Self {
        Self {
            family,
            source: packet.source,
            destination: packet.destination,
            original: packet.destination,
            proto: packet.proto,
            mark: packet.mark,
            input_interface: String::new(),
            new: packet.flow == super::Flow::New,
            dnatted: false,
        }
    }

    pub(super) fn translate(&mut self, to: SocketAddr) {
        // Conntrack notes a translation only if something changes.
        self.dnatted |= self.destination != to;
        self.destination = to;
    }

    const fn addr(&self, kind: AddrKind) -> std::net::IpAddr {
        match kind {
            AddrKind::Source => self.source.ip(),
            AddrKind::Destination => self.destination.ip(),
        }
    }
}

/// What a base chain says of a packet.
pub(super) enum Ruling {
    Accept,
    Drop,
    Reject(Reject),
    Dnat(SocketAddr),
    Masquerade,
}

/// How a rule goes on after a statement.
enum Next {
    /// With the next statement.
    Go,
    /// Not at all: on with the next rule.
    Break,
    /// With a verdict.
    Verdict(Verdict),
    /// With what ends the walk through this base chain.
    End(Ruling),
}

impl Next {
    const fn go_if(holds: bool) -> Self {
        if holds { Self::Go } else { Self::Break }
    }
}

/// A rule that is being evaluated.
struct Rule<'a> {
    at: At<'a>,
    chain: &'a ChainName,
    index: usize,
    found: Vec<Found>,
}

impl Rule<'_> {
    fn broken(&self, what: &'static str) -> WalkError {
        WalkError::Rule { table: self.at.id.clone(), chain: self.chain.clone(), rule: self.index, what }
    }
}

impl<'a> Path<'a> {
    pub(super) fn base_chain(&mut self, at: At<'a>) -> Result<Ruling, WalkError> {
        // Chain, index of the next rule, depth.
        let (mut chain, mut index, mut depth) = (at.name, 0, 0);
        let mut stack = Vec::new();
        loop {
            let rules = at.table.chains.get(chain).map_or(&[][..], |chain| &chain.rules);
            let verdict = match rules.get(index) {
                None => Verdict::Return,
                Some(statements) => {
                    let mut rule = Rule { at, chain, index, found: Vec::new() };
                    match self.rule(&mut rule, &statements.statements)? {
                        Next::Go | Next::Break => {
                            index += 1;
                            continue;
                        }
                        Next::End(ruling) => return Ok(ruling),
                        Next::Verdict(verdict) => verdict,
                    }
                }
            };
            match verdict {
                Verdict::Accept => return Ok(Ruling::Accept),
                Verdict::Drop => return Ok(Ruling::Drop),
                Verdict::Return => match stack.pop() {
                    Some(back) => (chain, index, depth) = back,
                    None => return Ok(self.policy(at)),
                },
                Verdict::Jump(ref to) | Verdict::Goto(ref to) => {
                    let rule = Rule { at, chain, index, found: Vec::new() };
                    let Some((to, _)) = at.table.chains.get_key_value(to) else {
                        return Err(rule.broken("leads to a chain that is not there"));
                    };
                    if depth + 1 >= DEPTH_MAX {
                        return Err(rule.broken("leads deeper than 15 chains"));
                    }
                    if matches!(verdict, Verdict::Jump(_)) {
                        stack.push((chain, index + 1, depth));
                    }
                    (chain, index, depth) = (to, 0, depth + 1);
                }
            }
        }
    }

    fn rule(&mut self, rule: &mut Rule<'a>, statements: &'a [Statement]) -> Result<Next, WalkError> {
        for statement in statements {
            match self.statement(rule, statement)? {
                Next::Go => {}
                next => return Ok(next),
            }
        }
        Ok(Next::Go)
    }

    fn statement(&mut self, rule: &mut Rule<'a>, statement: &'a Statement) -> Result<Next, WalkError> {
        Ok(match statement {
            Statement::Compare(op, value) => Next::go_if(self.holds(value) == (*op == Compare::Eq)),
            Statement::CtStateNew => Next::go_if(self.state.new),
            Statement::CtStatus(CtStatus::Dnat) => Next::go_if(self.state.dnatted),
            Statement::InSet { key, op, set } => {
                let (_, element) = self.look_up(rule, set, key)?;
                Next::go_if(element.is_some() == (*op == Compare::Eq))
            }
            Statement::VerdictMap { key, map } => match self.look_up(rule, map, key)?.1 {
                None => Next::Break,
                Some(Element { datum: Some(Datum::Verdict(verdict)), .. }) => {
                    self.note(rule, Act::Verdict(verdict.clone()));
                    Next::Verdict(verdict.clone())
                }
                Some(_) => return Err(rule.broken("takes a verdict from an element that has none")),
            },
            Statement::SetMarkBits(bits) => self.set_mark(rule, self.state.mark | bits),
            Statement::FlipMarkBits(bits) => self.set_mark(rule, self.state.mark ^ bits),
            Statement::Dnat { key, map } => match self.look_up(rule, map, key)? {
                (_, None) => Next::Break,
                (set, Some(element)) => {
                    let Some(to) = destination(set, element) else {
                        return Err(rule.broken("takes address and port from an element that has none"));
                    };
                    self.note(rule, Act::Dnat(to));
                    Next::End(Ruling::Dnat(to))
                }
            },
            Statement::Masquerade => {
                self.note(rule, Act::Masquerade);
                Next::End(Ruling::Masquerade)
            }
            Statement::Reject(reject) => {
                self.note(rule, Act::Reject(*reject));
                // There is nothing to reset in other protocols; the packet is gone nevertheless.
                let silent = *reject == Reject::TcpReset && self.state.proto != L4Proto::Tcp;
                Next::End(if silent { Ruling::Drop } else { Ruling::Reject(*reject) })
            }
            Statement::Update { set, key, data } => self.learn(rule, set, key, data)?,
            Statement::Counter => Next::Go,
            Statement::Verdict(verdict) => {
                self.note(rule, Act::Verdict(verdict.clone()));
                Next::Verdict(verdict.clone())
            }
        })
    }

    fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Prefix(kind, prefix, len) => in_prefix(self.state.addr(*kind), *prefix, *len),
            Value::L4Proto(proto) => self.state.proto == *proto,
            Value::InputInterface { name, wildcard: true } => self.state.input_interface.starts_with(name),
            Value::InputInterface { name, wildcard: false } => self.state.input_interface == *name,
            Value::FibLocal(kind) => self.world.is_local(self.state.addr(*kind)),
            Value::MarkBits(bits) => self.state.mark & bits == *bits,
        }
    }

    fn set_mark(&mut self, rule: &Rule<'a>, mark: u32) -> Next {
        self.state.mark = mark;
        self.note(rule, Act::SetMark(mark));
        Next::Go
    }

    fn learn(
        &mut self,
        rule: &Rule<'a>,
        set: &SetName,
        key: &[Field],
        data: &[Field],
    ) -> Result<Next, WalkError> {
        let set = set_of(rule, set)?;
        let key = self.read(rule, key)?;
        let datum = if data.is_empty() { None } else { Some(Datum::Value(self.read(rule, data)?)) };
        let known = set.elements.contains_key(&key);
        let learnt = Learnt { set: set.decl.clone(), key, datum, known };
        self.learnt.push(learnt.clone());
        self.note(rule, Act::Learn(learnt));
        Ok(Next::Go)
    }

    /// The set, and its element that has the packet's key.
    fn look_up(
        &mut self,
        rule: &mut Rule<'a>,
        set: &SetName,
        key: &[Field],
    ) -> Result<(&'a Set, Option<&'a Element>), WalkError> {
        let set = set_of(rule, set)?;
        let key = self.read(rule, key)?;
        let element = find(set, &key);
        if let Some(element) = element {
            rule.found.push(Found { set: set.decl.clone(), element: element.clone() });
        }
        Ok((set, element))
    }

    fn read(&mut self, rule: &Rule<'a>, fields: &[Field]) -> Result<Key, WalkError> {
        let mut key = KeyBuilder::new();
        for field in fields {
            key = match field {
                Field::SourceAddr => key.addr(self.state.source.ip()),
                Field::DestinationAddr => key.addr(self.state.destination.ip()),
                Field::L4Proto => key.proto(self.state.proto),
                Field::SourcePort => key.port(self.state.source.port()),
                Field::DestinationPort => key.port(self.state.destination.port()),
                Field::OriginalDestinationAddr => key.addr(self.state.original.ip()),
                Field::OriginalDestinationPort => key.port(self.state.original.port()),
                Field::Slot(0) => return Err(rule.broken("draws one of no slots")),
                Field::Slot(of) => key.slot(self.choices.draw(*of)),
            };
        }
        Ok(key.build())
    }

    fn note(&mut self, rule: &Rule<'a>, act: Act) {
        self.trail.push(Step {
            hook: rule.at.hook,
            table: rule.at.id.clone(),
            chain: rule.chain.clone(),
            rule: Some(rule.index),
            found: rule.found.clone(),
            act,
        });
    }
}

fn set_of<'a>(rule: &Rule<'a>, name: &SetName) -> Result<&'a Set, WalkError> {
    rule.at.table.sets.get(name).ok_or_else(|| rule.broken("refers to a set that is not there"))
}

fn find<'a>(set: &'a Set, key: &Key) -> Option<&'a Element> {
    let (fields, family) = (&set.decl.spec.key, set.decl.table.family);
    if !set.decl.spec.flags.interval {
        return set.elements.get(key);
    }
    if let [field] = fields[..]
        && !matches!(field, Field::Slot(_))
    {
        let (_, element) = set.elements.range(..=key.clone()).next_back()?;
        return (key <= element.key_end.as_deref().unwrap_or(&element.key)).then_some(element);
    }
    let wanted = split(fields, family, key)?;
    set.elements.values().find(|element| {
        let first = split(fields, family, &element.key);
        let last = split(fields, family, element.key_end.as_deref().unwrap_or(&element.key));
        first.zip(last).is_some_and(|(first, last)| {
            wanted.iter().zip(first.iter().zip(&last)).all(|(field, (a, b))| a <= field && field <= b)
        })
    })
}

fn destination(set: &Set, element: &Element) -> Option<SocketAddr> {
    let (SetData::Fields(fields), Some(Datum::Value(value))) = (&set.decl.spec.data, &element.datum) else {
        return None;
    };
    match split(fields, set.decl.table.family, value)?[..] {
        [FieldValue::Addr(addr), FieldValue::Port(port)] => Some(SocketAddr::new(addr, port)),
        _ => None,
    }
}

//! Owns the reading of a rule: a small machine that remembers what each register was loaded with, so that a
//! comparison or lookup can be said in the words of `nft_ir`. Knows nothing of dumps. A rule that it cannot say
//! is foreign, and the reason names the first expression that it did not expect.

use super::decode_element::verdict;
use super::decode_object::{Reason, comment};
use super::encode_expr::{IP_CT_DIR_ORIGINAL, IPS_DST_NAT, RTN_LOCAL, port_unreachable};
use super::encode_plain::{CT_STATE_NEW, INTERFACE_NAME, payload_place, prefix_mask};
use super::ext::NAT_RANDOM_FULLY;
use super::layout::REGISTER;
use super::registers;
use super::userdata::ct_destination;
use crate::wire::{attribute, attributes, be32, be64, text};
use nft_ir::{
    AddrKind, Compare, CtStatus, Family, Field, L4Proto, Reject, Rule, Set, SetData, SetName, Statement,
    Value,
};
use rustables::sys;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::net::IpAddr;

type Fields = SmallVec<[Field; 5]>;
type Sets = BTreeMap<SetName, Set>;

/// Reads a rule from its attributes.
pub(crate) fn rule(rule: &[u8], family: Family, sets: &Sets) -> Result<Rule, Reason> {
    let mut machine = Machine { family, sets, registers: Default::default(), statements: Vec::new() };
    let expressions = attribute(rule, sys::NFTA_RULE_EXPRESSIONS).unwrap_or_default();
    for (_, expression) in attributes(expressions) {
        let name = text(expression, sys::NFTA_EXPR_NAME).ok_or("expression without name")?;
        let data = attribute(expression, sys::NFTA_EXPR_DATA).unwrap_or_default();
        machine.step(name, data).map_err(|reason| format!("{name}: {reason}"))?;
    }
    Ok(Rule { statements: machine.statements, comment: comment(rule, sys::NFTA_RULE_USERDATA) })
}

/// What a register holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Load {
    /// A field that keys are made of.
    Field(Field),
    /// The first bytes of an address.
    AddrStart(AddrKind, usize),
    /// An address under a mask.
    MaskedAddr(AddrKind, Vec<u8>),
    /// `meta iifname`.
    InputInterface,
    /// `meta mark`, as `(mark & mask) ^ xor`.
    Mark { mask: u32, xor: u32 },
    /// `ct state`, under a mask once there is one.
    CtState(u32),
    /// `ct status`, under a mask once there is one.
    CtStatus(u32),
    /// `fib saddr type` or `fib daddr type`.
    FibType(AddrKind),
    /// The datum of a map.
    Datum { key: Fields, map: SetName },
}

struct Machine<'a> {
    family: Family,
    sets: &'a Sets,
    registers: [Option<Load>; registers::COUNT],
    statements: Vec<Statement>,
}

impl Machine<'_> {
    fn step(&mut self, name: &str, data: &[u8]) -> Result<(), Reason> {
        match name {
            "payload" => self.payload(data),
            "meta" => self.meta(data),
            "ct" => self.ct(data),
            "fib" => self.fib(data),
            "numgen" => self.numgen(data),
            "bitwise" => self.bitwise(data),
            "byteorder" => self.byteorder(data),
            "cmp" => self.cmp(data),
            "lookup" => self.lookup(data),
            "nat" => self.nat(data),
            "masq" => match be32(data, sys::NFTA_MASQ_FLAGS) {
                Some(NAT_RANDOM_FULLY) => self.say(Statement::Masquerade),
                flags => Err(format!("flags {flags:?}")),
            },
            "reject" => self.reject(data),
            "dynset" => self.dynset(data),
            "counter" => self.say(Statement::Counter),
            "immediate" => match be32(data, sys::NFTA_IMMEDIATE_DREG) {
                Some(sys::NFT_REG_VERDICT) => {
                    let value = attribute(data, sys::NFTA_IMMEDIATE_DATA).ok_or("no data")?;
                    self.say(Statement::Verdict(verdict(value)?))
                }
                _ => Err("a constant in a register".into()),
            },
            _ => Err("not one of ours".into()),
        }
    }

    fn say(&mut self, statement: Statement) -> Result<(), Reason> {
        self.statements.push(statement);
        Ok(())
    }

    /// Puts something into the register that an attribute names, and forgets what it overwrites.
    fn load(&mut self, data: &[u8], register: u16, len: usize, load: Load) -> Result<(), Reason> {
        let index = index(data, register)?;
        let words = len.div_ceil(REGISTER).max(1);
        let slots = self.registers.get_mut(index..index + words).ok_or("register out of range")?;
        slots.fill(None);
        slots[0] = Some(load);
        Ok(())
    }

    fn loaded(&self, data: &[u8], register: u16) -> Result<&Load, Reason> {
        self.registers[index(data, register)?]
            .as_ref()
            .ok_or_else(|| "reads a register that nothing was loaded into".into())
    }

    fn payload(&mut self, data: &[u8]) -> Result<(), Reason> {
        let number = |kind| be32(data, kind).ok_or("incomplete");
        let place = (
            number(sys::NFTA_PAYLOAD_BASE)?,
            number(sys::NFTA_PAYLOAD_OFFSET)?,
            number(sys::NFTA_PAYLOAD_LEN)?,
        );
        let fields = [
            (Field::SourceAddr, Some(AddrKind::Source)),
            (Field::DestinationAddr, Some(AddrKind::Destination)),
            (Field::SourcePort, None),
            (Field::DestinationPort, None),
        ];
        for (field, kind) in fields {
            let Some((base, offset, len)) = payload_place(field, self.family) else { continue };
            let load = match kind {
                _ if place == (base, offset, len) => Load::Field(field),
                Some(kind) if (place.0, place.1) == (base, offset) && place.2 < len => {
                    Load::AddrStart(kind, place.2 as usize)
                }
                _ => continue,
            };
            return self.load(data, sys::NFTA_PAYLOAD_DREG, place.2 as usize, load);
        }
        Err(format!("{} bytes at {} of header {}", place.2, place.1, place.0))
    }

    fn meta(&mut self, data: &[u8]) -> Result<(), Reason> {
        let key = be32(data, sys::NFTA_META_KEY).ok_or("no key")?;
        if attribute(data, sys::NFTA_META_SREG).is_some() {
            return match (key, self.loaded(data, sys::NFTA_META_SREG)?.clone()) {
                (sys::NFT_META_MARK, Load::Mark { mask: u32::MAX, xor }) => {
                    self.say(Statement::FlipMarkBits(xor))
                }
                (sys::NFT_META_MARK, Load::Mark { mask, xor }) if mask == !xor => {
                    self.say(Statement::SetMarkBits(xor))
                }
                (key, load) => Err(format!("sets key {key} to {load:?}")),
            };
        }
        let (len, load) = match key {
            sys::NFT_META_L4PROTO => (1, Load::Field(Field::L4Proto)),
            sys::NFT_META_IIFNAME => (INTERFACE_NAME, Load::InputInterface),
            sys::NFT_META_MARK => (4, Load::Mark { mask: u32::MAX, xor: 0 }),
            key => return Err(format!("key {key}")),
        };
        self.load(data, sys::NFTA_META_DREG, len, load)
    }

    fn ct(&mut self, data: &[u8]) -> Result<(), Reason> {
        let key = be32(data, sys::NFTA_CT_KEY).ok_or("no key")?;
        let direction = attribute(data, sys::NFTA_CT_DIRECTION).and_then(|value| value.first().copied());
        let (len, load) = match (key, direction) {
            (sys::NFT_CT_STATE, None) => (4, Load::CtState(u32::MAX)),
            (sys::NFT_CT_STATUS, None) => (4, Load::CtStatus(u32::MAX)),
            (key, Some(IP_CT_DIR_ORIGINAL)) if key == ct_destination(self.family) => {
                (self.family.addr_len(), Load::Field(Field::OriginalDestinationAddr))
            }
            (sys::NFT_CT_PROTO_DST, Some(IP_CT_DIR_ORIGINAL)) => {
                (2, Load::Field(Field::OriginalDestinationPort))
            }
            (key, direction) => return Err(format!("key {key}, direction {direction:?}")),
        };
        self.load(data, sys::NFTA_CT_DREG, len, load)
    }

    fn fib(&mut self, data: &[u8]) -> Result<(), Reason> {
        let kind = match (be32(data, sys::NFTA_FIB_RESULT), be32(data, sys::NFTA_FIB_FLAGS)) {
            (Some(sys::NFT_FIB_RESULT_ADDRTYPE), Some(sys::NFTA_FIB_F_SADDR)) => AddrKind::Source,
            (Some(sys::NFT_FIB_RESULT_ADDRTYPE), Some(sys::NFTA_FIB_F_DADDR)) => AddrKind::Destination,
            (result, flags) => return Err(format!("result {result:?}, flags {flags:?}")),
        };
        self.load(data, sys::NFTA_FIB_DREG, 4, Load::FibType(kind))
    }

    fn numgen(&mut self, data: &[u8]) -> Result<(), Reason> {
        let modulus = be32(data, sys::NFTA_NG_MODULUS).ok_or("no modulus")?;
        let kind = be32(data, sys::NFTA_NG_TYPE);
        let offset = be32(data, sys::NFTA_NG_OFFSET).unwrap_or_default();
        if kind != Some(sys::NFT_NG_RANDOM) || offset != 0 {
            return Err(format!("type {kind:?}, offset {offset}"));
        }
        self.load(data, sys::NFTA_NG_DREG, 4, Load::Field(Field::Slot(modulus)))
    }

    fn bitwise(&mut self, data: &[u8]) -> Result<(), Reason> {
        match be32(data, sys::NFTA_BITWISE_OP) {
            None | Some(sys::NFT_BITWISE_MASK_XOR) => {}
            Some(op) => return Err(format!("operation {op}")),
        }
        let mask = value(data, sys::NFTA_BITWISE_MASK)?;
        let xor = value(data, sys::NFTA_BITWISE_XOR)?;
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).map_err(|_| "not of 4 bytes");
        let load = match self.loaded(data, sys::NFTA_BITWISE_SREG)? {
            Load::Mark { mask: u32::MAX, xor: 0 } => Load::Mark { mask: word(mask)?, xor: word(xor)? },
            Load::CtState(u32::MAX) if word(xor)? == 0 => Load::CtState(word(mask)?),
            Load::CtStatus(u32::MAX) if word(xor)? == 0 => Load::CtStatus(word(mask)?),
            Load::Field(Field::SourceAddr) if xor.iter().all(|byte| *byte == 0) => {
                Load::MaskedAddr(AddrKind::Source, mask.to_vec())
            }
            Load::Field(Field::DestinationAddr) if xor.iter().all(|byte| *byte == 0) => {
                Load::MaskedAddr(AddrKind::Destination, mask.to_vec())
            }
            load => return Err(format!("of {load:?}")),
        };
        self.load(data, sys::NFTA_BITWISE_DREG, mask.len(), load)
    }

    /// nft 1.0.6 turns the one byte of `meta l4proto` in keys of intervals, which changes nothing.
    fn byteorder(&mut self, data: &[u8]) -> Result<(), Reason> {
        let same = index(data, sys::NFTA_BYTEORDER_SREG)? == index(data, sys::NFTA_BYTEORDER_DREG)?;
        match self.loaded(data, sys::NFTA_BYTEORDER_SREG)? {
            Load::Field(Field::L4Proto) if same => Ok(()),
            load => Err(format!("of {load:?}")),
        }
    }

    fn cmp(&mut self, data: &[u8]) -> Result<(), Reason> {
        let op = match be32(data, sys::NFTA_CMP_OP) {
            Some(sys::NFT_CMP_EQ) => Compare::Eq,
            Some(sys::NFT_CMP_NEQ) => Compare::Ne,
            op => return Err(format!("operation {op:?}")),
        };
        let value = value(data, sys::NFTA_CMP_DATA)?;
        let load = self.loaded(data, sys::NFTA_CMP_SREG)?.clone();
        let word = value.try_into().map(u32::from_ne_bytes).ok();
        let compared = match (&load, word) {
            (Load::Field(Field::SourceAddr), _) => self.prefix(AddrKind::Source, value, value.len() * 8)?,
            (Load::Field(Field::DestinationAddr), _) => {
                self.prefix(AddrKind::Destination, value, value.len() * 8)?
            }
            (Load::AddrStart(kind, len), _) if value.len() == *len => self.prefix(*kind, value, len * 8)?,
            (Load::MaskedAddr(kind, mask), _) if value.len() == mask.len() => {
                let len = mask.iter().map(|byte| byte.leading_ones() as usize).sum();
                if prefix_mask(len, mask.len()) != *mask {
                    return Err(format!("under the mask {mask:02x?}"));
                }
                self.prefix(*kind, value, len)?
            }
            (Load::Field(Field::L4Proto), _) => match value {
                [proto] => Value::L4Proto(
                    L4Proto::from_number(*proto).ok_or_else(|| format!("transport protocol {proto}"))?,
                ),
                _ => return Err("of a protocol with more than one byte".into()),
            },
            (Load::InputInterface, _) => input_interface(value)?,
            (Load::Mark { mask, xor: 0 }, Some(bits)) if bits == *mask => Value::MarkBits(bits),
            (Load::FibType(kind), Some(RTN_LOCAL)) => Value::FibLocal(*kind),
            (Load::CtState(CT_STATE_NEW), Some(0)) if op == Compare::Ne => {
                return self.say(Statement::CtStateNew);
            }
            (Load::CtStatus(IPS_DST_NAT), Some(0)) if op == Compare::Ne => {
                return self.say(Statement::CtStatus(CtStatus::Dnat));
            }
            (load, _) => return Err(format!("of {load:?} with {value:02x?}")),
        };
        self.say(Statement::Compare(op, compared))
    }

    fn prefix(&self, kind: AddrKind, start: &[u8], len: usize) -> Result<Value, Reason> {
        let mut bytes = start.to_vec();
        bytes.resize(self.family.addr_len(), 0);
        let addr = match (<[u8; 4]>::try_from(&bytes[..]), <[u8; 16]>::try_from(&bytes[..])) {
            (Ok(octets), _) => IpAddr::from(octets),
            (_, Ok(octets)) => IpAddr::from(octets),
            _ => return Err("of an address of the wrong length".into()),
        };
        Ok(Value::Prefix(kind, addr, len as u8))
    }

    fn lookup(&mut self, data: &[u8]) -> Result<(), Reason> {
        let name = text(data, sys::NFTA_LOOKUP_SET).ok_or("no set")?;
        let set = self.set(name)?;
        let key = self.fields(data, sys::NFTA_LOOKUP_SREG, set.decl.spec.key.len())?;
        let name = set.decl.name.clone();
        let inverted = be32(data, sys::NFTA_LOOKUP_FLAGS).unwrap_or_default() & sys::NFT_LOOKUP_F_INV != 0;
        let datum_len = super::layout::ElementLayout::of(&set.decl.spec, self.family).data;
        match (be32(data, sys::NFTA_LOOKUP_DREG), &set.decl.spec.data) {
            (None, _) => {
                let op = if inverted { Compare::Ne } else { Compare::Eq };
                self.say(Statement::InSet { key, op, set: name })
            }
            (Some(sys::NFT_REG_VERDICT), SetData::Verdict) => {
                self.say(Statement::VerdictMap { key, map: name })
            }
            (Some(_), SetData::Fields(_)) => {
                let len = datum_len.map_or(0, |(len, _)| len);
                self.load(data, sys::NFTA_LOOKUP_DREG, len, Load::Datum { key, map: name })
            }
            (Some(register), _) => Err(format!("of {name} into register {register}")),
        }
    }

    fn nat(&mut self, data: &[u8]) -> Result<(), Reason> {
        /// `NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED`: what the registers imply.
        const IMPLIED: u32 = 3;
        let kind = be32(data, sys::NFTA_NAT_TYPE);
        let flags = be32(data, sys::NFTA_NAT_FLAGS).unwrap_or_default();
        if kind != Some(sys::NFT_NAT_DNAT) || flags & !IMPLIED != 0 {
            return Err(format!("type {kind:?}, flags {flags:#x}"));
        }
        let address = index(data, sys::NFTA_NAT_REG_ADDR_MIN)?;
        let port = index(data, sys::NFTA_NAT_REG_PROTO_MIN)?;
        match self.loaded(data, sys::NFTA_NAT_REG_ADDR_MIN)? {
            Load::Datum { key, map } if port == address + self.family.addr_len() / REGISTER => {
                let (key, map) = (key.clone(), map.clone());
                self.say(Statement::Dnat { key, map })
            }
            load => Err(format!("to {load:?}")),
        }
    }

    fn reject(&mut self, data: &[u8]) -> Result<(), Reason> {
        let kind = be32(data, sys::NFTA_REJECT_TYPE);
        let code = attribute(data, sys::NFTA_REJECT_ICMP_CODE).and_then(|value| value.first().copied());
        match (kind, code) {
            (Some(sys::NFT_REJECT_TCP_RST), _) => self.say(Statement::Reject(Reject::TcpReset)),
            (Some(sys::NFT_REJECT_ICMP_UNREACH), Some(code)) if code == port_unreachable(self.family) => {
                self.say(Statement::Reject(Reject::PortUnreachable))
            }
            (kind, code) => Err(format!("type {kind:?}, code {code:?}")),
        }
    }

    fn dynset(&mut self, data: &[u8]) -> Result<(), Reason> {
        let op = be32(data, sys::NFTA_DYNSET_OP);
        let timeout = be64(data, sys::NFTA_DYNSET_TIMEOUT).unwrap_or_default();
        let extra = [sys::NFTA_DYNSET_EXPR, sys::NFTA_DYNSET_EXPRESSIONS]
            .into_iter()
            .any(|kind| attribute(data, kind).is_some());
        if op != Some(sys::NFT_DYNSET_OP_UPDATE) || timeout != 0 || extra {
            return Err(format!("operation {op:?}, time-out {timeout} ms"));
        }
        let set = self.set(text(data, sys::NFTA_DYNSET_SET_NAME).ok_or("no set")?)?;
        let key = self.fields(data, sys::NFTA_DYNSET_SREG_KEY, set.decl.spec.key.len())?;
        let data = match &set.decl.spec.data {
            SetData::Fields(fields) => self.fields(data, sys::NFTA_DYNSET_SREG_DATA, fields.len())?,
            SetData::None => Fields::new(),
            SetData::Verdict => return Err("of a verdict map".into()),
        };
        let set = set.decl.name.clone();
        self.say(Statement::Update { set, key, data })
    }

    fn set(&self, name: &str) -> Result<&Set, Reason> {
        self.sets.get(&SetName::from_kernel(name)).ok_or_else(|| format!("set {name:?} is not one of ours"))
    }

    /// So many fields, one behind the other, from the register that an attribute names.
    fn fields(&self, data: &[u8], register: u16, count: usize) -> Result<Fields, Reason> {
        let mut at = index(data, register)?;
        (0..count)
            .map(|_| match self.registers.get(at) {
                Some(Some(Load::Field(field))) => {
                    at += field.register_len(self.family) / REGISTER;
                    Ok(*field)
                }
                other => Err(format!("key of {other:?}")),
            })
            .collect()
    }
}

fn index(data: &[u8], register: u16) -> Result<usize, Reason> {
    be32(data, register).and_then(registers::index).ok_or_else(|| "no such register".into())
}

fn value(data: &[u8], kind: u16) -> Result<&[u8], Reason> {
    attribute(data, kind)
        .and_then(|data| attribute(data, sys::NFTA_DATA_VALUE))
        .ok_or_else(|| "no value".into())
}

fn input_interface(value: &[u8]) -> Result<Value, Reason> {
    let wildcard = value.len() < INTERFACE_NAME;
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let name = std::str::from_utf8(&value[..end]).map_err(|_| "interface name is not text")?;
    Ok(Value::InputInterface { name: name.to_owned(), wildcard })
}

//! Owns what must hold of one rule, set or element for the kernel to take it. Knows nothing of transactions.

use super::Errno;
use crate::key::split;
use crate::{
    BaseChain, ChainType, Compare, Datum, Element, Family, Field, FieldKind, Hook, Rule, Set, SetData,
    SetDecl, SetName, SetSpec, Statement, Table, TableId, Value, Verdict,
};

type Check<T = ()> = Result<T, (Errno, &'static str)>;

/// Bytes that a key or a datum can have (`NFT_DATA_VALUE_MAXLEN`).
const VALUE_MAX: usize = 64;

/// Bytes in the name of an interface (`IFNAMSIZ` − 1).
const INTERFACE_NAME_MAX: usize = 15;

pub(super) fn base_chain(base: &BaseChain) -> Check {
    if base.chain_type == ChainType::Nat && base.hook == Hook::Forward {
        return Err((Errno::EOPNOTSUPP, "no address translation in forward"));
    }
    // Conntrack runs at −200 (NF_IP_PRI_CONNTRACK); before it there is no flow to translate.
    if base.chain_type == ChainType::Nat && base.priority.0 <= -200 {
        return Err((Errno::EOPNOTSUPP, "no address translation before conntrack"));
    }
    match base.policy {
        Verdict::Accept | Verdict::Drop => Ok(()),
        Verdict::Jump(_) | Verdict::Goto(_) | Verdict::Return => {
            Err((Errno::EINVAL, "only accept and drop are policies"))
        }
    }
}

pub(super) fn set(decl: &SetDecl) -> Check {
    let (spec, family) = (&decl.spec, decl.table.family);
    let SetSpec { key, data, flags, timeout, size: _, comment: _ } = spec;
    let data_len = match data {
        SetData::None | SetData::Verdict => None,
        SetData::Fields(fields) => Some(Field::key_len(fields, family)),
    };
    if !(1..=VALUE_MAX).contains(&Field::key_len(key, family)) {
        return Err((Errno::EINVAL, "its key is empty or longer than 64 bytes"));
    }
    if data_len.is_some_and(|len| !(1..=VALUE_MAX).contains(&len)) {
        return Err((Errno::EINVAL, "its data is empty or longer than 64 bytes"));
    }
    if timeout.is_some() && !flags.timeout {
        return Err((Errno::EINVAL, "has a time-out but not the flag"));
    }
    if flags.dynamic && flags.interval {
        return Err((Errno::EOPNOTSUPP, "rules can not add intervals"));
    }
    Ok(())
}

/// Whether the kernel takes `new` for the set that is there.
pub(super) fn same_set(old: &SetDecl, new: &SetDecl) -> bool {
    let kinds = |fields: &[Field]| fields.iter().map(|field| field.kind()).collect::<Vec<_>>();
    let data = match (&old.spec.data, &new.spec.data) {
        (SetData::Fields(old), SetData::Fields(new)) => kinds(old) == kinds(new),
        (old, new) => old == new,
    };
    data && kinds(&old.spec.key) == kinds(&new.spec.key) && old.spec.flags == new.spec.flags
}

pub(super) fn rule(id: &TableId, table: &Table, rule: &Rule) -> Check {
    rule.statements.iter().try_for_each(|statement| self::statement(id.family, table, statement))
}

fn statement(family: Family, table: &Table, statement: &Statement) -> Check {
    match statement {
        Statement::Compare(op, value) => compare(family, *op, value),
        Statement::InSet { key, op: _, set } => {
            let spec = lookup(family, table, set, key)?;
            if spec.is_map() {
                return Err((Errno::EINVAL, "looks for a key in a map"));
            }
            Ok(())
        }
        Statement::VerdictMap { key, map } => {
            if lookup(family, table, map, key)?.data != SetData::Verdict {
                return Err((Errno::EINVAL, "takes a verdict from a set that has none"));
            }
            Ok(())
        }
        Statement::Dnat { key, map } => {
            let kinds: Option<Vec<FieldKind>> = match &lookup(family, table, map, key)?.data {
                SetData::Fields(fields) => Some(fields.iter().map(|field| field.kind()).collect()),
                SetData::None | SetData::Verdict => None,
            };
            if kinds.as_deref() != Some(&[FieldKind::Addr, FieldKind::Port]) {
                return Err((Errno::EINVAL, "takes address and port from a set that has none"));
            }
            Ok(())
        }
        Statement::Update { set, key, data } => {
            let spec = lookup(family, table, set, key)?;
            if !spec.flags.dynamic {
                return Err((Errno::EOPNOTSUPP, "adds to a set that is not dynamic"));
            }
            slots_in_range(data)?;
            match &spec.data {
                SetData::None if data.is_empty() => Ok(()),
                SetData::Fields(fields) if Field::key_len(fields, family) == Field::key_len(data, family) => {
                    Ok(())
                }
                SetData::Verdict => Err((Errno::EOPNOTSUPP, "rules can not add verdicts")),
                SetData::None | SetData::Fields(_) => Err((Errno::EINVAL, "adds data of another length")),
            }
        }
        Statement::Verdict(verdict) => leads_somewhere(table, verdict),
        Statement::CtStateNew
        | Statement::CtStatus(_)
        | Statement::SetMarkBits(_)
        | Statement::FlipMarkBits(_)
        | Statement::Masquerade
        | Statement::Reject(_)
        | Statement::Counter => Ok(()),
    }
}

fn compare(family: Family, _: Compare, value: &Value) -> Check {
    match value {
        Value::Prefix(_, addr, len) => {
            if Family::of(addr) != family || usize::from(*len) > family.addr_len() * 8 {
                return Err((Errno::EINVAL, "compares with a prefix of another family or length"));
            }
            Ok(())
        }
        Value::InputInterface { name, wildcard: _ } => {
            if name.len() > INTERFACE_NAME_MAX {
                return Err((Errno::EINVAL, "compares with an interface name longer than 15 bytes"));
            }
            Ok(())
        }
        Value::L4Proto(_) | Value::FibLocal(_) | Value::MarkBits(_) => Ok(()),
    }
}

fn lookup<'a>(family: Family, table: &'a Table, name: &SetName, key: &[Field]) -> Check<&'a SetSpec> {
    let set = table.sets.get(name).ok_or((Errno::ENOENT, "refers to a set that is not there"))?;
    slots_in_range(key)?;
    if Field::key_len(key, family) != Field::key_len(&set.decl.spec.key, family) {
        return Err((Errno::EINVAL, "looks up a key of another length than the set's"));
    }
    Ok(&set.decl.spec)
}

fn slots_in_range(fields: &[Field]) -> Check {
    if fields.contains(&Field::Slot(0)) {
        return Err((Errno::ERANGE, "draws one of no slots"));
    }
    Ok(())
}

fn leads_somewhere(table: &Table, verdict: &Verdict) -> Check {
    let Some(name) = verdict.chain() else { return Ok(()) };
    match table.chains.get(name) {
        None => Err((Errno::ENOENT, "leads to a chain that is not there")),
        Some(chain) if chain.base.is_some() => Err((Errno::EOPNOTSUPP, "leads to a base chain")),
        Some(_) => Ok(()),
    }
}

/// Whether the element is new; `false` when the same is there already.
pub(super) fn element(table: &Table, set: &Set, element: &Element) -> Check<bool> {
    let (spec, family) = (&set.decl.spec, set.decl.table.family);
    let first =
        split(&spec.key, family, &element.key).ok_or((Errno::EINVAL, "its key is of another length"))?;
    if let Some(end) = &element.key_end {
        if !spec.flags.interval {
            return Err((Errno::EINVAL, "is an interval in a set of single keys"));
        }
        let last = split(&spec.key, family, end).ok_or((Errno::EINVAL, "its end is of another length"))?;
        if first.iter().zip(&last).any(|(first, last)| first > last) {
            return Err((Errno::EINVAL, "ends before it begins"));
        }
    }
    if element.expires.is_some() && !spec.flags.timeout {
        return Err((Errno::EINVAL, "expires in a set without time-outs"));
    }
    match (&spec.data, &element.datum) {
        (SetData::None, None) => {}
        (SetData::Verdict, Some(Datum::Verdict(verdict))) => leads_somewhere(table, verdict)?,
        (SetData::Fields(fields), Some(Datum::Value(value)))
            if Field::key_len(fields, family) == value.len() => {}
        _ => return Err((Errno::EINVAL, "its datum is not of the set's type")),
    }
    if let Some(there) = set.elements.get(&element.key)
        && there.key_end.as_deref().unwrap_or(&there.key)
            == element.key_end.as_deref().unwrap_or(&element.key)
    {
        return if there.datum == element.datum {
            Ok(false)
        } else {
            Err((Errno::EEXIST, "is there with another datum"))
        };
    }
    if spec.flags.interval && overlaps(set, element) {
        return Err((Errno::EEXIST, "overlaps with another element"));
    }
    if spec.size.is_some_and(|size| set.elements.len() >= size as usize) {
        return Err((Errno::ENFILE, "the set is full"));
    }
    Ok(true)
}

fn overlaps(set: &Set, element: &Element) -> bool {
    let (fields, family) = (&set.decl.spec.key, set.decl.table.family);
    let ends = |element: &Element| {
        let first = split(fields, family, &element.key)?;
        let last =
            element.key_end.as_ref().map_or_else(|| Some(first.clone()), |end| split(fields, family, end))?;
        Some((first, last))
    };
    let Some((first, last)) = ends(element) else { return false };
    let overlap = |other: &Element| {
        ends(other).is_some_and(|(other_first, other_last)| {
            (0..first.len()).all(|i| first[i] <= other_last[i] && other_first[i] <= last[i])
        })
    };
    if fields.len() == 1 && !matches!(fields[0], Field::Slot(_)) {
        // Elements do not overlap each other, so only the nearest one before the end can reach into this one.
        let end = element.key_end.as_deref().unwrap_or(&element.key);
        return set.elements.range(..=end.clone()).next_back().is_some_and(|(_, other)| overlap(other));
    }
    set.elements.values().any(overlap)
}

//! Owns the assignment of endpoints to slots. Knows nothing of where slots are written.
//!
//! A Service port with N endpoints owns slots 0…N−1, and a new connection draws one of them. Which endpoint sits in which
//! slot depends on history, so that a change rewrites only what changed; the history is an argument here.

use crate::view::Destination;
use std::collections::HashSet;

/// Assigns `wanted` to slots 0…N−1, changing as few slots of `previous` as can be: who stays keeps its slot, newcomers fill
/// the holes, and what is left over at the end moves into the holes that remain. `wanted` has no duplicates.
pub fn assign(previous: &[Destination], wanted: &[Destination]) -> Box<[Destination]> {
    if previous.len() == wanted.len() && previous == wanted {
        return previous.into();
    }
    let wanted_set: HashSet<&Destination> = wanted.iter().collect();
    let mut kept: HashSet<&Destination> = HashSet::with_capacity(previous.len());
    // A kernel dump of a table that somebody else wrote into may name an endpoint twice: only its first slot counts.
    let mut slots: Vec<Option<Destination>> =
        previous.iter().map(|d| (wanted_set.contains(d) && kept.insert(d)).then_some(*d)).collect();
    let mut newcomers = wanted.iter().filter(|d| !kept.contains(d)).copied();
    for hole in slots.iter_mut().filter(|slot| slot.is_none()) {
        *hole = newcomers.next();
    }
    slots.extend(newcomers.map(Some));
    let mut hole = 0;
    while slots.len() > wanted.len() {
        let Some(last) = slots.pop().flatten() else { continue };
        while slots.get(hole).is_some_and(Option::is_some) {
            hole += 1;
        }
        match slots.get_mut(hole) {
            Some(slot) => *slot = Some(last),
            None => slots.push(Some(last)),
        }
    }
    slots.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(ports: &[u16]) -> Vec<Destination> {
        ports
            .iter()
            .map(|port| Destination { addr: "10.0.0.1".parse().unwrap(), port: (*port).try_into().unwrap() })
            .collect()
    }

    fn ports(slots: &[Destination]) -> Vec<u16> {
        slots.iter().map(|d| d.port.get()).collect()
    }

    #[test]
    fn a_change_rewrites_only_what_changed() {
        for (case, previous, wanted, want) in [
            ("from nothing", &[][..], &[1, 2, 3][..], &[1, 2, 3][..]),
            ("nothing changed, whatever the order", &[3, 1, 2], &[1, 2, 3], &[3, 1, 2]),
            ("one replaced", &[1, 2, 3], &[1, 3, 4], &[1, 4, 3]),
            ("one added", &[1, 2], &[1, 2, 3], &[1, 2, 3]),
            ("the last moves into the hole", &[1, 2, 3, 4], &[1, 3, 4], &[1, 4, 3]),
            ("the last goes", &[1, 2, 3], &[1, 2], &[1, 2]),
            ("several go", &[1, 2, 3, 4, 5], &[2, 5], &[5, 2]),
            ("all go", &[1, 2], &[], &[]),
            ("a foreign duplicate counts once", &[1, 1, 2], &[1, 2], &[1, 2]),
        ] {
            assert_eq!(ports(&assign(&list(previous), &list(wanted))), want, "{case}");
        }
    }

    proptest! {
        #[test]
        fn slots_hold_just_the_wanted_and_few_move(
            previous in proptest::collection::vec(1_u16..12, 0..12),
            wanted in proptest::collection::btree_set(1_u16..12, 0..12),
        ) {
            let wanted: Vec<u16> = wanted.into_iter().collect();
            let slots = ports(&assign(&list(&previous), &list(&wanted)));
            let mut sorted = slots.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&sorted, &wanted);
            // Assigning again changes nothing.
            prop_assert_eq!(ports(&assign(&list(&slots), &list(&wanted))), slots);
        }
    }
}

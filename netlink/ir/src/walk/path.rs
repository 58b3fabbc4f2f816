//! Owns the way of a packet: which hooks in which order, and which base chains in each. Knows nothing of rules.

use super::choices::Choices;
use super::eval::{Ruling, State};
use super::{Fate, Flow, Learnt, Origin, Outcome, Packet, Place, Step, WalkError, World};
use crate::{BaseChain, ChainName, ChainType, Family, Hook, Priority, Ruleset, Table, TableId, Verdict};

/// One run of a packet through the hooks.
pub(super) struct Path<'a> {
    pub(super) ruleset: &'a Ruleset,
    pub(super) world: &'a World,
    pub(super) choices: &'a mut Choices,
    pub(super) state: State,
    pub(super) learnt: Vec<Learnt>,
    pub(super) trail: Vec<Step>,
    flow: Flow,
    origin: &'a Origin,
    /// The flow's destination and source have been decided, be it that they stay (`IPS_DST_NAT_DONE`,
    /// `IPS_SRC_NAT_DONE`).
    decided: Decided,
    masqueraded: bool,
}

#[derive(Default)]
struct Decided {
    destination: bool,
    source: bool,
}

/// A base chain in its place.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) hook: Hook,
    pub(super) id: &'a TableId,
    pub(super) table: &'a Table,
    pub(super) name: &'a ChainName,
    pub(super) base: &'a BaseChain,
}

/// Why a packet does not go on to the next hook.
enum Stop {
    /// It ends here.
    End(Outcome),
    /// It can not be walked.
    Error(WalkError),
}

impl From<WalkError> for Stop {
    fn from(error: WalkError) -> Self {
        Self::Error(error)
    }
}

impl<'a> Path<'a> {
    pub(super) fn new(
        ruleset: &'a Ruleset,
        world: &'a World,
        packet: &'a Packet,
        family: Family,
        choices: &'a mut Choices,
    ) -> Self {
        let decided = Decided::default();
        let state = State::new(packet, family);
        let (flow, origin) = (packet.flow, &packet.origin);
        let (learnt, trail, masqueraded) = (Vec::new(), Vec::new(), false);
        Self { ruleset, world, choices, state, learnt, trail, flow, origin, decided, masqueraded }
    }

    pub(super) fn walk(mut self) -> Result<Fate, WalkError> {
        let outcome = match self.origin {
            Origin::Interface(name) => {
                self.state.input_interface.clone_from(name);
                self.arrive()
            }
            Origin::Host => self.leave(),
        };
        let outcome = match outcome {
            Ok(outcome) | Err(Stop::End(outcome)) => outcome,
            Err(Stop::Error(error)) => return Err(error),
        };
        Ok(Fate {
            outcome,
            masqueraded: self.masqueraded,
            mark_left: self.state.mark,
            learnt: self.learnt,
            trail: self.trail,
            draws: self.choices.drawn(),
        })
    }

    fn arrive(&mut self) -> Result<Outcome, Stop> {
        self.hook(Hook::Prerouting)?;
        if self.world.is_local(self.state.destination.ip()) {
            self.hook(Hook::Input)?;
            return Ok(self.delivered(Place::Here));
        }
        self.hook(Hook::Forward)?;
        self.hook(Hook::Postrouting)?;
        Ok(self.delivered(Place::Elsewhere))
    }

    fn leave(&mut self) -> Result<Outcome, Stop> {
        self.hook(Hook::Output)?;
        self.hook(Hook::Postrouting)?;
        if !self.world.is_local(self.state.destination.ip()) {
            return Ok(self.delivered(Place::Elsewhere));
        }
        "lo".clone_into(&mut self.state.input_interface);
        self.hook(Hook::Prerouting)?;
        self.hook(Hook::Input)?;
        Ok(self.delivered(Place::Here))
    }

    const fn delivered(&self, place: Place) -> Outcome {
        Outcome::Delivered { to: self.state.destination, place }
    }

    fn hook(&mut self, hook: Hook) -> Result<(), Stop> {
        let nat_at = match hook {
            Hook::Prerouting | Hook::Output => Some(Priority::DSTNAT),
            Hook::Postrouting | Hook::Input => Some(Priority::SRCNAT),
            Hook::Forward => None,
        };
        let filters = self.base_chains(hook, ChainType::Filter);
        let (before, after): (Vec<_>, Vec<_>) =
            filters.into_iter().partition(|place| nat_at.is_some_and(|nat| place.base.priority < nat));
        for place in before {
            self.filter(place)?;
        }
        if nat_at.is_some() {
            self.nat(hook)?;
        }
        after.into_iter().try_for_each(|place| self.filter(place))
    }

    fn filter(&mut self, place: At<'a>) -> Result<(), Stop> {
        match self.base_chain(place)? {
            Ruling::Drop => Err(Stop::End(Outcome::Dropped)),
            Ruling::Reject(reject) => Err(Stop::End(Outcome::Rejected(reject))),
            // The kernel refuses translation in a filter chain; a ruleset that has it anyway translates nothing.
            Ruling::Accept | Ruling::Dnat(_) | Ruling::Masquerade => Ok(()),
        }
    }

    /// The flow's destination (prerouting, output) or source (postrouting, input) is decided here.
    fn nat(&mut self, hook: Hook) -> Result<(), Stop> {
        let of_destination = matches!(hook, Hook::Prerouting | Hook::Output);
        let decided = if of_destination { &mut self.decided.destination } else { &mut self.decided.source };
        if std::mem::replace(decided, true) {
            return Ok(());
        }
        if let Flow::Established { translated_to, masqueraded } = self.flow {
            match translated_to {
                Some(to) if of_destination => self.state.translate(to),
                _ => {}
            }
            self.masqueraded |= masqueraded && hook == Hook::Postrouting;
            return Ok(());
        }
        for place in self.base_chains(hook, ChainType::Nat) {
            match self.base_chain(place)? {
                Ruling::Accept => {}
                Ruling::Drop => return Err(Stop::End(Outcome::Dropped)),
                Ruling::Reject(reject) => return Err(Stop::End(Outcome::Rejected(reject))),
                Ruling::Dnat(to) => {
                    self.state.translate(to);
                    return Ok(());
                }
                Ruling::Masquerade => {
                    self.masqueraded = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn base_chains(&self, hook: Hook, chain_type: ChainType) -> Vec<At<'a>> {
        let ruleset = self.ruleset;
        let mut places: Vec<At<'a>> = ruleset
            .tables
            .iter()
            .filter(|(id, _)| id.family == self.state.family)
            .flat_map(|(id, table)| table.chains.iter().map(move |(name, chain)| (id, table, name, chain)))
            .filter_map(|(id, table, name, chain)| {
                let base = chain.base.as_ref()?;
                (base.hook == hook && base.chain_type == chain_type).then_some(At {
                    hook,
                    id,
                    table,
                    name,
                    base,
                })
            })
            .collect();
        places.sort_by_key(|place| place.base.priority);
        places
    }

    /// What becomes of a packet that reaches the end of a base chain.
    pub(super) fn policy(&mut self, place: At<'a>) -> Ruling {
        if place.base.policy != Verdict::Drop {
            return Ruling::Accept;
        }
        self.trail.push(Step {
            hook: place.hook,
            table: place.id.clone(),
            chain: place.name.clone(),
            rule: None,
            found: Vec::new(),
            act: super::Act::Verdict(Verdict::Drop),
        });
        Ruling::Drop
    }
}

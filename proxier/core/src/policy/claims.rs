//! Owns whose a frontend is when several Service ports claim it. Knows nothing of what the owner does with it.

use crate::model::{ServiceName, ServicePortName};
use crate::view::{Exposure, Frontend};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;

/// A Service port that claims a frontend. The least claimant wins: whose ClusterIP it is, so that nobody takes over another
/// Service's by naming it as an external address; then the older Service, then the lower name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    /// What the frontend is to the Service.
    pub exposure: Exposure,
    /// When the Service was created, in seconds since 1970.
    pub created: i64,
    /// The Service port.
    pub port: ServicePortName,
}

/// Two Service ports claim one frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// What they claim.
    pub frontend: Frontend,
    /// Who has it.
    pub winner: ServicePortName,
    /// Who does not.
    pub loser: ServicePortName,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frontend, winner, loser } = self;
        write!(
            f,
            "Services {winner} and {loser} both claim {frontend}; {winner} has it: its ClusterIP, or older, or first by name"
        )
    }
}

/// Claimants of each frontend, the winner first.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    // Only looked up by key, never walked: its order reaches no output.
    claimants: HashMap<Frontend, SmallVec<[Claimant; 1]>>,
}

impl Claims {
    /// Who has this frontend.
    pub fn owner(&self, frontend: &Frontend) -> Option<&ServicePortName> {
        self.claimants.get(frontend).and_then(|all| all.first()).map(|claimant| &claimant.port)
    }

    /// Adds a claim. Says who conflicts, if anybody, so that the other Service is looked at again.
    pub fn claim(&mut self, frontend: Frontend, claimant: Claimant) -> Option<Conflict> {
        let all = self.claimants.entry(frontend).or_default();
        let Err(place) = all.binary_search(&claimant) else { return None };
        all.insert(place, claimant);
        match &all[..] {
            [winner, second, ..] => {
                let loser = if place == 0 { second } else { &all[place] };
                Some(Conflict { frontend, winner: winner.port.clone(), loser: loser.port.clone() })
            }
            _ => None,
        }
    }

    /// Takes a claim back. Says which Service has the frontend now, if that changed.
    pub fn release(&mut self, frontend: &Frontend, claimant: &Claimant) -> Option<ServiceName> {
        let all = self.claimants.get_mut(frontend)?;
        let place = all.iter().position(|other| other == claimant)?;
        all.remove(place);
        if all.is_empty() {
            self.claimants.remove(frontend);
            return None;
        }
        (place == 0).then(|| all[0].port.service.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nft_ir::L4Proto;

    fn port(name: &str) -> ServicePortName {
        ServicePortName { service: ServiceName::new("ns", name), port: "".into(), protocol: L4Proto::Tcp }
    }

    fn frontend() -> Frontend {
        Frontend::Address {
            addr: "192.0.2.1".parse().unwrap(),
            protocol: L4Proto::Tcp,
            port: 80.try_into().unwrap(),
        }
    }

    fn external(created: i64, name: &str) -> Claimant {
        Claimant { exposure: Exposure::External, created, port: port(name) }
    }

    #[test]
    fn a_cluster_ip_is_its_services_own_whoever_is_older() {
        let mut claims = Claims::default();
        assert_eq!(claims.claim(frontend(), external(10, "a")), None);
        let own = Claimant { exposure: Exposure::Internal, ..external(20, "b") };
        let conflict = claims.claim(frontend(), own.clone()).unwrap();
        assert_eq!((conflict.winner, conflict.loser), (port("b"), port("a")));
        assert_eq!(claims.release(&frontend(), &own), Some(port("a").service));
    }

    #[test]
    fn the_older_wins_then_the_lower_name_and_the_next_takes_over() {
        let mut claims = Claims::default();
        assert_eq!(claims.claim(frontend(), external(20, "b")), None);
        let conflict = claims.claim(frontend(), external(10, "c")).unwrap();
        assert_eq!((conflict.winner, conflict.loser), (port("c"), port("b")));
        let conflict = claims.claim(frontend(), external(20, "a")).unwrap();
        assert_eq!((conflict.winner, conflict.loser), (port("c"), port("a")));
        assert_eq!(claims.owner(&frontend()), Some(&port("c")));
        assert_eq!(claims.release(&frontend(), &external(10, "c")), Some(port("a").service));
        assert_eq!(claims.release(&frontend(), &external(20, "b")), None);
        assert_eq!(claims.owner(&frontend()), Some(&port("a")));
        assert_eq!(claims.release(&frontend(), &external(20, "a")), None);
        assert_eq!(claims.owner(&frontend()), None);
    }
}

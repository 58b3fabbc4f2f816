//! Owns the step from changes to a plan, and what is known to be in the kernel. Knows nothing of sockets, time or tasks.
//!
//! Inputs are stored, outputs are recomputed: a change marks its Service as dirty, [`Engine::plan`] views the dirty ones
//! anew and writes the difference to what was applied. What was applied advances only in [`Engine::accept`], when the
//! kernel has said yes. So a refused plan loses nothing: the same Services are still dirty.

mod adopt;
mod known;
mod plan;

pub use known::{address_frontend, destination, node_port_frontend};
pub use plan::{ForgetClients, Plan};

use crate::Change;
use crate::model::{Cluster, Service, ServiceName, ServicePortName, Touched};
use crate::policy::{Claimant, Claims, Conflict};
use crate::ruleset::{PickChain, Shared};
use crate::settings::Settings;
use crate::view::{Exposure, Frontend, ServicePortView, port_name, wanted_frontends};
use nft_ir::{Family, Table};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A Service port in one family.
pub type PortKey = (ServicePortName, Family);

/// The core: changes in, plans out.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    cluster: Cluster,
    claims: Claims,
    conflicts: Vec<Conflict>,
    dirty: Touched,
    /// Services that the kernel refused; left out of plans until they change or are tried again.
    held: BTreeSet<ServiceName>,
    /// Of these, those of which the kernel refused even what was programmed before.
    left_out: BTreeSet<ServiceName>,
    applied: Applied,
}

/// What the kernel has acknowledged.
#[derive(Debug, Default)]
struct Applied {
    /// Views by Service. A Service without any is not here.
    views: BTreeMap<ServiceName, Vec<(PortKey, ServicePortView)>>,
    /// Fixed part of each family's table; `None`: nothing is known of the kernel, it must be read.
    skeletons: [Option<Table>; 2],
    /// How many Service ports use what is shared. Only looked up by key: its order reaches no output.
    shared: HashMap<Shared, u32>,
    /// Pick chains that exist, used or not.
    chains: BTreeSet<(Family, PickChain)>,
    /// Chains of ports whose affinity went, emptied and waiting to be deleted.
    leftover_chains: BTreeSet<(Family, nft_ir::ChainName)>,
    /// Service ports that lack local endpoints, by family, internal and external.
    lacking_local: [[usize; 2]; 2],
}

impl Engine {
    /// An engine that has seen nothing and knows nothing of the kernel.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            cluster: Cluster::default(),
            claims: Claims::default(),
            conflicts: Vec::new(),
            dirty: Touched { all_services: true, skeleton: true, ..Touched::default() },
            held: BTreeSet::new(),
            left_out: BTreeSet::new(),
            applied: Applied::default(),
        }
    }

    /// Takes a change in. Nothing is written before the next plan.
    pub fn apply(&mut self, change: Change) {
        if let Change::Service(name, service) = &change {
            let before = self.cluster.service(name).cloned();
            self.contest(before.as_deref(), service.as_deref());
        }
        let mut touched = Touched::default();
        self.cluster.apply(change, &mut touched);
        for service in &touched.services {
            self.held.remove(service);
            self.left_out.remove(service);
        }
        // Not `append`, which walks both sets whole.
        self.dirty.services.extend(touched.services);
        self.dirty.all_services |= touched.all_services;
        self.dirty.skeleton |= touched.skeleton;
    }

    /// Takes frontends back that a Service no longer claims and claims those that it now does.
    fn contest(&mut self, before: Option<&Service>, after: Option<&Service>) {
        let (old, new) = (self.claimed(before), self.claimed(after));
        for (frontend, claimant) in old.difference(&new) {
            let owner = self.claims.release(frontend, claimant);
            self.dirty.services.extend(owner);
        }
        for (frontend, claimant) in new.difference(&old) {
            if let Some(conflict) = self.claims.claim(*frontend, claimant.clone()) {
                self.dirty.services.insert(conflict.loser.service.clone());
                self.dirty.services.insert(conflict.winner.service.clone());
                self.conflicts.push(conflict);
            }
        }
    }

    fn claimed(&self, service: Option<&Service>) -> BTreeSet<(Frontend, Claimant)> {
        let mut claimed = BTreeSet::new();
        if let Some(service) = service {
            for port in &service.ports {
                for family in &self.settings.families {
                    let wanted = wanted_frontends(service, port, *family).unwrap_or_default();
                    claimed.extend(wanted.into_iter().map(|wanted| {
                        let (created, port) = (service.created, port_name(service, port));
                        (wanted.frontend, Claimant { exposure: wanted.exposure, created, port })
                    }));
                }
            }
        }
        claimed
    }

    /// Conflicts over frontends since the last call.
    pub fn take_conflicts(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.conflicts)
    }

    /// Whether a plan would have something to look at.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// What the operator decided.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the sources said.
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What is programmed for each Service port.
    pub fn views(&self) -> impl Iterator<Item = &(PortKey, ServicePortView)> {
        self.applied.views.values().flatten()
    }

    /// What is programmed for the ports of a Service.
    pub fn views_of(&self, service: &ServiceName) -> &[(PortKey, ServicePortView)] {
        self.applied.views.get(service).map_or(&[], |views| views)
    }

    /// Who has a frontend.
    pub fn owner(&self, frontend: &Frontend) -> Option<&ServicePortName> {
        self.claims.owner(frontend)
    }

    /// Service ports of a family whose policy for this exposure leaves no endpoint here, although there are some
    /// elsewhere.
    pub const fn lacking_local(&self, family: Family, exposure: Exposure) -> usize {
        self.applied.lacking_local[crate::ruleset::family_index(family)][exposure as usize]
    }

    /// Leaves a Service out of plans, because the kernel refused it. What is programmed for it stays as it is, and it stays
    /// dirty: it is looked at again when it changes, or after [`Self::release_held`].
    ///
    /// Held again, the kernel has refused even what was programmed: then nothing of it is written. Says `false` if that is so
    /// already, and the Service cannot be to blame.
    pub fn hold(&mut self, service: ServiceName) -> bool {
        self.held.insert(service.clone()) || self.left_out.insert(service)
    }

    /// Services that are left out.
    pub const fn held(&self) -> &BTreeSet<ServiceName> {
        &self.held
    }

    /// Lets the next plan look at the held Services again.
    pub fn release_held(&mut self) {
        self.left_out.clear();
        self.dirty.services.extend(std::mem::take(&mut self.held));
    }

    fn service(&self, name: &ServiceName) -> Option<&Arc<Service>> {
        self.cluster.service(name)
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

//! Owns what one Service port has in the maps, and what has to be written when it changes. Knows nothing of other Services
//! (what several share is counted by the engine) or of the kernel.

use super::affinity::StickyPort;
use super::names::{SETS, SetId, family_index};
use super::pick::{PickChain, PickKind};
use super::skeleton::reject_chain;
use crate::model::{Cidr, ServicePortName, TrafficPolicy};
use crate::view::{Destination, Exposure, Frontend, FrontendView, ServicePortView};
use nft_ir::{Datum, Element, Family, Key, KeyBuilder, L4Proto, NameError, Verdict};
use std::net::IpAddr;

/// Elements to delete from and then to add to one set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SetEdit {
    /// Deleted first.
    pub delete: Vec<Element>,
    /// Added then.
    pub add: Vec<Element>,
}

/// Something that several Service ports may need; it is there while any does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shared {
    /// An element of `cluster-ips`.
    ClusterIp(IpAddr),
    /// An element of `hairpin`.
    Hairpin(L4Proto, Destination),
    /// A pick chain.
    Chain(Family, PickChain),
}

/// What has to be written.
#[derive(Debug, Clone, Default)]
pub struct Delta {
    /// By family and set.
    pub edits: [[SetEdit; SETS]; 2],
    /// Uses gained and lost of what is shared.
    pub shared: Vec<(Shared, i32)>,
    /// Affinity objects that go.
    pub sticky_gone: Vec<(Family, StickyPort)>,
    /// Affinity objects that come or change.
    pub sticky_new: Vec<(Family, StickyPort)>,
}

impl Delta {
    /// Adds what leads from `old` to `new`. The error is a port name that the kernel cannot hold; nothing was added then.
    pub fn add(
        &mut self,
        port: &ServicePortName,
        old: Option<&ServicePortView>,
        new: Option<&ServicePortView>,
    ) -> Result<(), NameError> {
        let sticky = |view: Option<&ServicePortView>| view.map(|view| sticky(port, view)).transpose();
        let (old_sticky, new_sticky) = (sticky(old)?.flatten(), sticky(new)?.flatten());
        let comment = comment(port);
        let mut olds = old.map_or(&[][..], |view| &view.frontends).iter().peekable();
        let mut news = new.map_or(&[][..], |view| &view.frontends).iter().peekable();
        // Both are sorted: walk them side by side.
        loop {
            let (before, after) = match (olds.peek(), news.peek()) {
                (None, None) => break,
                (Some(o), Some(n)) if o.frontend == n.frontend => (olds.next(), news.next()),
                (Some(o), Some(n)) if o.frontend < n.frontend => (olds.next(), None),
                (Some(_), None) => (olds.next(), None),
                (_, Some(_)) => (None, news.next()),
            };
            let Some(frontend) = before.or(after).map(|fv| fv.frontend) else { break };
            let (before, after) = (Rows::of_some(before, old), Rows::of_some(after, new));
            self.frontend(frontend, &before, &after, &comment);
            self.sticky(frontend, (&before, old_sticky.as_ref()), (&after, new_sticky.as_ref()));
        }
        let hairpins = |view: Option<&ServicePortView>| {
            view.map(|v| v.reachable_local.iter().map(|d| Shared::Hairpin(v.protocol, *d)).collect())
                .unwrap_or_default()
        };
        self.share(hairpins(old), hairpins(new));
        if let Some(family) = new.or(old).map(|view| view.family)
            && old_sticky != new_sticky
        {
            self.sticky_gone.extend(old_sticky.map(|sticky| (family, sticky)));
            self.sticky_new.extend(new_sticky.map(|sticky| (family, sticky)));
        }
        Ok(())
    }

    fn frontend(&mut self, frontend: Frontend, old: &Rows<'_>, new: &Rows<'_>, comment: &str) {
        let sets = Sets::of(&frontend);
        let edits = &mut self.edits[family_index(frontend.family())];
        let verdict = |verdict: Option<Verdict>| {
            verdict.map(|verdict| {
                Element::of_map(frontend_key(&frontend), Datum::Verdict(verdict)).comment(comment)
            })
        };
        let chain = |chain: Option<PickChain>| verdict(chain.map(|chain| Verdict::Goto(chain.name())));
        if old.dispatch != new.dispatch {
            edits[sets.dispatch as usize].replace(chain(old.dispatch), chain(new.dispatch));
        }
        if old.local_dispatch != new.local_dispatch {
            edits[sets.local_dispatch as usize].replace(chain(old.local_dispatch), chain(new.local_dispatch));
        }
        if old.refuse != new.refuse {
            let refuse = |refuse: Option<Refuse>| {
                verdict(refuse.map(|refuse| match refuse {
                    Refuse::Reject => Verdict::Goto(reject_chain()),
                    Refuse::Drop => Verdict::Drop,
                }))
            };
            edits[sets.no_endpoints as usize].replace(refuse(old.refuse), refuse(new.refuse));
        }
        edits[sets.endpoints as usize].slots(&frontend, old.slots, new.slots);
        edits[sets.local_endpoints as usize].slots(&frontend, old.local_slots, new.local_slots);
        if old.ranges != new.ranges {
            let guard = |ranges: Option<&[Cidr]>| ranges.map(|_| Element::of_set(frontend_key(&frontend)));
            edits[SetId::SourceGuarded as usize].replace(guard(old.ranges), guard(new.ranges));
            let ranges = |ranges: Option<&[Cidr]>| -> Vec<Element> {
                ranges.unwrap_or_default().iter().map(|range| source_range(&frontend, range)).collect()
            };
            edits[SetId::SourceRanges as usize].list(&ranges(old.ranges), ranges(new.ranges));
        }
        self.share(old.shared(&frontend), new.shared(&frontend));
    }

    fn sticky(
        &mut self,
        frontend: Frontend,
        (old_rows, old): (&Rows<'_>, Option<&StickyPort>),
        (new_rows, new): (&Rows<'_>, Option<&StickyPort>),
    ) {
        let sets = Sets::of(&frontend);
        let edits = &mut self.edits[family_index(frontend.family())];
        let element = |verdict: Option<Verdict>| {
            verdict.map(|verdict| Element::of_map(frontend_key(&frontend), Datum::Verdict(verdict)))
        };
        let mut edit = |set: SetId, verdict: &dyn Fn(&Rows<'_>, &StickyPort) -> Option<Verdict>| {
            let before = element(old.and_then(|sticky| verdict(old_rows, sticky)));
            let after = element(new.and_then(|sticky| verdict(new_rows, sticky)));
            if before != after {
                edits[set as usize].replace(before, after);
            }
        };
        edit(sets.sticky, &|rows, sticky| {
            let internal_local = rows.cluster_is_local && sticky.local_clients.is_some();
            let read = if internal_local { sticky.read_local() } else { sticky.read() };
            (!rows.slots.is_empty()).then_some(read)
        });
        edit(sets.sticky_local, &|rows, sticky| (!rows.local_slots.is_empty()).then(|| sticky.read_local()));
        edit(sets.learn, &|rows, sticky| rows.dispatch.map(|_| sticky.note()));
    }

    fn share(&mut self, old: Vec<Shared>, new: Vec<Shared>) {
        if old != new {
            self.shared.extend(old.into_iter().map(|shared| (shared, -1)));
            self.shared.extend(new.into_iter().map(|shared| (shared, 1)));
        }
    }
}

/// The affinity objects of a Service port.
pub fn sticky(port: &ServicePortName, view: &ServicePortView) -> Result<Option<StickyPort>, NameError> {
    let local = view.internal_policy == TrafficPolicy::Local || view.external_policy == TrafficPolicy::Local;
    let sticky =
        |affinity: crate::model::Affinity| StickyPort::new(view.family, port, affinity.timeout, local);
    view.affinity.map(sticky).transpose()
}

/// How new traffic without an endpoint is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refuse {
    /// There is no endpoint at all.
    Reject,
    /// There are some, but not for this traffic here.
    Drop,
}

/// What one frontend has in the maps.
#[derive(Debug, Clone, Copy, Default)]
struct Rows<'a> {
    dispatch: Option<PickChain>,
    slots: &'a [Destination],
    local_dispatch: Option<PickChain>,
    local_slots: &'a [Destination],
    refuse: Option<Refuse>,
    ranges: Option<&'a [Cidr]>,
    cluster_ip: bool,
    /// `slots` holds this node's endpoints only.
    cluster_is_local: bool,
}

impl<'a> Rows<'a> {
    fn of_some(fv: Option<&FrontendView>, view: Option<&'a ServicePortView>) -> Self {
        fv.zip(view).map(|(fv, view)| Self::of(fv, view)).unwrap_or_default()
    }

    fn of(fv: &FrontendView, view: &'a ServicePortView) -> Self {
        let node_port = matches!(fv.frontend, Frontend::NodePort { .. });
        let policy = view.policy(fv);
        let mut rows = Self {
            ranges: view.source_ranges.as_deref().filter(|_| fv.guarded),
            cluster_ip: fv.exposure == Exposure::Internal,
            ..Self::default()
        };
        if !view.usable_somewhere {
            rows.refuse = Some(Refuse::Reject);
            return rows;
        }
        let (slots, kind) = match (fv.exposure, policy) {
            (Exposure::Internal, TrafficPolicy::Cluster) => (&view.cluster, PickKind::Pick),
            (Exposure::Internal, TrafficPolicy::Local) => (&view.local, PickKind::Pick),
            (Exposure::External, TrafficPolicy::Cluster) if node_port => (&view.cluster, PickKind::NodePort),
            (Exposure::External, TrafficPolicy::Cluster) => (&view.cluster, PickKind::External),
            (Exposure::External, TrafficPolicy::Local) if node_port => {
                (&view.cluster, PickKind::NodePortLocal)
            }
            (Exposure::External, TrafficPolicy::Local) => (&view.cluster, PickKind::ExternalLocal),
        };
        rows.cluster_is_local = (fv.exposure, policy) == (Exposure::Internal, TrafficPolicy::Local);
        rows.slots = slots;
        rows.dispatch = pick(kind, slots);
        if (fv.exposure, policy) == (Exposure::External, TrafficPolicy::Local) {
            let kind = if node_port { PickKind::LocalNodePortPick } else { PickKind::LocalPick };
            rows.local_slots = &view.local;
            rows.local_dispatch = pick(kind, &view.local);
        }
        if policy == TrafficPolicy::Local && view.local.is_empty() || slots.is_empty() {
            rows.refuse = Some(Refuse::Drop);
        }
        rows
    }

    fn shared(&self, frontend: &Frontend) -> Vec<Shared> {
        let mut shared = Vec::new();
        for chain in [self.dispatch, self.local_dispatch].into_iter().flatten() {
            let family = frontend.family();
            shared.extend(chain.needs().map(|next| Shared::Chain(family, next)));
            shared.push(Shared::Chain(family, chain));
        }
        if let (true, Frontend::Address { addr, .. }) = (self.cluster_ip, frontend) {
            shared.push(Shared::ClusterIp(*addr));
        }
        shared
    }
}

fn pick(kind: PickKind, slots: &[Destination]) -> Option<PickChain> {
    u32::try_from(slots.len()).ok().filter(|slots| *slots > 0).map(|slots| PickChain { kind, slots })
}

/// The sets that a frontend of this kind is in.
struct Sets {
    dispatch: SetId,
    endpoints: SetId,
    local_dispatch: SetId,
    local_endpoints: SetId,
    no_endpoints: SetId,
    sticky: SetId,
    sticky_local: SetId,
    learn: SetId,
}

impl Sets {
    const fn of(frontend: &Frontend) -> Self {
        match frontend {
            Frontend::Address { .. } => Self {
                dispatch: SetId::Services,
                endpoints: SetId::Endpoints,
                local_dispatch: SetId::LocalServices,
                local_endpoints: SetId::LocalEndpoints,
                no_endpoints: SetId::NoEndpoints,
                sticky: SetId::Sticky,
                sticky_local: SetId::StickyLocal,
                learn: SetId::Learn,
            },
            Frontend::NodePort { .. } => Self {
                dispatch: SetId::NodePorts,
                endpoints: SetId::NodePortEndpoints,
                local_dispatch: SetId::LocalNodePorts,
                local_endpoints: SetId::LocalNodePortEndpoints,
                no_endpoints: SetId::NoEndpointNodePorts,
                sticky: SetId::StickyNodePorts,
                sticky_local: SetId::StickyLocalNodePorts,
                learn: SetId::LearnNodePorts,
            },
        }
    }
}

impl SetEdit {
    fn replace(&mut self, old: Option<Element>, new: Option<Element>) {
        // A changed value is delete and add: adding a key that is there with another value is EEXIST.
        self.delete.extend(old);
        self.add.extend(new);
    }

    fn slots(&mut self, frontend: &Frontend, old: &[Destination], new: &[Destination]) {
        for index in 0..old.len().max(new.len()) {
            let (before, after) = (old.get(index), new.get(index));
            if before != after {
                let element = |to: &Destination| slot(frontend, index, to);
                self.replace(before.map(element), after.map(element));
            }
        }
    }

    fn list(&mut self, old: &[Element], new: Vec<Element>) {
        self.delete.extend(old.iter().filter(|element| !new.contains(element)).cloned());
        self.add.extend(new.into_iter().filter(|element| !old.contains(element)));
    }
}

fn slot(frontend: &Frontend, index: usize, to: &Destination) -> Element {
    let mut key = frontend_key(frontend);
    // A Service port has fewer than 2^32 endpoints: they would not fit in memory.
    #[expect(clippy::cast_possible_truncation, reason = "see above")]
    key.extend_from_slice(&(index as u32).to_ne_bytes());
    Element::of_map(key, Datum::Value(KeyBuilder::new().addr(to.addr).port(to.port.get()).build()))
}

fn source_range(frontend: &Frontend, range: &Cidr) -> Element {
    let bound = |addr: IpAddr| {
        let mut key = frontend_key(frontend);
        key.extend_from_slice(&KeyBuilder::new().addr(addr).build());
        key
    };
    Element::of_set(bound(range.addr())).through(bound(range.last()))
}

/// The key of a frontend in the maps of its kind.
pub fn frontend_key(frontend: &Frontend) -> Key {
    match frontend {
        Frontend::Address { addr, protocol, port } => {
            KeyBuilder::new().addr(*addr).proto(*protocol).port(port.get()).build()
        }
        Frontend::NodePort { protocol, port, .. } => {
            KeyBuilder::new().proto(*protocol).port(port.get()).build()
        }
    }
}

impl Frontend {
    /// The family whose table it is in.
    pub const fn family(&self) -> Family {
        match self {
            Self::Address { addr, .. } => Family::of(addr),
            Self::NodePort { family, .. } => *family,
        }
    }
}

/// The longest comment that nft prints, in bytes.
const COMMENT_MAX: usize = 127;

fn comment(port: &ServicePortName) -> String {
    let mut comment = port.to_string();
    while comment.len() > COMMENT_MAX {
        comment.pop();
    }
    comment
}

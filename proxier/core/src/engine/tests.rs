//! Owns the tests of the engine: what a change writes, and that no history ends elsewhere than a fresh start does.

use super::*;
use crate::fixtures::{cidr, host, no_service, no_slice, node, service, slice};
use crate::ruleset::{SetId, set_name, table_id};
use crate::settings::DetectLocal;
use nft_ir::{Op, Ruleset, Transaction};
use proptest::prelude::*;

fn settings() -> Settings {
    Settings { detect_local: DetectLocal::ClusterCidr(vec![cidr("10.244.0.0/16")]), ..Settings::new("here") }
}

/// An engine and the kernel it writes to, in memory.
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) kernel: Ruleset,
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self { engine: Engine::new(settings()), kernel: Ruleset::default() };
        world.apply([node("here", &["192.168.77.11"]), host(&["192.168.77.11"])]);
        world
    }

    fn plan(&self) -> Plan {
        if self.engine.must_adopt() {
            let table = |family| self.kernel.tables.get(&table_id(family)).cloned();
            self.engine.adopt([table(Family::Ip), table(Family::Ip6)])
        } else {
            self.engine.plan()
        }
    }

    fn sync(&mut self) -> Transaction {
        let plan = self.plan();
        let transaction = plan.transaction.clone();
        if let Err(refusal) = self.kernel.apply(&transaction) {
            panic!("{refusal}\n{transaction}");
        }
        self.engine.accept(plan);
        transaction
    }

    /// Sweeps until there is nothing left; the first of the transactions.
    fn sweep(&mut self) -> Transaction {
        let first = self.engine.sweep();
        loop {
            let transaction = self.engine.sweep();
            if let Err(refusal) = self.kernel.apply(&transaction) {
                panic!("{refusal}\n{transaction}");
            }
            if !self.engine.swept() {
                return first;
            }
        }
    }

    pub(super) fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Transaction {
        for change in changes {
            self.engine.apply(change);
        }
        self.sync()
    }

    /// What the kernel holds, with the endpoints of each frontend as a set instead of in slots.
    fn meaning(&self) -> Ruleset {
        let mut ruleset = self.kernel.clone();
        for (id, table) in &mut ruleset.tables {
            for slots in [
                SetId::Endpoints,
                SetId::LocalEndpoints,
                SetId::NodePortEndpoints,
                SetId::LocalNodePortEndpoints,
            ] {
                let set = table.sets.get_mut(&set_name(slots)).unwrap();
                let mut by_frontend: BTreeMap<nft_ir::Key, Vec<_>> = BTreeMap::new();
                for (key, element) in &set.elements {
                    let (frontend, slot) = key.split_at(key.len() - 4);
                    let all = by_frontend.entry(frontend.into()).or_default();
                    all.push((u32::from_ne_bytes(slot.try_into().unwrap()), element.datum.clone()));
                }
                set.elements.clear();
                for (frontend, mut all) in by_frontend {
                    all.sort();
                    assert!(
                        all.iter().map(|(slot, _)| *slot).eq(0..u32::try_from(all.len()).unwrap()),
                        "{id:?}: slots are dense"
                    );
                    all.sort_by(|(_, a), (_, b)| a.cmp(b));
                    for (index, (_, datum)) in all.into_iter().enumerate() {
                        let mut key = frontend.clone();
                        key.extend_from_slice(&u32::try_from(index).unwrap().to_ne_bytes());
                        set.elements
                            .insert(key.clone(), nft_ir::Element { datum, ..nft_ir::Element::of_set(key) });
                    }
                }
            }
        }
        ruleset
    }
}

fn web() -> Service {
    service("web", &["10.96.0.10"]).tcp(80)
}

#[test]
fn a_start_on_what_is_right_writes_nothing() {
    let mut world = World::new();
    world.apply([
        web().load_balancer(&["203.0.113.7"]).from(&["192.0.2.0/24"]).external_local().sticky(60).upsert(),
        slice("web-1", "web", 8080, &["10.244.1.2@here", "10.244.2.2@there"]).upsert(),
    ]);
    world.engine.forget_kernel();
    assert_eq!(world.sync().to_string(), Transaction::default().to_string());
    let mut restarted = Engine::new(settings());
    for change in [
        node("here", &["192.168.77.11"]),
        host(&["192.168.77.11"]),
        web().load_balancer(&["203.0.113.7"]).from(&["192.0.2.0/24"]).external_local().sticky(60).upsert(),
        slice("web-1", "web", 8080, &["10.244.2.2@there", "10.244.1.2@here"]).upsert(),
    ] {
        restarted.apply(change);
    }
    world.engine = restarted;
    assert_eq!(world.sync().to_string(), Transaction::default().to_string());
}

#[test]
fn one_endpoint_replaced_is_one_slot_rewritten() {
    let mut world = World::new();
    let ready = |endpoints: &[&str]| slice("web-1", "web", 8080, endpoints).upsert();
    world.apply([web().upsert(), ready(&["10.244.2.2@x", "10.244.2.3@x", "10.244.2.4@x"])]);
    let change = world.apply([ready(&["10.244.2.2@x", "10.244.2.9@x", "10.244.2.4@x"])]);
    assert_eq!(change.element_count(), 2, "{change}");
    assert_eq!(change.ops.len(), 2, "{change}");
    let change = world.apply([ready(&["10.244.2.2@x", "10.244.2.4@x"])]);
    // The last slot moves into the hole: delete both, add one; the verdict changes: delete and add.
    assert_eq!(change.element_count(), 5, "{change}");
    assert!(world.apply([ready(&["10.244.2.4@x", "10.244.2.2@x"])]).is_empty());
}

#[test]
fn a_refused_plan_loses_nothing() {
    let mut world = World::new();
    world.engine.apply(web().upsert());
    let dropped = world.plan();
    assert!(!dropped.transaction.is_empty());
    assert_eq!(world.sync(), dropped.transaction);
}

#[test]
fn a_held_service_holds_nobody_else_up() {
    let mut world = World::new();
    world.engine.apply(web().upsert());
    world.engine.apply(service("other", &["10.96.0.11"]).tcp(80).upsert());
    world.engine.hold(ServiceName::new("ns", "web"));
    let change = world.sync().to_string();
    assert!(change.contains("10.96.0.11") && !change.contains("10.96.0.10"), "{change}");
    assert!(!world.engine.is_dirty());
    world.engine.release_held();
    assert!(world.sync().to_string().contains("10.96.0.10"));
}

#[test]
fn pick_chains_are_swept_in_a_later_transaction() {
    let mut world = World::new();
    world.apply([web().upsert(), slice("web-1", "web", 8080, &["10.244.2.2@x", "10.244.2.3@x"]).upsert()]);
    let change = world.apply([no_slice("web-1")]);
    assert!(!change.ops.iter().any(|op| matches!(op, Op::DeleteChain { .. })), "{change}");
    let sweep = world.sweep();
    assert_eq!(sweep.to_string().matches("delete chain").count(), 1, "{sweep}");
    assert!(world.sweep().is_empty());
    world.apply([slice("web-1", "web", 8080, &["10.244.2.2@x", "10.244.2.3@x"]).upsert()]);
    world.apply([no_service("web")]);
    world.sweep();
}

#[test]
fn affinity_comes_changes_and_goes() {
    let mut world = World::new();
    world.apply([web().sticky(60).upsert(), slice("web-1", "web", 8080, &["10.244.2.2@x"]).upsert()]);
    let change = world.apply([web().sticky(120).upsert()]);
    assert!(!change.to_string().contains("delete map"), "learnt clients stay: {change}");
    let change = world.apply([web().upsert()]);
    assert!(change.to_string().contains("delete map ip proxier affinity-ns/web/tcp/"), "{change}");
    world.sweep();
    let fresh = {
        let mut fresh = World::new();
        fresh.apply([web().upsert(), slice("web-1", "web", 8080, &["10.244.2.2@x"]).upsert()]);
        fresh
    };
    assert_eq!(world.kernel.to_string(), fresh.kernel.to_string());
}

#[derive(Debug, Clone)]
enum Act {
    Service(Box<Service>),
    NoService(usize),
    Slice(usize, Vec<String>),
    NoSlice(usize),
    Zone(bool),
    Cidrs(bool),
    Host(bool),
}

fn acts() -> impl Strategy<Value = Vec<(Act, bool, bool)>> {
    let a_service = (
        0..3_usize,
        0..2_i64,
        any::<[bool; 6]>(),
        proptest::sample::subsequence(vec!["203.0.113.1", "203.0.113.2", "2001:db8::1"], 0..3),
        proptest::sample::subsequence(vec!["203.0.113.2", "203.0.113.3"], 0..2),
        proptest::sample::subsequence(
            vec!["192.0.2.0/24", "192.0.0.0/16", "192.168.0.0/16", "fd00::/8"],
            0..3,
        ),
    )
        .prop_map(
            |(n, created, [v6, node_port, internal, external, sticky, udp], lbs, externals, ranges)| {
                let ips = [format!("10.96.0.1{n}"), format!("fd00:10:96::1{n}")];
                let ips: Vec<&str> = ips.iter().map(String::as_str).take(1 + usize::from(v6)).collect();
                let mut s = service(&format!("s{n}"), &ips)
                    .created(created)
                    .port("", nft_ir::L4Proto::Tcp, 80, if node_port { 30080 } else { 0 })
                    .load_balancer(&lbs)
                    .external(&externals)
                    .from(&ranges);
                if udp {
                    s = s.port("dns", nft_ir::L4Proto::Udp, 53, 0);
                }
                if internal {
                    s = s.internal_local();
                }
                if external {
                    s = s.external_local();
                }
                if sticky {
                    s = s.sticky(60);
                }
                Act::Service(Box::new(s))
            },
        );
    let endpoints = proptest::sample::subsequence(
        vec![
            "10.244.1.1@here",
            "10.244.1.2@here leaving",
            "10.244.2.1@there",
            "10.244.2.2@there",
            "10.244.2.3@there leaving",
        ],
        0..5,
    );
    let v6 = proptest::sample::subsequence(
        vec!["fd00:10:244::1@here", "fd00:10:244::2@there", "fd00:10:244::3@there"],
        1..3,
    );
    let own = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect();
    let act = prop_oneof![
        4 => a_service,
        1 => (0..3_usize).prop_map(Act::NoService),
        4 => (0..4_usize, endpoints).prop_map(move |(n, e)| Act::Slice(n, own(e))),
        2 => (4..6_usize, v6).prop_map(move |(n, e)| Act::Slice(n, own(e))),
        1 => (0..6_usize).prop_map(Act::NoSlice),
        1 => any::<bool>().prop_map(Act::Zone),
        1 => any::<bool>().prop_map(Act::Cidrs),
        1 => any::<bool>().prop_map(Act::Host),
    ];
    proptest::collection::vec((act, proptest::bool::weighted(0.2), proptest::bool::weighted(0.1)), 1..24)
}

fn change(act: Act) -> Change {
    match act {
        Act::Service(service) => service.upsert(),
        Act::NoService(n) => no_service(&format!("s{n}")),
        Act::Slice(n, endpoints) => {
            let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
            slice(&format!("slice-{n}"), &format!("s{}", n % 3), 8080, &endpoints)
                .and_port("dns", nft_ir::L4Proto::Udp, 5353)
                .upsert()
        }
        Act::NoSlice(n) => no_slice(&format!("slice-{n}")),
        Act::Zone(zone) => Change::Node(Some(Arc::new(crate::model::Node {
            name: "here".into(),
            addresses: vec!["192.168.77.11".parse().unwrap()],
            zone: zone.then(|| "zone-a".into()),
            ..crate::model::Node::default()
        }))),
        Act::Cidrs(two) => Change::ServiceCidr(
            "kubernetes".into(),
            if two {
                vec![cidr("10.96.0.0/12"), cidr("fd00:10:96::/112")]
            } else {
                vec![cidr("10.96.0.0/12")]
            },
        ),
        Act::Host(two) => host(&["192.168.77.11", "10.0.0.1"][..1 + usize::from(two)]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// After any history, with refused transactions, sweeps and restarts in between, the kernel holds what a fresh start
    /// makes of the same cluster.
    #[test]
    fn every_history_ends_where_a_fresh_start_does(acts in acts()) {
        let mut world = World::new();
        let mut fresh = World { engine: Engine::new(settings()), kernel: Ruleset::default() };
        for step in [node("here", &["192.168.77.11"]), host(&["192.168.77.11"])] {
            fresh.engine.apply(step);
        }
        for (act, refused, restart) in acts {
            world.engine.apply(change(act.clone()));
            fresh.engine.apply(change(act));
            if refused {
                drop(world.plan());
                continue;
            }
            if restart {
                world.engine.forget_kernel();
            }
            world.sync();
            if restart {
                world.sweep();
            }
        }
        world.sync();
        world.sweep();
        fresh.sync();
        fresh.sweep();
        let (world_text, fresh_text) = (world.meaning().to_string(), fresh.meaning().to_string());
        prop_assert_eq!(world_text, fresh_text);
        for family in Family::ALL {
            for exposure in [Exposure::Internal, Exposure::External] {
                prop_assert_eq!(
                    world.engine.lacking_local(family, exposure),
                    fresh.engine.lacking_local(family, exposure)
                );
            }
        }
        // And a restart on it writes nothing.
        world.engine.forget_kernel();
        prop_assert_eq!(world.sync().to_string(), "");
    }
}

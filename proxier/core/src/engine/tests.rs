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
fn a_held_service_stays_as_it_was_even_when_the_kernel_is_read_again() {
    let mut world = World::new();
    let ready = |endpoints: &[&str]| slice("web-1", "web", 8080, endpoints).upsert();
    world.apply([web().upsert(), ready(&["10.244.2.2@x"])]);
    let before = world.kernel.to_string();
    world.engine.apply(ready(&["10.244.2.3@x"]));
    world.engine.hold(ServiceName::new("ns", "web"));
    world.engine.forget_kernel();
    assert!(world.sync().is_empty());
    assert_eq!(world.kernel.to_string(), before);
    world.engine.release_held();
    assert!(world.sync().to_string().contains("10.244.2.3"));
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

/// Chains, rules and sets of the whole ruleset.
fn size(world: &World) -> [usize; 3] {
    let tables = || world.kernel.tables.values();
    let chains = tables().map(|table| table.chains.len()).sum();
    let rules = tables().flat_map(|table| table.chains.values()).map(|chain| chain.rules.len()).sum();
    [chains, rules, tables().map(|table| table.sets.len()).sum()]
}

#[test]
fn rules_do_not_grow_with_services_endpoints_of_a_number_or_ranges() {
    let world_of = |services: usize, ranges: usize| {
        let mut world = World::new();
        let ranges: Vec<String> = (0..ranges).map(|n| format!("192.0.{n}.0/24")).collect();
        let ranges: Vec<&str> = ranges.iter().map(String::as_str).collect();
        for n in 0..services {
            let name = format!("s{n}");
            let (high, low) = (n / 250, n % 250 + 1);
            let node_port = 30_000 + u16::try_from(n).unwrap();
            world.engine.apply(
                service(&name, &[&format!("10.96.{high}.{low}")])
                    .port("", nft_ir::L4Proto::Tcp, 80, node_port)
                    .load_balancer(&[&format!("203.0.{high}.{low}")])
                    .from(&ranges)
                    .external_local()
                    .upsert(),
            );
            let endpoints = [format!("10.244.{high}.{low}@here"), format!("10.245.{high}.{low}@there")];
            world.engine.apply(slice(&name, &name, 8080, &[&endpoints[0], &endpoints[1]]).upsert());
        }
        world.sync();
        size(&world)
    };
    assert_eq!(world_of(2, 1), world_of(1000, 1));
    assert_eq!(world_of(2, 1), world_of(2, 50));
}

#[test]
fn affinity_costs_a_constant_per_service_port_and_nothing_per_endpoint() {
    let world_of = |sticky: usize, endpoints: usize| {
        let mut world = World::new();
        let endpoints: Vec<String> =
            (0..endpoints).map(|n| format!("10.244.{}.{}@there", n / 250, n % 250 + 1)).collect();
        let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        for n in 0..sticky {
            let name = format!("s{n}");
            world.engine.apply(service(&name, &[&format!("10.96.0.{}", n + 1)]).tcp(80).sticky(60).upsert());
            world.engine.apply(slice(&name, &name, 8080, &endpoints).upsert());
        }
        world.sync();
        (size(&world), world)
    };
    let ([chains, rules, sets], _) = world_of(1, 2);
    assert_eq!(
        world_of(11, 2).0,
        [chains + 20, rules + 20, sets + 10],
        "two chains, two rules and a map each"
    );
    let (of_many, mut many) = world_of(1, 1000);
    // A pick chain has one rule more than one for a single endpoint, whatever the number.
    assert_eq!(of_many, [chains, rules, sets]);
    let more: Vec<String> = (0..1001).map(|n| format!("10.244.{}.{}@there", n / 250, n % 250 + 1)).collect();
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let change = many.apply([slice("s0", "s0", 8080, &more).upsert()]);
    assert_eq!(change.element_count(), 3, "one of 1,000 costs what one of two does: a slot and a verdict");
}

proptest! {
    /// f17: hundreds of changes across slices of a Service with policy Local; after quiet, the local list is the API's.
    #[test]
    fn f17_the_local_list_equals_the_slices(
        changes in proptest::collection::vec(
            (0..4_usize, proptest::collection::btree_map(1_u8..9, 0..4_usize, 0..5)), 1..60),
        syncs in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let mut world = World::new();
        world.engine.apply(web().external_local().load_balancer(&["203.0.113.7"]).upsert());
        let mut api: BTreeMap<usize, BTreeMap<u8, usize>> = BTreeMap::new();
        const STATES: [&str; 4] = ["@here", "@there", "@here leaving", "@here unready"];
        for ((n, endpoints), sync) in changes.into_iter().zip(syncs) {
            let words: Vec<String> =
                endpoints.iter().map(|(host, state)| format!("10.244.1.{host}{}", STATES[*state])).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            world.engine.apply(slice(&format!("slice-{n}"), "web", 8080, &words).upsert());
            api.insert(n, endpoints);
            if sync {
                world.sync();
            }
        }
        world.sync();
        // An endpoint in several slices counts as not terminating if one says so, and as ready if one of those does.
        let rank = |state: usize| [0, 0, 2, 1][state];
        let mut best: BTreeMap<u8, usize> = BTreeMap::new();
        for endpoints in api.values() {
            for (host, state) in endpoints {
                let known = best.entry(*host).or_insert(*state);
                if rank(*state) < rank(*known) {
                    *known = *state;
                }
            }
        }
        // One host is on one node in the API; slices that disagree about that say nothing of the proxier.
        prop_assume!(!api.values().flatten().any(|(host, state)| {
            (*state == 1) != api.values().filter_map(|e| e.get(host)).all(|other| *other == 1)
                && api.values().filter_map(|e| e.get(host)).any(|other| *other == 1)
        }));
        let of_state = |state: usize| best.iter().filter(move |(_, s)| **s == state).map(|(host, _)| *host);
        let mut want: Vec<u8> = of_state(0).collect();
        if want.is_empty() {
            want = of_state(2).collect();
        }
        let views = world.engine.views_of(&ServiceName::new("ns", "web"));
        let mut got: Vec<u8> = views
            .iter()
            .flat_map(|(_, view)| view.local.iter())
            .map(|d| match d.addr {
                std::net::IpAddr::V4(addr) => addr.octets()[3],
                std::net::IpAddr::V6(_) => 0,
            })
            .collect();
        got.sort_unstable();
        prop_assert_eq!(got, want);
    }
}

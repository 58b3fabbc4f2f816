//! Owns row s02 and case f11: what others do to our tables is repaired, what they do to their own is none of our business.
//! Knows nothing of how the program notices.

use crate::{cluster, serve, web, web_service};
use integration::objects::{service, tcp_slices};
use integration::ruleset::{Ours, REPAIR, generation, nft, stays_unwritten};
use integration::stage::{comes_to_reach, reaches};
use integration::{Family, L4Proto, Manifests, Node, Pod, Program, ProgramPlan, World, wait};
use std::time::Duration;

/// Everything that a stranger may have, in families of ours and in others; the last table has our name.
const STRANGERS: &str = "
table ip stranger {
    quota q { over 10 mbytes; }
    limit l { rate 10/second; }
    counter c { }
    ct timeout t { protocol tcp; policy = { established: 100, close: 4 }; }
    ct helper ftp { type \"ftp\" protocol tcp; }
    set typed { typeof ip saddr . tcp dport; flags interval,timeout; timeout 1h; }
    set counted { type ipv4_addr; flags dynamic; size 100; counter; }
    map marks { type mark : verdict; elements = { 0x1 : accept }; }
    map quotas { type ipv4_addr : quota; }
    set names { type ifname . inet_service; flags interval; elements = { \"eth*\" . 80 }; }
    set ids { typeof ct zone; elements = { 7 }; }
    chain before { type filter hook prerouting priority -450; ip saddr @counted accept; }
    chain services { type nat hook prerouting priority -90; }
    chain odd { meta mark vmap @marks; ct state new limit rate 1/second burst 3 packets log prefix \"odd\"; }
}
table inet strangest {
    set vlans { typeof vlan id; elements = { 5 }; }
}
table bridge strangest {
    chain c { type filter hook forward priority 0; ether type ip accept; }
}
table arp strangest {
    chain c { type filter hook input priority 0; arp operation request accept; }
}
table inet proxier {
    map services { type ipv4_addr : verdict; }
    chain dispatch { ip daddr vmap @services; }
}
";

/// Their tables as nft lists them, handles included.
fn strangers(node: &Node) -> String {
    ["ip stranger", "inet strangest", "bridge strangest", "arp strangest", "inet proxier"]
        .map(|table| nft(node, &format!("list table {table}\n")))
        .concat()
}

#[track_caller]
fn untouched(what: &str, now: &str, before: &str) {
    let changed: Vec<&str> = now.lines().filter(|line| !before.contains(line)).collect();
    assert!(now == before, "after {what}: tables of others are different: {changed:#?}");
}

struct Scene {
    world: World,
    client: Pod,
    _servers: Vec<integration::Server>,
    _pods: [Pod; 2],
    manifests: Manifests,
    program: Program,
}

impl Scene {
    fn new(name: &str) -> Self {
        let world = World::new(name).build();
        let node = world.node(0);
        nft(node, STRANGERS);
        let (client, a, b) = (node.pod("client"), node.pod("a"), world.node(1).pod("b"));
        let servers = serve(&[&a, &b]);
        let manifests = Manifests::new();
        let mut objects = cluster(&world);
        objects.push(web_service());
        objects.extend(tcp_slices("web", 8080, &[&a, &b]));
        // Something in every map: node ports, policies, source ranges, and one Service without endpoints.
        objects.push(
            service("edge", &["10.96.0.11", "fd00:10:96::11"])
                .node_port("", L4Proto::Tcp, 80, 30011)
                .load_balancer(&["203.0.113.11", "2001:db8::11"])
                .external_local()
                .sticky(100)
                .spec("loadBalancerSourceRanges", vec!["192.168.77.0/24", "fd00:77::/64"])
                .object(),
        );
        objects.extend(tcp_slices("edge", 8080, &[&a, &b]));
        objects.push(
            service("empty", &["10.96.0.12", "fd00:10:96::12"])
                .node_port("", L4Proto::Tcp, 80, 30012)
                .object(),
        );
        manifests.put("all", &objects);
        // A repair must not wait for a timer.
        let plan = ProgramPlan::on(node).manifests(&manifests).arg("--iptables-sync-period=1h");
        let program = plan.start_healthy();
        Self { client, _servers: servers, _pods: [a, b], manifests, program, world }
    }

    fn node(&self) -> &Node {
        self.world.node(0)
    }

    fn serves(&self) {
        for family in Family::ALL {
            reaches(&self.client, L4Proto::Tcp, web(family), &["a", "b"]);
        }
    }

    #[track_caller]
    fn is_repaired(&self, what: &str, whole: &Ours) {
        wait::until(&format!("the repair after: {what}"), REPAIR, || {
            let now = Ours::of(self.node());
            if now.same_tables(whole) { Ok(()) } else { Err(difference(&now, whole)) }
        });
    }
}

/// What a failed repair leaves, in a few words.
fn difference(now: &Ours, whole: &Ours) -> String {
    let text = |ours: &Ours| {
        ours.tables.iter().map(|(family, dump)| format!("{family} {dump:#?}\n")).collect::<String>()
    };
    let (now, whole) = (text(now), text(whole));
    let lines = now.lines().filter(|line| !whole.contains(line));
    format!("{} lines for {}; only now:\n{}", now.lines().count(), whole.lines().count(), {
        lines.take(20).map(|line| format!("{line}\n")).collect::<String>()
    })
}

#[test]
fn s02_edits_of_our_tables_are_repaired_at_once() {
    let scene = Scene::new("s02");
    let node = scene.node();
    let theirs = strangers(node);
    let whole = Ours::of(node);
    assert!(whole.is_clean());
    let edits = [
        "delete table ip proxier",
        "delete table ip6 proxier",
        "delete table ip proxier; delete table ip6 proxier",
        "flush table ip proxier",
        "flush chain ip proxier nat-prerouting",
        "flush chain ip6 proxier dispatch",
        "flush map ip proxier services",
        "flush map ip6 proxier endpoints",
        "delete element ip proxier services { 10.96.0.10 . tcp . 80 }",
        "delete element ip proxier endpoints { 10.96.0.10 . tcp . 80 . 0 }",
        "delete element ip proxier endpoints { 10.96.0.10 . tcp . 80 . 0 }
         add element ip proxier endpoints { 10.96.0.10 . tcp . 80 . 0 : 192.0.2.1 . 80 }",
        "delete element ip6 proxier services { fd00:10:96::10 . tcp . 80 }
         add element ip6 proxier services { fd00:10:96::10 . tcp . 80 : drop }",
        "add element ip proxier services { 10.96.0.99 . udp . 99 : drop }",
        "add element ip proxier cluster-ips { 192.0.2.1 }",
        "delete element ip proxier node-port-ips { 192.168.77.11 }",
        "flush set ip proxier source-ranges",
        "insert rule ip proxier nat-prerouting ip daddr 10.96.0.10 drop",
        "insert rule ip proxier dispatch return",
        "add rule ip proxier filter-forward meta mark 0x1234 counter log prefix \"mine\" accept",
        "add chain ip6 proxier filter-forward { policy drop; }",
        "add chain ip proxier evil { type filter hook forward priority 10; policy drop; }",
        "add chain ip proxier evil { type route hook output priority 0; }",
        "add chain ip proxier idle; add rule ip proxier idle drop",
        "add chain ip proxier idle; add rule ip proxier dispatch jump idle",
        "add set ip proxier strange { type ether_addr; }",
        "add map ip proxier strange { type ipv4_addr : verdict; }",
        "rename chain ip proxier dispatch dispatched",
        "flush chain ip proxier sticky-test/edge/tcp/
         flush chain ip proxier learn-test/edge/tcp/
         delete map ip proxier affinity-test/edge/tcp/
         add map ip proxier affinity-test/edge/tcp/ { \
             typeof ip saddr : ip daddr; flags dynamic,timeout; timeout 100s; size 1048576; }",
        "add table ip proxier { flags dormant; }",
        "add table ip6 proxier { flags dormant; }",
    ];
    for edit in edits {
        let before = generation(node);
        nft(node, &format!("{}\n", edit.replace("; delete", "\ndelete").replace("; add", "\nadd")));
        assert_ne!(generation(node), before, "{edit}");
        scene.is_repaired(edit, &whole);
        scene.serves();
        untouched(edit, &strangers(node), &theirs);
    }
    assert!(scene.program.log().contains("somebody else changed our tables"), "{}", scene.program.log());
}

#[test]
fn s02_a_flushed_ruleset_comes_back_while_others_go_on_editing() {
    let scene = Scene::new("s02-flush");
    let node = scene.node();
    let whole = Ours::of(node);
    for round in 0..5 {
        nft(node, "flush ruleset\n");
        // Whoever flushes writes their own rules next, in many small commits.
        for number in 0..20 {
            nft(node, &format!("add table ip stranger-{number}\nadd chain ip stranger-{number} c-{round}\n"));
        }
        scene.is_repaired("flush ruleset", &whole);
        scene.serves();
    }
    let tables = nft(node, "list tables\n");
    assert_eq!(tables.matches("stranger-").count(), 20, "{tables}");
}

/// A named object in our table changes no packet's fate. It may stay, but must not be fought for ever either.
#[test]
fn s02_what_cannot_be_put_right_is_no_endless_fight() {
    let scene = Scene::new("s02-fight");
    let node = scene.node();
    let whole = Ours::of(node);
    nft(node, "add counter ip proxier theirs\nadd quota ip6 proxier theirs { over 1 mbytes }\n");
    scene.is_repaired("named objects", &whole);
    let rest = wait::until("the program to leave it", REPAIR, || {
        let before = generation(node);
        wait::try_until(Duration::from_millis(500), || generation(node) != before).err().map(|_| before)
    });
    stays_unwritten(node, rest, Duration::from_millis(500));
    scene.serves();
}

#[test]
fn f11_tables_of_others_have_no_effect_whatever_they_hold() {
    let scene = Scene::new("f11");
    let node = scene.node();
    // Notes of a newer nft in every place that takes them.
    node.run(|| crate::f11_userdata::write("newer")).expect("a table with notes that nobody understands");
    let theirs = strangers(node) + &nft(node, "list tables\n");
    let rest = generation(node);
    stays_unwritten(node, rest, Duration::from_millis(300));
    nft(node, "add element ip stranger ids { 8 }\ndelete element ip stranger ids { 8 }\n");

    // The program goes on, also from a start.
    let mut objects = cluster(&scene.world);
    objects.push(web_service());
    objects.extend(tcp_slices("web", 8080, &[&scene._pods[1]]));
    scene.manifests.put("all", &objects);
    for family in Family::ALL {
        comes_to_reach(&scene.client, L4Proto::Tcp, web(family), &["b"], wait::SOON);
    }
    let log = scene.program.log();
    assert!(!log.contains("somebody else"), "{log}");
    let Scene { world, client, _servers, _pods, manifests, program } = scene;
    drop(program);
    let _program = ProgramPlan::on(world.node(0)).manifests(&manifests).start_healthy();
    for family in Family::ALL {
        reaches(&client, L4Proto::Tcp, web(family), &["b"]);
    }
    untouched("a restart", &(strangers(world.node(0)) + &nft(world.node(0), "list tables\n")), &theirs);
}

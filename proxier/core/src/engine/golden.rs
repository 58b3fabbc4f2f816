//! Owns the ruleset in its text form, as a person reads it: one snapshot of a small cluster, and one of each kind of change.

use super::tests::World;
use crate::Change;
use crate::fixtures::{cidr, service, slice};
use nft_ir::L4Proto;

fn world() -> World {
    let mut world = World::new();
    world.apply([
        Change::ServiceCidr("kubernetes".into(), vec![cidr("10.96.0.0/16"), cidr("fd00:10:96::/112")]),
        service("web", &["10.96.0.10", "fd00:10:96::10"])
            .port("http", L4Proto::Tcp, 80, 30080)
            .load_balancer(&["203.0.113.7", "2001:db8::7"])
            .from(&["192.0.2.0/24", "192.0.0.0/16"])
            .external_local()
            .upsert(),
        service("db", &["10.96.0.11"]).tcp(5432).upsert(),
        service("dns", &["10.96.0.53"])
            .port("dns", L4Proto::Udp, 53, 0)
            .port("dns-tcp", L4Proto::Tcp, 53, 0)
            .upsert(),
        service("idle", &["10.96.0.12"]).tcp(80).external(&["198.51.100.7"]).upsert(),
        slice("web-1", "web", 1, &["10.244.1.2@here", "10.244.2.2@there", "10.244.2.9@there leaving"])
            .and_port("http", L4Proto::Tcp, 8080)
            .upsert(),
        slice("db-1", "db", 5432, &["10.244.2.3@there"]).upsert(),
        slice("dns-1", "dns", 1, &["10.244.1.9@here"])
            .and_port("dns", L4Proto::Udp, 5353)
            .and_port("dns-tcp", L4Proto::Tcp, 5353)
            .upsert(),
    ]);
    world
}

#[test]
fn a_small_cluster() {
    insta::assert_snapshot!(world().kernel.to_string());
}

#[test]
fn changes() {
    let mut world = world();
    let mut story = String::new();
    let mut tell = |what: &str, change: Change| {
        let transaction = world.apply([change]);
        story.push_str(&format!("# {what}\n{transaction}\n"));
    };
    let db = |endpoints: &[&str]| slice("db-1", "db", 5432, endpoints).upsert();
    tell("an endpoint replaced by another: one slot", db(&["10.244.2.4@there"]));
    tell("one added: a slot and a verdict", db(&["10.244.2.4@there", "10.244.1.4@here"]));
    tell("one removed: the last slot moves into the hole", db(&["10.244.1.4@here"]));
    tell("the last removed: refused from now on", db(&[]));
    tell(
        "session affinity: maps and chains of its own",
        service("web", &["10.96.0.10"]).port("http", L4Proto::Tcp, 80, 30080).sticky(10_800).upsert(),
    );
    insta::assert_snapshot!(story);
}

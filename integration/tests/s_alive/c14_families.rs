//! Owns row c14 for a node that has only IPv4. Knows nothing of nodes that have both.

use crate::{cluster, serve, web, web_service};
use integration::objects::tcp_slices;
use integration::ruleset::Ours;
use integration::stage::comes_to_reach;
use integration::{Family, L4Proto, Manifests, ProgramPlan, World, wait};

#[test]
fn c14_a_node_with_ipv4_only_runs_without_the_ipv6_table_and_says_so_once() {
    let world = World::new("c14").nodes(1).only(Family::Ip).build();
    let node = world.node(0);
    for scope in ["all", "default"] {
        node.ns().set_sysctl(&format!("net/ipv6/conf/{scope}/disable_ipv6"), "1").expect("a sysctl");
    }
    let (client, a) = (node.pod("client"), node.pod("a"));
    let _servers = serve(&[&a]);
    let manifests = Manifests::new();
    let mut objects = cluster(&world);
    objects.push(web_service());
    objects.extend(tcp_slices("web", 8080, &[&a]));
    manifests.put("web", &objects);
    let program = ProgramPlan::on(node).manifests(&manifests).start_healthy();
    comes_to_reach(&client, L4Proto::Tcp, web(Family::Ip), &["a"], wait::SOON);
    let families: Vec<Family> = Ours::of(node).tables.iter().map(|(family, _)| *family).collect();
    assert_eq!(families, [Family::Ip]);
    let log = program.log();
    assert_eq!(log.matches("IPv6").count(), 1, "{log}");
}

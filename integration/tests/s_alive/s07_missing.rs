//! Owns row s07: what is missing is said in one line. Knows nothing of machines that have everything.

use crate::cluster;
use integration::{Manifests, ProgramPlan, World, wait};

#[test]
fn s07_without_cap_net_admin_one_line_says_so_and_the_exit_code_is_1() {
    let world = World::new("s07").nodes(1).build();
    let manifests = Manifests::new();
    manifests.put("cluster", &cluster(&world));
    let mut program = ProgramPlan::on(world.node(0))
        .manifests(&manifests)
        .by(&["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"])
        .start();
    let status = program.wait(wait::SOON);
    assert_eq!(status.code(), Some(1));
    let log = program.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("CAP_NET_ADMIN")).collect();
    assert_eq!(errors.len(), 1, "{log}");
    assert!(errors[0].starts_with("Error: "), "{log}");
    assert_eq!(log.lines().last(), errors.first().copied(), "{log}");
}

#[test]
fn s07_dump_without_cap_net_admin_says_so_too() {
    let world = World::new("s07-dump").nodes(1).build();
    let proxier = integration::parts::proxier().expect("the program");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"]).arg(proxier).arg("dump");
    let mut process = world.node(0).spawn_process(command).expect("setpriv, of util-linux");
    assert_eq!(process.wait(wait::SOON).code(), Some(1));
    let log = wait::until("its words", wait::SOON, || Some(process.log()).filter(|log| log.ends_with('\n')));
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("CAP_NET_ADMIN"), "{log}");
}

#[test]
fn s07_init_only_looks_for_what_is_missing_and_writes_no_rule() {
    let world = World::new("s07-init").nodes(1).build();
    let node = world.node(0);
    // Neither an API server nor manifests are needed.
    let plan = ProgramPlan::on(node).arg("--init-only");
    assert_eq!(plan.start().wait(wait::SOON).code(), Some(0));
    assert_eq!(node.shell("nft", &["list", "ruleset"], ""), "");
    let mut without =
        plan.by(&["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"]).start();
    assert_eq!(without.wait(wait::SOON).code(), Some(1));
    wait::until("its words", wait::SOON, || without.log().contains("CAP_NET_ADMIN"));
}

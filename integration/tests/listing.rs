//! Owns the proof that an operator's nft reads our tables: it lists them, and loads what we print. Knows nothing of single
//! behaviours.

use integration::objects::{Object, ServiceText, service, tcp_slices};
use integration::stage::Stage;
use integration::{Host, L4Proto};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs nft in a host's namespace.
fn nft(host: &Host, args: &[&str], input: &str) -> Output {
    host.run(|| {
        let mut child = Command::new("nft")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("nft: {error}: install the package nftables"));
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("nft reads its input");
        child.wait_with_output().expect("nft ends")
    })
}

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn everything(sticky: bool) -> Vec<Object> {
    let named = |name: &str, n: u8| -> ServiceText {
        service(name, &[&format!("10.96.0.{n}"), &format!("fd00:10:96::{n}")])
    };
    let text = named("all", 10)
        .node_port("http", L4Proto::Tcp, 80, 30080)
        .load_balancer(&["203.0.113.7", "2001:db8::7"])
        .external_ips(&["198.51.100.7", "2001:db8::77"])
        .external_local()
        .spec("loadBalancerSourceRanges", ["192.0.2.0/24", "2001:db8:1::/48"].as_slice());
    let text = if sticky { text.sticky(10_800) } else { text };
    vec![
        text.object(),
        named("none", 11).all_protocols(80, 30081).object(),
        named("inner", 12).tcp(80).object(),
    ]
}

#[test]
fn nft_lists_and_loads_our_tables() {
    for sticky in [false, true] {
        let mut stage = Stage::new("listing");
        let (a, b) = (stage.node(0).pod("a"), stage.node(1).pod("b"));
        stage.apply(&everything(sticky));
        let slices = integration::objects::slices("all", &[("http", L4Proto::Tcp, 8080)], &[&a, &b]);
        stage.apply(&slices);
        stage.apply(&tcp_slices("inner", 8080, &[&a]));
        let listed = ok(&nft(stage.node(0), &["list", "ruleset"], ""));
        for line in [
            "10.96.0.10 . tcp . 80 comment \"test/all:http\" : goto pick-2",
            "203.0.113.7 . tcp . 80 . 192.0.2.0/24",
            "[fd00:10:96::10",
            "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints",
            "masquerade fully-random comment \"hairpin: an endpoint that reached itself\"",
        ] {
            let line = line.trim_start_matches('[');
            assert!(listed.contains(line), "{line} is not in:\n{listed}");
        }
        // What we print of it is what nft loads: checked in a namespace that has none of it.
        let text = stage.proxiers[0].dump().to_string();
        let output = nft(&stage.world.client().clone(), &["-c", "-f", "-"], &text);
        if sticky {
            // nft before 1.1 has no word for a concatenation with the port that a client dialled; see docs/differences.md.
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() || error.contains("ct original proto-dst"), "{error}");
        } else {
            ok(&output);
        }
    }
}

/// `proxier trace` says what becomes of a packet, on what the kernel holds.
#[test]
fn trace_tells_the_fate_of_a_packet() {
    let mut stage = Stage::new("trace");
    let (a, b) = (stage.node(0).pod("a"), stage.node(1).pod("b"));
    stage.apply(&everything(false));
    stage.apply(&integration::objects::slices("all", &[("http", L4Proto::Tcp, 8080)], &[&a, &b]));
    let trace = |args: &[&str]| -> Output {
        let program = integration::parts::proxier().expect("the program is built");
        stage
            .node(0)
            .run(|| Command::new(program).arg("trace").args(args).output().expect("the program runs"))
    };
    let text = ok(&trace(&["--from", "10.244.1.9", "--interface", "cni0", "--to", "10.96.0.10:80"]));
    for line in [
        "10.244.1.9 dials 10.96.0.10:80/tcp, in by cni0",
        "50.0 %  delivered to 10.244.1.2:8080",
        "50.0 %  delivered to 10.244.2.2:8080",
        "dnat to 10.244.1.2:8080",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let text = ok(&trace(&["--to", "[fd00:10:96::11]:80/udp"]));
    assert!(text.contains("100.0 %  rejected with port unreachable"), "{text}");
    assert!(text.contains("test/none:udp"), "the Service is named:\n{text}");
    let refused = trace(&["--from", "10.244.1.9", "--to", "10.96.0.10:80"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--interface"));
}

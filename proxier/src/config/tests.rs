//! Owns the tests of what an operator decides: files as upstream, kubeadm and kind write them, flags, what wins.

use super::*;
use crate::command::Command;
use proxier_core::model::Cidr;
use std::fs;
use tempfile::NamedTempFile;

const UPSTREAM: &str = include_str!("testdata/upstream-defaults.yaml");
const KUBEADM: &str = include_str!("testdata/kubeadm.yaml");
const KIND: &str = include_str!("testdata/kind.yaml");
const FLAGS: &str = include_str!("testdata/flags.tsv");

fn flags(args: &[&str]) -> Flags {
    let args = ["proxier"].iter().chain(args).map(Into::into);
    let Command::Run(flags) = Command::parse(args).unwrap() else { panic!("another command") };
    *flags
}

fn load(args: &[&str]) -> Result<Config, ConfigError> {
    Config::load(&flags(args))
}

/// Loads this text as a file, beside these flags.
fn load_file(text: &str, args: &[&str]) -> Result<Config, ConfigError> {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.path().display());
    load(&[&[config.as_str()], args].concat())
}

/// A file with these lines besides its kind.
fn with(lines: &str) -> String {
    format!("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{lines}\n")
}

#[test]
fn upstreams_own_defaults_come_back_as_they_were() {
    assert_eq!(load_file(UPSTREAM, &[]).unwrap().to_yaml(), UPSTREAM);
    let out = NamedTempFile::new().unwrap();
    load_file(UPSTREAM, &[]).unwrap().write(out.path()).unwrap();
    assert_eq!(fs::read_to_string(out).unwrap(), UPSTREAM);
}

#[test]
fn our_defaults_are_upstreams_but_for_the_mode() {
    let ours = load(&[]).unwrap().to_yaml();
    let differs: Vec<_> =
        ours.lines().filter(|line| !UPSTREAM.lines().any(|theirs| theirs == *line)).collect();
    assert_eq!(differs, ["mode: nftables", "nodePortAddresses:", "- primary"]);
    assert_eq!(load_file(&ours, &[]).unwrap().to_yaml(), ours);
}

#[test]
fn what_kubeadm_writes_is_the_defaults() {
    let config = load_file(KUBEADM, &["--hostname-override=Node-1"]).unwrap();
    let default = load(&["--hostname-override=node-1"]).unwrap();
    assert_eq!(&*config.node_name, "node-1");
    assert_eq!(config.connection.kubeconfig.as_deref(), Some("/var/lib/kube-proxy/kubeconfig.conf".as_ref()));
    assert_eq!(config.detect_local, DetectLocal::ClusterCidr(vec![Cidr::parse("10.244.0.0/16").unwrap()]));
    assert_eq!(config.conntrack, default.conntrack);
    assert_eq!((config.healthz, config.metrics), (default.healthz, default.metrics));
    assert_eq!((config.sync_period, config.min_sync_period), (Duration::from_secs(30), Duration::ZERO));
    assert_eq!((config.masquerade_bit, config.oom_score_adj), (14, -999));
    assert_eq!(config.node_port_addresses, [NodePortAddresses::Primary]);
    assert_eq!(config.notices, ["iptables is configured; this proxier always uses nftables"]);
}

#[test]
fn what_kind_writes_is_taken() {
    let config = load_file(KIND, &["--hostname-override=node-1"]).unwrap();
    assert_eq!(config.conntrack.max, None);
    assert!(config.conntrack.tcp_be_liberal);
    assert_eq!((config.conntrack.tcp_established, config.conntrack.tcp_close_wait), (None, None));
    assert_eq!(config.notices.len(), 2, "{:?}", config.notices);
    assert!(config.notices[0].ends_with("passed over: unknown field metadata"), "{:?}", config.notices);
}

#[test]
fn every_flag_of_upstream_is_taken() {
    for line in FLAGS.lines() {
        let mut columns = line.split('\t');
        let (flag, kind) = (columns.next().unwrap(), columns.next().unwrap());
        let value = match kind {
            "bool" if flag == "--help" => continue,
            "bool" | "version[=true]" => "=true",
            "ip" => "=192.0.2.1",
            "ipport" => "=192.0.2.1:80",
            "string" | "strings" => "=x",
            "duration" => "=1m",
            "int32" | "float32" | "Level" => "=7",
            "LocalMode" => "=NodeCIDR",
            "ProxyMode" => "=nftables",
            "mapStringBool" => "=A=true",
            "quantity" => "=0",
            "pattern=N,..." => "=a=1,b=2",
            other => panic!("{flag}: a kind of flag that this test does not know: {other}"),
        };
        let parsed = flags(&[&format!("{flag}{value}")]);
        let given: Vec<&str> = parsed.given.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(given, [flag.trim_start_matches("--")], "{flag}");
        if kind == "bool" {
            flags(&[flag]);
            flags(&[&format!("{flag}=F")]);
        } else if kind != "version[=true]" {
            flags(&[flag, &value[1..]]);
        }
    }
}

#[test]
fn flags_are_written_as_for_kube_proxy() {
    let config = load(&["--proxy_mode=nftables", "", "--hostname_override=A_b", "-v=4"]).unwrap();
    assert_eq!((&*config.node_name, config.logging.verbosity), ("a_b", 4));
    assert_eq!(load(&["-v4", "--masquerade-all=0"]).unwrap().logging.verbosity, 4);
    assert!(!load(&["--masquerade-all", "--masquerade-all=false"]).unwrap().masquerade_all);
    let gates =
        load(&["--feature-gates=A=true,B=false", "--feature-gates", "C=T"]).unwrap().shown.feature_gates;
    assert_eq!(
        gates.into_iter().collect::<Vec<_>>(),
        [("A".into(), true), ("B".into(), false), ("C".into(), true)]
    );
    assert_eq!(load(&["--oom-score-adj", "-5"]).unwrap().oom_score_adj, -5);
}

#[test]
fn wrong_flags_are_errors_that_name_them() {
    for (args, want) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--logtostderr"], "--logtostderr"),
        (&["positional"], "positional"),
        (&["--conntrack-min=many"], "--conntrack-min"),
        (&["--conntrack-udp-timeout=5"], "--conntrack-udp-timeout"),
        (&["--masquerade-all=maybe"], "--masquerade-all"),
        (&["--masquerade-all", "false"], "false"),
        (&["-config=x"], "-c"),
    ] {
        let all = ["kube-proxy"].iter().chain(args).map(Into::into);
        let error = Command::parse(all).unwrap_err();
        assert!(error.use_stderr() && error.to_string().contains(want), "{args:?}: {error}");
    }
}

#[test]
fn as_kube_proxy_there_are_no_commands() {
    let parse = |args: &[&str]| Command::parse(args.iter().map(Into::into));
    assert!(parse(&["/usr/local/bin/kube-proxy", "run"]).is_err());
    assert!(parse(&["/usr/local/bin/kube-proxy", "--config=x", "--hostname-override=y"]).is_ok());
    assert!(parse(&["proxier", "run", "--config=x"]).is_ok());
    assert!(parse(&["proxier"]).is_ok());
    assert!(!parse(&["proxier", "--help"]).unwrap_err().use_stderr());
}

#[test]
fn a_file_overrules_flags_but_for_some() {
    let config = load_file(
        &with(
            "mode: nftables\nclusterCIDR: 10.0.0.0/8\nhostnameOverride: from-file\nlogging: {verbosity: 1}",
        ),
        &[
            "--cluster-cidr=172.16.0.0/12",
            "--masquerade-all",
            "--hostname-override=from-flag",
            "-v=5",
            "--master=a:1",
        ],
    )
    .unwrap();
    assert_eq!(config.detect_local, DetectLocal::ClusterCidr(vec![Cidr::parse("10.0.0.0/8").unwrap()]));
    assert!(!config.masquerade_all);
    assert_eq!((&*config.node_name, config.logging.verbosity), ("from-flag", 5));
    assert_eq!(config.connection.master.as_deref(), Some("a:1"));
    assert_eq!(config.notices, ["--config overrules --cluster-cidr, --masquerade-all"]);
}

#[test]
fn modes_are_taken_in_the_sense_of_nftables() {
    let rows = [
        (
            "mode: iptables\niptables: {masqueradeAll: true, masqueradeBit: 10, syncPeriod: 5s, minSyncPeriod: 2s}",
            10,
            true,
            5,
            2,
        ),
        ("iptables: {masqueradeAll: true, masqueradeBit: 10}", 10, true, 30, 0),
        ("iptables: {masqueradeBit: 10}\nnftables: {masqueradeBit: 12, syncPeriod: 7s}", 12, false, 7, 0),
        ("iptables: {masqueradeBit: 10}\nnftables: {masqueradeBit: 14}", 10, false, 30, 0),
        (
            "mode: nftables\niptables: {masqueradeAll: true, masqueradeBit: 10, syncPeriod: 5s}",
            14,
            false,
            30,
            0,
        ),
        (
            "mode: nftables\nnftables: {masqueradeAll: true, masqueradeBit: 0, minSyncPeriod: 3s}",
            0,
            true,
            30,
            3,
        ),
        (
            "mode: ipvs\nipvs: {syncPeriod: 9s, minSyncPeriod: 4s}\niptables: {masqueradeAll: true}",
            14,
            true,
            9,
            4,
        ),
    ];
    for (text, bit, all, sync, min) in rows {
        let config = load_file(&with(text), &[]).unwrap();
        let got = (config.masquerade_bit, config.masquerade_all, config.sync_period, config.min_sync_period);
        assert_eq!(got, (bit, all, Duration::from_secs(sync), Duration::from_secs(min)), "{text}");
        let again = load_file(&config.to_yaml(), &[]).unwrap();
        assert_eq!(
            (again.masquerade_bit, again.masquerade_all, again.sync_period, again.min_sync_period),
            got,
            "written and read again: {text}"
        );
    }
    let config = load(&["--iptables-min-sync-period=0", "--iptables-sync-period=10s"]).unwrap();
    assert_eq!((config.min_sync_period, config.sync_period), (Duration::ZERO, Duration::from_secs(10)));
}

#[test]
fn addresses_get_their_ports() {
    let rows = [
        ("", "0.0.0.0:10256", "127.0.0.1:10249"),
        ("bindAddress: \"::\"", "[::]:10256", "[::1]:10249"),
        (
            "healthzBindAddress: 192.0.2.1\nmetricsBindAddress: \"fd00::1\"",
            "192.0.2.1:10256",
            "[fd00::1]:10249",
        ),
        (
            "healthzBindAddress: 192.0.2.1:1\nmetricsBindAddress: \"[fd00::1]:2\"",
            "192.0.2.1:1",
            "[fd00::1]:2",
        ),
    ];
    for (text, healthz, metrics) in rows {
        let config = load_file(&with(text), &[]).unwrap();
        assert_eq!(config.healthz.unwrap().to_string(), healthz, "{text}");
        assert_eq!(config.metrics.unwrap().to_string(), metrics, "{text}");
    }
    let off = load(&["--healthz-port=0", "--metrics-port=0"]).unwrap();
    assert_eq!((off.healthz, off.metrics), (None, None));
    let moved = load(&["--healthz-port=1", "--healthz-bind-address=192.0.2.1", "--metrics-port=2"]).unwrap();
    assert_eq!(moved.healthz.unwrap().to_string(), "192.0.2.1:1");
    assert_eq!(moved.metrics.unwrap().to_string(), "127.0.0.1:10249", "as upstream");
}

#[test]
fn node_port_addresses_have_keywords() {
    let cidr = |text: &str| NodePortAddresses::Cidr(Cidr::parse(text).unwrap());
    let rows = [
        ("", vec![NodePortAddresses::Primary]),
        ("nodePortAddresses: [all]", vec![cidr("0.0.0.0/0"), cidr("::/0")]),
        (
            "nodePortAddresses: [primary, 10.1.2.3/8, 10.0.0.0/8]",
            vec![NodePortAddresses::Primary, cidr("10.0.0.0/8")],
        ),
        ("nodePortAddresses: [localhost]", vec![cidr("127.0.0.0/8"), cidr("::1/128")]),
        (
            "nodePortAddresses: [localhost, 10.0.0.0/8]\niptables: {localhostNodePorts: false}",
            vec![cidr("10.0.0.0/8")],
        ),
        (
            "nodePortAddresses: [localhost]\nfeatureGates: {KubeProxyNFTablesLocalhostNodePorts: false}",
            vec![],
        ),
    ];
    for (text, want) in rows {
        assert_eq!(load_file(&with(text), &[]).unwrap().node_port_addresses, want, "{text}");
    }
}

#[test]
fn settings_are_what_the_core_reads() {
    let config =
        load(&["--hostname-override=n", "--detect-local-mode=BridgeInterface", "--pod-bridge-interface=br0"]);
    let settings = config.unwrap().settings(vec![Family::Ip]);
    assert_eq!(&*settings.node_name, "n");
    assert_eq!(settings.detect_local, DetectLocal::BridgeInterface("br0".to_owned()));
    assert_eq!((settings.families, settings.masquerade_bit), (vec![Family::Ip], 14));
}

#[test]
fn invalid_fields_are_named_with_what_is_allowed() {
    let rows = [
        ("mode: userspace", "mode: \"userspace\": nftables, iptables or ipvs"),
        ("bindAddress: x", "bindAddress: \"x\": an IP address"),
        ("healthzBindAddress: 0.0.0.0:0", "healthzBindAddress: \"0.0.0.0:0\": IP:PORT"),
        ("metricsBindAddress: localhost:1", "metricsBindAddress"),
        ("iptables: {masqueradeBit: 32}", "iptables.masqueradeBit: \"32\": 0 to 31"),
        ("mode: nftables\nnftables: {masqueradeBit: -1}", "nftables.masqueradeBit: \"-1\""),
        ("mode: nftables\nnftables: {syncPeriod: -1s}", "nftables.syncPeriod"),
        (
            "mode: nftables\nnftables: {syncPeriod: 5s, minSyncPeriod: 6s}",
            "nftables.minSyncPeriod: \"6s\": at most",
        ),
        ("iptables: {syncPeriod: 5s, minSyncPeriod: 6s}", "iptables.minSyncPeriod"),
        ("clusterCIDR: 10.0.0.0", "clusterCIDR"),
        ("clusterCIDR: \"10.0.0.0/8,172.16.0.0/12\"", "clusterCIDR"),
        ("clusterCIDR: \"10.0.0.0/8,fd00::/8,11.0.0.0/8\"", "clusterCIDR"),
        ("detectLocalMode: Guess", "detectLocalMode: \"Guess\": ClusterCIDR, NodeCIDR"),
        ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface"),
        ("detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix"),
        ("nodePortAddresses: [primary, primary]", "nodePortAddresses[1]"),
        ("nodePortAddresses: [eth0]", "nodePortAddresses[0]: \"eth0\""),
        ("oomScoreAdj: -1001", "oomScoreAdj: \"-1001\": -1000 to 1000"),
        ("conntrack: {maxPerCore: -1}", "conntrack.maxPerCore: \"-1\": 0 or more"),
        ("conntrack: {udpTimeout: -1s}", "conntrack.udpTimeout"),
        ("conntrack: {tcpEstablishedTimeout: -1s}", "conntrack.tcpEstablishedTimeout"),
        ("configSyncPeriod: -1s", "configSyncPeriod"),
        ("clientConnection: {burst: -1}", "clientConnection.burst"),
        ("logging: {format: xml}", "logging.format: \"xml\": text or json"),
        ("logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule"),
        ("logging: {vmodule: [{filePattern: \"a=b\", verbosity: 1}]}", "logging.vmodule[0].filePattern"),
        ("logging: {flushFrequency: -1}", "logging.flushFrequency"),
        (
            "featureGates: {NFTablesProxyMode: false}",
            "featureGates.NFTablesProxyMode: \"false\": is locked to true",
        ),
        ("showHiddenMetricsForVersion: \"1.20\"", "showHiddenMetricsForVersion"),
    ];
    for (text, want) in rows {
        let error = load_file(&with(text), &[]).unwrap_err().to_string();
        let want = format!("failed validate: KubeProxyConfiguration.{want}");
        assert!(error.starts_with(&want), "{text}: {error}");
    }
    let both = load_file(&with("mode: x\noomScoreAdj: 5000"), &[]).unwrap_err().to_string();
    assert!(both.contains(".mode:") && both.contains(".oomScoreAdj:"), "all at once: {both}");
}

#[test]
fn files_that_are_no_configuration_are_errors() {
    let rows = [
        ("a: [", "is not YAML or JSON"),
        (
            "kind: KubeProxyConfiguration",
            "expected \"KubeProxyConfiguration\" of \"kubeproxy.config.k8s.io/v1alpha1\"",
        ),
        ("apiVersion: v1\nkind: Service", "is \"v1 Service\""),
        (&with("iptables: {masqueradeAll: \"yes please\"}"), "iptables.masqueradeAll: invalid type"),
        (&with("conntrack: {udpTimeout: 5}"), "conntrack.udpTimeout"),
        (&with("conntrack: {udpTimeout: soon}"), "conntrack.udpTimeout: \"soon\" is not a duration"),
        (&with("nodePortAddresses: 10.0.0.0/8"), "nodePortAddresses: invalid type"),
        (&with("oomScoreAdj: 99999999999"), "oomScoreAdj: invalid value"),
    ];
    for (text, want) in rows {
        let error = load_file(text, &[]).unwrap_err().to_string();
        assert!(error.contains(want), "{text}: {error}");
    }
    assert!(
        load(&["--config=/nonexistent.yaml"])
            .unwrap_err()
            .to_string()
            .starts_with("/nonexistent.yaml: cannot read")
    );
}

#[test]
fn what_is_unknown_or_double_is_passed_over_and_named() {
    let config =
        load_file(&with("mode: nftables\nmode: nftables\nnftables: {fast: true}\nextra: 1"), &[]).unwrap();
    let notice = &config.notices[0];
    assert!(
        notice.contains("unknown field nftables.fast") && notice.contains("unknown field extra"),
        "{notice}"
    );
    assert!(notice.contains("mode"), "{notice}");
}

#[test]
fn json_is_taken_too() {
    let text = r#"{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
        "clientConnection": {"qps": 2.5}}"#;
    assert!(load_file(text, &[]).unwrap().to_yaml().contains("  qps: 2.5\n"));
}

#[test]
fn node_names_are_trimmed_lower_case_and_not_blank() {
    assert_eq!(&*load(&["--hostname-override= Node-1 "]).unwrap().node_name, "node-1");
    let error = load(&["--hostname-override=  "]).unwrap_err().to_string();
    assert!(error.starts_with("--hostname-override: \"  \""), "{error}");
    assert!(!load(&[]).unwrap().node_name.is_empty());
}

#[test]
fn some_flags_are_actions() {
    assert_eq!(load(&["--version"]).unwrap().action, Action::PrintVersion { raw: false });
    assert_eq!(load(&["--version=raw"]).unwrap().action, Action::PrintVersion { raw: true });
    let reporting = load(&["--version=v1.36.1"]).unwrap();
    assert_eq!((reporting.action, reporting.reported_version.as_str()), (Action::Run, "v1.36.1"));
    assert_eq!(load(&["--cleanup"]).unwrap().action, Action::CleanUp);
    assert_eq!(load(&["--init-only=true"]).unwrap().action, Action::InitOnly);
    assert_eq!(load(&["--write-config-to=x"]).unwrap().action, Action::WriteConfig("x".into()));
}

#[test]
fn what_means_nothing_is_named_once() {
    let config = load(&[
        "--proxy-mode=nftables",
        "--ipvs-scheduler=rr",
        "--config-sync-period=1m",
        "--cluster-cidr=10.0.0.0/8",
    ]);
    assert_eq!(
        config.unwrap().notices,
        ["accepted, without meaning here: ipvs; configSyncPeriod (a watch needs no resync)"]
    );
}

#[test]
fn texts_that_yaml_would_misread_are_quoted() {
    let config = load_file(
        &with("mode: nftables\nhostnameOverride: \"no\"\nclusterCIDR: \"\"\nportRange: \"5\""),
        &[],
    );
    let text = config.unwrap().to_yaml();
    assert!(text.contains("hostnameOverride: \"no\"\n") && text.contains("portRange: \"5\"\n"), "{text}");
}

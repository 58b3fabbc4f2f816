//! Owns row s05: taking over from a real kube-proxy, going back to it, and leaving nothing behind. Knows nothing of how rules
//! are removed.

use integration::load::{Load, LoadPlan};
use integration::objects::{service, tcp_slices};
use integration::stage::{at, of};
use integration::{
    ApiServer, Family, KubeProxy, Kubectl, L4Proto, Manifests, Node, Pod, ProgramPlan, World, parts, wait,
};
use std::net::SocketAddr;

/// What others have on a node: a CNI's table, a firewall.
const STRANGERS: &str = "
table inet firewall {
    set friends { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
    chain input { type filter hook input priority 0; policy accept; ip saddr @friends accept comment \"friends\"; }
}
table ip cni_hostport {
    chain hostports { tcp dport 8443 dnat to 10.244.1.9:443; }
    chain prerouting { type nat hook prerouting priority -100; policy accept; fib daddr type local jump hostports; }
}
table ip6 kube-router { chain c { counter drop; }; }
table ip kube-proxy-mine { chain c { accept; }; }
";

/// Docker's and kubelet's rules of iptables. `KUBE-FIREWALL` is kubelet's; kube-proxy makes sure of the same rules.
const IPTABLES_STRANGERS: &str = "\
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A PREROUTING -p tcp -m comment --comment \"clamp\" -j MARK --set-xmark 0x100/0x100
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j DOCKER
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER -p tcp -m tcp --dport 2375 -j DROP
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
COMMIT
";

/// Those that are as good in IPv6.
fn ip6tables_strangers() -> String {
    let is_ipv4 = |line: &&str| line.contains("172.17.0.0") || line.contains("127.0.0.0");
    IPTABLES_STRANGERS.lines().filter(|line| !is_ipv4(line)).map(|line| format!("{line}\n")).collect()
}

const KUBE_PROXYS: &str = "\
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-I INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\" -j KUBE-EXTERNAL-SERVICES
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]
:KUBE-SEP-OBHP2PMYY2K4KHPB - [0:0]
:KUBE-EXT-TCOU7JCQXEZGVUNU - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-TCOU7JCQXEZGVUNU
-A KUBE-EXT-TCOU7JCQXEZGVUNU -j KUBE-MARK-MASQ
-A KUBE-EXT-TCOU7JCQXEZGVUNU -j KUBE-SVC-TCOU7JCQXEZGVUNU
-A KUBE-SVC-TCOU7JCQXEZGVUNU -j KUBE-SEP-OBHP2PMYY2K4KHPB
COMMIT
";

const ALL_TABLES: [&str; 3] = ["filter", "nat", "mangle"];

/// All that the kernel holds, counts left out.
fn everything(node: &Node) -> String {
    let ruleset = node.shell("nft", &["--stateless", "list", "ruleset"], "");
    let mut text = ruleset.clone();
    for (program, family, names) in
        [("iptables", "ip", "ip_tables_names"), ("ip6tables", "ip6", "ip6_tables_names")]
    {
        // nft leaves out what a comment says. Only tables that are there: asking for others makes them.
        let is_there = |table: &&str| ruleset.contains(&format!("table {family} {table} "));
        for table in ALL_TABLES.into_iter().filter(is_there) {
            text += &without_counts(&node.shell(&format!("{program}-nft-save"), &["-t", table], ""));
        }
        let legacy = node.run(|| std::fs::read_to_string(format!("/proc/thread-self/net/{names}")));
        for table in legacy.unwrap_or_default().lines() {
            text += &without_counts(&node.shell(&format!("{program}-legacy-save"), &["-t", table], ""));
        }
    }
    text
}

/// What iptables-save writes, without the times and the counts.
fn without_counts(saved: &str) -> String {
    let lines = saved.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{}\n", line.split(" [").next().unwrap_or_default())).collect()
}

fn restore(node: &Node, flavour: &str, v4: &str, v6: &str) {
    node.shell(&format!("iptables-{flavour}-restore"), &["--noflush"], v4);
    node.shell(&format!("ip6tables-{flavour}-restore"), &["--noflush"], v6);
}

/// Runs our program with these arguments to its end.
#[track_caller]
fn proxier(node: &Node, arguments: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(parts::proxier().expect("the program"));
    command.args(arguments);
    let mut process = node.spawn_process(command).expect("the program");
    let code = process.wait(wait::SOON).code().expect("an exit code");
    (code, process.log())
}

#[test]
fn s05_cleanup_removes_ours_and_kube_proxys_and_nothing_else() {
    for flavour in ["nft", "legacy"] {
        let world = World::new("s05-cleanup").nodes(1).build();
        let node = world.node(0);
        node.shell("nft", &["-f", "-"], STRANGERS);
        restore(node, flavour, IPTABLES_STRANGERS, &ip6tables_strangers());
        let before = everything(node);

        let manifests = Manifests::new();
        let web = service("web", &["10.96.0.10", "fd00:10:96::10"]).node_port("", L4Proto::Tcp, 80, 30080);
        let pod = node.pod("pod");
        let objects: Vec<_> = [web.object()].into_iter().chain(tcp_slices("web", 8080, &[&pod])).collect();
        manifests.put("web", &objects);
        ProgramPlan::on(node).manifests(&manifests).start_healthy().terminate();
        restore(node, flavour, KUBE_PROXYS, KUBE_PROXYS);
        node.shell("nft", &["-f", "-"], "table ip kube-proxy { chain c { accept; }; }\ntable ip6 kube-proxy { map m { type ipv4_addr : verdict; }; }");
        let with_all = everything(node);
        assert!(with_all.contains("table ip6 proxier") && with_all.contains("KUBE-SEP-"), "{with_all}");

        // As kube-proxy spells it, with whatever else the DaemonSet says.
        let (code, log) = proxier(node, &["--cleanup", "--hostname-override=node-1"]);
        assert_eq!(code, 0, "{log}");
        assert_eq!(everything(node), before, "{flavour}");
        assert_eq!(proxier(node, &["cleanup"]).0, 0, "nothing is left to do");
        assert_eq!(everything(node), before, "{flavour}");
    }
}

#[test]
fn s05_cleanup_goes_on_after_an_error_and_says_all() {
    let world = World::new("s05-errors").nodes(1).build();
    let node = world.node(0);
    restore(node, "nft", IPTABLES_STRANGERS, &ip6tables_strangers());
    let strangers = everything(node);
    restore(node, "nft", KUBE_PROXYS, KUBE_PROXYS);
    // Somebody relies on a chain of kube-proxy's.
    let reliant = "*nat\n-A PREROUTING -p tcp --dport 99 -j KUBE-MARK-MASQ\nCOMMIT\n";
    restore(node, "nft", reliant, "");
    let (code, log) = proxier(node, &["cleanup"]);
    assert_eq!(code, 1, "{log}");
    assert!(log.contains("encountered an error while tearing down rules"), "{log}");
    assert!(
        log.contains(
            "table ip nat, chain KUBE-MARK-MASQ: left as it is, since chain PREROUTING refers to it"
        ),
        "{log}"
    );
    node.shell(
        "iptables-nft",
        &["-t", "nat", "-D", "PREROUTING", "-p", "tcp", "--dport", "99", "-j", "KUBE-MARK-MASQ"],
        "",
    );
    assert_eq!(proxier(node, &["cleanup"]).0, 0);
    assert_eq!(everything(node), strangers);
}

#[test]
fn s05_without_privilege_cleanup_says_so() {
    let world = World::new("s05-privilege").nodes(1).build();
    let node = world.node(0);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"]);
    command.arg(parts::proxier().expect("the program")).arg("cleanup");
    let mut process = node.spawn_process(command).expect("setpriv, of util-linux");
    assert_eq!(process.wait(wait::SOON).code(), Some(1));
    let log =
        wait::until("its words", wait::SOON, || Some(process.log()).filter(|log| log.contains("permitted")));
    assert!(log.contains("table ip nat"), "{log}");
}

/// A Service on a real API server, endpoints on two nodes, and one node to be proxied.
struct Cluster {
    world: World,
    api: std::sync::Arc<ApiServer>,
    kubectl: Kubectl,
    pods: Vec<Pod>,
    dialler: Pod,
    _servers: Vec<integration::Server>,
}

const NODE_PORT: u16 = 30080;

impl Cluster {
    fn new(name: &str) -> Self {
        let world = World::new(name).build();
        let api = ApiServer::shared();
        let kubectl = api.kubectl(name);
        let pods = vec![world.node(0).pod("a"), world.node(1).pod("b")];
        let dialler = world.node(0).pod("dialler");
        let servers = pods.iter().map(|pod| pod.serve(L4Proto::Tcp, 8080, pod.name())).collect();
        kubectl.apply(
            "
apiVersion: v1
kind: Node
metadata: {name: node-1}
status:
  addresses:
  - {type: InternalIP, address: 192.168.77.11}
  - {type: InternalIP, address: 'fd00:77::11'}
",
        );
        api.wire_to(world.node(0).ns());
        Self { world, api, kubectl, pods, dialler, _servers: servers }
    }

    fn node(&self) -> &Node {
        self.world.node(0)
    }

    /// Makes the Service, and returns where to dial it from the pod and from outside, in both families.
    fn service(&self, node_port: u16) -> Vec<(bool, SocketAddr)> {
        self.kubectl.apply(&format!(
            "
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{type: NodePort, ipFamilyPolicy: RequireDualStack, ports: [{{port: 80, nodePort: {node_port}}}]}}
"
        ));
        for family in Family::ALL {
            let endpoints: Vec<String> = self
                .pods
                .iter()
                .map(|pod| {
                    format!(
                        "{{addresses: ['{}'], nodeName: {}, conditions: {{ready: true}}}}",
                        pod.addr(family),
                        pod.node().name()
                    )
                })
                .collect();
            self.kubectl.apply(&format!(
                "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: 'web-{family}', labels: {{kubernetes.io/service-name: web}}}}
addressType: {}
ports: [{{name: '', port: 8080}}]
endpoints: [{}]
",
                of(family, "IPv4", "IPv6"),
                endpoints.join(", ")
            ));
        }
        let inside = self.kubectl.cluster_ips("web").into_iter().map(|addr| (false, (addr, 80).into()));
        let outside = self.node().addrs().iter().map(|addr| (true, (*addr, node_port).into()));
        inside.chain(outside).collect()
    }

    /// Waits until every address answers, then loads each.
    fn load(&self, addresses: &[(bool, SocketAddr)]) -> Vec<(SocketAddr, Load)> {
        let start = |(from_outside, to): &(bool, SocketAddr)| {
            let host: &integration::Host = if *from_outside { self.world.client() } else { &self.dialler };
            wait::until(&format!("{to}"), wait::SOON, || {
                let outcome = host.dials(L4Proto::Tcp, *to);
                if outcome.by().is_some() { Ok(()) } else { Err(outcome) }
            });
            (*to, LoadPlan::on(*to).established(5).dials_per_second(50).start(host))
        };
        addresses.iter().map(start).collect()
    }

    fn plan(&self) -> ProgramPlan {
        ProgramPlan::on(self.node()).api(&self.api)
    }
}

/// Waits until each load has made some more connections, and none has failed.
#[track_caller]
fn go_on(loads: &[(SocketAddr, Load)], while_: &str) {
    for (to, load) in loads {
        let reached = load.so_far().dials_answered() + 30;
        wait::until("more connections", wait::SOON, || {
            let now = load.so_far();
            assert!(now.is_flawless(), "{while_}, to {to}: {now:?}");
            if now.dials_answered() >= reached { Ok(()) } else { Err(format!("{now:?}")) }
        });
    }
}

fn take_over_and_go_back(mode: &str, name: &str, node_port: u16) {
    let cluster = Cluster::new(name);
    let node = cluster.node();
    node.shell("nft", &["-f", "-"], STRANGERS);
    restore(node, "nft", IPTABLES_STRANGERS, &ip6tables_strangers());
    let before = everything(node);
    let addresses = cluster.service(node_port);
    let start = || KubeProxy::start_in_mode(mode, node, &cluster.api, "").expect("kube-proxy");

    let mut kube_proxy = start();
    let loads = cluster.load(&addresses);
    go_on(&loads, "kube-proxy serves");
    kube_proxy.process().terminate();
    drop(kube_proxy);

    let mut program = cluster.plan().start_healthy();
    let gone = |text: &str| !text.contains("table ip kube-proxy {") && !text.contains("KUBE-S");
    wait::until("kube-proxy's rules to go", wait::SOON, || {
        let text = everything(node);
        if gone(&text) { Ok(()) } else { Err(text) }
    });
    go_on(&loads, "taking over");
    for family in Family::ALL {
        let to = at(of(family, "192.168.77.11", "fd00:77::11"), node_port);
        assert!(cluster.world.client().dials(L4Proto::Tcp, to).by().is_some());
    }

    // Back: kube-proxy writes its rules beside ours, then ours go.
    program.terminate();
    drop(program);
    let mut kube_proxy = start();
    go_on(&loads, "going back");
    let (code, log) = proxier(node, &["cleanup", "--ours-only"]);
    assert_eq!(code, 0, "{log}");
    let text = everything(node);
    assert!(!text.contains("proxier") && !gone(&text), "{text}");
    go_on(&loads, "kube-proxy serves again");
    drop(loads);

    kube_proxy.process().terminate();
    drop(kube_proxy);
    let (code, log) = proxier(node, &["cleanup"]);
    assert_eq!(code, 0, "{log}");
    assert_eq!(everything(node), before);
}

#[test]
fn s05_taking_over_from_the_nftables_mode_and_going_back() {
    take_over_and_go_back("nftables", "s05-nftables", NODE_PORT);
}

#[test]
fn s05_taking_over_from_the_iptables_mode_and_going_back() {
    take_over_and_go_back("iptables", "s05-iptables", NODE_PORT + 1);
}

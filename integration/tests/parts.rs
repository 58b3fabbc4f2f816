//! Owns the tests of the real parts as the lab runs them. Knows nothing of the proxier.

use integration::{ApiServer, Family, KubeProxy, L4Proto, World, wait};

#[test]
fn an_api_server_keeps_its_objects_over_a_restart() {
    let api = ApiServer::start();
    let kubectl = api.kubectl("restart");
    kubectl.apply(
        "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.77.11}]}
",
    );
    let ingress = ["203.0.113.1".parse().expect("an address")];
    kubectl.set_ingress("web", &ingress);
    let before = kubectl.cluster_ips("web");
    assert_eq!(before.iter().map(Family::of).collect::<Vec<_>>(), Family::ALL);
    api.restart();
    assert_eq!(kubectl.cluster_ips("web"), before);
    let status = kubectl.get("v1/Service", "web").data["status"].clone();
    assert_eq!(status["loadBalancer"]["ingress"][0]["ip"], "203.0.113.1");
    let node = kubectl.get("v1/Node", "node-1");
    assert_eq!(node.data["status"]["addresses"][0]["address"], "192.168.77.11");
    kubectl.delete("v1/Service", "web");
    assert!(kubectl.list("v1/Service").is_empty());
}

#[test]
fn kube_proxy_serves_a_service_in_the_lab() {
    let world = World::new("kube-proxy").build();
    let api = ApiServer::shared();
    let kubectl = api.kubectl("kube-proxy");
    let (a, b) = (world.node(0).pod("a"), world.node(1).pod("b"));
    let _server = b.serve(L4Proto::Tcp, 8080, "b");
    kubectl.apply(
        "
apiVersion: v1
kind: Node
metadata: {name: node-1}
status:
  addresses:
  - {type: InternalIP, address: 192.168.77.11}
  - {type: InternalIP, address: 'fd00:77::11'}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}
",
    );
    for (family, kind) in [(Family::Ip, "IPv4"), (Family::Ip6, "IPv6")] {
        kubectl.apply(&format!(
            "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: 'web-{family}', labels: {{kubernetes.io/service-name: web}}}}
addressType: {kind}
ports: [{{name: '', port: 8080}}]
endpoints: [{{addresses: ['{}'], conditions: {{ready: true}}}}]
",
            b.addr(family)
        ));
    }
    api.wire_to(world.node(0).ns());
    let _kube_proxy = KubeProxy::start(world.node(0), &api, "").expect("kube-proxy");
    for addr in kubectl.cluster_ips("web") {
        let outcome = wait::until("the Service", wait::SOON, || {
            let outcome = a.dials(L4Proto::Tcp, (addr, 80).into());
            if outcome.by().is_some() { Ok(outcome) } else { Err(outcome) }
        });
        assert_eq!(outcome.seen_from().map(|peer| peer.ip()), Some(a.addr(Family::of(&addr))));
    }
}

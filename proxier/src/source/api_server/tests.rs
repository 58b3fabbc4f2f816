//! Owns the tests of the API server as a source, against a small server on loopback.

mod fake;

use super::*;
use fake::{Fake, NODES, Running, SERVICES, SLICES};
use proxier_core::Change;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;

const LONGEST: Duration = Duration::from_secs(20);

struct World {
    fake: Fake,
    server: Option<Running>,
    events: Receiver<SourceEvent>,
    task: JoinHandle<Result<(), ApiServerError>>,
}

impl World {
    async fn start(fake: Fake) -> Self {
        let server = fake.serve(None).await;
        let (addr, server) = (server.addr, Some(server));
        Self::start_at(fake, server, addr, Wanted::new("node-1", false)).await
    }

    async fn start_at(fake: Fake, server: Option<Running>, addr: SocketAddr, wanted: Wanted) -> Self {
        let connection = Connection { kubeconfig: None, master: Some(addr.to_string()) };
        let client = connection.client().await.unwrap();
        let (sender, events) = channel(16);
        let task = tokio::spawn(run(client, wanted, sender));
        Self { fake, server, events, task }
    }

    async fn next(&mut self) -> SourceEvent {
        tokio::time::timeout(LONGEST, self.events.recv())
            .await
            .expect("no event came")
            .expect("the source ended")
    }

    /// All changes up to and without the first event that is none.
    async fn until_synced(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            match self.next().await {
                SourceEvent::Changes(changes) => said.extend(changes.iter().map(short)),
                SourceEvent::Synced => break,
                SourceEvent::Rejected(rejected) => panic!("{rejected:?}"),
            }
        }
        said.sort();
        said
    }

    async fn changes(&mut self) -> Vec<String> {
        match self.next().await {
            SourceEvent::Changes(changes) => changes.iter().map(short).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for this change, passing over those that say again what was known.
    async fn wait_for(&mut self, wanted: &str) {
        while !self.changes().await.iter().any(|change| change == wanted) {}
    }
}

fn short(change: &Change) -> String {
    match change {
        Change::Service(name, service) => {
            format!("{}{}", if service.is_some() { '+' } else { '-' }, name.name)
        }
        Change::EndpointSlice(name, slice) => {
            format!("{}slice {}", if slice.is_some() { '+' } else { '-' }, name.name)
        }
        Change::Node(node) => format!("{}node", if node.is_some() { '+' } else { '-' }),
        other => format!("{other:?}"),
    }
}

fn service(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}})
}

fn slice(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": "a"}},
           "addressType": "IPv4", "ports": [], "endpoints": []})
}

fn node() -> Value {
    json!({"metadata": {"name": "node-1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}})
}

fn small_cluster(streaming: bool) -> Fake {
    let fake = Fake::new(streaming);
    fake.put(SERVICES, service("a"));
    fake.put(SERVICES, service("b"));
    fake.put(SLICES, slice("s"));
    fake.put(NODES, node());
    fake
}

#[tokio::test]
async fn first_the_whole_state_then_each_change() {
    for streaming in [true, false] {
        let mut world = World::start(small_cluster(streaming)).await;
        assert_eq!(world.until_synced().await, ["+a", "+b", "+node", "+slice s"]);
        world.fake.put(SERVICES, service("c"));
        assert_eq!(world.changes().await, ["+c"]);
        world.fake.delete(SERVICES, "a");
        assert_eq!(world.changes().await, ["-a"]);
        world.fake.put(SLICES, slice("s"));
        assert_eq!(world.changes().await, ["+slice s"]);
    }
}

#[tokio::test]
async fn the_request_names_what_is_wanted() {
    let mut world = World::start(small_cluster(true)).await;
    world.until_synced().await;
    let requests = world.fake.requests();
    let has = |path: &str, part: &str| requests.iter().any(|uri| uri.starts_with(path) && uri.contains(part));
    assert!(has(SERVICES, "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name"), "{requests:#?}");
    assert!(has(SERVICES, "fieldSelector=spec.clusterIP%21%3DNone"), "{requests:#?}");
    assert!(has(SLICES, "labelSelector=%21service.kubernetes.io%2Fheadless"), "{requests:#?}");
    assert!(has(NODES, "fieldSelector=metadata.name%3Dnode-1"), "{requests:#?}");
}

#[tokio::test]
async fn a_broken_watch_goes_on_where_it_was() {
    let mut world = World::start(small_cluster(true)).await;
    world.until_synced().await;
    world.fake.cut();
    world.fake.delete(SERVICES, "b");
    world.wait_for("-b").await;
}

#[tokio::test]
async fn after_a_new_list_what_vanished_is_named() {
    for streaming in [true, false] {
        let mut world = World::start(small_cluster(streaming)).await;
        world.until_synced().await;
        let addr = world.server.as_ref().unwrap().addr;
        world.server.take().unwrap().stop().await;
        world.fake.delete(SERVICES, "b");
        world.fake.delete(SLICES, "s");
        world.fake.put(SLICES, slice("t"));
        world.fake.compact();
        world.server = Some(world.fake.serve(Some(addr)).await);
        let mut said = Vec::new();
        while !(said.contains(&"-b".to_owned()) && said.contains(&"-slice s".to_owned())) {
            said.extend(world.changes().await);
        }
        let at = |change: &str| said.iter().position(|said| said == change);
        assert!(at("+slice t") < at("-slice s"), "the new slice comes before the old one goes: {said:?}");
        assert!(at("+slice t").is_some() && at("-a").is_none(), "{said:?}");
    }
}

#[tokio::test]
async fn a_server_that_comes_late_is_waited_for() {
    let fake = small_cluster(true);
    let server = fake.serve(None).await;
    let addr = server.addr;
    server.stop().await;
    let mut world = World::start_at(fake, None, addr, Wanted::new("node-1", false)).await;
    tokio::time::timeout(Duration::from_millis(300), world.events.recv())
        .await
        .expect_err("nothing to say yet");
    world.server = Some(world.fake.serve(Some(addr)).await);
    assert_eq!(world.until_synced().await, ["+a", "+b", "+node", "+slice s"]);
}

#[tokio::test]
async fn the_node_is_waited_for_within_limits() {
    let fake = Fake::new(true);
    let server = fake.serve(None).await;
    let wanted = Wanted { node_addresses: Duration::from_millis(50), ..Wanted::new("node-1", false) };
    let addr = server.addr;
    let mut world = World::start_at(fake, Some(server), addr, wanted).await;
    assert_eq!(world.until_synced().await, [""; 0]);
    world.fake.put(NODES, node());
    assert_eq!(world.changes().await, ["+node"]);
}

#[tokio::test]
async fn pod_cidrs_are_an_error_when_they_do_not_come() {
    let fake = small_cluster(true);
    let server = fake.serve(None).await;
    let waited = Duration::from_millis(50);
    let wanted = Wanted { pod_cidrs: Some(waited), ..Wanted::new("node-1", true) };
    let addr = server.addr;
    let world = World::start_at(fake, Some(server), addr, wanted).await;
    let outcome = tokio::time::timeout(LONGEST, world.task).await.unwrap().unwrap();
    assert_eq!(outcome, Err(ApiServerError::NoPodCidrs { node: "node-1".into(), waited }));
}

#[tokio::test]
async fn the_source_ends_when_nobody_listens() {
    let mut world = World::start(small_cluster(true)).await;
    world.until_synced().await;
    drop(world.events);
    tokio::time::timeout(LONGEST, world.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn connections_say_what_is_wrong() {
    let rows = [
        (Some("/nonexistent/kubeconfig"), None, "kubeconfig /nonexistent/kubeconfig: "),
        (None, Some("http://[x"), "--master \"http://[x\" is not a URL"),
        (None, None, "no --kubeconfig, no clientConnection.kubeconfig, no --master"),
    ];
    for (kubeconfig, master, want) in rows {
        let connection =
            Connection { kubeconfig: kubeconfig.map(Into::into), master: master.map(str::to_owned) };
        let error = connection.client().await.err().unwrap().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

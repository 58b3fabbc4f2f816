//! Owns the tests of a folder as a source, on real folders.

use super::super::Rejected;
use super::*;
use proxier_core::Change;
use std::fs;
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;

const LONGEST: Duration = Duration::from_secs(10);

/// A folder, the source that follows it, and what the source has said.
struct World {
    dir: TempDir,
    events: Receiver<SourceEvent>,
    task: JoinHandle<Result<(), ManifestsError>>,
}

impl World {
    fn start(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let (sender, events) = channel(16);
        let task = tokio::spawn(run(dir.path().to_owned(), Decoder::new("node-1", true), sender));
        Self { dir, events, task }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn next(&mut self) -> SourceEvent {
        tokio::time::timeout(LONGEST, self.events.recv())
            .await
            .expect("no event came")
            .expect("the source ended")
    }

    /// The next changes, in short: `+web:80` is there, `-web` is gone.
    async fn changes(&mut self) -> Vec<String> {
        match self.next().await {
            SourceEvent::Changes(changes) => changes.iter().map(short).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn rejected(&mut self) -> Vec<Rejected> {
        match self.next().await {
            SourceEvent::Rejected(rejected) => rejected,
            other => panic!("{other:?}"),
        }
    }

    async fn synced(&mut self) {
        assert_eq!(self.next().await, SourceEvent::Synced);
    }
}

fn short(change: &Change) -> String {
    match change {
        Change::Service(name, Some(service)) => format!("+{}:{}", name.name, service.ports[0].port),
        Change::Service(name, None) => format!("-{}", name.name),
        Change::EndpointSlice(name, slice) => {
            format!("{}slice {}", if slice.is_some() { '+' } else { '-' }, name.name)
        }
        Change::Node(node) => format!("{}node", if node.is_some() { '+' } else { '-' }),
        Change::ServiceCidr(name, cidrs) => format!("cidr {name} {}", cidrs.len()),
        Change::HostAddresses(_) => "addresses".to_owned(),
    }
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  clusterIP: 10.96.0.{port}\n  ports:\n  - \
         port: {port}\n    targetPort: http\n"
    )
}

#[tokio::test]
async fn every_form_of_file_is_read() {
    let many = format!(
        "%YAML 1.2\n---\n# only a comment\n---\n{}--- # second\n{}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: \
         {{name: d}}\n...\n",
        service("a", 1),
        service("b", 2)
    );
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: \
                {name: s, labels: {kubernetes.io/service-name: a}}, addressType: IPv4, ports: [{port: 80}], endpoints: \
                [{addresses: [10.0.0.1]}]}\n- {apiVersion: v1, kind: ConfigMap}\n";
    let json = r#"{"apiVersion": "v1", "kind": "ServiceList", "items": [
        {"metadata": {"name": "c"}, "spec": {"clusterIP": "10.96.0.3", "ports": [{"port": 3}]}}]}"#;
    let nodes = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: \
                 node-2}\n---\napiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: kubernetes}\nspec: \
                 {cidrs: [10.96.0.0/12]}\n";
    let mut world = World::start(&[
        ("1.yaml", &many),
        ("2.yml", list),
        ("3.json", json),
        ("4.yaml", nodes),
        ("5.yaml", ""),
        (".hidden.yaml", "{"),
        ("notes.txt", "{"),
    ]);
    fs::create_dir(world.path("folder.yaml")).unwrap();
    assert_eq!(world.changes().await, ["+a:1", "+b:2", "+slice s", "+c:3", "+node", "cidr kubernetes 1"]);
    world.synced().await;
}

#[tokio::test]
async fn files_are_followed() {
    let mut world = World::start(&[("a.yaml", &service("a", 1))]);
    assert_eq!(world.changes().await, ["+a:1"]);
    world.synced().await;

    fs::write(world.path("b.yaml"), service("b", 2)).unwrap();
    assert_eq!(world.changes().await, ["+b:2"]);

    // An editor's way: a new file, renamed over the old one.
    fs::write(world.path(".a.yaml.swp"), service("a", 3)).unwrap();
    fs::rename(world.path(".a.yaml.swp"), world.path("a.yaml")).unwrap();
    assert_eq!(world.changes().await, ["+a:3"]);

    fs::rename(world.path("b.yaml"), world.path("b.off")).unwrap();
    assert_eq!(world.changes().await, ["-b"]);
    fs::remove_file(world.path("a.yaml")).unwrap();
    assert_eq!(world.changes().await, ["-a"]);

    fs::write(world.path("c.txt"), service("c", 4)).unwrap();
    std::os::unix::fs::symlink("c.txt", world.path("c.yaml")).unwrap();
    assert_eq!(world.changes().await, ["+c:4"]);
}

#[tokio::test]
async fn a_mounted_config_map_is_followed() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (version, port) in [("v1", 1), ("v2", 2)] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("a.yaml"), service("a", port)).unwrap();
    }
    std::os::unix::fs::symlink("v1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let (sender, events) = channel(16);
    let task = tokio::spawn(run(dir.path().to_owned(), Decoder::new("node-1", true), sender));
    let mut world = World { dir, events, task };
    assert_eq!(world.changes().await, ["+a:1"]);
    world.synced().await;
    std::os::unix::fs::symlink("v2", world.path("..data_tmp")).unwrap();
    fs::rename(world.path("..data_tmp"), world.path("..data")).unwrap();
    assert_eq!(world.changes().await, ["+a:2"]);
}

#[tokio::test]
async fn a_broken_file_keeps_what_it_said() {
    let mut world = World::start(&[("a.yaml", &service("a", 1)), ("b.yaml", &service("b", 2))]);
    assert_eq!(world.changes().await, ["+a:1", "+b:2"]);
    world.synced().await;
    fs::write(world.path("a.yaml"), format!("{}---\nkind: [", service("a", 3))).unwrap();
    fs::write(world.path("b.yaml"), service("b", 4)).unwrap();
    assert_eq!(world.changes().await, ["+b:4"]);
    fs::write(world.path("a.yaml"), service("a", 5)).unwrap();
    assert_eq!(world.changes().await, ["+a:5"]);
}

#[tokio::test]
async fn of_two_files_with_one_object_the_last_by_name_counts() {
    let mut world = World::start(&[("a.yaml", &service("x", 1)), ("b.yaml", &service("x", 2))]);
    assert_eq!(world.changes().await, ["+x:1", "+x:2"]);
    let rejected = world.rejected().await;
    assert_eq!(
        rejected[0].to_string(),
        "Service default/x: metadata.name: \"b.yaml\": a.yaml and b.yaml have this object; b.yaml counts; left out"
    );
    world.synced().await;

    fs::write(world.path("a.yaml"), service("x", 3)).unwrap();
    fs::remove_file(world.path("b.yaml")).unwrap();
    assert_eq!(world.changes().await, ["+x:3"]);
}

#[tokio::test]
async fn a_service_without_an_address_is_named() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n";
    let mut world = World::start(&[("a.yaml", text)]);
    assert_eq!(world.changes().await, ["-a"]);
    assert_eq!(world.rejected().await[0].field, "spec.clusterIP");
    world.synced().await;
}

#[tokio::test]
async fn a_folder_that_comes_back_is_read_again() {
    let mut world = World::start(&[("a.yaml", &service("a", 1))]);
    assert_eq!(world.changes().await, ["+a:1"]);
    world.synced().await;
    let aside = TempDir::new_in(world.dir.path().parent().unwrap()).unwrap();
    fs::rename(world.dir.path(), aside.path().join("old")).unwrap();
    fs::create_dir(aside.path().join("new")).unwrap();
    fs::write(aside.path().join("new/a.yaml"), service("a", 2)).unwrap();
    fs::rename(aside.path().join("new"), world.dir.path()).unwrap();
    assert_eq!(world.changes().await, ["+a:2"]);
}

#[tokio::test]
async fn the_source_ends_when_nobody_listens() {
    let mut world = World::start(&[]);
    world.synced().await;
    drop(world.events);
    tokio::time::timeout(LONGEST, world.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_missing_folder_is_an_error_at_the_start() {
    let (sender, _events) = channel(1);
    let error = run("/nonexistent/folder".into(), Decoder::new("node-1", true), sender).await.unwrap_err();
    assert!(error.to_string().starts_with("--manifests /nonexistent/folder: cannot watch"), "{error}");
}

#[test]
fn errors_name_document_and_line() {
    let dir = TempDir::new().unwrap();
    let rows = [
        (
            "a.yaml",
            format!("{}---\n\nkind: Service\napiVersion: v1\nspec:\n  ports: 5\n", service("a", 1)),
            "document 2, line 14",
        ),
        ("b.yaml", format!("{}---\nkind: [\n", service("a", 1)), "document 2, line 1"),
        ("c.yaml", "metadata: {}\n".to_owned(), "document 1, line 1: has no kind"),
        (
            "d.json",
            "{\"apiVersion\": \"v1\",\n\"kind\": \"Service\",\n\"spec\": 5}".to_owned(),
            "document 1, line 3",
        ),
        (
            "e.yaml",
            "kind: List\napiVersion: v1\nitems:\n- {kind: Service, apiVersion: v1, spec: 5}\n".to_owned(),
            "document 1, items[0]",
        ),
    ];
    for (name, text, want) in rows {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        let error = parse::file(&path).unwrap_err().to_string();
        assert!(error.starts_with(want), "{name}: {error}");
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_costs_only_itself_and_keeps_what_it_said() {
    let both = |port: &str| {
        format!("{}---\n{}", service("a", 1).replace("port: 1", &format!("port: {port}")), service("b", 2))
    };
    let mut world = World::start(&[("x.yaml", &both("one"))]);
    assert_eq!(world.changes().await, ["+b:2"]);
    let rejected = world.rejected().await;
    assert!(
        rejected[0].to_string().starts_with("Service default/a: manifest: \"x.yaml\": document 1, line ")
    );
    world.synced().await;
    fs::write(world.path("x.yaml"), both("3")).unwrap();
    assert_eq!(world.changes().await, ["+a:3"]);
    // Broken again: what it said last stays, the other one is gone.
    let broken = service("a", 1).replace("port: 1", "port: one");
    fs::write(world.path("x.yaml"), broken).unwrap();
    assert_eq!(world.changes().await, ["-b"]);
    assert_eq!(world.rejected().await.len(), 1);
}

#[test]
fn a_hundred_thousand_endpoints_fit_into_a_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    let mut text =
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\nendpoints:\n".to_owned();
    for n in 0..100_000_u32 {
        text.push_str(&format!("- addresses: [10.{}.{}.{}]\n", n >> 16, (n >> 8) & 255, n & 255));
    }
    fs::write(&path, text).unwrap();
    let objects = parse::file(&path).unwrap();
    let [parse::Object::EndpointSlice(slice)] = &objects[..] else { panic!() };
    assert_eq!(slice.endpoints.as_ref().map(Vec::len), Some(100_000));
}

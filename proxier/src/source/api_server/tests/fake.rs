//! Owns a small API server for tests: lists, watches, streaming lists, and ways to fail; knows nothing of the source.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode, Uri};
use futures_util::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the server knows. Each change has a number, the resource version.
#[derive(Debug, Default)]
struct Store {
    /// Path of the kind, type of the event, object.
    log: Vec<(String, &'static str, Value)>,
    /// What is there now, in order of creation.
    objects: Vec<(String, Value)>,
    requests: Vec<String>,
    /// Watches that resume at a version before this one are told that it is gone.
    compacted: usize,
}

#[derive(Clone)]
pub(super) struct Fake {
    store: Arc<Mutex<Store>>,
    /// Version, and a number that is raised to cut all watches.
    news: watch::Sender<(usize, usize)>,
    streaming: bool,
}

/// A running server.
pub(super) struct Running {
    task: JoinHandle<()>,
    pub(super) addr: SocketAddr,
}

impl Running {
    /// Ends it; its address is free then.
    pub(super) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub(super) const SERVICES: &str = "/api/v1/services";
pub(super) const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

impl Fake {
    pub(super) fn new(streaming: bool) -> Self {
        Self { store: Arc::default(), news: watch::Sender::new((0, 0)), streaming }
    }

    /// Serves on this address, or a free one.
    pub(super) async fn serve(&self, addr: Option<SocketAddr>) -> Running {
        let listener = TcpListener::bind(addr.unwrap_or(([127, 0, 0, 1], 0).into())).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(self.clone());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Running { task, addr }
    }

    pub(super) fn put(&self, path: &str, mut object: Value) {
        self.change(path, |store, version| {
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            let name = object["metadata"]["name"].clone();
            let old = store.objects.iter_mut().find(|(p, o)| p == path && o["metadata"]["name"] == name);
            let kind = if let Some((_, old)) = old {
                *old = object.clone();
                "MODIFIED"
            } else {
                store.objects.push((path.to_owned(), object.clone()));
                "ADDED"
            };
            (kind, object)
        });
    }

    pub(super) fn delete(&self, path: &str, name: &str) {
        self.change(path, |store, version| {
            let at =
                store.objects.iter().position(|(p, o)| p == path && o["metadata"]["name"] == name).unwrap();
            let (_, mut object) = store.objects.remove(at);
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            ("DELETED", object)
        });
    }

    /// Ends all watches.
    pub(super) fn cut(&self) {
        self.news.send_modify(|(_, cut)| *cut += 1);
    }

    /// Ends all watches; none can resume where it was.
    pub(super) fn compact(&self) {
        {
            let mut store = self.store.lock().unwrap();
            store.log.push((String::new(), "", json!({})));
            store.compacted = store.log.len();
        }
        self.cut();
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.store.lock().unwrap().requests.clone()
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Store, usize) -> (&'static str, Value)) {
        let version = {
            let mut store = self.store.lock().unwrap();
            let version = store.log.len() + 1;
            let (kind, object) = change(&mut store, version);
            store.log.push((path.to_owned(), kind, object));
            version
        };
        self.news.send_modify(|(news, _)| *news = version);
    }
}

async fn answer(State(fake): State<Fake>, uri: Uri) -> Response<Body> {
    let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
    fake.store.lock().unwrap().requests.push(uri.to_string());
    if path == CIDRS {
        return status(404, "NotFound");
    }
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    if value("watch") != Some("true") {
        return list(&fake, &path);
    }
    let initial = value("sendInitialEvents") == Some("true");
    if initial && !fake.streaming {
        return status(422, "Invalid");
    }
    let from: usize = value("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let mut news = fake.news.subscribe();
    news.mark_unchanged();
    let cut = news.borrow().1;
    let (mut lines, mut next) = (Vec::new(), from);
    {
        let store = fake.store.lock().unwrap();
        if initial {
            next = store.log.len();
            let here = store.objects.iter().filter(|(p, _)| *p == path);
            lines.extend(here.map(|(_, object)| json!({"type": "ADDED", "object": object})));
            lines.push(json!({"type": "BOOKMARK", "object": {"kind": "X", "apiVersion": "v1", "metadata": {
                "resourceVersion": next.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}}));
        } else if from < store.compacted {
            // Real servers say it within the stream; proxies in front of them have been seen to say it at once.
            if !fake.streaming {
                return status(410, "Expired");
            }
            let event = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                               "code": 410, "reason": "Expired", "message": "too old resource version"}});
            return Response::new(Body::from(format!("{event}\n")));
        }
    }
    let body = stream::unfold(
        (fake, news, lines, next, path),
        move |(fake, mut news, mut lines, mut next, path)| async move {
            loop {
                if !lines.is_empty() {
                    let text: String = lines.drain(..).map(|line| format!("{line}\n")).collect();
                    return Some((Ok::<_, Infallible>(text), (fake, news, lines, next, path)));
                }
                if news.borrow_and_update().1 != cut {
                    return None;
                }
                {
                    let store = fake.store.lock().unwrap();
                    let fresh = store.log[next..].iter().filter(|(p, _, _)| *p == path);
                    lines.extend(fresh.map(|(_, kind, object)| json!({"type": kind, "object": object})));
                    next = store.log.len();
                }
                if lines.is_empty() && news.changed().await.is_err() {
                    return None;
                }
            }
        },
    );
    Response::new(Body::from_stream(body))
}

fn list(fake: &Fake, path: &str) -> Response<Body> {
    let store = fake.store.lock().unwrap();
    let items: Vec<_> = store.objects.iter().filter(|(p, _)| p == path).map(|(_, o)| o).collect();
    let list = json!({"kind": "List", "apiVersion": "v1", "items": items,
                      "metadata": {"resourceVersion": store.log.len().to_string()}});
    Response::new(Body::from(list.to_string()))
}

fn status(code: u16, reason: &str) -> Response<Body> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                      "message": reason});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

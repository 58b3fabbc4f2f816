//! Owns Kubernetes Events about this node and its Services; knows nothing of why they are told.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use proxier_core::model::ServiceName;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, info, warn};

/// How many Events may wait to be sent; more are only logged.
const WAITING: usize = 64;

/// At most so many at once …
const BURST: u32 = 25;

/// … and then one each.
const EVERY: Duration = Duration::from_secs(5);

/// Something to tell the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `Warning` instead of `Normal`.
    pub is_warning: bool,
    /// `reason`, in upstream's words.
    pub reason: &'static str,
    /// `action`, in upstream's words.
    pub action: &'static str,
    /// `note`.
    pub note: String,
    /// What it is about.
    pub about: About,
}

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// This node.
    Node,
    /// A Service.
    Service(ServiceName),
}

impl Notice {
    /// The proxier has started.
    pub const fn starting() -> Self {
        Self {
            is_warning: false,
            reason: "Starting",
            action: "StartKubeProxy",
            note: String::new(),
            about: About::Node,
        }
    }

    /// The health server could not be started, which is fatal.
    pub fn health_server_failed(error: impl ToString) -> Self {
        Self::failed_start("FailedToStartProxierHealthcheck", error)
    }

    /// The metrics server could not be started, which is fatal.
    pub fn metrics_server_failed(error: impl ToString) -> Self {
        Self::failed_start("FailedToStartMetricServer", error)
    }

    /// A Service's health check could not be served.
    pub fn service_health_failed(node: &str, service: &ServiceName, port: u16, error: &str) -> Self {
        Self {
            is_warning: true,
            reason: "FailedToStartServiceHealthcheck",
            action: "Listen",
            note: format!("node {node} failed to start healthcheck \"{service}\" on port {port}: {error}"),
            about: About::Service(service.clone()),
        }
    }

    fn failed_start(reason: &'static str, error: impl ToString) -> Self {
        Self {
            is_warning: true,
            reason,
            action: "StartKubeProxy",
            note: error.to_string(),
            about: About::Node,
        }
    }
}

/// Takes what there is to tell. Never waits; clones share one queue.
#[derive(Debug, Clone)]
pub struct Events {
    queue: Option<mpsc::Sender<Message>>,
}

#[derive(Debug)]
enum Message {
    Tell(Notice),
    /// Answered when all before it has been sent.
    Flush(oneshot::Sender<()>),
}

impl Events {
    /// Where there is no cluster: everything is only logged.
    pub const fn log_only() -> Self {
        Self { queue: None }
    }

    /// Sends to the API server as `kube-proxy`; must be called within a runtime.
    pub fn to_api_server(client: Client, node_name: Arc<str>) -> Self {
        let (queue, messages) = mpsc::channel(WAITING);
        tokio::spawn(send(client, node_name, messages));
        Self { queue: Some(queue) }
    }

    /// Takes notices for a test to look at.
    #[cfg(test)]
    pub(crate) fn channel() -> (Self, Told) {
        let (queue, messages) = mpsc::channel(WAITING);
        (Self { queue: Some(queue) }, Told(messages))
    }

    /// Logs it, and tells the cluster unless too much is waiting.
    pub fn tell(&self, notice: Notice) {
        if notice.is_warning {
            warn!("{}: {}", notice.reason, notice.note);
        } else {
            info!("{}", notice.reason);
        }
        if let Some(queue) = &self.queue
            && queue.try_send(Message::Tell(notice)).is_err()
        {
            debug!("too many Events are waiting; this one is only logged");
        }
    }

    /// Waits until all of it has been sent, but not longer than this.
    pub async fn flush(&self, longest: Duration) {
        let Some(queue) = &self.queue else { return };
        let (done, all_sent) = oneshot::channel();
        let flush = async {
            if queue.send(Message::Flush(done)).await.is_ok() {
                let _ = all_sent.await;
            }
        };
        if tokio::time::timeout(longest, flush).await.is_err() {
            debug!("not all Events could be sent");
        }
    }
}

/// What a test's [`Events`] were told.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Told(mpsc::Receiver<Message>);

#[cfg(test)]
impl Told {
    pub(crate) async fn next(&mut self) -> Notice {
        match self.0.recv().await {
            Some(Message::Tell(notice)) => notice,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

async fn send(client: Client, node_name: Arc<str>, mut messages: mpsc::Receiver<Message>) {
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let reporter = Reporter {
        controller: "kube-proxy".to_owned(),
        instance: Some(format!("kube-proxy-{}", host.as_deref().unwrap_or(&node_name))),
    };
    let recorder = Recorder::new(client, reporter);
    let mut allowance = Allowance::new(Instant::now());
    while let Some(message) = messages.recv().await {
        let notice = match message {
            Message::Tell(notice) => notice,
            Message::Flush(done) => {
                let _ = done.send(());
                continue;
            }
        };
        if !allowance.take(Instant::now()) {
            debug!("Events come too fast; this one is only logged");
            continue;
        }
        let event = Event {
            type_: if notice.is_warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.to_owned(),
            note: Some(notice.note),
            action: notice.action.to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &reference(&node_name, notice.about)).await {
            debug!("cannot send the Event {}: {error}", notice.reason);
        }
    }
}

fn reference(node_name: &str, about: About) -> ObjectReference {
    let (kind, name, namespace) = match about {
        About::Node => ("Node", node_name.to_owned(), None),
        About::Service(service) => ("Service", service.name.to_string(), Some(service.namespace.to_string())),
    };
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name),
        namespace,
        ..ObjectReference::default()
    }
}

/// A bucket of permits that fills again with time.
#[derive(Debug)]
struct Allowance {
    permits: u32,
    filled: Instant,
}

impl Allowance {
    const fn new(now: Instant) -> Self {
        Self { permits: BURST, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.permits < BURST && now.duration_since(self.filled) >= EVERY {
            self.permits += 1;
            self.filled += EVERY;
        }
        if self.permits == BURST {
            self.filled = now;
        }
        let allowed = self.permits > 0;
        self.permits -= u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_one_at_a_time() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        assert_eq!((0..100).filter(|_| allowance.take(start)).count(), BURST as usize);
        assert!(allowance.take(start + EVERY));
        assert!(!allowance.take(start + EVERY));
        let later = start + EVERY * 1_000;
        assert_eq!((0..100).filter(|_| allowance.take(later)).count(), BURST as usize);
    }

    #[test]
    fn references_are_upstreams() {
        let node = reference("node-1", About::Node);
        assert_eq!(
            (node.kind.as_deref(), node.name.as_deref(), node.namespace),
            (Some("Node"), Some("node-1"), None)
        );
        let service = reference("node-1", About::Service(ServiceName::new("shop", "web")));
        assert_eq!((service.name.as_deref(), service.namespace.as_deref()), (Some("web"), Some("shop")));
    }

    #[test]
    fn telling_never_waits() {
        let (events, _notices) = Events::channel();
        for _ in 0..10 * WAITING {
            events.tell(Notice::starting());
        }
        Events::log_only().tell(Notice::starting());
    }
}

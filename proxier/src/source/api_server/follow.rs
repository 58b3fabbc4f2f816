//! Owns the watch of one kind of object, and the names it has delivered; knows nothing of which kinds there are.

use super::delivered::{Delivered, Part};
use crate::source::decode::{Decoder, Kind, ObjectKey};
use crate::source::{Decoded, Rejected, SourceEvent};
use futures_util::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event, InitialListStrategy};
use kube::runtime::{WatchStreamExt, watcher as watch};
use proxier_core::Change;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};

/// Objects that come together are passed on together, up to this many.
const TOGETHER: usize = 512;

/// HTTP status by which a server without streaming lists refuses one.
const INVALID: u16 = 422;

/// HTTP status of a version that the server no longer has.
const GONE: u16 = 410;

/// The watch of one kind.
pub(super) struct Follow {
    pub(super) decoder: Decoder,
    pub(super) events: Sender<SourceEvent>,
    pub(super) part: Part,
    pub(super) delivered: Delivered,
    pub(super) outage: Outage,
}

impl Follow {
    /// Follows until nobody listens any more.
    pub(super) async fn run<K>(mut self, api: Api<K>, mut config: watcher::Config)
    where
        K: kube::Resource + Kind + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut names = Names::default();
        loop {
            let stream = watch(api.clone(), config.clone()).default_backoff().ready_chunks(TOGETHER);
            tokio::pin!(stream);
            let mut anew = false;
            while !anew && let Some(together) = stream.next().await {
                let mut batch = Batch::default();
                for event in together {
                    match event {
                        Ok(event) => self.take(event, &mut names, &mut batch),
                        Err(error) if is_refused_streaming(&config, &error) => {
                            debug!("{:?}: no streaming lists on this server: {error}", self.part);
                            config.initial_list_strategy = InitialListStrategy::ListWatch;
                            anew = true;
                        }
                        // The watcher would try the same version for ever.
                        Err(error) if is_gone_at_start(&error) => anew = true,
                        Err(error) => self.note_error(&error),
                    }
                }
                if self.send(batch).await.is_err() {
                    return;
                }
            }
        }
    }

    fn take<K: Kind>(&mut self, event: Event<K>, names: &mut Names, batch: &mut Batch) {
        if !matches!(event, Event::Init) {
            // An Init only says that a list is about to be asked for.
            self.outage.over();
        }
        match event {
            Event::Init => names.listed.clear(),
            Event::InitApply(object) => {
                let key = object.key(&mut self.decoder);
                names.listed.insert(key.clone());
                names.known.insert(key);
                batch.add(object.decode(&mut self.decoder));
            }
            Event::InitDone => {
                batch.changes.extend(names.vanished().map(ObjectKey::gone));
                batch.whole = true;
            }
            Event::Apply(object) => {
                names.known.insert(object.key(&mut self.decoder));
                batch.add(object.decode(&mut self.decoder));
            }
            Event::Delete(object) => {
                let key = object.key(&mut self.decoder);
                names.known.remove(&key);
                batch.changes.push(key.gone());
            }
        }
    }

    /// Sends first, then notes what has been delivered: who waits for it finds it in the channel.
    async fn send(&self, batch: Batch) -> Result<(), Closed> {
        let mut parts = Vec::new();
        for change in &batch.changes {
            if let Change::Node(Some(node)) = change {
                parts.extend((!node.addresses.is_empty()).then_some(Part::NodeAddresses));
                parts.extend((!node.pod_cidrs.is_empty()).then_some(Part::PodCidrs));
            }
        }
        if !batch.changes.is_empty() {
            self.events.send(SourceEvent::Changes(batch.changes)).await.map_err(|_| Closed)?;
        }
        if !batch.rejected.is_empty() {
            self.events.send(SourceEvent::Rejected(batch.rejected)).await.map_err(|_| Closed)?;
        }
        if batch.whole {
            self.delivered.note(self.part);
        }
        for part in parts {
            self.delivered.note(part);
        }
        Ok(())
    }

    fn note_error(&self, error: &watcher::Error) {
        if self.part == Part::ServiceCidrs && status_of(error) == Some(404) {
            debug!("this cluster has no ServiceCIDRs: {error}");
            self.delivered.note(self.part);
            return;
        }
        self.outage.begins(self.part, error);
    }
}

/// The names that the watch has delivered, and those of the list that is under way.
#[derive(Debug, Default)]
struct Names {
    known: HashSet<ObjectKey>,
    listed: HashSet<ObjectKey>,
}

impl Names {
    /// At the end of a list: what was known and is not in it.
    fn vanished(&mut self) -> impl Iterator<Item = ObjectKey> {
        let listed = std::mem::take(&mut self.listed);
        let known = std::mem::take(&mut self.known);
        let gone: Vec<_> = known.difference(&listed).cloned().collect();
        self.known = listed;
        gone.into_iter()
    }
}

/// What goes out together.
#[derive(Debug, Default)]
struct Batch {
    changes: Vec<Change>,
    rejected: Vec<Rejected>,
    whole: bool,
}

impl Batch {
    fn add(&mut self, decoded: Decoded) {
        self.changes.extend(decoded.change);
        self.rejected.extend(decoded.rejected);
    }
}

/// Nobody listens any more.
#[derive(Debug)]
struct Closed;

/// Whether the API server is away, so that it is told once and not by every watch at each try. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Outage(Arc<AtomicBool>);

impl Outage {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    fn begins(&self, part: Part, error: &watcher::Error) {
        if self.0.swap(true, Ordering::Relaxed) {
            debug!("{part:?}: {error}");
        } else {
            warn!("API server: cannot watch {part:?}: {error}; what is known stays in force, trying on");
        }
    }

    fn over(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            info!("API server: watching again");
        }
    }
}

fn is_refused_streaming(config: &watcher::Config, error: &watcher::Error) -> bool {
    config.initial_list_strategy == InitialListStrategy::StreamingList
        && matches!(error, watcher::Error::WatchStartFailed(_))
        && status_of(error) == Some(INVALID)
}

fn is_gone_at_start(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_)) && status_of(error) == Some(GONE)
}

/// The HTTP status that the server answered with, if it answered.
fn status_of(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

//! Owns the account of what the watches have delivered for the first time; knows nothing of the watches.

use std::sync::Arc;
use tokio::sync::watch;

/// A part of the first state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Services,
    EndpointSlices,
    Node,
    NodeAddresses,
    PodCidrs,
    ServiceCidrs,
}

/// Which parts have come. Clones share one account.
#[derive(Debug, Clone)]
pub(super) struct Delivered(Arc<watch::Sender<u8>>);

impl Delivered {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// The part has come, or is known not to come.
    pub(super) fn note(&self, part: Part) {
        self.0.send_if_modified(|parts| {
            let before = *parts;
            *parts |= bit(part);
            *parts != before
        });
    }

    pub(super) async fn wait_for(&self, part: Part) {
        // It fails only without a sender, and `self` is one.
        let _ = self.0.subscribe().wait_for(|parts| parts & bit(part) != 0).await;
    }
}

const fn bit(part: Part) -> u8 {
    1 << part as u8
}

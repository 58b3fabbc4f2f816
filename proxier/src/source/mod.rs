//! Owns the way in: objects from an API server or a folder, as changes in one channel; knows nothing of what is made of
//! them.

pub mod api_server;
pub mod decode;
pub mod manifests;

pub use decode::{Decoded, Decoder, ObjectKey, Rejected};

use proxier_core::Change;

/// What a source says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceEvent {
    /// These are now so. Removals and additions that belong together come in one event.
    Changes(Vec<Change>),
    /// The initial state has been delivered; sent once.
    Synced,
    /// Entries of objects were left out; the rest of those objects came as changes.
    Rejected(Vec<Rejected>),
}

//! What should be in the kernel for these Services on this node.
#![forbid(unsafe_code)]

mod change;
pub mod conntrack;
pub mod engine;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod health;
pub mod model;
pub mod policy;
pub mod ruleset;
mod settings;
pub mod slots;
pub mod view;

pub use change::Change;
pub use settings::{DetectLocal, NodePortAddresses, Settings};

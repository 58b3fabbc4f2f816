//! What should be in the kernel for these Services on this node.
#![forbid(unsafe_code)]

mod change;
pub mod model;
mod settings;

pub use change::Change;
pub use settings::{DetectLocal, NodePortAddresses, Settings};

//! Owns the only task that writes to the kernel: it takes changes, asks the core for a plan, commits it. Knows nothing of
//! where changes come from or of who reads the outcome.

mod coalesce;
mod flows;
mod syncer;
mod task;

pub use coalesce::Pace;
pub use flows::{Cleaned, FlowCleaner, clean};
pub use syncer::{Error, Held, Report, Syncer};
pub use task::{Observe, Options, run};

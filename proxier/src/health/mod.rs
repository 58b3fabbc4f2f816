//! Owns what this program says of its own health and of its Services' endpoints, to whom asks over HTTP; knows nothing of
//! how rules are made.
//!
//! The task that syncs tells [`Health`] and [`ServiceHealthServers`] what is so; the servers only read.

mod proxy_server;
mod service_servers;
#[cfg(test)]
mod tests;
mod verdict;

pub use proxy_server::router;
pub use service_servers::{Listen, ServiceHealth, ServiceHealthServers};
pub use verdict::{FamilyVerdict, Health, Moment, Verdict};

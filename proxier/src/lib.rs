//! The program around the core: sources of objects, configuration, health and metrics, and the task that writes to the
//! kernel.
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod conntrack_settings;
pub mod events;
mod folder_watch;
pub mod health;
pub mod http_server;
pub mod leftovers;
pub mod logging;
pub mod metrics;
pub mod node_port_proxy;
pub mod observer;
pub mod reports;
pub mod source;
pub mod sync;

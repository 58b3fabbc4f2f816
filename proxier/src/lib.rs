//! The program around the core: sources of objects, configuration, health and metrics, and the task that writes to the
//! kernel.
#![forbid(unsafe_code)]

pub mod command;
pub mod config;
pub mod logging;
pub mod source;

//! address

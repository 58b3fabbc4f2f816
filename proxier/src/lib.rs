//! proxier

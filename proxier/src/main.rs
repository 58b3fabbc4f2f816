//! Owns the start of the program; knows nothing of what it does.
fn main() {}

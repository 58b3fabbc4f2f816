//! TODO
/// TODO
#[derive(Debug)]
pub struct Cluster;
/// TODO
#[derive(Debug)]
pub struct Touched;

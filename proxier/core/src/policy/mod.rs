//! Owns the decisions: which endpoints serve which traffic, whose a contested frontend is, who may dial a load
//! balancer address, where node ports are served. One decision a file. Knows nothing of chains, maps or the kernel.

pub mod candidates;
pub mod choice;
pub mod claims;
pub mod node_port_addresses;
pub mod source_ranges;

pub use candidates::{Candidate, candidates};
pub use choice::{Choice, Demand, List, Place, Reason, choose};
pub use claims::{Claimant, Claims, Conflict};

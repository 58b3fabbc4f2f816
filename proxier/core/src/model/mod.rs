//! Owns the checked values that describe a cluster. Knows nothing of Kubernetes' own types, of the kernel, or of
//! which endpoint serves what.

mod cidr;
mod cluster;
mod endpoint;
mod name;
mod node;
mod service;

pub use cidr::{Cidr, CidrError, parse_addr};
pub use cluster::{Cluster, Touched};
pub use endpoint::{Endpoint, EndpointSlice, SlicePort};
pub use name::{ObjectName, ServiceName, ServicePortName, SliceName};
pub use node::{HostAddress, Node};
pub use service::{Affinity, Service, ServicePort, TrafficPolicy};

//! Owns EndpointSlices and the endpoints in them. Knows nothing of Services or of which endpoint is used.

use super::SliceName;
use nft_ir::{Family, L4Proto};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// One of a slice's `endpoints`. Only its first address counts, as upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// `addresses[0]`.
    pub addr: IpAddr,
    /// `conditions.ready`; absent means true.
    pub ready: bool,
    /// `conditions.serving`; absent means true.
    pub serving: bool,
    /// `conditions.terminating`; absent means false.
    pub terminating: bool,
    /// `nodeName`.
    pub node: Option<Arc<str>>,
    /// `hints.forZones[].name`.
    pub zone_hints: Box<[Arc<str>]>,
    /// `hints.forNodes[].name`.
    pub node_hints: Box<[Arc<str>]>,
}

/// One of a slice's `ports`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlicePort {
    /// `name`, which may be empty.
    pub name: Arc<str>,
    /// `protocol`.
    pub protocol: L4Proto,
    /// `port`.
    pub port: NonZeroU16,
}

/// An EndpointSlice of one family that belongs to a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Its own name.
    pub name: SliceName,
    /// The Service's name (label `kubernetes.io/service-name`), in the same namespace.
    pub service: Arc<str>,
    /// `addressType`.
    pub family: Family,
    /// `ports`.
    pub ports: Vec<SlicePort>,
    /// `endpoints`.
    pub endpoints: Vec<Endpoint>,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`, since 1970; when the cause of this version
    /// happened.
    pub trigger_time: Option<Duration>,
}

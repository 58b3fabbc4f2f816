//! Owns the reading of this node's Node object; knows nothing of the machine's own interfaces.

use super::{Decoded, Decoder, ObjectKey, Rejections, parse_addr};
use k8s_openapi::api::core::v1 as core;
use nft_ir::Family;
use proxier_core::Change;
use proxier_core::model::Node;
use std::net::IpAddr;
use std::sync::Arc;

/// Label that names a node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Taint that the cluster autoscaler puts on a node before it removes it.
const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

pub(super) fn decode(decoder: &mut Decoder, object: &core::Node) -> Decoded {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if name != &*decoder.node_name {
        return Decoded { change: None, rejected: Vec::new() };
    }
    let mut rejections = Rejections::of(ObjectKey::Node(decoder.node_name.clone()));
    let spec = object.spec.as_ref();
    let pod_cidrs = match spec.and_then(|spec| spec.pod_cidrs.as_deref()) {
        Some(texts @ [_, ..]) => rejections.cidrs("spec.podCIDRs", texts),
        _ => rejections
            .cidrs("spec.podCIDR", spec.and_then(|spec| spec.pod_cidr.clone()).as_slice())
            .into_iter()
            .collect(),
    };
    let zone = object.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL));
    let node = Node {
        name: decoder.node_name.clone(),
        addresses: overridden(addresses(object, &mut rejections), decoder.bind_address),
        pod_cidrs,
        zone: zone.filter(|zone| !zone.is_empty()).map(|zone| decoder.names.intern(zone)),
        being_deleted: object.metadata.deletion_timestamp.is_some(),
        to_be_deleted: spec
            .and_then(|spec| spec.taints.as_ref())
            .into_iter()
            .flatten()
            .any(|taint| taint.key == TO_BE_DELETED_TAINT),
    };
    Decoded { change: Some(Change::Node(Some(Arc::new(node)))), rejected: rejections.into_vec() }
}

/// The same, with the address that the operator decided on before all others of its family.
fn overridden(mut addrs: Vec<IpAddr>, bind_address: Option<IpAddr>) -> Vec<IpAddr> {
    if let Some(bind_address) = bind_address {
        addrs.retain(|addr| Family::of(addr) != Family::of(&bind_address));
        addrs.insert(0, bind_address);
    }
    addrs
}

/// The first InternalIP, else ExternalIP; then the first address of the other family in the same order.
fn addresses(object: &core::Node, rejections: &mut Rejections) -> Vec<IpAddr> {
    let listed = object.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let mut addrs: Vec<IpAddr> = Vec::new();
    for wanted in ["InternalIP", "ExternalIP"] {
        for (at, address) in listed.iter().enumerate().filter(|(_, address)| address.type_ == wanted) {
            match parse_addr(&address.address) {
                Err(error) => {
                    rejections.add(format_args!("status.addresses[{at}].address"), &address.address, error);
                }
                Ok(addr) if addrs.iter().any(|other| Family::of(other) == Family::of(&addr)) => {}
                Ok(addr) => addrs.push(addr),
            }
        }
    }
    addrs
}

//! Owns the reading of EndpointSlices; knows nothing of Services or of which endpoint is used.

use super::{Decoded, Decoder, ObjectKey, Rejections, endpoint_objection, parse_addr, port_number, protocol};
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::jiff::Timestamp;
use nft_ir::Family;
use proxier_core::Change;
use proxier_core::model::{Endpoint, EndpointSlice, SliceName, SlicePort};
use std::sync::Arc;
use std::time::Duration;

/// Label that names the Service of a slice.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Label of slices that belong to a headless Service.
pub(crate) const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Annotation: when the cause of this version of the slice happened.
const TRIGGER_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

pub(super) fn decode(decoder: &mut Decoder, name: SliceName, object: &discovery::EndpointSlice) -> Decoded {
    let mut rejections = Rejections::of(ObjectKey::EndpointSlice(name.clone()));
    if name.name.is_empty() {
        rejections.add("metadata.name", "", "an object has a name");
        return Decoded { change: None, rejected: rejections.into_vec() };
    }
    let slice = service_of(object).and_then(|service| {
        let family = family(object, &mut rejections)?;
        Some(Arc::new(EndpointSlice {
            name: name.clone(),
            service: decoder.names.intern(service),
            family,
            ports: ports(decoder, object, &mut rejections),
            endpoints: endpoints(decoder, object, family, &mut rejections),
            trigger_time: trigger_time(object),
        }))
    });
    Decoded { change: Some(Change::EndpointSlice(name, slice)), rejected: rejections.into_vec() }
}

fn service_of(object: &discovery::EndpointSlice) -> Option<&str> {
    let labels = object.metadata.labels.as_ref()?;
    if labels.contains_key(HEADLESS_LABEL) {
        return None;
    }
    labels.get(SERVICE_LABEL).map(String::as_str).filter(|service| !service.is_empty())
}

fn family(object: &discovery::EndpointSlice, rejections: &mut Rejections) -> Option<Family> {
    match object.address_type.as_str() {
        "IPv4" => Some(Family::Ip),
        "IPv6" => Some(Family::Ip6),
        "FQDN" => None,
        other => {
            rejections.add("addressType", other, "an address type is IPv4, IPv6 or FQDN");
            None
        }
    }
}

fn ports(
    decoder: &mut Decoder,
    object: &discovery::EndpointSlice,
    rejections: &mut Rejections,
) -> Vec<SlicePort> {
    let mut ports: Vec<SlicePort> = Vec::new();
    for (at, port) in object.ports.iter().flatten().enumerate() {
        let field = |name: &str| format!("ports[{at}].{name}");
        let protocol = match protocol(port.protocol.as_deref()) {
            Ok(protocol) => protocol,
            Err(reason) => {
                rejections.add(field("protocol"), port.protocol.as_deref().unwrap_or_default(), reason);
                continue;
            }
        };
        let Some(number) = port.port else {
            rejections.add(field("port"), "", "a slice for all ports at once cannot be served");
            continue;
        };
        let number = match port_number(number) {
            Ok(number) => number,
            Err(reason) => {
                rejections.add(field("port"), number, reason);
                continue;
            }
        };
        let name = port.name.as_deref().unwrap_or_default();
        if ports.iter().any(|other| other.protocol == protocol && &*other.name == name) {
            rejections.add(field("name"), name, "an earlier port has this name and protocol");
            continue;
        }
        ports.push(SlicePort { name: decoder.names.intern(name), protocol, port: number });
    }
    ports
}

fn endpoints(
    decoder: &mut Decoder,
    object: &discovery::EndpointSlice,
    family: Family,
    rejections: &mut Rejections,
) -> Vec<Endpoint> {
    let listed = object.endpoints.as_deref().unwrap_or_default();
    let mut endpoints = Vec::with_capacity(listed.len());
    for (at, endpoint) in listed.iter().enumerate() {
        let field = format_args!("endpoints[{at}].addresses[0]");
        let Some(text) = endpoint.addresses.first() else {
            rejections.add(field, "", "an endpoint has an address");
            continue;
        };
        let addr = match parse_addr(text) {
            Ok(addr) => addr,
            Err(error) => {
                rejections.add(field, text, error);
                continue;
            }
        };
        if Family::of(&addr) != family {
            rejections.add(field, text, format_args!("the slice's addressType is {}", object.address_type));
            continue;
        }
        if let Some(reason) = endpoint_objection(addr) {
            rejections.add(field, text, reason);
            continue;
        }
        let conditions = endpoint.conditions.as_ref();
        let hints = endpoint.hints.as_ref();
        endpoints.push(Endpoint {
            addr,
            ready: conditions.and_then(|c| c.ready).unwrap_or(true),
            serving: conditions.and_then(|c| c.serving).unwrap_or(true),
            terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
            node: endpoint.node_name.as_deref().map(|node| decoder.names.intern(node)),
            zone_hints: hints
                .and_then(|hints| hints.for_zones.as_deref())
                .unwrap_or_default()
                .iter()
                .map(|zone| decoder.names.intern(&zone.name))
                .collect(),
            node_hints: hints
                .and_then(|hints| hints.for_nodes.as_deref())
                .unwrap_or_default()
                .iter()
                .map(|node| decoder.names.intern(&node.name))
                .collect(),
        });
    }
    endpoints
}

/// The annotation only feeds a metric: one that cannot be read counts as absent.
fn trigger_time(object: &discovery::EndpointSlice) -> Option<Duration> {
    let text = object.metadata.annotations.as_ref()?.get(TRIGGER_ANNOTATION)?;
    Duration::try_from(text.parse::<Timestamp>().ok()?.as_duration()).ok()
}

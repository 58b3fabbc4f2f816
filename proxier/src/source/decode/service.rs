//! Owns the reading of Services; knows nothing of slices or of who serves them.

use super::{Decoded, Decoder, ObjectKey, Rejections, frontend_objection, port_number, protocol};
use super::{endpoint_objection, parse_addr};
use k8s_openapi::api::core::v1::{self as core, ServiceSpec};
use nft_ir::Family;
use proxier_core::Change;
use proxier_core::model::{Affinity, Cidr, Service, ServiceName, ServicePort, TrafficPolicy};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Label that hands a Service to another proxy.
pub(crate) const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// `timeoutSeconds` when none is given.
const AFFINITY_SECONDS: i32 = 10_800;

/// Longest `timeoutSeconds` that the API allows: a day.
const MOST_AFFINITY_SECONDS: i32 = 86_400;

pub(super) fn decode(decoder: &mut Decoder, name: ServiceName, object: &core::Service) -> Decoded {
    let mut rejections = Rejections::of(ObjectKey::Service(name.clone()));
    if name.name.is_empty() {
        rejections.add("metadata.name", "", "an object has a name");
        return Decoded { change: None, rejected: rejections.into_vec() };
    }
    let service = object
        .spec
        .as_ref()
        .filter(|spec| is_ours(object, spec))
        .and_then(|spec| read(decoder, &name, object, spec, &mut rejections));
    Decoded { change: Some(Change::Service(name, service.map(Arc::new))), rejected: rejections.into_vec() }
}

fn is_ours(object: &core::Service, spec: &ServiceSpec) -> bool {
    let foreign = object.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(PROXY_NAME_LABEL));
    let headless = matches!(spec.cluster_ip.as_deref(), Some("None"))
        || matches!(spec.cluster_ips.as_deref(), Some([first, ..]) if first == "None");
    !foreign && !headless && spec.type_.as_deref() != Some("ExternalName")
}

fn read(
    decoder: &mut Decoder,
    name: &ServiceName,
    object: &core::Service,
    spec: &ServiceSpec,
    rejections: &mut Rejections,
) -> Option<Service> {
    let cluster_ips = cluster_ips(spec, rejections);
    if cluster_ips.is_empty() {
        return None;
    }
    let external_ips = if decoder.external_ips {
        let texts =
            spec.external_ips.iter().flatten().map(String::as_str).filter(|text| !text.trim().is_empty());
        rejections.addrs("spec.externalIPs", texts, endpoint_objection)
    } else {
        Vec::new()
    };
    let source_ranges = source_ranges(spec, rejections);
    let external_policy = external_policy(spec, rejections);
    Some(Service {
        name: name.clone(),
        created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        cluster_ips,
        external_ips,
        // Ranges of which none can be read must not open the address to everybody.
        load_balancer_ips: if source_ranges.is_some() {
            load_balancer_ips(object, rejections)
        } else {
            Vec::new()
        },
        source_ranges: source_ranges.unwrap_or_default(),
        ports: ports(decoder, spec, rejections),
        internal_policy: policy(
            "spec.internalTrafficPolicy",
            spec.internal_traffic_policy.as_deref(),
            rejections,
        ),
        external_policy,
        affinity: affinity(spec, rejections),
        health_check_node_port: (spec.type_.as_deref() == Some("LoadBalancer")
            && external_policy == TrafficPolicy::Local)
            .then(|| optional_port("spec.healthCheckNodePort", spec.health_check_node_port, rejections))
            .flatten(),
    })
}

/// At most one address a family: `clusterIPs[i]` for family `ipFamilies[i]`; without `ipFamilies` the first of each.
fn cluster_ips(spec: &ServiceSpec, rejections: &mut Rejections) -> Vec<IpAddr> {
    let (field, texts) = match spec.cluster_ips.as_deref() {
        Some(texts @ [_, ..]) => ("spec.clusterIPs", texts),
        _ => ("spec.clusterIP", spec.cluster_ip.as_slice()),
    };
    let families = spec.ip_families.as_deref().filter(|families| !families.is_empty());
    let mut addrs: Vec<IpAddr> = Vec::new();
    for (at, text) in texts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        let field = format_args!("{field}[{at}]").to_string();
        let addr = match parse_addr(text) {
            Ok(addr) => addr,
            Err(error) => {
                rejections.add(field, text, error);
                continue;
            }
        };
        let family = Family::of(&addr);
        if let Some(reason) = frontend_objection(addr) {
            rejections.add(field, text, reason);
        } else if let Some(families) = families
            && families.get(at).map(String::as_str) != Some(family_name(family))
        {
            let named = families.get(at).map_or("nothing", String::as_str);
            rejections.add(field, text, format_args!("spec.ipFamilies[{at}] says {named}"));
        } else if addrs.iter().any(|other| Family::of(other) == family) {
            rejections.add(field, text, "a Service has one ClusterIP a family");
        } else {
            addrs.push(addr);
        }
    }
    addrs
}

const fn family_name(family: Family) -> &'static str {
    match family {
        Family::Ip => "IPv4",
        Family::Ip6 => "IPv6",
    }
}

/// Addresses with `ipMode` VIP. What has only a host name, or `ipMode` Proxy, is the load balancer's own.
fn load_balancer_ips(object: &core::Service, rejections: &mut Rejections) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    let balancer = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    for ingress in balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten() {
        match (ingress.ip.as_deref().unwrap_or_default(), ingress.ip_mode.as_deref()) {
            ("", _) | (_, Some("Proxy")) => {}
            (ip, None | Some("" | "VIP")) => ips.push(ip),
            (_, Some(mode)) => {
                rejections.add("status.loadBalancer.ingress[].ipMode", mode, "an ipMode is VIP or Proxy");
            }
        }
    }
    rejections.addrs("status.loadBalancer.ingress", ips, frontend_objection)
}

/// `None`: there are ranges, and not one of them can be read.
fn source_ranges(spec: &ServiceSpec, rejections: &mut Rejections) -> Option<Vec<Cidr>> {
    let texts = spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
    let ranges = rejections.cidrs("spec.loadBalancerSourceRanges", texts);
    (texts.is_empty() || !ranges.is_empty()).then_some(ranges)
}

/// `Local` counts only where there can be external traffic.
fn external_policy(spec: &ServiceSpec, rejections: &mut Rejections) -> TrafficPolicy {
    let accessible = match spec.type_.as_deref() {
        Some("LoadBalancer" | "NodePort") => true,
        _ => spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty()),
    };
    let wanted = policy("spec.externalTrafficPolicy", spec.external_traffic_policy.as_deref(), rejections);
    if accessible { wanted } else { TrafficPolicy::Cluster }
}

fn policy(field: &str, text: Option<&str>, rejections: &mut Rejections) -> TrafficPolicy {
    match text {
        None | Some("" | "Cluster") => TrafficPolicy::Cluster,
        Some("Local") => TrafficPolicy::Local,
        Some(other) => {
            rejections.add(field, other, "a traffic policy is Cluster or Local");
            TrafficPolicy::Cluster
        }
    }
}

fn affinity(spec: &ServiceSpec, rejections: &mut Rejections) -> Option<Affinity> {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            rejections.add("spec.sessionAffinity", other, "a session affinity is ClientIP or None");
            return None;
        }
    }
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(AFFINITY_SECONDS);
    let seconds = if (1..=MOST_AFFINITY_SECONDS).contains(&seconds) {
        seconds
    } else {
        rejections.add(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            seconds,
            format_args!("a timeout is 1 to {MOST_AFFINITY_SECONDS} seconds; {AFFINITY_SECONDS} is used"),
        );
        AFFINITY_SECONDS
    };
    Some(Affinity { timeout: Duration::from_secs(seconds.unsigned_abs().into()) })
}

/// A port where 0 means none.
fn optional_port(
    field: impl std::fmt::Display,
    number: Option<i32>,
    rejections: &mut Rejections,
) -> Option<std::num::NonZeroU16> {
    let number = number.filter(|number| *number != 0)?;
    port_number(number).map_err(|reason| rejections.add(field, number, reason)).ok()
}

fn ports(decoder: &mut Decoder, spec: &ServiceSpec, rejections: &mut Rejections) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = Vec::new();
    for (at, port) in spec.ports.iter().flatten().enumerate() {
        let field = |name: &str| format!("spec.ports[{at}].{name}");
        let protocol = match protocol(port.protocol.as_deref()) {
            Ok(protocol) => protocol,
            Err(reason) => {
                rejections.add(field("protocol"), port.protocol.as_deref().unwrap_or_default(), reason);
                continue;
            }
        };
        let number = match port_number(port.port) {
            Ok(number) => number,
            Err(reason) => {
                rejections.add(field("port"), port.port, reason);
                continue;
            }
        };
        let name = port.name.as_deref().unwrap_or_default();
        let mut same_protocol = ports.iter().filter(|other| other.protocol == protocol);
        if same_protocol.clone().any(|other| &*other.name == name) {
            rejections.add(field("name"), name, "an earlier port has this name and protocol");
            continue;
        }
        if same_protocol.clone().any(|other| other.port == number) {
            rejections.add(field("port"), number, "an earlier port has this number and protocol");
            continue;
        }
        let node_port = optional_port(field("nodePort"), port.node_port, rejections).filter(|node_port| {
            let taken = same_protocol.any(|other| other.node_port == Some(*node_port));
            if taken {
                rejections.add(
                    field("nodePort"),
                    node_port,
                    "an earlier port has this nodePort and protocol",
                );
            }
            !taken
        });
        ports.push(ServicePort { name: decoder.names.intern(name), protocol, port: number, node_port });
    }
    ports
}

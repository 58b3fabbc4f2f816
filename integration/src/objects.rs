//! Owns Kubernetes objects for tests, said in a few words. Knows nothing of who reads them.

use crate::{Family, L4Proto, Pod};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Namespace of every object here.
pub const NAMESPACE: &str = "test";

/// An object that now is so, or is gone.
#[derive(Debug, Clone)]
pub enum Object {
    /// A Service.
    Service(Box<Service>),
    /// An EndpointSlice.
    EndpointSlice(Box<EndpointSlice>),
    /// A Node.
    Node(Box<Node>),
    /// A ServiceCIDR.
    ServiceCidr(Box<ServiceCIDR>),
    /// The Service of this name is gone.
    NoService(String),
    /// The slice of this name is gone.
    NoSlice(String),
}

impl Object {
    /// As JSON, for a manifest or an API server. Panics for one that is gone: neither has words for that.
    #[track_caller]
    pub fn json(&self) -> Value {
        let json = match self {
            Self::Service(object) => serde_json::to_value(object),
            Self::EndpointSlice(object) => serde_json::to_value(object),
            Self::Node(object) => serde_json::to_value(object),
            Self::ServiceCidr(object) => serde_json::to_value(object),
            Self::NoService(name) | Self::NoSlice(name) => panic!("{name} is gone: there is no such object"),
        };
        json.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Box<T> {
    let text = value.to_string();
    Box::new(serde_json::from_value(value).unwrap_or_else(|error| panic!("{error} in {text}")))
}

const fn protocol(proto: L4Proto) -> &'static str {
    match proto {
        L4Proto::Tcp => "TCP",
        L4Proto::Udp => "UDP",
        L4Proto::Sctp => "SCTP",
    }
}

/// A Service in the making.
#[derive(Debug, Clone)]
pub struct ServiceText(Value);

/// A Service of type ClusterIP with these ClusterIPs.
pub fn service(name: &str, cluster_ips: &[&str]) -> ServiceText {
    let families: Vec<&str> =
        cluster_ips.iter().map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" }).collect();
    let policy = if families.len() > 1 { "RequireDualStack" } else { "SingleStack" };
    ServiceText(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster_ips.first(), "clusterIPs": cluster_ips,
            "ipFamilies": families, "ipFamilyPolicy": policy, "ports": [],
        },
    }))
}

impl ServiceText {
    /// A field of the spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["spec"][field] = value.into();
        self
    }

    /// A port.
    #[must_use]
    pub fn port(self, name: &str, proto: L4Proto, port: u16) -> Self {
        self.node_port(name, proto, port, 0)
    }

    /// A port with a node port; makes a NodePort of a ClusterIP Service.
    #[must_use]
    pub fn node_port(mut self, name: &str, proto: L4Proto, port: u16, node_port: u16) -> Self {
        let mut entry = json!({ "name": name, "protocol": protocol(proto), "port": port });
        if node_port != 0 {
            entry["nodePort"] = node_port.into();
            if self.0["spec"]["type"] == "ClusterIP" {
                self.0["spec"]["type"] = "NodePort".into();
            }
        }
        if let Some(ports) = self.0["spec"]["ports"].as_array_mut() {
            ports.push(entry);
        }
        self
    }

    /// An unnamed TCP port.
    #[must_use]
    pub fn tcp(self, port: u16) -> Self {
        self.port("", L4Proto::Tcp, port)
    }

    /// One unnamed port for each protocol would be illegal, so they are named: `tcp`, `udp`, `sctp`.
    #[must_use]
    pub fn all_protocols(mut self, port: u16, node_port: u16) -> Self {
        for proto in L4Proto::ALL {
            self = self.node_port(proto.as_str(), proto, port, node_port);
        }
        self
    }

    /// Of type LoadBalancer, with these addresses, `ipMode` unset.
    #[must_use]
    pub fn load_balancer(mut self, ips: &[&str]) -> Self {
        self.0["spec"]["type"] = "LoadBalancer".into();
        let ingress: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        self.0["status"] = json!({ "loadBalancer": { "ingress": ingress } });
        self
    }

    /// With this `ipMode` for all load balancer addresses.
    #[must_use]
    pub fn ip_mode(mut self, mode: &str) -> Self {
        if let Some(ingress) = self.0["status"]["loadBalancer"]["ingress"].as_array_mut() {
            for entry in ingress {
                entry["ipMode"] = mode.into();
            }
        }
        self
    }

    /// With external IPs.
    #[must_use]
    pub fn external_ips(self, ips: &[&str]) -> Self {
        self.spec("externalIPs", ips)
    }

    /// `externalTrafficPolicy: Local`.
    #[must_use]
    pub fn external_local(self) -> Self {
        self.spec("externalTrafficPolicy", "Local")
    }

    /// `internalTrafficPolicy: Local`.
    #[must_use]
    pub fn internal_local(self) -> Self {
        self.spec("internalTrafficPolicy", "Local")
    }

    /// `sessionAffinity: ClientIP`.
    #[must_use]
    pub fn sticky(self, seconds: u32) -> Self {
        self.spec("sessionAffinity", "ClientIP")
            .spec("sessionAffinityConfig", json!({ "clientIP": { "timeoutSeconds": seconds } }))
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// Created at this time (RFC 3339).
    #[must_use]
    pub fn created(mut self, time: &str) -> Self {
        self.0["metadata"]["creationTimestamp"] = time.into();
        self
    }

    /// As JSON, for a manifest or an API server.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// As an object.
    pub fn object(self) -> Object {
        Object::Service(typed(self.0))
    }
}

/// An EndpointSlice in the making.
#[derive(Debug, Clone)]
pub struct SliceText(Value);

/// A slice of a Service, in a family, without ports or endpoints.
pub fn slice(name: &str, service: &str, family: Family) -> SliceText {
    let address_type = match family {
        Family::Ip => "IPv4",
        Family::Ip6 => "IPv6",
    };
    SliceText(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": address_type, "ports": [], "endpoints": [],
    }))
}

impl SliceText {
    /// With a port.
    #[must_use]
    pub fn port(mut self, name: &str, proto: L4Proto, port: u16) -> Self {
        if let Some(ports) = self.0["ports"].as_array_mut() {
            ports.push(json!({ "name": name, "protocol": protocol(proto), "port": port }));
        }
        self
    }

    /// With a ready endpoint at this address, on this node.
    #[must_use]
    pub fn endpoint(self, addr: IpAddr, node: &str) -> Self {
        self.endpoint_json(json!({ "addresses": [addr], "nodeName": node, "conditions": { "ready": true } }))
    }

    /// With an endpoint that terminates and still serves.
    #[must_use]
    pub fn leaving(self, addr: IpAddr, node: &str) -> Self {
        let conditions = json!({ "ready": false, "serving": true, "terminating": true });
        self.endpoint_json(json!({ "addresses": [addr], "nodeName": node, "conditions": conditions }))
    }

    /// With an endpoint of one's own making.
    #[must_use]
    pub fn endpoint_json(mut self, endpoint: Value) -> Self {
        if let Some(endpoints) = self.0["endpoints"].as_array_mut() {
            endpoints.push(endpoint);
        }
        self
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// As JSON, for a manifest or an API server.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// As an object.
    pub fn object(self) -> Object {
        Object::EndpointSlice(typed(self.0))
    }
}

/// The slices of a Service that all these pods back, ready, one slice a family: `SERVICE-4` and `SERVICE-6`. `ports` are
/// those of the pods.
pub fn slices(service: &str, ports: &[(&str, L4Proto, u16)], pods: &[&Pod]) -> Vec<Object> {
    Family::ALL
        .into_iter()
        .filter(|family| pods.iter().all(|pod| pod.addrs().iter().any(|addr| Family::of(addr) == *family)))
        .map(|family| {
            let mut text = slice(&slice_name(service, family), service, family);
            for (name, proto, port) in ports {
                text = text.port(name, *proto, *port);
            }
            pods.iter().fold(text, |text, pod| text.endpoint(pod.addr(family), pod.node().name())).object()
        })
        .collect()
}

/// The same for an unnamed TCP port.
pub fn tcp_slices(service: &str, port: u16, pods: &[&Pod]) -> Vec<Object> {
    slices(service, &[("", L4Proto::Tcp, port)], pods)
}

/// The name that [`slices`] gives.
pub fn slice_name(service: &str, family: Family) -> String {
    match family {
        Family::Ip => format!("{service}-4"),
        Family::Ip6 => format!("{service}-6"),
    }
}

/// A Node with these addresses of type InternalIP.
pub fn node(name: &str, addrs: &[IpAddr]) -> Object {
    node_with(name, addrs, json!({}), json!({}))
}

/// The same with pod prefixes.
pub fn node_with_pods(name: &str, addrs: &[IpAddr], pod_cidrs: &[String]) -> Object {
    node_with(name, addrs, json!({}), json!({ "podCIDRs": pod_cidrs, "podCIDR": pod_cidrs.first() }))
}

/// The same in a zone.
pub fn node_in_zone(name: &str, addrs: &[IpAddr], zone: &str) -> Object {
    node_with(name, addrs, json!({ "topology.kubernetes.io/zone": zone }), json!({}))
}

fn node_with(name: &str, addrs: &[IpAddr], labels: Value, spec: Value) -> Object {
    let addresses: Vec<Value> =
        addrs.iter().map(|addr| json!({ "type": "InternalIP", "address": addr })).collect();
    Object::Node(typed(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels }, "spec": spec,
        "status": { "addresses": addresses },
    })))
}

/// A ServiceCIDR.
pub fn service_cidr(name: &str, cidrs: &[&str]) -> Object {
    Object::ServiceCidr(typed(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": { "name": name }, "spec": { "cidrs": cidrs },
    })))
}

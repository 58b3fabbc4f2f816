//! Owns what one Service port means on this node in one family: its frontends, its slots, its special treatment. Knows
//! nothing of how that is written into chains and maps.

use crate::model::{Affinity, Cidr, Cluster, Service, ServicePort, ServicePortName, TrafficPolicy};
use crate::policy::{Candidate, Choice, Claims, Demand, Place, candidates, choose, source_ranges};
use crate::settings::Settings;
use crate::slots;
use nft_ir::{Family, L4Proto};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

/// Where an endpoint listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// Its address.
    pub addr: IpAddr,
    /// Its port.
    pub port: NonZeroU16,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.addr, self.port.get()).fmt(f)
    }
}

/// What a client dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frontend {
    /// An address of the Service and its port.
    Address {
        /// The address: a ClusterIP, an external IP, a load balancer IP.
        addr: IpAddr,
        /// The protocol.
        protocol: L4Proto,
        /// The Service's port.
        port: NonZeroU16,
    },
    /// A port on the node's own addresses.
    NodePort {
        /// Family of those addresses.
        family: Family,
        /// The protocol.
        protocol: L4Proto,
        /// The node port.
        port: NonZeroU16,
    },
}

impl Frontend {
    /// The protocol.
    pub const fn protocol(&self) -> L4Proto {
        match self {
            Self::Address { protocol, .. } | Self::NodePort { protocol, .. } => *protocol,
        }
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { addr, protocol, port } => {
                write!(f, "{}/{protocol}", SocketAddr::new(*addr, port.get()))
            }
            Self::NodePort { family, protocol, port } => write!(f, "{family} node port {port}/{protocol}"),
        }
    }
}

/// Whose traffic a frontend takes, and so which policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exposure {
    /// A ClusterIP: the internal traffic policy.
    Internal,
    /// Anything else: the external traffic policy.
    External,
}

/// A frontend of a Service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrontendView {
    /// What is dialled.
    pub frontend: Frontend,
    /// Which policy decides.
    pub exposure: Exposure,
    /// The Service's source ranges guard it: it is a load balancer address.
    pub guarded: bool,
}

/// A Service port on this node, in one family. Everything that the kernel holds for it follows from this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePortView {
    /// The family.
    pub family: Family,
    /// The protocol.
    pub protocol: L4Proto,
    /// Frontends that this port has (not those it lost to another Service), sorted.
    pub frontends: Box<[FrontendView]>,
    /// Slots of the endpoints that any node may serve with.
    pub cluster: Box<[Destination]>,
    /// Slots of the endpoints of this node.
    pub local: Box<[Destination]>,
    /// Endpoints of this node that can be reached through the Service, sorted.
    pub reachable_local: Box<[Destination]>,
    /// Some endpoint somewhere could serve.
    pub usable_somewhere: bool,
    /// `internalTrafficPolicy`.
    pub internal_policy: TrafficPolicy,
    /// `externalTrafficPolicy`.
    pub external_policy: TrafficPolicy,
    /// Session affinity.
    pub affinity: Option<Affinity>,
    /// Who may dial the guarded frontends; `None`: everybody.
    pub source_ranges: Option<Box<[Cidr]>>,
    /// Flows are deleted when their endpoint is gone: always for UDP and SCTP, see [`crate::conntrack`].
    pub keeps_flows_in_step: bool,
    /// Endpoints that flows may stay with, whatever policies and topology say, sorted: those that serve, and with SCTP every
    /// one that is known. Empty unless [`Self::keeps_flows_in_step`].
    pub flows_stay: Box<[Destination]>,
}

impl ServicePortView {
    /// The policy that decides for a frontend.
    pub const fn policy(&self, frontend: &FrontendView) -> TrafficPolicy {
        match frontend.exposure {
            Exposure::Internal => self.internal_policy,
            Exposure::External => self.external_policy,
        }
    }

    /// Whether the policy leaves traffic of this exposure without an endpoint here, although there are some elsewhere
    /// (`sync_proxy_rules_no_local_endpoints_total`).
    pub fn lacks_local(&self, exposure: Exposure) -> bool {
        let policy = match exposure {
            Exposure::Internal => self.internal_policy,
            Exposure::External => self.external_policy,
        };
        policy == TrafficPolicy::Local && self.usable_somewhere && self.local.is_empty()
    }
}

/// Views a port of a Service from this node. `None`: the Service has no ClusterIP of the family, so the family does not
/// serve it. `previous` gives the slots to start from.
pub fn view(
    service: &Service,
    port: &ServicePort,
    family: Family,
    cluster: &Cluster,
    claims: &Claims,
    settings: &Settings,
    previous: Option<&ServicePortView>,
) -> Option<ServicePortView> {
    let name = port_name(service, port);
    let frontends: Box<[FrontendView]> = wanted_frontends(service, port, family)?
        .into_iter()
        .filter(|wanted| claims.owner(&wanted.frontend) == Some(&name))
        .collect();
    let found = candidates(cluster.slices(&service.name), family, &port.name, port.protocol);
    let node = cluster.node();
    let choice = choice(
        service,
        port,
        family,
        &found,
        Place { node: &settings.node_name, zone: node.and_then(|node| node.zone.as_deref()) },
    );
    let keeps_flows_in_step = match port.protocol {
        L4Proto::Udp | L4Proto::Sctp => true,
        L4Proto::Tcp => settings.free_syn_sent,
    };
    let keeps = |c: &&Candidate<'_>| {
        keeps_flows_in_step && (c.endpoint.ready || c.endpoint.serving || port.protocol == L4Proto::Sctp)
    };
    let flows_stay = found.iter().filter(keeps).map(|c| c.destination).collect();
    let (cluster_before, local_before) =
        previous.map_or((&[][..], &[][..]), |before| (&before.cluster[..], &before.local[..]));
    let node_addresses = node.map_or(&[][..], |node| &node.addresses);
    Some(ServicePortView {
        family,
        protocol: port.protocol,
        frontends,
        cluster: slots::assign(cluster_before, &choice.cluster.destinations),
        local: slots::assign(local_before, &choice.local.destinations),
        reachable_local: choice.reachable_local.into(),
        usable_somewhere: choice.usable_somewhere,
        internal_policy: service.internal_policy,
        external_policy: effective_external_policy(service, port, family),
        affinity: service.affinity,
        source_ranges: source_ranges::allowed(
            &service.source_ranges,
            family,
            node_addresses,
            &service.load_balancer_ips,
        )
        .map(Into::into),
        keeps_flows_in_step,
        flows_stay,
    })
}

/// Which endpoints serve the port, and why.
pub fn choice(
    service: &Service,
    port: &ServicePort,
    family: Family,
    candidates: &[Candidate<'_>],
    place: Place<'_>,
) -> Choice {
    let internal_local = service.internal_policy == TrafficPolicy::Local;
    let demand = Demand {
        cluster: !internal_local || externally_accessible(service, port, family),
        local: internal_local || effective_external_policy(service, port, family) == TrafficPolicy::Local,
    };
    choose(demand, candidates, place)
}

/// The name of a port of a Service.
pub fn port_name(service: &Service, port: &ServicePort) -> ServicePortName {
    ServicePortName { service: service.name.clone(), port: port.name.clone(), protocol: port.protocol }
}

/// What a port of a Service claims in a family, sorted, each frontend once; `None`: the Service has no ClusterIP of the
/// family, so the family does not serve it.
pub fn wanted_frontends(service: &Service, port: &ServicePort, family: Family) -> Option<Vec<FrontendView>> {
    let of_family = |addrs: &'_ [IpAddr]| -> Vec<IpAddr> {
        addrs.iter().filter(|addr| Family::of(addr) == family).copied().collect()
    };
    let address = |addr: IpAddr, exposure, guarded| FrontendView {
        frontend: Frontend::Address { addr, protocol: port.protocol, port: port.port },
        exposure,
        guarded,
    };
    let cluster_ip = of_family(&service.cluster_ips).first().copied()?;
    let mut wanted = vec![address(cluster_ip, Exposure::Internal, false)];
    for addr in of_family(&service.load_balancer_ips) {
        wanted.push(address(addr, Exposure::External, true));
    }
    for addr in of_family(&service.external_ips) {
        wanted.push(address(addr, Exposure::External, false));
    }
    if let Some(node_port) = port.node_port {
        wanted.push(FrontendView {
            frontend: Frontend::NodePort { family, protocol: port.protocol, port: node_port },
            exposure: Exposure::External,
            guarded: false,
        });
    }
    // The same address in two roles: ClusterIP before the others, load balancer IP before external IP, so that neither
    // internal treatment nor source ranges are lost.
    wanted.sort_by_key(|w| (w.frontend, w.exposure, !w.guarded));
    wanted.dedup_by_key(|w| w.frontend);
    Some(wanted)
}

fn externally_accessible(service: &Service, port: &ServicePort, family: Family) -> bool {
    let any = |addrs: &[IpAddr]| addrs.iter().any(|addr| Family::of(addr) == family);
    port.node_port.is_some() || any(&service.load_balancer_ips) || any(&service.external_ips)
}

/// External policy Local means something only where there is an external frontend.
fn effective_external_policy(service: &Service, port: &ServicePort, family: Family) -> TrafficPolicy {
    if externally_accessible(service, port, family) {
        service.external_policy
    } else {
        TrafficPolicy::Cluster
    }
}

//! Owns links, addresses, routes and neighbours of namespaces, through rtnetlink. Knows nothing of the lab's plan.

use std::fs;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::{RouteMessage, RouteScope, RouteType};
use rtnetlink::{
    Error as RtError, Handle, LinkBridge, LinkBridgePort, LinkUnspec, LinkVeth, RouteMessageBuilder,
    new_connection,
};

use crate::error::Error;
use crate::netns::{Netns, runtime};
use crate::plan::Prefix;
use crate::wait;

/// Sets a link up.
pub fn up(ns: &Netns, link: &str) -> Result<(), Error> {
    change(ns, format!("set {link} up"), async |rt| {
        rt.link().set(LinkUnspec::new_with_name(link).up().build()).execute().await
    })
}

/// Sets a link down; its routes go with it.
pub fn down(ns: &Netns, link: &str) -> Result<(), Error> {
    change(ns, format!("set {link} down"), async |rt| {
        rt.link().set(LinkUnspec::new_with_name(link).down().build()).execute().await
    })
}

/// A pair of virtual Ethernet links, one end in each namespace, both up.
pub fn veth(here: &Netns, link: &str, there: &Netns, peer: &str) -> Result<(), Error> {
    change(here, format!("add veth {link}, peer {peer} in {}", there.name()), async |rt| {
        let end = LinkUnspec::new_with_name(peer).setns_by_fd(there.as_fd().as_raw_fd()).build();
        let pair = LinkVeth::new(link, peer).up().set_info_data(InfoData::Veth(InfoVeth::Peer(end)));
        rt.link().add(pair.build()).execute().await
    })?;
    up(there, peer)
}

/// A bridge, up, that forwards at once (no spanning tree) and floods multicast (no snooping: there is no querier).
pub fn bridge(ns: &Netns, link: &str) -> Result<(), Error> {
    change(ns, format!("add bridge {link}"), async |rt| {
        rt.link().add(LinkBridge::new(link).mcast_snooping(false).up().build()).execute().await
    })
}

/// A link to nowhere, up: addresses on it are local, packets into it vanish. A pair with both ends here, named `LINK`
/// and `LINK~`, since not every kernel has the dummy driver.
pub fn stub(ns: &Netns, link: &str) -> Result<(), Error> {
    veth(ns, link, ns, &format!("{link}~"))
}

/// Makes a link a port of a bridge. In hairpin mode the bridge may send a frame back where it came from.
pub fn plug(ns: &Netns, link: &str, bridge: &str, hairpin: bool) -> Result<(), Error> {
    let (port, controller) = (index(ns, link)?, index(ns, bridge)?);
    change(ns, format!("plug {link} into {bridge}"), async |rt| {
        rt.link().set(LinkUnspec::new_with_index(port).controller(controller).build()).execute().await?;
        rt.link().set_port(LinkBridgePort::new(port).hairpin(hairpin).build()).execute().await
    })
}

/// Removes a link; for one end of a pair, both.
pub fn remove(ns: &Netns, link: &str) -> Result<(), Error> {
    let index = index(ns, link)?;
    change(ns, format!("remove {link}"), async |rt| rt.link().del(index).execute().await)
}

/// Adds an address to a link that is up; it can be used when this returns.
pub fn address(ns: &Netns, link: &str, addr: IpAddr, len: u8) -> Result<(), Error> {
    let index = index(ns, link)?;
    let step = format!("add {addr}/{len} to {link}");
    change(ns, step.clone(), async |rt| rt.address().add(index, addr, len).execute().await)?;
    let IpAddr::V6(v6) = addr else { return Ok(()) };
    // Without duplicate address detection too, a kernel thread makes an IPv6 address local, a moment later.
    ns.run(|| wait::try_until(wait::SOON, || is_local(v6)))
        .map_err(|state| Error::os(ns.name(), step, std::io::Error::other(format!("not local: {state}"))))
}

/// Removes an address from a link.
pub fn remove_address(ns: &Netns, link: &str, addr: IpAddr, len: u8) -> Result<(), Error> {
    let index = index(ns, link)?;
    change(ns, format!("remove {addr}/{len} from {link}"), async |rt| {
        let message = rt.address().add(index, addr, len).message_mut().clone();
        rt.address().del(message).execute().await
    })
}

/// Routes a prefix to a gateway; a route to the same prefix is replaced.
pub fn route_via(ns: &Netns, to: Prefix, gateway: IpAddr) -> Result<(), Error> {
    change(ns, format!("route {to} via {gateway}"), async |rt| {
        rt.route().add(route_message(to, Hop::Via(gateway))).replace().execute().await
    })
}

/// Routes a prefix to a link, as directly reachable there.
pub fn route_on(ns: &Netns, to: Prefix, link: &str) -> Result<(), Error> {
    let index = index(ns, link)?;
    change(ns, format!("route {to} dev {link}"), async |rt| {
        rt.route().add(route_message(to, Hop::On(index))).replace().execute().await
    })
}

/// Routes a prefix to nowhere: packets to it vanish without a word.
pub fn blackhole(ns: &Netns, to: Prefix) -> Result<(), Error> {
    change(ns, format!("route blackhole {to}"), async |rt| {
        rt.route().add(route_message(to, Hop::Nowhere)).replace().execute().await
    })
}

/// Removes the route to a prefix.
pub fn remove_route(ns: &Netns, to: Prefix, gateway: IpAddr) -> Result<(), Error> {
    change(ns, format!("remove route {to} via {gateway}"), async |rt| {
        rt.route().del(route_message(to, Hop::Via(gateway))).execute().await
    })
}

/// Sets the link-layer address behind an IP address, so that nobody has to ask.
pub fn neighbour(ns: &Netns, link: &str, addr: IpAddr, mac: [u8; 6]) -> Result<(), Error> {
    let index = index(ns, link)?;
    change(ns, format!("neighbour {addr} on {link}"), async |rt| {
        rt.neighbours().add(index, addr).link_layer_address(&mac).replace().execute().await
    })
}

/// The index of a link in its namespace.
pub fn index(ns: &Netns, link: &str) -> Result<u32, Error> {
    ns.run(|| if_nametoindex(link))
        .map_err(|error| Error::os(ns.name(), format!("index of link {link}"), error))
}

/// Succeeds if the calling thread's namespace has a local route to an address.
fn is_local(addr: Ipv6Addr) -> std::io::Result<()> {
    /// `RTF_LOCAL` (linux/ipv6_route.h).
    const LOCAL: u32 = 0x8000_0000;
    let routes = fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
    let addr = format!("{:032x}", addr.to_bits());
    let found = routes.lines().filter(|route| route.starts_with(&addr)).any(|route| {
        let flags = route.split_whitespace().nth(8).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & LOCAL != 0)
    });
    if found { Ok(()) } else { Err(std::io::Error::other("no local route yet")) }
}

enum Hop {
    Via(IpAddr),
    On(u32),
    Nowhere,
}

fn route_message(to: Prefix, hop: Hop) -> RouteMessage {
    // A route of the unspecified type takes both families; the errors are of families that differ, which only a
    // gateway could bring about.
    match (to.addr, hop) {
        (IpAddr::V4(addr), hop) => {
            let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(addr, to.len);
            match hop {
                Hop::Via(IpAddr::V4(gateway)) => route.gateway(gateway).build(),
                Hop::Via(IpAddr::V6(gateway)) => route.via(gateway).build(),
                Hop::On(index) => route.output_interface(index).scope(RouteScope::Link).build(),
                Hop::Nowhere => route.kind(RouteType::BlackHole).build(),
            }
        }
        (IpAddr::V6(addr), hop) => {
            let route = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(addr, to.len);
            match hop {
                Hop::Via(IpAddr::V6(gateway)) => route.gateway(gateway).build(),
                Hop::Via(IpAddr::V4(gateway)) => route.gateway(gateway.to_ipv6_mapped()).build(),
                Hop::On(index) => route.output_interface(index).build(),
                // IPv6 wants a link even here; the loopback's index is 1 in every namespace.
                Hop::Nowhere => route.kind(RouteType::BlackHole).output_interface(1).build(),
            }
        }
    }
}

fn change<F>(ns: &Netns, step: String, work: impl FnOnce(Handle) -> F + Send) -> Result<(), Error>
where
    F: Future<Output = Result<(), RtError>>,
{
    let outcome = ns.run(|| {
        let runtime = runtime();
        runtime.block_on(async {
            let (connection, handle, _) = new_connection().map_err(|_| RtError::RequestFailed)?;
            let driver = tokio::spawn(connection);
            let outcome = work(handle).await;
            driver.abort();
            outcome
        })
    });
    outcome.map_err(|source| Error::Wire { namespace: ns.name().to_owned(), step, source })
}

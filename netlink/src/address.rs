//! Owns the addresses of this host, once and live, by `NETLINK_ROUTE`. Knows nothing of what they are for.
//!
//! What counts: every IPv4 and IPv6 address on any interface, loopback included, whether the interface is up or
//! not, since an address that is configured is one that the kernel answers for. What does not:
//! * IPv6 link-local addresses (`fe80::/10`): they mean nothing without an interface;
//! * IPv6 addresses that are tentative or have failed duplicate detection: the kernel does not answer for them
//!   yet, or at all. An optimistic one (RFC 4429) does count. When detection ends well, the list changes.

use futures_util::TryStreamExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::{Handle, MulticastGroup};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The addresses could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The socket could not be opened. Not retryable.
    #[error("addresses of this host: socket(AF_NETLINK, NETLINK_ROUTE): {0}")]
    Open(#[source] io::Error),
    /// The kernel did not list them, or the list was cut. Retryable.
    #[error("addresses of this host: {0}")]
    List(#[source] rtnetlink::Error),
}

/// An address of this host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddress {
    /// The address.
    pub addr: IpAddr,
    /// The interface that has it (`IFLA_IFNAME`). Empty if the interface went while the two were listed.
    pub link: Arc<str>,
}

/// The addresses of this host now, sorted, each once; of the network namespace of the calling thread.
///
/// # Errors
/// [`AddressError`].
///
/// # Panics
/// Outside of a tokio runtime with I/O enabled.
pub async fn host_addresses() -> Result<Vec<HostAddress>, AddressError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(AddressError::Open)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    list(&handle).await
}

/// The addresses of this host, again at each change.
pub struct AddressWatch {
    socket: Option<Socket>,
    told: Option<Vec<HostAddress>>,
}

/// An open socket: requests go by the handle, notices come by the stream, and both end with the task.
struct Socket {
    handle: Handle,
    notices: BoxStream<'static, ()>,
    _connection: JoinSet<()>,
}

impl AddressWatch {
    /// Begins to listen, in the network namespace of the calling thread; changes from now on are noticed.
    ///
    /// # Errors
    /// [`AddressError::Open`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    pub fn open() -> Result<Self, AddressError> {
        Ok(Self { socket: Some(Socket::open()?), told: None })
    }

    /// The first time at once, then as soon as it differs from the last: all addresses, sorted, each once. Loses
    /// no change when it is dropped while waiting; several in a row may be told as one.
    ///
    /// # Errors
    /// [`AddressError`]. It may be called again; what it told last stays told.
    pub async fn next(&mut self) -> Result<Vec<HostAddress>, AddressError> {
        // Dropped while it waited for a list, it does not know whether a notice called for that list.
        let mut changed = true;
        loop {
            let socket = match &mut self.socket {
                Some(socket) => socket,
                none => none.insert(Socket::open()?),
            };
            if changed {
                let addresses = list(&socket.handle).await?;
                if self.told.as_ref() != Some(&addresses) {
                    self.told = Some(addresses.clone());
                    return Ok(addresses);
                }
            }
            changed = socket.notices.next().await.is_some();
            if !changed {
                // The connection ends when the kernel had to drop notices: listen anew, and list.
                self.socket = None;
                changed = true;
            }
        }
    }
}

impl std::fmt::Debug for AddressWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AddressWatch").field("told", &self.told).finish_non_exhaustive()
    }
}

impl Socket {
    fn open() -> Result<Self, AddressError> {
        let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let (connection, handle, messages) =
            rtnetlink::new_multicast_connection(&groups).map_err(AddressError::Open)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        // One list answers all notices that came before it.
        let notices = messages.ready_chunks(1024).map(|_| ()).boxed();
        Ok(Self { handle, notices, _connection: tasks })
    }
}

async fn list(handle: &Handle) -> Result<Vec<HostAddress>, AddressError> {
    let messages: Vec<_> =
        handle.address().get().execute().try_collect().await.map_err(AddressError::List)?;
    let links: Vec<_> = handle.link().get().execute().try_collect().await.map_err(AddressError::List)?;
    let names: BTreeMap<u32, Arc<str>> = links.iter().filter_map(name).collect();
    let addresses: BTreeSet<HostAddress> = messages
        .iter()
        .filter_map(|message| {
            let link = names.get(&message.header.index).cloned().unwrap_or_default();
            address(message).map(|addr| HostAddress { addr, link })
        })
        .collect();
    Ok(addresses.into_iter().collect())
}

/// Index and name of the interface that a message is about.
fn name(message: &LinkMessage) -> Option<(u32, Arc<str>)> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some((message.header.index, name.as_str().into())),
        _ => None,
    })
}

/// The address that a message is about, if it counts.
fn address(message: &AddressMessage) -> Option<IpAddr> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => peer = Some(*address),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let unusable = flags.contains(AddressFlags::Dadfailed)
        || (flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic));
    // On a point-to-point link the other end is the address, and ours the local one.
    local.or(peer).filter(|address| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !unusable && !address.is_unicast_link_local(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: Vec<AddressAttribute>) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.attributes = attributes;
        message
    }

    #[test]
    fn which_addresses_count() {
        let a = |text: &str| text.parse::<IpAddr>().unwrap();
        let flags = AddressAttribute::Flags;
        for (attributes, expected) in [
            (vec![AddressAttribute::Address(a("192.0.2.1"))], Some("192.0.2.1")),
            (
                vec![AddressAttribute::Address(a("192.0.2.2")), AddressAttribute::Local(a("192.0.2.1"))],
                Some("192.0.2.1"),
            ),
            (vec![AddressAttribute::Address(a("127.0.0.1"))], Some("127.0.0.1")),
            (vec![AddressAttribute::Address(a("2001:db8::1"))], Some("2001:db8::1")),
            (vec![AddressAttribute::Address(a("fe80::1"))], None),
            (vec![AddressAttribute::Address(a("2001:db8::1")), flags(AddressFlags::Tentative)], None),
            (vec![AddressAttribute::Address(a("2001:db8::1")), flags(AddressFlags::Dadfailed)], None),
            (
                vec![
                    AddressAttribute::Address(a("2001:db8::1")),
                    flags(AddressFlags::Tentative | AddressFlags::Optimistic),
                ],
                Some("2001:db8::1"),
            ),
            (vec![], None),
        ] {
            assert_eq!(address(&message(attributes.clone())), expected.map(a), "{attributes:?}");
        }
    }
}

//! Owns: addresses come and go live. Knows nothing of nftables.

use netlink::address::{AddressWatch, HostAddress, host_addresses};
use netlink::testns;
use std::net::IpAddr;
use std::time::Duration;

fn ip(arguments: &str) {
    testns::command("ip", &arguments.split(' ').collect::<Vec<_>>(), "").unwrap();
}

/// The same without their interfaces, which are told too.
fn plain(addresses: Vec<HostAddress>) -> Vec<IpAddr> {
    for HostAddress { addr, link } in &addresses {
        assert_eq!(&**link, if addr.is_loopback() { "lo" } else { "d0" });
    }
    addresses.into_iter().map(|address| address.addr).collect()
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn addresses_are_told_as_they_come_and_go() {
    testns::run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut watch = AddressWatch::open().unwrap();
            let mut next = async || {
                let changed = tokio::time::timeout(Duration::from_secs(20), watch.next()).await;
                plain(changed.expect("a change").unwrap())
            };
            assert_eq!(next().await, addresses(&[]));
            ip("link set lo up");
            // The two addresses of lo are two changes, told as one or two.
            while next().await != addresses(&["127.0.0.1", "::1"]) {}
            ip("link add d0 type veth peer name d1");
            ip("link set d1 up");
            ip("addr add 192.0.2.1/24 dev d0");
            assert_eq!(next().await, addresses(&["127.0.0.1", "192.0.2.1", "::1"]));
            ip("link set d0 up");
            // Tentative at first, and beside it a link-local one that never counts.
            ip("addr add 2001:db8::1/64 dev d0");
            assert_eq!(next().await, addresses(&["127.0.0.1", "192.0.2.1", "::1", "2001:db8::1"]));
            ip("addr del 192.0.2.1/24 dev d0");
            assert_eq!(next().await, addresses(&["127.0.0.1", "::1", "2001:db8::1"]));
            assert_eq!(
                plain(host_addresses().await.unwrap()),
                addresses(&["127.0.0.1", "::1", "2001:db8::1"])
            );
            let quiet = tokio::time::timeout(Duration::from_millis(50), watch.next()).await;
            assert!(quiet.is_err(), "{quiet:?}");
        });
    });
}

//! Owns the look at the machine before anything is built: what the lab and the proxier cannot do without. Knows nothing
//! of the lab's plan.

use std::path::Path;

use integration::{Error, Netns, wire};

/// The oldest kernel that the proxier runs on.
const LEAST_KERNEL: (u32, u32) = (5, 13);

/// What is missing, one line each with its remedy; nothing if the lab can begin.
pub(crate) fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    missing.extend(kernel());
    if !Path::new("/proc/sys/net/ipv6").exists() {
        missing
            .push("- IPv6: the kernel runs without it (is ipv6.disable=1 on its command line?)".to_owned());
    }
    match Netns::new("check") {
        Err(error @ Error::Privilege { .. }) => missing.push(format!("- privilege: {error}")),
        Err(error) => missing.push(format!("- a network namespace: {error}")),
        Ok(ns) => missing.extend(in_namespace(&ns)),
    }
    missing
}

fn kernel() -> Option<String> {
    let release = nix::sys::utsname::uname().ok()?.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    let version = (numbers.next()?, numbers.next()?);
    let (major, minor) = LEAST_KERNEL;
    (version < LEAST_KERNEL).then(|| format!("- kernel {major}.{minor} or newer: this one is {release}"))
}

fn in_namespace(ns: &Netns) -> Vec<String> {
    let mut missing = Vec::new();
    if let Err(error) = wire::veth(ns, "one", ns, "two") {
        missing.push(format!("- virtual Ethernet pairs (kernel module veth): {error}"));
    }
    if let Err(error) = wire::bridge(ns, "br0") {
        missing.push(format!("- bridges (kernel module bridge): {error}"));
    }
    if let Err(error) = ns.run(|| netlink::Nft::open()?.generation()) {
        missing.push(format!("- nftables (kernel module nf_tables): {error}"));
    }
    missing
}

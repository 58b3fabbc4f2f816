//! Owns which feature gates mean something here; knows nothing of where they are set.
//!
//! kubeadm and kind hand a cluster's gates to every component, so that any name is taken.

use std::collections::BTreeMap;

/// Gates that cannot be set otherwise any more, with the value that they are locked to.
const LOCKED: [(&str, bool); 3] = [
    ("NFTablesProxyMode", true),
    ("MultiCIDRServiceAllocator", true),
    ("PreferSameTrafficDistribution", true),
];

/// Why the gate cannot be set so, if it cannot.
pub(super) fn objection(name: &str, value: bool) -> Option<String> {
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Some("a feature gate is a name of letters and digits".to_owned());
    }
    let (_, locked) = LOCKED.iter().find(|(locked, _)| *locked == name)?;
    (value != *locked).then(|| format!("is locked to {locked}"))
}

/// `AllowServiceExternalIPs`: whether `spec.externalIPs` counts; on unless switched off.
pub(super) fn external_ips(gates: &BTreeMap<String, bool>) -> bool {
    gates.get("AllowServiceExternalIPs").copied().unwrap_or(true)
}

/// `KubeProxyNFTablesLocalhostNodePorts`: whether loopback prefixes in `nodePortAddresses` are served. An alpha gate
/// upstream; here they are served unless it is switched off, since only an explicit prefix asks for it.
pub(super) fn localhost_node_ports(gates: &BTreeMap<String, bool>) -> bool {
    gates.get("KubeProxyNFTablesLocalhostNodePorts").copied().unwrap_or(true)
}

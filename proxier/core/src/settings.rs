//! Owns what an operator decides and what does not change while the program runs. Knows nothing of flags or files.

use crate::model::Cidr;
use nft_ir::Family;
use std::sync::Arc;

/// How traffic of this node's (or the cluster's) pods is told from other traffic (`detectLocalMode`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DetectLocal {
    /// No way to tell.
    #[default]
    None,
    /// `ClusterCIDR`: the source lies in the first of these prefixes of its family.
    ClusterCidr(Vec<Cidr>),
    /// `NodeCIDR`: the source lies in the Node's first pod prefix of its family.
    NodeCidr,
    /// `BridgeInterface`: the packet came in over this interface.
    BridgeInterface(String),
    /// `InterfaceNamePrefix`: the packet came in over an interface whose name begins so.
    InterfaceNamePrefix(String),
}

/// One entry of `nodePortAddresses`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// `primary`: the Node's own addresses.
    Primary,
    /// Local addresses within the prefix. A prefix of length 0 (`all`) stands for every address but loopback; a loopback
    /// prefix (`localhost`) asks for the userspace proxy.
    Cidr(Cidr),
}

/// What an operator decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of this node.
    pub node_name: Arc<str>,
    /// Families that this node can serve.
    pub families: Vec<Family>,
    /// `masqueradeAll`.
    pub masquerade_all: bool,
    /// `masqueradeBit`, 0 to 31.
    pub masquerade_bit: u8,
    /// `detectLocalMode`.
    pub detect_local: DetectLocal,
    /// `nodePortAddresses`.
    pub node_port_addresses: Vec<NodePortAddresses>,
    /// Delete TCP flows to endpoints that are gone while they still wait for their first answer (`SYN_SENT`): a client that
    /// dials on from the same port then gets another endpoint. Off by default, as upstream.
    pub free_syn_sent: bool,
}

impl Settings {
    /// The defaults of kube-proxy's nftables mode for a node of this name: both families, bit 14, `primary`.
    pub fn new(node_name: impl Into<Arc<str>>) -> Self {
        Self {
            node_name: node_name.into(),
            families: Family::ALL.to_vec(),
            masquerade_all: false,
            masquerade_bit: 14,
            detect_local: DetectLocal::None,
            node_port_addresses: vec![NodePortAddresses::Primary],
            free_syn_sent: false,
        }
    }

    /// The masquerade mark: one bit.
    pub const fn masquerade_mark(&self) -> u32 {
        1 << self.masquerade_bit
    }
}

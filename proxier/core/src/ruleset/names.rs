//! Owns every table and set name of the product, with its key and its purpose, on one page. Knows nothing of rules.

use nft_ir::Field::{
    DestinationAddr, DestinationPort, L4Proto, OriginalDestinationAddr, OriginalDestinationPort, Slot,
    SourceAddr,
};
use nft_ir::{Family, SetDecl, SetName, SetSpec, TableId, TableName};
use std::sync::{Arc, LazyLock};

/// Comment of our tables.
pub const TABLE_COMMENT: &str = "Kubernetes Services, by proxier";

/// Our table in a family.
pub fn table_id(family: Family) -> TableId {
    TableId { family, name: TableName::literal("proxier") }
}

/// 0 for IPv4, 1 for IPv6.
pub const fn family_index(family: Family) -> usize {
    match family {
        Family::Ip => 0,
        Family::Ip6 => 1,
    }
}

macro_rules! sets {
    ($($id:ident $name:literal $purpose:literal $spec:expr;)*) => {
        /// Every set and map whose elements come from Services. In the order in which they are declared.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum SetId {
            $(#[doc = $purpose] $id,)*
        }

        impl SetId {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$id),*];

            /// The name in the kernel.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$id => $name,)* }
            }

            fn spec(self) -> SetSpec {
                match self { $(Self::$id => $spec.comment($purpose),)* }
            }
        }
    };
}

const FRONTEND: [nft_ir::Field; 3] = [DestinationAddr, L4Proto, DestinationPort];
const NODE_PORT: [nft_ir::Field; 2] = [L4Proto, DestinationPort];
const FRONTEND_SLOT: [nft_ir::Field; 4] = [DestinationAddr, L4Proto, DestinationPort, Slot(SLOTS)];
const NODE_PORT_SLOT: [nft_ir::Field; 3] = [L4Proto, DestinationPort, Slot(SLOTS)];
const DESTINATION: [nft_ir::Field; 2] = [DestinationAddr, DestinationPort];

/// The modulus that set declarations print; any number of slots fits in the key.
const SLOTS: u32 = 65536;

sets! {
    Services "services" "what each Service address does: pick an endpoint, or masquerade first"
        SetSpec::verdict_map(FRONTEND);
    Endpoints "endpoints" "slots 0..N-1 of each Service address"
        SetSpec::map(FRONTEND_SLOT, DESTINATION);
    LocalServices "local-services" "external addresses with policy Local: pick an endpoint of this node"
        SetSpec::verdict_map(FRONTEND);
    LocalEndpoints "local-endpoints" "slots of this node's endpoints"
        SetSpec::map(FRONTEND_SLOT, DESTINATION);
    NodePorts "node-ports" "what each node port does"
        SetSpec::verdict_map(NODE_PORT);
    NodePortEndpoints "node-port-endpoints" "slots 0..N-1 of each node port"
        SetSpec::map(NODE_PORT_SLOT, DESTINATION);
    LocalNodePorts "local-node-ports" "node ports with policy Local: pick an endpoint of this node"
        SetSpec::verdict_map(NODE_PORT);
    LocalNodePortEndpoints "local-node-port-endpoints" "slots of this node's endpoints"
        SetSpec::map(NODE_PORT_SLOT, DESTINATION);
    NoEndpoints "no-endpoints" "Service addresses without an endpoint for new traffic: reject, or drop if only the policy leaves none"
        SetSpec::verdict_map(FRONTEND);
    NoEndpointNodePorts "no-endpoint-node-ports" "the same for node ports"
        SetSpec::verdict_map(NODE_PORT);
    ClusterIps "cluster-ips" "ClusterIPs in use"
        SetSpec::set([DestinationAddr]);
    NodePortIps "node-port-ips" "addresses of this node that serve node ports"
        SetSpec::set([DestinationAddr]);
    SourceGuarded "source-guarded" "load balancer addresses with source ranges"
        SetSpec::set(FRONTEND);
    SourceRanges "source-ranges" "who may dial them"
        SetSpec { flags: nft_ir::SetFlags { interval: true, dynamic: false, timeout: false },
            ..SetSpec::set([DestinationAddr, L4Proto, DestinationPort, SourceAddr]) };
    Hairpin "hairpin" "this node's endpoints, as a connection from each to itself"
        SetSpec::set([SourceAddr, DestinationAddr, L4Proto, DestinationPort]);
    Sticky "sticky" "Service addresses with session affinity"
        SetSpec::verdict_map(FRONTEND);
    StickyLocal "sticky-local" "the same among this node's endpoints"
        SetSpec::verdict_map(FRONTEND);
    StickyNodePorts "sticky-node-ports" "node ports with session affinity"
        SetSpec::verdict_map(NODE_PORT);
    StickyLocalNodePorts "sticky-local-node-ports" "the same among this node's endpoints"
        SetSpec::verdict_map(NODE_PORT);
    Learn "learn" "where to note the endpoint of a client with session affinity"
        SetSpec::verdict_map([OriginalDestinationAddr, L4Proto, OriginalDestinationPort]);
    LearnNodePorts "learn-node-ports" "the same for clients of node ports"
        SetSpec::verdict_map([L4Proto, OriginalDestinationPort]);
}

/// Sets in all.
pub const SETS: usize = SetId::ALL.len();

/// The set as declared in a family's table.
pub fn decl(family: Family, id: SetId) -> &'static Arc<SetDecl> {
    static DECLS: LazyLock<[Vec<Arc<SetDecl>>; 2]> = LazyLock::new(|| {
        Family::ALL.map(|family| {
            let declare = |id: &SetId| {
                Arc::new(SetDecl {
                    table: table_id(family),
                    name: SetName::literal(id.name()),
                    spec: id.spec(),
                })
            };
            SetId::ALL.iter().map(declare).collect()
        })
    });
    &DECLS[family_index(family)][id as usize]
}

/// The name of a set, for a rule.
pub fn set_name(id: SetId) -> SetName {
    decl(Family::Ip, id).name.clone()
}

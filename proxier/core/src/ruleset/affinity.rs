//! Owns what session affinity adds for one Service port: maps of client to endpoint, a chain that reads and a chain that
//! learns. Nothing here depends on the endpoints. Knows nothing of when a client is forgotten.

use super::names::{SetId, set_name, table_id};
use crate::model::ServicePortName;
use nft_ir::{
    ChainName, Compare, Family, Field, NameError, Op, Rule, SetDecl, SetFlags, SetName, SetSpec, Statement,
    Value, Verdict,
};
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Duration;

/// The objects of one Service port with session affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyPort {
    protocol: nft_ir::L4Proto,
    /// The map of clients to any endpoint.
    pub clients: Arc<SetDecl>,
    /// The map of clients to endpoints of this node, when a Local policy needs one.
    pub local_clients: Option<Arc<SetDecl>>,
    /// Reads [`Self::clients`].
    pub sticky: ChainName,
    /// Reads [`Self::local_clients`].
    pub sticky_local: ChainName,
    /// Learns both.
    pub learn: ChainName,
    timeout: Duration,
}

impl StickyPort {
    /// The objects of a Service port; the error names a port whose name is too long for the kernel.
    pub fn new(
        family: Family,
        port: &ServicePortName,
        timeout: Duration,
        local: bool,
    ) -> Result<Self, NameError> {
        let suffix = format!("{}/{}/{}", port.service, port.protocol, port.port);
        let declare = |prefix: &str| -> Result<Arc<SetDecl>, NameError> {
            let spec = SetSpec {
                flags: SetFlags { interval: false, dynamic: true, timeout: true },
                timeout: Some(timeout),
                size: Some(CLIENTS),
                ..SetSpec::map([Field::SourceAddr], [Field::DestinationAddr, Field::DestinationPort])
            };
            Ok(Arc::new(SetDecl {
                table: table_id(family),
                name: SetName::new(&format!("{prefix}-{suffix}"))?,
                spec,
            }))
        };
        Ok(Self {
            protocol: port.protocol,
            clients: declare("affinity")?,
            local_clients: if local { Some(declare("local-affinity")?) } else { None },
            sticky: ChainName::new(&format!("sticky-{suffix}"))?,
            sticky_local: ChainName::new(&format!("local-sticky-{suffix}"))?,
            learn: ChainName::new(&format!("learn-{suffix}"))?,
            timeout,
        })
    }

    /// Its maps.
    pub fn sets(&self) -> impl Iterator<Item = &Arc<SetDecl>> {
        [Some(&self.clients), self.local_clients.as_ref()].into_iter().flatten()
    }

    /// Its chains and their rules.
    pub fn chains(&self) -> Vec<(ChainName, Vec<Rule>)> {
        let known = |set: &SetName| {
            vec![Rule::new([
                Statement::Compare(Compare::Eq, Value::L4Proto(self.protocol)),
                Statement::Dnat { key: smallvec![Field::SourceAddr], map: set.clone() },
            ])]
        };
        let update = |set: &SetName| Statement::Update {
            set: set.clone(),
            key: smallvec![Field::SourceAddr],
            data: smallvec![Field::DestinationAddr, Field::DestinationPort],
        };
        let mut learn = vec![Rule::new([update(&self.clients.name)])];
        let mut chains = vec![(self.sticky.clone(), known(&self.clients.name))];
        if let Some(local) = &self.local_clients {
            chains.push((self.sticky_local.clone(), known(&local.name)));
            learn.push(
                Rule::new([
                    Statement::InSet {
                        key: smallvec![
                            Field::DestinationAddr,
                            Field::DestinationAddr,
                            Field::L4Proto,
                            Field::DestinationPort
                        ],
                        op: Compare::Eq,
                        set: set_name(SetId::Hairpin),
                    },
                    update(&local.name),
                ])
                .comment("an endpoint of this node"),
            );
        }
        chains.push((self.learn.clone(), learn));
        chains
    }

    /// Operations that make it.
    pub fn add(&self, family: Family, ops: &mut Vec<Op>) {
        ops.extend(self.sets().map(|set| Op::AddSet { set: set.clone() }));
        for (chain, rules) in self.chains() {
            let table = table_id(family);
            ops.push(Op::AddChain { table: table.clone(), chain: chain.clone(), base: None });
            ops.push(Op::FlushChain { table: table.clone(), chain: chain.clone() });
            for rule in rules {
                ops.push(Op::AddRule { table: table.clone(), chain: chain.clone(), rule });
            }
        }
    }

    /// The verdict that reads [`Self::clients`]: comes back if the client is not known.
    pub fn read(&self) -> Verdict {
        Verdict::Jump(self.sticky.clone())
    }

    /// The verdict that reads [`Self::local_clients`].
    pub fn read_local(&self) -> Verdict {
        Verdict::Jump(self.sticky_local.clone())
    }

    /// The verdict that learns.
    pub fn note(&self) -> Verdict {
        Verdict::Jump(self.learn.clone())
    }
}

/// Most clients that are remembered per Service port; the kernel's own default for a dynamic set is 65,535.
const CLIENTS: u32 = 1 << 20;

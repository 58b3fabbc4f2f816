//! Owns the question what the kernel can do, asked before anything is changed: a transaction that is certain to be
//! refused at its very end is tried, so that everything before it is checked and nothing stays. Knows nothing of
//! what the answer is for.

use super::Nft;
use crate::{Error, Refusal};
use nft_ir::{
    AddrKind, BaseChain, ChainName, ChainType, Compare, Family, Field, Hook, Op, Priority, Reject, Rule,
    SetDecl, SetFlags, SetName, SetSpec, Statement, TableId, TableName, Transaction, Value, Verdict,
};
use nix::errno::Errno;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something that the kernel cannot do, or does not let us do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// In which family.
    pub family: Family,
    /// What it is, the modules that have it, and the least version of Linux.
    pub feature: &'static str,
    /// What the kernel answered.
    pub refusal: Refusal,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, feature, refusal } = self;
        let errno = Errno::from_raw(refusal.errno);
        if errno == Errno::EPERM {
            return write!(f, "nf_tables: {}: CAP_NET_ADMIN is needed", errno.desc());
        }
        write!(f, "family {family}: {feature}: {}", errno.desc())
    }
}

impl Nft {
    /// Whether the kernel would take a transaction now. Nothing is changed, whatever the answer.
    ///
    /// # Errors
    /// As [`Nft::commit`]: [`Error::Refused`] by the operations that it would not take.
    pub fn check(&mut self, transaction: &Transaction) -> Result<(), Error> {
        let mut tried = transaction.clone();
        let last = tried.ops.len();
        // Names of tables have no such length in any ruleset that nft can write: it ends the batch.
        let table = TableId { family: Family::Ip, name: TableName::from_kernel(&"-".repeat(200)) };
        tried.push(Op::DeleteTable { table });
        match self.commit(&tried, None) {
            Ok(_) => Ok(()),
            Err(Error::Refused { mut refusals }) => {
                refusals.retain(|refusal| refusal.op != Some(last));
                if refusals.is_empty() { Ok(()) } else { Err(Error::Refused { refusals }) }
            }
            Err(error) => Err(error),
        }
    }

    /// What of the words of `nft_ir` the kernel cannot carry out for a family; empty if it can all. It loads the
    /// modules that it needs, as the first commit would.
    ///
    /// # Errors
    /// As [`Nft::commit`], but not for what is missing.
    pub fn missing(&mut self, family: Family) -> Result<Vec<Missing>, Error> {
        let features = features(family);
        let all = features.iter().flat_map(|(_, transaction)| transaction.ops.iter().cloned());
        // A kernel takes milliseconds to give up a transaction, and most have everything: all at once, then one by one.
        match self.check(&Transaction { ops: all.collect() }) {
            Ok(()) => return Ok(Vec::new()),
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut missing = Vec::new();
        for (feature, transaction) in features {
            match self.check(&transaction) {
                Ok(()) => {}
                Err(Error::Refused { refusals }) => {
                    let Some(refusal) = refusals.into_iter().next() else { continue };
                    let all = refusal.op.is_none();
                    missing.push(Missing { family, feature, refusal });
                    if all {
                        // The batch as a whole: every other would be refused alike.
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }
}

/// Each in a table of its own, so that they can be tried together.
fn features(family: Family) -> Vec<(&'static str, Transaction)> {
    (0..)
        .map_while(|number| {
            let name = TableName::from_kernel(&format!("proxier-probe-{number}"));
            feature_list(TableId { family, name }).into_iter().nth(number)
        })
        .collect()
}

fn feature_list(id: TableId) -> Vec<(&'static str, Transaction)> {
    let chain = || ChainName::literal("c");
    let base =
        |chain_type, hook| BaseChain { chain_type, hook, priority: Priority(0), policy: Verdict::Accept };
    let nat = |hook| Some(base(ChainType::Nat, hook));
    let set = |spec: SetSpec| Arc::new(SetDecl { table: id.clone(), name: SetName::literal("s"), spec });
    let vip = || [Field::DestinationAddr, Field::L4Proto, Field::DestinationPort];
    let endpoint = || [Field::DestinationAddr, Field::DestinationPort];
    let with = |base: Option<BaseChain>, spec: Option<SetSpec>, statements: Vec<Statement>| {
        let mut ops = vec![
            Op::AddTable { table: id.clone(), comment: None },
            Op::AddChain { table: id.clone(), chain: chain(), base },
        ];
        ops.extend(spec.map(|spec| Op::AddSet { set: set(spec) }));
        ops.push(Op::AddRule { table: id.clone(), chain: chain(), rule: Rule::new(statements) });
        Transaction { ops }
    };
    let by_key =
        |key: &[Field]| Statement::InSet { key: key.into(), op: Compare::Eq, set: SetName::literal("s") };
    let slots = || [Field::L4Proto, Field::DestinationPort, Field::Slot(2)];
    vec![
        ("nf_tables (Linux 5.13)", with(None, None, vec![])),
        (
            "sets of several fields (nf_tables, Linux 5.13)",
            with(None, Some(SetSpec::set(vip())), vec![by_key(&vip())]),
        ),
        (
            "sets of intervals of several fields (nf_tables, Linux 5.6)",
            with(
                None,
                Some(SetSpec {
                    flags: SetFlags { interval: true, ..SetFlags::default() },
                    ..SetSpec::set(vip())
                }),
                vec![by_key(&vip())],
            ),
        ),
        (
            "conntrack of nf_tables (nft_ct, Linux 4.17)",
            with(
                None,
                Some(SetSpec::set([Field::OriginalDestinationAddr])),
                vec![Statement::CtStateNew, by_key(&[Field::OriginalDestinationAddr])],
            ),
        ),
        (
            "numbers at random (nft_numgen, Linux 4.9)",
            with(None, Some(SetSpec::set(slots())), vec![by_key(&slots())]),
        ),
        (
            "types of addresses (nft_fib_ipv4, nft_fib_ipv6, Linux 4.10)",
            with(
                Some(base(ChainType::Filter, Hook::Prerouting)),
                None,
                vec![Statement::Compare(Compare::Eq, Value::FibLocal(AddrKind::Destination))],
            ),
        ),
        (
            "destination NAT (nft_chain_nat, nft_nat, Linux 5.13)",
            with(
                nat(Hook::Prerouting),
                Some(SetSpec::map(vip(), endpoint())),
                vec![Statement::Dnat { key: vip()[..].into(), map: SetName::literal("s") }],
            ),
        ),
        (
            "masquerading (nft_chain_nat, nft_masq, Linux 5.2)",
            with(nat(Hook::Postrouting), None, vec![Statement::Masquerade]),
        ),
        (
            "rejecting (nft_reject, nft_reject_ipv4, nft_reject_ipv6, Linux 3.14)",
            with(
                Some(base(ChainType::Filter, Hook::Forward)),
                None,
                vec![Statement::Reject(Reject::PortUnreachable)],
            ),
        ),
        (
            "maps that rules update (nf_tables, Linux 5.13)",
            with(
                None,
                Some(SetSpec {
                    flags: SetFlags { dynamic: true, timeout: true, ..SetFlags::default() },
                    timeout: Some(Duration::from_secs(60)),
                    size: Some(16),
                    ..SetSpec::map([Field::SourceAddr], endpoint())
                }),
                vec![Statement::Update {
                    set: SetName::literal("s"),
                    key: [Field::SourceAddr][..].into(),
                    data: endpoint()[..].into(),
                }],
            ),
        ),
    ]
}

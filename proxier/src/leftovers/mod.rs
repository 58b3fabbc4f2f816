//! Owns the removal of what proxies leave in the kernel: our tables, kube-proxy's tables, and what kube-proxy's other modes
//! left in those of iptables. Knows nothing of when that is wanted.
//!
//! Every step is tried, whatever became of the one before. What is not kube-proxy's or ours by name is not touched: a table,
//! a chain or a rule of anybody else stays byte for byte. What IPVS holds (virtual servers, sets, the device `kube-ipvs0`)
//! stays as well: our rules come before it.

mod kube_proxy;
mod legacy;
mod nf_tables;

use netlink::Nft;
use std::fmt;

/// Name of our tables, one a family.
const OURS: &str = "proxier";

/// Name of the tables that kube-proxy's nftables mode makes, one a family.
const KUBE_PROXYS: &str = "kube-proxy";

/// Something that could not be removed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
    reason: String,
}

impl Failure {
    fn new(what: impl Into<String>, reason: impl ToString) -> Self {
        Self { what: what.into(), reason: reason.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// What to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Our tables only.
    Ours,
    /// Ours, and all that kube-proxy may have left.
    All,
    /// What kube-proxy may have left.
    KubeProxys,
}

/// Removes it from the network namespace of the calling thread. Returns what could not be removed.
pub fn remove(scope: Scope) -> Vec<Failure> {
    let mut failures = Vec::new();
    match Nft::open() {
        Ok(mut nft) => {
            if scope != Scope::KubeProxys {
                nf_tables::delete_tables(&mut nft, OURS, &mut failures);
            }
            if scope != Scope::Ours {
                nf_tables::delete_tables(&mut nft, KUBE_PROXYS, &mut failures);
                nf_tables::remove_rules(&mut nft, &mut failures);
            }
        }
        Err(error) => failures.push(Failure::new("nf_tables", error)),
    }
    if scope != Scope::Ours {
        legacy::remove_rules(&mut failures);
    }
    failures
}

fn stays(table: &str, chain: &str, by: &str) -> Failure {
    Failure::new(format!("{table}, chain {chain}"), format!("left as it is, since chain {by} refers to it"))
}

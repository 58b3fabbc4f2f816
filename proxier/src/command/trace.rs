//! Owns `proxier trace`: says what becomes of a packet, by walking it through what the kernel holds in our tables. Knows nothing
//! of what should be there.

use clap::Args;
use netlink::Nft;
use nft_ir::walk::{self, Fate, Flow, Origin, Packet, World};
use nft_ir::{Family, L4Proto, Ruleset};
use proxier_core::ruleset::table_id;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

/// Flags of `proxier trace`.
#[derive(Debug, Clone, Args)]
pub struct TraceFlags {
    /// What is dialled: `10.96.0.10:80`, `[fd00::1]:53/udp`; TCP unless it says otherwise
    #[arg(long, value_parser = target)]
    pub to: (SocketAddr, L4Proto),
    /// Address of whoever dials; default: this host itself
    #[arg(long)]
    pub from: Option<IpAddr>,
    /// Interface by which the packet comes in; needed if --from is not one of this host's addresses
    #[arg(long)]
    pub interface: Option<String>,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says what its source says")]
pub enum TraceError {
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    #[error(transparent)]
    Addresses(#[from] netlink::address::AddressError),
    #[error(transparent)]
    Walk(#[from] walk::WalkError),
    #[error("no table \"proxier\" in this network namespace: no proxier has written here")]
    NoTable,
    #[error(
        "--from {0} is not an address of this host: say by which interface the packet comes in, with --interface"
    )]
    NoInterface(IpAddr),
    #[error("this host has no address of the family of --to {0}: say who dials, with --from and --interface")]
    NoSource(SocketAddr),
    #[error("cannot start a runtime: {0}")]
    Runtime(std::io::Error),
    #[error("standard output: {0}")]
    Output(std::io::Error),
}

fn target(text: &str) -> Result<(SocketAddr, L4Proto), String> {
    let (addr, proto) = text.split_once('/').unwrap_or((text, "tcp"));
    let addr = addr.parse().map_err(|_| format!("{addr:?} is no address and port, such as 10.96.0.10:80"))?;
    let proto = L4Proto::ALL.into_iter().find(|known| known.as_str() == proto);
    Ok((addr, proto.ok_or_else(|| format!("{text:?}: the protocol is one of tcp, udp and sctp"))?))
}

/// Prints what may become of the packet, each outcome once, with its share and the rules that decided.
///
/// # Errors
/// [`TraceError`].
pub fn run(flags: &TraceFlags) -> Result<(), TraceError> {
    let mut nft = Nft::open()?;
    let (to, proto) = flags.to;
    let family = Family::of(&to.ip());
    let mut ruleset = Ruleset::default();
    let dump = nft.dump_table(&table_id(family))?.ok_or(TraceError::NoTable)?;
    ruleset.tables.insert(table_id(family), dump.table);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(TraceError::Runtime)?;
    let own: Vec<IpAddr> =
        runtime.block_on(netlink::address::host_addresses())?.into_iter().map(|host| host.addr).collect();
    let world = World::new(own.iter().copied());
    let origin = match (&flags.interface, flags.from) {
        (Some(interface), _) => Origin::Interface(interface.clone()),
        (None, Some(from)) if !world.is_local(from) => return Err(TraceError::NoInterface(from)),
        (None, _) => Origin::Host,
    };
    let default = || own.iter().copied().find(|addr| Family::of(addr) == family && !addr.is_loopback());
    let from = flags.from.or_else(default).ok_or(TraceError::NoSource(to))?;
    let packet =
        Packet { source: SocketAddr::new(from, 0), destination: to, proto, mark: 0, origin, flow: Flow::New };
    let text = tell(&packet, &walk::walk(&ruleset, &world, &packet)?);
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(TraceError::Output(error)),
        _ => Ok(()),
    }
}

/// The fates in words. Fates that differ only in what was drawn and where it led share one trail.
fn tell(packet: &Packet, fates: &[Fate]) -> String {
    let mut text = String::new();
    let whence = match &packet.origin {
        Origin::Interface(interface) => format!("in by {interface}"),
        Origin::Host => "from this host".to_owned(),
    };
    // A String takes every write.
    let _ = writeln!(text, "{} dials {}/{}, {whence}", packet.source.ip(), packet.destination, packet.proto);
    let mut shares: BTreeMap<String, (f64, &Fate)> = BTreeMap::new();
    for fate in fates {
        let share: f64 = fate.draws.iter().map(|draw| 1.0 / f64::from(draw.of)).product();
        shares.entry(fate.to_string()).or_insert((0.0, fate)).0 += share;
    }
    for (outcome, (share, _)) in &shares {
        let _ = writeln!(text, "{:>6.1} %  {outcome}", share * 100.0);
    }
    if let Some((_, fate)) = shares.values().next() {
        let _ = writeln!(
            text,
            "\nby these rules{}:",
            if shares.len() > 1 { " (of the first outcome)" } else { "" }
        );
        for step in &fate.trail {
            let _ = writeln!(text, "  {step}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let ok = |text: &str| target(text).map(|(addr, proto)| format!("{addr} {proto}"));
        assert_eq!(ok("10.96.0.10:80").as_deref(), Ok("10.96.0.10:80 tcp"));
        assert_eq!(ok("[fd00::1]:53/udp").as_deref(), Ok("[fd00::1]:53 udp"));
        assert!(ok("10.96.0.10").is_err_and(|e| e.contains("10.96.0.10")));
        assert!(ok("10.96.0.10:80/icmp").is_err_and(|e| e.contains("one of tcp, udp and sctp")));
    }
}

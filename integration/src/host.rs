//! Owns what nodes, pods and clients have in common: a namespace with addresses, from which one dials and in which one
//! serves. Knows nothing of how it is wired to others.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use crate::error::Error;
use crate::netns::Netns;
use crate::probe::{self, Dial, Outcome, Tally};
use crate::process::Process;
use crate::serve::{Server, Style};
use crate::{Family, L4Proto};

/// A machine or a pod: one namespace, with one main address of each family of its world.
#[derive(Debug, Clone)]
pub struct Host {
    ns: Netns,
    addrs: Vec<IpAddr>,
}

impl Host {
    pub(crate) const fn new(ns: Netns, addrs: Vec<IpAddr>) -> Self {
        Self { ns, addrs }
    }

    /// Its name: that of the pod, the node or the client.
    pub fn name(&self) -> &str {
        self.ns.name()
    }

    /// Its namespace.
    pub const fn ns(&self) -> &Netns {
        &self.ns
    }

    /// Its main address of a family. Panics if the world is without that family.
    #[track_caller]
    pub fn addr(&self, family: Family) -> IpAddr {
        match self.addrs.iter().find(|addr| Family::of(addr) == family) {
            Some(addr) => *addr,
            None => panic!("{} has no {family} address in this world", self.name()),
        }
    }

    /// Its main addresses, IPv4 first.
    pub fn addrs(&self) -> &[IpAddr] {
        &self.addrs
    }

    /// A port at its main address of a family.
    #[track_caller]
    pub fn at(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.addr(family), port)
    }

    /// Runs a closure on a thread of this namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.ns.run(work)
    }

    /// Starts a server on all main addresses; it is ready when this returns, and gone when the value is dropped.
    #[track_caller]
    pub fn serve(&self, proto: L4Proto, port: u16, name: &str) -> Server {
        self.serve_as(Style::Answer, proto, port, name)
    }

    /// Starts a server of a given style on all main addresses.
    #[track_caller]
    pub fn serve_as(&self, style: Style, proto: L4Proto, port: u16, name: &str) -> Server {
        let at: Vec<SocketAddr> = self.addrs.iter().map(|addr| SocketAddr::new(*addr, port)).collect();
        self.serve_at(style, proto, &at, name)
    }

    /// Starts a server on the given addresses.
    #[track_caller]
    pub fn serve_at(&self, style: Style, proto: L4Proto, at: &[SocketAddr], name: &str) -> Server {
        match Server::start(&self.ns, style, proto, at, name) {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Dials, and says what became of it.
    pub fn dials(&self, proto: L4Proto, to: SocketAddr) -> Outcome {
        self.dial(Dial::new(proto, to))
    }

    /// Dials with a source, a patience or both of one's own choice.
    pub fn dial(&self, dial: Dial) -> Outcome {
        self.ns.run(|| probe::dial(&dial))
    }

    /// Dials many times in a row from one thread, each time from a new source port, and counts who answered.
    pub fn dial_many(&self, dial: Dial, times: usize) -> Tally {
        self.ns.run(|| probe::dial_many(&dial, times))
    }

    /// Starts a program in this namespace; it is killed when the value is dropped.
    pub fn spawn_process(&self, command: Command) -> Result<Process, Error> {
        Process::spawn(&self.ns, command)
    }
}

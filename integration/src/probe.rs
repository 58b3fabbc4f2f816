//! Owns dialling: one packet or connection to an address, and what became of it. Knows nothing of Services.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::L4Proto;
use crate::sctp::{self, Until};

/// How long a dial waits for an answer unless told otherwise. Long enough for a busy machine, short enough for the
/// tests that expect silence.
const PATIENCE: Duration = Duration::from_secs(2);

/// What to dial, from where, and how long to wait.
#[derive(Debug, Clone)]
pub struct Dial {
    proto: L4Proto,
    to: SocketAddr,
    from: Option<IpAddr>,
    from_port: Option<u16>,
    patience: Duration,
    associates: bool,
}

impl Dial {
    /// A dial from any address and port, that waits two seconds.
    pub const fn new(proto: L4Proto, to: SocketAddr) -> Self {
        Self { proto, to, from: None, from_port: None, patience: PATIENCE, associates: false }
    }

    /// From one of the namespace's addresses.
    pub const fn from(mut self, addr: IpAddr) -> Self {
        self.from = Some(addr);
        self
    }

    /// From a fixed source port.
    pub const fn from_port(mut self, port: u16) -> Self {
        self.from_port = Some(port);
        self
    }

    /// With SCTP, goes on until there is an association, which is then left as it is. Otherwise the server's first answer
    /// is enough.
    pub const fn associates(mut self) -> Self {
        self.associates = true;
        self
    }

    /// Waits this long before it calls silence [`Outcome::TimedOut`].
    pub const fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn source(&self) -> Option<SocketAddr> {
        if self.from.is_none() && self.from_port.is_none() {
            return None;
        }
        let any = match self.to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Some(SocketAddr::new(self.from.unwrap_or(any), self.from_port.unwrap_or(0)))
    }
}

/// What became of a dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A server answered.
    Answered {
        /// The server's name.
        by: String,
        /// The dialler's address as the server saw it.
        seen_from: SocketAddr,
    },
    /// A reset, an abort or an ICMP port unreachable came back.
    Refused,
    /// Nothing came back: dropped on the way.
    TimedOut,
    /// The connection was made, and then reset or closed without an answer.
    Broken,
    /// Another error, of the local stack or from an ICMP message.
    Unreachable(Errno),
}

impl Outcome {
    /// Name of the server that answered, if one did.
    pub fn by(&self) -> Option<&str> {
        match self {
            Self::Answered { by, .. } => Some(by),
            _ => None,
        }
    }

    /// The dialler's address as the server saw it, if one answered.
    pub const fn seen_from(&self) -> Option<SocketAddr> {
        match self {
            Self::Answered { seen_from, .. } => Some(*seen_from),
            _ => None,
        }
    }

    /// From a server's line, `NAME ADDR:PORT`.
    pub(crate) fn from_answer(line: &str) -> Option<Self> {
        let (by, seen_from) = line.trim_end().split_once(' ')?;
        Some(Self::Answered { by: by.to_owned(), seen_from: seen_from.parse().ok()? })
    }

    pub(crate) fn from_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData => Self::Broken,
            _ => Self::Unreachable(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { by, seen_from } => write!(f, "answered by {by}, which saw {seen_from}"),
            Self::Refused => f.write_str("refused"),
            Self::TimedOut => f.write_str("no answer"),
            Self::Broken => f.write_str("connected, then broken off"),
            Self::Unreachable(errno) => write!(f, "unreachable ({errno})"),
        }
    }
}

/// Who answered how often, of many dials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answers by server name.
    pub by: BTreeMap<String, usize>,
    /// What became of the others.
    pub failed: Vec<Outcome>,
}

/// Dials from the namespace of the calling thread.
pub(crate) fn dial(dial: &Dial) -> Outcome {
    let outcome = match dial.proto {
        L4Proto::Tcp => dial_tcp(dial),
        L4Proto::Udp => dial_udp(dial),
        L4Proto::Sctp => {
            let until = if dial.associates { Until::CookieAck } else { Until::InitAck };
            sctp::dial(dial.to, dial.source(), until, dial.patience)
        }
    };
    outcome.unwrap_or_else(|error| Outcome::from_error(&error))
}

/// Dials many times from the namespace of the calling thread.
pub(crate) fn dial_many(what: &Dial, times: usize) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..times {
        match dial(what) {
            Outcome::Answered { by, .. } => *tally.by.entry(by).or_default() += 1,
            other => tally.failed.push(other),
        }
    }
    tally
}

fn dial_tcp(dial: &Dial) -> io::Result<Outcome> {
    let end = Instant::now() + dial.patience;
    let socket = Socket::new(Domain::for_address(dial.to), Type::STREAM, Some(Protocol::TCP))?;
    // Ends by a reset: no TIME_WAIT, so that ports last for thousands of dials, and the flow is over at once.
    socket.set_linger(Some(Duration::ZERO))?;
    if let Some(source) = dial.source() {
        socket.set_reuse_address(true)?;
        socket.bind(&source.into())?;
    }
    socket.connect_timeout(&dial.to.into(), dial.patience)?;
    let mut line = Vec::new();
    let mut buffer = [0; 256];
    while !line.ends_with(b"\n") {
        socket.set_read_timeout(Some(remaining(end)))?;
        match (&socket).read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => line.extend_from_slice(&buffer[..n]),
        }
    }
    answer(&line)
}

/// A packet that a filter of this very host ate fails the send with `EPERM`, whether it was rejected or dropped. What tells
/// the two apart is what comes back after that.
pub(crate) fn heedless(sent: io::Result<usize>) -> io::Result<()> {
    match sent {
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => Ok(()),
        sent => sent.map(drop),
    }
}

fn dial_udp(dial: &Dial) -> io::Result<Outcome> {
    let socket = Socket::new(Domain::for_address(dial.to), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(source) = dial.source() {
        socket.bind(&source.into())?;
    }
    socket.connect(&dial.to.into())?;
    socket.set_read_timeout(Some(dial.patience))?;
    let socket = UdpSocket::from(socket);
    heedless(socket.send(b"who answers?\n"))?;
    let mut buffer = [0; 256];
    let n = socket.recv(&mut buffer)?;
    answer(&buffer[..n])
}

pub(crate) fn answer(line: &[u8]) -> io::Result<Outcome> {
    std::str::from_utf8(line)
        .ok()
        .and_then(Outcome::from_answer)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Time until the end; never zero, which a socket would take for "for ever".
pub(crate) fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

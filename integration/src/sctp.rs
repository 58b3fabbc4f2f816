//! Owns as much of SCTP as a probe needs: INIT there, INIT ACK back, and COOKIE ECHO and COOKIE ACK where conntrack is to
//! see an association; over raw sockets, since a kernel may translate SCTP without having sockets for it. Knows nothing of
//! what is sent in an association.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::probe::{Outcome, answer, remaining};

/// IP protocol number of SCTP.
const IPPROTO_SCTP: i32 = 132;
/// Chunk types (RFC 9260, 3.2).
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
/// Parameter type of the state cookie in an INIT ACK (RFC 9260, 3.3.3.1).
const STATE_COOKIE: u16 = 7;
/// Bytes of the common header.
const HEADER: usize = 12;
/// Bytes of an INIT or INIT ACK chunk before its parameters.
const INIT_LEN: usize = 20;

/// A raw socket that sees the SCTP packets of its namespace.
pub(crate) fn raw_socket(family_of: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(family_of), Type::RAW, Some(Protocol::from(IPPROTO_SCTP)))
}

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The INIT ACK, whose cookie names the server.
    InitAck,
    /// The COOKIE ACK: there is an association.
    CookieAck,
}

/// Sends an INIT, waits for the INIT ACK, and goes on until an association is made if so asked.
pub(crate) fn dial(
    to: SocketAddr,
    from: Option<SocketAddr>,
    until: Until,
    patience: Duration,
) -> io::Result<Outcome> {
    let end = Instant::now() + patience;
    let socket = raw_socket(to)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from.ip(), 0).into())?;
    }
    // A connected raw socket gets ICMP errors as its own.
    socket.connect(&SocketAddr::new(to.ip(), 0).into())?;
    let tag = random();
    let port = from.map(|from| from.port()).filter(|port| *port != 0).unwrap_or(0x8000 | random() as u16);
    let init =
        Packet { source: port, destination: to.port(), tag: 0, chunk: INIT, init_tag: tag, cookie: &[] };
    crate::probe::heedless((&socket).write(&init.encode()))?;
    let mut buffer = [0; 2048];
    let mut outcome = None;
    loop {
        if Instant::now() >= end {
            return Ok(Outcome::TimedOut);
        }
        socket.set_read_timeout(Some(remaining(end)))?;
        let n = (&socket).read(&mut buffer)?;
        let Some(reply) = Packet::decode(payload(to.ip(), &buffer[..n])) else { continue };
        if (reply.source, reply.destination, reply.tag) != (to.port(), port, tag) {
            continue;
        }
        match reply.chunk {
            INIT_ACK if until == Until::InitAck => return answer(reply.cookie),
            INIT_ACK => {
                outcome = Some(answer(reply.cookie)?);
                let echo = bare(port, to.port(), reply.init_tag, COOKIE_ECHO, reply.cookie);
                crate::probe::heedless((&socket).write(&echo))?;
            }
            COOKIE_ACK => return outcome.ok_or_else(|| io::ErrorKind::InvalidData.into()),
            ABORT => return Ok(Outcome::Refused),
            _ => {}
        }
    }
}

/// The server's reply to a packet as its raw socket received it; `None` if it is not an INIT or a COOKIE ECHO for this port.
pub(crate) fn reply(received: &[u8], peer: IpAddr, port: u16, name: &str) -> Option<(SocketAddr, Vec<u8>)> {
    let init = Packet::decode(payload(peer, received))?;
    if init.destination != port {
        return None;
    }
    let peer = SocketAddr::new(peer, init.source);
    match init.chunk {
        INIT => {}
        // The tag is one's own, made of the peer's, so that nothing need be kept.
        COOKIE_ECHO => return Some((peer, bare(port, peer.port(), !init.tag, COOKIE_ACK, &[]))),
        _ => return None,
    }
    let line = format!("{name} {peer}\n");
    let ack = Packet {
        source: port,
        destination: init.source,
        tag: init.init_tag,
        chunk: INIT_ACK,
        init_tag: !init.init_tag,
        cookie: line.as_bytes(),
    };
    Some((peer, ack.encode()))
}

/// A packet with a chunk that is nothing but a value.
fn bare(source: u16, destination: u16, tag: u32, chunk: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 4 + value.len() + 3);
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([chunk, 0]);
    bytes.extend((4 + value.len() as u16).to_be_bytes());
    bytes.extend(value);
    seal(bytes)
}

/// Pads a packet and puts its checksum in.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let sum = crc32c(&bytes);
    bytes[8..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// One packet with one chunk; of INIT and INIT ACK, what is read here.
struct Packet<'a> {
    source: u16,
    destination: u16,
    /// Verification tag: what the receiver gave as its initiate tag.
    tag: u32,
    chunk: u8,
    init_tag: u32,
    cookie: &'a [u8],
}

impl<'a> Packet<'a> {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + INIT_LEN + 4 + self.cookie.len() + 3);
        bytes.extend(self.source.to_be_bytes());
        bytes.extend(self.destination.to_be_bytes());
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend([0; 4]);
        let cookie_len = if self.cookie.is_empty() { 0 } else { 4 + self.cookie.len() };
        bytes.extend([self.chunk, 0]);
        bytes.extend(((INIT_LEN + cookie_len) as u16).to_be_bytes());
        bytes.extend(self.init_tag.to_be_bytes());
        bytes.extend(0x0001_0000_u32.to_be_bytes()); // receiver window
        bytes.extend(1_u16.to_be_bytes()); // outbound streams
        bytes.extend(1_u16.to_be_bytes()); // inbound streams
        bytes.extend(1_u32.to_be_bytes()); // first TSN
        if cookie_len > 0 {
            bytes.extend(STATE_COOKIE.to_be_bytes());
            bytes.extend((cookie_len as u16).to_be_bytes());
            bytes.extend(self.cookie);
        }
        seal(bytes)
    }

    /// `None` for what is too short, or whose checksum is wrong.
    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut unsummed = bytes.to_vec();
        unsummed.get_mut(8..HEADER)?.fill(0);
        if crc32c(&unsummed).to_le_bytes() != bytes[8..HEADER] {
            return None;
        }
        let u16_at = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let parameters = HEADER + INIT_LEN;
        let cookie = match (u16_at(parameters), u16_at(parameters + 2)) {
            (Some(STATE_COOKIE), Some(len)) => bytes.get(parameters + 4..parameters + usize::from(len))?,
            _ => &[],
        };
        Some(Self {
            source: u16_at(0)?,
            destination: u16_at(2)?,
            tag: u32_at(4)?,
            chunk: *bytes.get(HEADER)?,
            init_tag: u32_at(HEADER + 4).unwrap_or(0),
            cookie,
        })
    }
}

/// What follows the IP header, which a raw socket hands out for IPv4 only.
fn payload(peer: IpAddr, received: &[u8]) -> &[u8] {
    match (peer, received.first()) {
        (IpAddr::V4(_), Some(first)) => received.get(usize::from(first & 0xf) * 4..).unwrap_or(&[]),
        _ => received,
    }
}

/// A number that nobody else in this test is likely to use.
fn random() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) as u32
}

/// CRC32c (Castagnoli), as RFC 9260 appendix A has it.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| {
                if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_the_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_packet_reads_back() {
        let bytes = Packet {
            source: 1,
            destination: 2,
            tag: 3,
            chunk: INIT_ACK,
            init_tag: 4,
            cookie: b"a 10.0.0.1:9\n",
        }
        .encode();
        let read = Packet::decode(&bytes).expect("a packet");
        assert_eq!((read.source, read.destination, read.tag), (1, 2, 3));
        assert_eq!((read.chunk, read.init_tag, read.cookie), (INIT_ACK, 4, &b"a 10.0.0.1:9\n"[..]));
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let mut bytes =
            Packet { source: 1, destination: 2, tag: 0, chunk: INIT, init_tag: 4, cookie: &[] }.encode();
        bytes[1] ^= 1;
        assert!(Packet::decode(&bytes).is_none());
    }
}

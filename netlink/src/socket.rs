//! Owns one `NETLINK_NETFILTER` socket: its buffers, its sequence numbers, one datagram in and one out. Knows
//! nothing of nftables.

use crate::Error;
use crate::wire::{self, Message};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Room for answers that wait to be read: a refusal takes about 1 KiB of it, and a batch may have thousands.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Longest datagram that the kernel makes for a dump is 32 KiB; twice the largest attribute is more than enough.
const DATAGRAM: usize = 1 << 17;

/// A netlink socket to netfilter.
#[derive(Debug)]
pub(crate) struct NetfilterSocket {
    socket: Socket,
    port: u32,
    seq: u32,
    send_buffer: usize,
    datagram: Vec<u8>,
}

/// What a receive came to.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    /// A datagram.
    Datagram(&'a [u8]),
    /// Nothing waits.
    Nothing,
    /// The kernel had to throw answers away.
    Overrun,
}

/// How the answers to a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// All came.
    Whole,
    /// What was asked for is not there.
    Missing,
    /// The ruleset changed meanwhile, or answers were lost: what came is not to be trusted.
    Interrupted,
}

impl NetfilterSocket {
    /// Opens the socket. `receive_buffer` is in bytes; less is taken where the kernel does not allow as much.
    pub(crate) fn open(receive_buffer: usize) -> Result<Self, Error> {
        let failed = |step| move |source: io::Error| Error::Open { step, source };
        let mut socket =
            Socket::new(NETLINK_NETFILTER).map_err(failed("socket(AF_NETLINK, NETLINK_NETFILTER)"))?;
        let mut address: SocketAddr = socket.bind_auto().map_err(failed("bind"))?;
        socket.get_address(&mut address).map_err(failed("getsockname"))?;
        socket.set_ext_ack(true).map_err(failed("NETLINK_EXT_ACK"))?;
        socket.set_cap_ack(true).map_err(failed("NETLINK_CAP_ACK"))?;
        if setsockopt(&socket, sockopt::RcvBufForce, &receive_buffer).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &receive_buffer)
                .map_err(|errno| failed("SO_RCVBUF")(errno.into()))?;
        }
        Ok(Self { port: address.port_number(), socket, seq: 1, send_buffer: 0, datagram: vec![0; DATAGRAM] })
    }

    /// Opens the socket for requests and their answers.
    pub(crate) fn for_requests() -> Result<Self, Error> {
        Self::open(RECEIVE_BUFFER)
    }

    /// Never waits from now on, so that a task can.
    pub(crate) fn never_wait(&self) -> Result<(), Error> {
        self.socket.set_non_blocking(true).map_err(|source| Error::Open { step: "O_NONBLOCK", source })
    }

    /// Joins a multicast group.
    pub(crate) fn join(&self, group: u32) -> Result<(), Error> {
        let joined = self.socket.add_membership(group);
        joined.map_err(|source| Error::Open { step: "NETLINK_ADD_MEMBERSHIP", source })
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&self, group: u32) -> Result<(), Error> {
        let left = self.socket.drop_membership(group);
        left.map_err(|source| Error::Open { step: "NETLINK_DROP_MEMBERSHIP", source })
    }

    /// The port that the kernel knows this socket by (`nl_pid`).
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// The first of `count` fresh sequence numbers, in a row.
    pub(crate) fn sequence(&mut self, count: u32) -> u32 {
        // Zero is what notices carry; a run never wraps around it.
        if self.seq.checked_add(count).is_none() {
            self.seq = 1;
        }
        let first = self.seq;
        self.seq += count;
        first
    }

    /// Sends one datagram, and makes the send buffer large enough for it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let failed = |source: io::Error| Error::Send { bytes: bytes.len(), source };
        if bytes.len() > self.send_buffer {
            // The kernel doubles the number; the overhead of a datagram is small against that.
            let wanted = (bytes.len() + 4096).max(1 << 18).min((i32::MAX / 2) as usize);
            if setsockopt(&self.socket, sockopt::SndBufForce, &wanted).is_err() {
                setsockopt(&self.socket, sockopt::SndBuf, &wanted).map_err(|errno| failed(errno.into()))?;
            }
            self.send_buffer = wanted;
        }
        loop {
            match self.socket.send(bytes, 0) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// One datagram of the kernel, without waiting. Netfilter answers before `send` returns and makes the next
    /// part of a dump before `recv` returns, so what does not wait here does not come.
    pub(crate) fn receive(&mut self) -> Result<Received<'_>, Error> {
        const EAGAIN: i32 = Errno::EAGAIN as i32;
        const ENOBUFS: i32 = Errno::ENOBUFS as i32;
        let flags = (MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC).bits();
        let len = loop {
            let mut room = &mut self.datagram[..];
            match self.socket.recv_from(&mut room, flags) {
                Ok((len, from)) if from.port_number() == 0 => break len,
                // Anybody may write to a port; only the kernel is listened to.
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(EAGAIN) => return Ok(Received::Nothing),
                    Some(ENOBUFS) => return Ok(Received::Overrun),
                    _ if error.kind() == io::ErrorKind::Interrupted => {}
                    _ => return Err(Error::Receive(error)),
                },
            }
        };
        match self.datagram.get(..len) {
            Some(datagram) => Ok(Received::Datagram(datagram)),
            None => Err(Error::Decode {
                what: format!("datagram of {len} bytes"),
                reason: format!("longer than {DATAGRAM} bytes"),
            }),
        }
    }

    /// Forgets every answer that still waits, so that none is taken for that of the next request.
    pub(crate) fn drain(&mut self) -> Result<(), Error> {
        while !matches!(self.receive()?, Received::Nothing) {}
        Ok(())
    }

    /// Sends one request that reads, and shows each answer to `each`.
    pub(crate) fn request(
        &mut self,
        what: &dyn std::fmt::Display,
        request: &mut [u8],
        each: &mut dyn FnMut(Message<'_>) -> Result<(), Error>,
    ) -> Result<Answered, Error> {
        const ENOENT: i32 = Errno::ENOENT as i32;
        const EINTR: i32 = Errno::EINTR as i32;
        self.drain()?;
        let seq = self.sequence(1);
        request[8..12].copy_from_slice(&seq.to_ne_bytes());
        self.send(request)?;
        let mut complete = true;
        loop {
            let datagram = match self.receive()? {
                Received::Datagram(datagram) => datagram,
                Received::Nothing | Received::Overrun => return Ok(Answered::Interrupted),
            };
            for message in wire::messages(datagram).filter(|message| message.seq == seq) {
                complete &= message.flags & wire::NLM_F_DUMP_INTR == 0;
                match message.kind {
                    wire::NLMSG_ERROR | wire::NLMSG_DONE => match message.errno() {
                        0 if complete => return Ok(Answered::Whole),
                        0 => return Ok(Answered::Interrupted),
                        ENOENT => return Ok(Answered::Missing),
                        EINTR => return Ok(Answered::Interrupted),
                        errno => return Err(Error::Read { what: what.to_string(), errno }),
                    },
                    wire::NLMSG_OVERRUN => return Ok(Answered::Interrupted),
                    _ => each(message)?,
                }
            }
        }
    }
}

impl AsFd for NetfilterSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

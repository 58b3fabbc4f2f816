//! Owns servers that say who they are and whom they see. Knows nothing of who dials them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::netns::{Netns, runtime};
use crate::{L4Proto, sctp};

/// What a server does with a dialler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Answers with one line, `NAME PEER`. TCP: on accept; then it echoes what comes, until the client closes.
    /// UDP: for each datagram. SCTP: in the cookie of its INIT ACK.
    Answer,
    /// Takes note of who came ([`Server::seen`]) and never says a word, as a sink of one-way senders does. TCP
    /// connections are accepted and kept.
    Silent,
}

/// A running server. Dropping it closes its sockets and connections, and waits until they are closed.
#[derive(Debug)]
pub struct Server {
    name: String,
    seen: Seen,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on each of the addresses, in a namespace; they are bound when this returns.
    pub fn start(
        ns: &Netns,
        style: Style,
        proto: L4Proto,
        at: &[SocketAddr],
        name: &str,
    ) -> Result<Self, Error> {
        let (ready, started) = mpsc::channel();
        let (stop, mut stopped) = oneshot::channel();
        let seen = Seen::default();
        let card = Card { name: Arc::from(name), style, seen: seen.clone() };
        let addrs = at.to_vec();
        let thread = ns.spawn(name, move || {
            runtime().block_on(async {
                let mut servers = tokio::task::JoinSet::new();
                for addr in addrs {
                    match bind(proto, addr) {
                        Ok(bound) => servers.spawn(serve(bound, addr, card.clone())),
                        Err(error) => {
                            let _ = ready.send(Err((addr, error)));
                            return;
                        }
                    };
                }
                let _ = ready.send(Ok(()));
                let _ = (&mut stopped).await;
            });
        });
        let server = Self { name: name.to_owned(), seen, stop: Some(stop), thread: Some(thread) };
        match started.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err((addr, error))) => Err(Error::os(ns.name(), format!("serve {proto} {addr}"), error)),
            Err(_) => Err(Error::os(ns.name(), format!("serve {proto}"), io::Error::other("thread ended"))),
        }
    }

    /// Its name, as its answers say it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who came so far, in order: each TCP connection, each UDP datagram, each SCTP INIT.
    pub fn seen(&self) -> Vec<SocketAddr> {
        self.seen.lock().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<SocketAddr>>>);

impl Seen {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
struct Card {
    name: Arc<str>,
    style: Style,
    seen: Seen,
}

impl Card {
    fn line(&self, peer: SocketAddr) -> String {
        format!("{} {peer}\n", self.name)
    }
}

enum Bound {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Sctp(UdpSocket),
}

fn bind(proto: L4Proto, addr: SocketAddr) -> io::Result<Bound> {
    match proto {
        L4Proto::Tcp => {
            let listener = std::net::TcpListener::bind(addr)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Bound::Tcp)
        }
        L4Proto::Udp => {
            let socket = std::net::UdpSocket::bind(addr)?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket).map(Bound::Udp)
        }
        L4Proto::Sctp => {
            let socket = sctp::raw_socket(addr)?;
            socket.bind(&SocketAddr::new(addr.ip(), 0).into())?;
            socket.set_nonblocking(true)?;
            // To the runtime one socket that takes datagrams is like another.
            UdpSocket::from_std(socket.into()).map(Bound::Sctp)
        }
    }
}

/// Serves until its runtime ends. Errors of one peer (a reset, an ICMP message) are that peer's alone.
async fn serve(bound: Bound, addr: SocketAddr, card: Card) {
    match bound {
        Bound::Tcp(listener) => loop {
            if let Ok((stream, peer)) = listener.accept().await {
                card.seen.lock().push(peer);
                tokio::spawn(attend(stream, peer, card.clone()));
            }
        },
        Bound::Udp(socket) => {
            let mut buffer = [0; 2048];
            loop {
                let Ok((_, peer)) = socket.recv_from(&mut buffer).await else { continue };
                card.seen.lock().push(peer);
                if card.style == Style::Answer {
                    let _ = socket.send_to(card.line(peer).as_bytes(), peer).await;
                }
            }
        }
        Bound::Sctp(socket) => {
            let mut buffer = [0; 2048];
            loop {
                let Ok((n, peer)) = socket.recv_from(&mut buffer).await else { continue };
                let Some((from, reply)) = sctp::reply(&buffer[..n], peer.ip(), addr.port(), &card.name)
                else {
                    continue;
                };
                card.seen.lock().push(from);
                if card.style == Style::Answer {
                    // A raw socket has no port to send to.
                    let _ = socket.send_to(&reply, SocketAddr::new(peer.ip(), 0)).await;
                }
            }
        }
    }
}

async fn attend(mut stream: TcpStream, peer: SocketAddr, card: Card) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if card.style == Style::Answer {
        stream.write_all(card.line(peer).as_bytes()).await?;
    }
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n if card.style == Style::Answer => stream.write_all(&buffer[..n]).await?,
            _ => {}
        }
    }
}

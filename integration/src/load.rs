//! Owns load that lasts: connections that talk without a pause, and new ones at a rate, with a count of what fails.
//! Knows nothing of what happens in the meantime.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::host::Host;
use crate::netns::runtime;
use crate::probe::{Outcome, answer};

/// Silence on an established connection, or on a dial, that counts as a failure.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause of an established connection between two exchanges.
const BREATH: Duration = Duration::from_millis(2);

/// TCP load on one address, to be started from a host.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    to: SocketAddr,
    established: usize,
    dials_per_second: u32,
}

impl LoadPlan {
    /// No load yet, on this address.
    pub const fn on(to: SocketAddr) -> Self {
        Self { to, established: 0, dials_per_second: 0 }
    }

    /// With this many connections that are made at the start and exchange a message every two milliseconds.
    pub const fn established(mut self, count: usize) -> Self {
        self.established = count;
        self
    }

    /// With this many new connections a second, each closed once it was answered.
    pub const fn dials_per_second(mut self, count: u32) -> Self {
        self.dials_per_second = count;
        self
    }

    /// Starts it from a host; all the established connections are up when this returns. Panics if one is not.
    #[track_caller]
    pub fn start(self, host: &Host) -> Load {
        let (ready, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let report = Shared::default();
        let shared = report.clone();
        let thread = host.ns().spawn("load", move || runtime().block_on(self.run(shared, ready, stopped)));
        match started.recv() {
            Ok(Ok(())) => Load { report, stop: Some(stop), thread: Some(thread) },
            Ok(Err(outcome)) => panic!("an established connection from {}: {outcome}", host.name()),
            Err(_) => panic!("the load from {} ended before it began", host.name()),
        }
    }

    async fn run(
        self,
        report: Shared,
        ready: mpsc::Sender<Result<(), Outcome>>,
        stopped: oneshot::Receiver<()>,
    ) {
        let mut tasks = JoinSet::new();
        for _ in 0..self.established {
            match timeout(PATIENCE, connect(self.to))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            {
                Ok((stream, by)) => {
                    *report.lock().established.entry(by.clone()).or_default() += 1;
                    tasks.spawn(talk(stream, by, report.clone()));
                }
                Err(error) => {
                    let _ = ready.send(Err(Outcome::from_error(&error)));
                    return;
                }
            }
        }
        if self.dials_per_second > 0 {
            tasks.spawn(dial_on(self.to, Duration::from_secs(1) / self.dials_per_second, report));
        }
        let _ = ready.send(Ok(()));
        let _ = stopped.await;
    }
}

/// Load that goes on until it is stopped or dropped.
#[derive(Debug)]
pub struct Load {
    report: Shared,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// What became of it so far: to wait for progress.
    pub fn so_far(&self) -> LoadReport {
        self.report.lock().clone()
    }

    /// Stops it, and says what became of it.
    pub fn stop(mut self) -> LoadReport {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

/// What became of a load.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// Connections made at the start, by who answered.
    pub established: BTreeMap<String, usize>,
    /// Messages that went there and came back on those, in all.
    pub exchanges: u64,
    /// The longest that one of those took.
    pub longest_exchange: Duration,
    /// Established connections that were reset, closed or silent for three seconds: who had answered, and why.
    pub broken: Vec<(String, Outcome)>,
    /// New connections that were answered, by who did.
    pub answered: BTreeMap<String, u64>,
    /// The longest that an answer took, from the first packet on.
    pub longest_dial: Duration,
    /// What became of the others.
    pub failed: Vec<Outcome>,
}

impl LoadReport {
    /// New connections that were answered, in all.
    pub fn dials_answered(&self) -> u64 {
        self.answered.values().sum()
    }

    /// Whether no established connection broke and no new one failed.
    pub const fn is_flawless(&self) -> bool {
        self.broken.is_empty() && self.failed.is_empty()
    }
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<LoadReport>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, LoadReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, and the name that it was answered with.
async fn connect(to: SocketAddr) -> io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    stream.set_zero_linger()?;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if stream.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let outcome = answer(&line)?;
    let by = outcome.by().unwrap_or_default().to_owned();
    Ok((stream, by))
}

/// Exchanges messages until one fails.
async fn talk(mut stream: TcpStream, by: String, report: Shared) {
    let mut tick = interval(BREATH);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let begin = Instant::now();
        match timeout(PATIENCE, exchange(&mut stream)).await {
            Ok(Ok(())) => {
                let mut report = report.lock();
                report.exchanges += 1;
                report.longest_exchange = report.longest_exchange.max(begin.elapsed());
            }
            Ok(Err(error)) => return report.lock().broken.push((by, Outcome::from_error(&error))),
            Err(_) => return report.lock().broken.push((by, Outcome::TimedOut)),
        }
    }
}

async fn exchange(stream: &mut TcpStream) -> io::Result<()> {
    let message = *b"still there?";
    stream.write_all(&message).await?;
    let mut echo = [0; 12];
    stream.read_exact(&mut echo).await?;
    if echo == message { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Makes new connections for ever, each in a task of its own so that a slow one holds up nobody.
async fn dial_on(to: SocketAddr, pause: Duration, report: Shared) {
    let mut tick = interval(pause);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let report = report.clone();
        tokio::spawn(async move {
            let begin = Instant::now();
            let outcome = timeout(PATIENCE, connect(to)).await;
            let mut report = report.lock();
            match outcome {
                Ok(Ok((_, by))) => {
                    *report.answered.entry(by).or_default() += 1;
                    report.longest_dial = report.longest_dial.max(begin.elapsed());
                }
                Ok(Err(error)) => report.failed.push(Outcome::from_error(&error)),
                Err(_) => report.failed.push(Outcome::TimedOut),
            }
        });
    }
}

//! Owns the measurement of stalls: a client outside pings a pod through the node a thousand times a second, while the node
//! programs 10,000 Services from nothing. Prints the longest round trips, idle and meanwhile. Knows nothing of kube-proxy.

use integration::synthetic::{cluster, empty, start};
use integration::{Family, World};
use std::error::Error;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(1);
const PORT: u16 = 7;
const ROUNDS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let services: usize = std::env::args().nth(1).map_or(Ok(10_000), |arg| arg.parse())?;
    let world = World::new("stall").nodes(1).only(Family::Ip).build();
    let (node, pod) = (world.node(0), world.node(0).pod("pod"));
    let at = pod.at(Family::Ip, PORT);
    let echo = pod.ns().spawn("echo", move || echo(at));
    println!("{:>28} {:>8} {:>6} {:>10} {:>10} {:>10}", "", "pings", "lost", "p50", "p99", "longest");
    let pings = Pings::start(&world, at);
    std::thread::sleep(Duration::from_secs(3));
    pings.stop("idle")?;

    let changes = cluster(services, 2);
    let pings = Pings::start(&world, at);
    node.run(|| -> Result<(), String> {
        for _ in 0..ROUNDS {
            empty()?;
            start(&changes)?.sync().map_err(|error| error.to_string())?;
        }
        Ok(())
    })?;
    pings.stop(&format!("{ROUNDS} × {services} Services"))?;
    drop(echo);
    Ok(())
}

/// Sends back whatever comes; ends with the program.
fn echo(at: SocketAddr) {
    let Ok(socket) = UdpSocket::bind(at) else { return };
    let mut buffer = [0; 64];
    while let Ok((n, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(&buffer[..n], from);
    }
}

/// A client that pings until it is stopped.
struct Pings {
    stop: Arc<AtomicBool>,
    client: JoinHandle<std::io::Result<Vec<Option<Duration>>>>,
}

impl Pings {
    fn start(world: &World, to: SocketAddr) -> Self {
        let client = world.client();
        client.routes_services_via(world.node(0));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let client = client.ns().spawn("pings", move || ping(to, &stopped));
        Self { stop, client }
    }

    fn stop(self, what: &str) -> Result<(), Box<dyn Error>> {
        self.stop.store(true, Ordering::Relaxed);
        let pings = self.client.join().map_err(|_| "the client ended")??;
        let mut times: Vec<Duration> = pings.iter().flatten().copied().collect();
        times.sort_unstable();
        let at = |percent: usize| {
            times.get(times.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
        };
        let us = |time: Duration| format!("{} µs", time.as_micros());
        let lost = pings.len() - times.len();
        println!(
            "{what:>28} {:>8} {lost:>6} {:>10} {:>10} {:>10}",
            pings.len(),
            us(at(50)),
            us(at(99)),
            us(at(100))
        );
        Ok(())
    }
}

/// One ping a millisecond, whatever becomes of the one before; the round trip of each, `None` if it never came back.
fn ping(to: SocketAddr, stop: &AtomicBool) -> std::io::Result<Vec<Option<Duration>>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    let began = Instant::now();
    let mut sent: Vec<Instant> = Vec::new();
    let mut trips: Vec<Option<Duration>> = Vec::new();
    let mut buffer = [0; 64];
    let mut receive = |until: Instant,
                       sent: &[Instant],
                       trips: &mut [Option<Duration>]|
     -> std::io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(n) => {
                    let number = buffer[..n].first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes));
                    let number = number.and_then(|number| usize::try_from(number).ok());
                    if let Some((number, at)) = number.and_then(|number| Some((number, sent.get(number)?))) {
                        trips[number] = Some(at.elapsed());
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    };
    while !stop.load(Ordering::Relaxed) {
        let number = sent.len() as u64;
        sent.push(Instant::now());
        trips.push(None);
        socket.send(&number.to_be_bytes())?;
        let next = began + INTERVAL * u32::try_from(sent.len()).unwrap_or(u32::MAX);
        receive(next, &sent, &mut trips)?;
    }
    receive(Instant::now() + Duration::from_millis(200), &sent, &mut trips)?;
    Ok(trips)
}

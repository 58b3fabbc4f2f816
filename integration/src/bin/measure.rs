//! Owns the measurement of one sync: from a change in the model to the kernel's acknowledgement, in a network namespace of its
//! own. Prints a table, and with `--json` a line for programs. Knows nothing of kube-proxy.

use integration::Netns;
use integration::synthetic::{cluster, empty, hosts, slice, start};
use proxier::sync::Syncer;
use std::error::Error;
use std::time::{Duration, Instant};

/// Changes that each percentile is taken from.
const CHANGES: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args().any(|arg| arg == "--json");
    let sizes: Vec<(usize, usize)> = match std::env::args().skip(1).find(|arg| !arg.starts_with("--")) {
        Some(sizes) => sizes.split(',').map(size).collect::<Result<_, _>>()?,
        None => vec![(1_000, 2), (10_000, 2), (30_000, 2), (5_000, 50), (1, 1_000)],
    };
    let ns = Netns::new("measure")?;
    let table = ns.run(|| -> Result<Vec<Row>, String> {
        sizes.iter().map(|(services, endpoints)| Row::measure(*services, *endpoints)).collect()
    })?;
    println!(
        "{:>9} {:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6}",
        "Services",
        "endpoints",
        "first sync",
        "restart",
        "replaced p50",
        "p99",
        "added p50",
        "removed p50",
        "chains",
        "rules"
    );
    for row in &table {
        println!(
            "{:>9} {:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6}",
            row.services,
            row.endpoints,
            ms(row.first),
            ms(row.restart),
            ms(row.replaced.0),
            ms(row.replaced.1),
            ms(row.added.0),
            ms(row.removed.0),
            row.chains,
            row.rules,
        );
        if json {
            println!("{}", row.json());
        }
    }
    Ok(())
}

fn size(text: &str) -> Result<(usize, usize), Box<dyn Error>> {
    let (services, endpoints) =
        text.split_once('x').ok_or_else(|| format!("{text:?} is not SERVICESxENDPOINTS"))?;
    Ok((services.parse()?, endpoints.parse()?))
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

#[derive(Debug)]
struct Row {
    services: usize,
    endpoints: usize,
    /// Medians over a few rounds.
    first: Duration,
    restart: Duration,
    /// p50 and p99.
    replaced: (Duration, Duration),
    added: (Duration, Duration),
    removed: (Duration, Duration),
    chains: usize,
    rules: usize,
}

impl Row {
    fn measure(services: usize, endpoints: usize) -> Result<Self, String> {
        const ROUNDS: usize = 5;
        let changes = cluster(services, endpoints);
        let (mut firsts, mut restarts) = (Vec::new(), Vec::new());
        let mut last = None;
        for _ in 0..ROUNDS {
            drop(last.take());
            empty()?;
            let mut syncer = start(&changes)?;
            firsts.push(timed(&mut syncer)?);
            // The same again on what is there: a restart of the program, which reads the kernel and writes nothing.
            let mut restarted = start(&changes)?;
            restarts.push(timed(&mut restarted)?);
            last = Some(restarted);
        }
        let mut syncer = last.ok_or("no rounds")?;
        let (mut replaced, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..CHANGES {
            let service = round * 7919 % services;
            let mut change = |hosts: Vec<u32>| -> Result<Duration, String> {
                let began = Instant::now();
                syncer.apply(slice(service, hosts));
                syncer.sync().map_err(|error| error.to_string())?;
                Ok(began.elapsed())
            };
            let usual: Vec<u32> = hosts(service, endpoints).collect();
            let mut other = usual.clone();
            other[0] = 0x0a_f8_00_00 + u32::try_from(round).unwrap_or(0) + 1;
            replaced.push(change(other.clone())?);
            other.push(0x0a_f9_00_00 + u32::try_from(round).unwrap_or(0) + 1);
            added.push(change(other.clone())?);
            other.pop();
            removed.push(change(other)?);
            change(usual)?;
        }
        let ruleset = integration::proxied::dump().map_err(|error| error.to_string())?;
        let chains = ruleset.tables.values().map(|table| table.chains.len()).sum();
        let rules =
            ruleset.tables.values().flat_map(|t| t.chains.values()).map(|chain| chain.rules.len()).sum();
        Ok(Self {
            services,
            endpoints,
            first: percentile(&mut firsts, 50),
            restart: percentile(&mut restarts, 50),
            replaced: (percentile(&mut replaced, 50), percentile(&mut replaced, 99)),
            added: (percentile(&mut added, 50), percentile(&mut added, 99)),
            removed: (percentile(&mut removed, 50), percentile(&mut removed, 99)),
            chains,
            rules,
        })
    }

    fn json(&self) -> String {
        let us = |time: Duration| time.as_micros();
        serde_json::json!({
            "services": self.services, "endpoints": self.endpoints,
            "first_sync_us": us(self.first), "restart_us": us(self.restart),
            "replaced_p50_us": us(self.replaced.0), "replaced_p99_us": us(self.replaced.1),
            "added_p50_us": us(self.added.0), "added_p99_us": us(self.added.1),
            "removed_p50_us": us(self.removed.0), "removed_p99_us": us(self.removed.1),
            "chains": self.chains, "rules": self.rules,
        })
        .to_string()
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default()
}

fn timed(syncer: &mut Syncer) -> Result<Duration, String> {
    let began = Instant::now();
    syncer.sync().map_err(|error| error.to_string())?;
    Ok(began.elapsed())
}

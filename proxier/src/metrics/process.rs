//! Owns the usual `process_*` metrics, read from the kernel at each scrape; knows nothing of other metrics.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::fs;

/// This process.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(figures) = figures() {
            let cpu = ConstCounter::new(figures.cpu_seconds);
            let descriptor = encoder.encode_descriptor(
                "process_cpu_seconds",
                "Total user and system CPU time spent in seconds",
                None,
                cpu.metric_type(),
            )?;
            cpu.encode(descriptor)?;
            for (name, help, value) in [
                ("process_resident_memory_bytes", "Resident memory size in bytes", figures.resident),
                ("process_virtual_memory_bytes", "Virtual memory size in bytes", figures.virtual_size),
                (
                    "process_start_time_seconds",
                    "Start time of the process since unix epoch in seconds",
                    figures.start_time,
                ),
            ] {
                gauge(&mut encoder, name, help, value)?;
            }
        }
        if let Ok(fds) = fs::read_dir("/proc/self/fd") {
            #[expect(clippy::cast_precision_loss, reason = "there are not that many")]
            let open = fds.count() as f64;
            gauge(&mut encoder, "process_open_fds", "Number of open file descriptors", open)?;
        }
        if let Some(most) = most_fds() {
            gauge(&mut encoder, "process_max_fds", "Maximum number of open file descriptors", most)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

struct Figures {
    cpu_seconds: f64,
    resident: f64,
    virtual_size: f64,
    start_time: f64,
}

/// proc_pid_stat(5): fields are counted from behind the command's name, which is in brackets and may hold anything.
fn figures() -> Option<Figures> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<f64> =
        stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    let ticks = ticks_per_second();
    let page = page_size();
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    // utime 14, stime 15, starttime 22, vsize 23, rss 24; the first here is field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Figures {
        cpu_seconds: (field(14)? + field(15)?) / ticks,
        resident: field(24)? * page,
        virtual_size: field(23)?,
        start_time: boot + field(22)? / ticks,
    })
}

fn ticks_per_second() -> f64 {
    sysconf(nix::unistd::SysconfVar::CLK_TCK).unwrap_or(100.0)
}

fn page_size() -> f64 {
    sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap_or(4096.0)
}

#[expect(clippy::cast_precision_loss, reason = "these are small")]
fn sysconf(variable: nix::unistd::SysconfVar) -> Option<f64> {
    nix::unistd::sysconf(variable).ok().flatten().map(|value| value as f64)
}

#[expect(clippy::cast_precision_loss, reason = "an approximate limit will do")]
fn most_fds() -> Option<f64> {
    use nix::sys::resource::{Resource, getrlimit};
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft as f64)
}

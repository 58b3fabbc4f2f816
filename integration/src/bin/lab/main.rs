//! Owns the lab as a program: a small cluster's network on this machine, a proxier on each of its nodes, and requests
//! that show what they do. Knows nothing of how the proxier does it.
#![forbid(unsafe_code)]

mod check;
mod ending;
mod requests;
mod stage;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use ending::Ending;
use stage::Stage;

/// A small cluster's network on this machine, without a cluster: two nodes, five pods and a client outside, each a
/// network namespace. Runs a proxier on each node, sends requests through it, and shows who answered, with which source
/// address, and what the kernel holds. Ending it leaves nothing behind.
#[derive(Debug, Parser)]
#[command(name = "lab", max_term_width = 100)]
struct Args {
    /// Leave the lab up after the requests, with the commands to look around, until Enter or Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Folder of manifests for the proxiers to run on; edit its files while the lab is up (--keep) and watch
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests"))]
    manifests: PathBuf,
    /// The proxier to run; default: the one that was built with this lab
    #[arg(long, value_name = "FILE")]
    proxier: Option<PathBuf>,
    /// Show the proxiers' logs at the end
    #[arg(long)]
    log: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let out = &mut io::stdout().lock();
    match run(&args, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = out.flush();
            let _ = writeln!(io::stderr(), "lab: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Why the lab did not get to its end.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Building it failed.
    #[error(transparent)]
    Lab(#[from] integration::Error),
    /// This machine lacks something.
    #[error("this machine cannot run it:\n{0}")]
    Missing(String),
    /// A proxier did not do its work.
    #[error("{0}")]
    Proxier(String),
    /// Nobody reads what it says.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let missing = check::missing();
    if !missing.is_empty() {
        return Err(Failure::Missing(missing.join("\n")));
    }
    let proxier = match &args.proxier {
        Some(file) => file.clone(),
        None => integration::parts::proxier()?,
    };
    let ending = Ending::on_signals()?;
    let mut stage = Stage::build()?;
    stage.describe(out)?;
    stage.start_proxiers(&proxier, &args.manifests, &ending)?;
    writeln!(out, "\nA proxier runs on each node, on the manifests in {}.\n", shown(&args.manifests))?;
    requests::send(&mut stage, out)?;
    stage.show_kernel(&proxier, out)?;
    if args.log {
        stage.show_logs(out)?;
    }
    if args.keep {
        stage.show_ways_in(out)?;
        out.flush()?;
        ending.wait();
    }
    Ok(())
}

/// A path as short as it can be said from here.
fn shown(path: &std::path::Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

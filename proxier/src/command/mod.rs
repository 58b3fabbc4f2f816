//! Owns the command line as a whole: subcommands, and kube-proxy's ways of writing flags; knows nothing of what the
//! commands do.

pub mod cleanup;
pub mod dump;
pub mod run;
pub mod trace;

use crate::config::Flags;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::path::Path;

#[derive(Debug, Parser)]
#[command(
    name = "proxier",
    about = "Serves Kubernetes Services on this node with nftables, in the place of kube-proxy",
    after_help = "Without a command: run. Installed as kube-proxy it takes that program's flags and no command.",
    args_override_self = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What the program is asked to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Serve Services on this node; takes kube-proxy's flags
    Run(Box<Flags>),
    /// Remove this program's rules, and those that kube-proxy left; exit code 1 if some could not be
    Cleanup(cleanup::CleanupFlags),
    /// Print what the kernel holds in our tables, in nft syntax
    Dump(dump::DumpFlags),
    /// Say what becomes of a packet, and by which rules
    Trace(trace::TraceFlags),
}

/// Names of the subcommands.
const COMMANDS: [&str; 4] = ["cleanup", "dump", "run", "trace"];

/// The name under which kube-proxy's manifests call the program.
const KUBE_PROXY: &str = "kube-proxy";

impl Command {
    /// From the arguments of the process, the program's own name included.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut cli = Cli::command();
        let matches = cli.try_get_matches_from_mut(arguments(args))?;
        let mut command = Cli::from_arg_matches(&matches)?.command;
        if let Self::Run(flags) = &mut command
            && let Some((name, matches)) = matches.subcommand()
            && let Some(subcommand) = cli.find_subcommand(name)
        {
            flags.set_given(given(subcommand, matches));
        }
        Ok(command)
    }
}

/// Long names of the flags that stood on the command line, and their values.
fn given(command: &clap::Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let value = |id: &str| {
        let values = matches.get_raw(id).into_iter().flatten();
        values.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(",")
    };
    command
        .get_arguments()
        .filter(|arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine))
        .filter_map(|arg| Some((arg.get_long()?.to_owned(), value(arg.get_id().as_str()))))
        .collect()
}

/// The arguments as clap is to see them: with a command, hyphens for underscores in flags, and without the empty
/// arguments that a template leaves behind.
fn arguments(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    let program = args.next().unwrap_or_else(|| "proxier".into());
    let rest: Vec<OsString> = args.collect();
    let is_kube_proxy = Path::new(&program).file_name() == Some(OsStr::new(KUBE_PROXY));
    let has_command = rest.first().is_some_and(|first| {
        COMMANDS.iter().any(|command| first == command) || first == "--help" || first == "-h"
    });
    let mut whole = vec![program];
    if is_kube_proxy || !has_command {
        whole.push("run".into());
    }
    let mut takes_value = false;
    for arg in rest {
        let text = arg.to_str().unwrap_or_default();
        if text.is_empty() && arg.is_empty() && !takes_value {
            continue;
        }
        takes_value = text.starts_with('-') && !text.contains('=');
        whole.push(normalized(&arg));
    }
    whole
}

fn normalized(arg: &OsStr) -> OsString {
    let Some(flag) = arg.to_str().and_then(|arg| arg.strip_prefix("--")) else { return arg.to_owned() };
    let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
    let name = name.replace('_', "-");
    match value {
        Some(value) => format!("--{name}={value}").into(),
        None => format!("--{name}").into(),
    }
}

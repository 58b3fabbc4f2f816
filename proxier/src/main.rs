//! Owns the start and the exit code of the program; knows nothing of what the commands do.
#![forbid(unsafe_code)]

use proxier::command::{Command, cleanup, dump, run, trace};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match Command::parse(std::env::args_os()) {
        Ok(Command::Run(flags)) => run::run(&flags).map_err(|error| error.to_string()),
        Ok(Command::Cleanup(flags)) => cleanup::run(&flags).map_err(|error| error.to_string()),
        Ok(Command::Dump(flags)) => dump::run(&flags).map_err(|error| error.to_string()),
        Ok(Command::Trace(flags)) => trace::run(&flags).map_err(|error| error.to_string()),
        Err(error) => return usage(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The log may not have begun; and whoever looks at a dead container looks here.
            let _ = writeln!(std::io::stderr(), "Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Help goes to standard output with exit code 0; a wrong flag to standard error with 1, as kube-proxy.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let rendered = error.render();
    let mut stderr = std::io::stderr();
    let text = if stderr.is_terminal() { rendered.ansi().to_string() } else { rendered.to_string() };
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let _ = writeln!(stderr, "Error: {text}");
    ExitCode::FAILURE
}

//! Owns `proxier cleanup`, and `--cleanup` of `proxier run`: removes rules and says what could not be removed. Knows nothing
//! of what rules look like.

use crate::config::Logging;
use crate::leftovers::{self, Failure, Scope};
use crate::logging;
use clap::Args;
use std::fmt;

/// Flags of `proxier cleanup`.
#[derive(Debug, Clone, Copy, Args)]
pub struct CleanupFlags {
    /// Remove this program's rules only, and leave kube-proxy's: to go back to a kube-proxy that runs already
    #[arg(long)]
    pub ours_only: bool,
}

/// Something could not be removed; all else was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanupError(Vec<Failure>);

impl std::error::Error for CleanupError {}

impl fmt::Display for CleanupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("encountered an error while tearing down rules")?;
        self.0.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// Removes our rules and, unless asked not to, what kube-proxy left. Neither the API server nor a configuration is needed.
///
/// # Errors
/// [`CleanupError`] with all that could not be removed.
pub fn run(flags: &CleanupFlags) -> Result<(), CleanupError> {
    // Without a log, what is removed is not said; all else is the same.
    let _ = logging::start(&Logging { json: false, verbosity: 0, vmodule: Vec::new() });
    remove(if flags.ours_only { Scope::Ours } else { Scope::All })
}

/// Removes what is asked for, once logging has begun.
///
/// # Errors
/// [`CleanupError`] with all that could not be removed.
pub fn remove(scope: Scope) -> Result<(), CleanupError> {
    let failures = leftovers::remove(scope);
    if failures.is_empty() { Ok(()) } else { Err(CleanupError(failures)) }
}

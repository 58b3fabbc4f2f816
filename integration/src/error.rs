//! Owns what can go wrong while a lab is built. Knows nothing of what tests find out in it.

use std::io;

/// A step of building the lab that failed. Tests mostly panic with it; the `lab` program prints it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process may not make network namespaces.
    #[error(
        "cannot make network namespaces: {reason}. Run as root (sudo), or allow unprivileged user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Privilege {
        /// What the kernel said, and to what.
        reason: String,
    },
    /// A step in a namespace failed at the operating system.
    #[error("namespace {namespace}: {step}: {source}")]
    Os {
        /// Name of the namespace.
        namespace: String,
        /// What was being done.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused a link, an address, a route or a neighbour.
    #[error("namespace {namespace}: {step}: {source}")]
    Wire {
        /// Name of the namespace.
        namespace: String,
        /// What was being done.
        step: String,
        /// What rtnetlink said.
        source: rtnetlink::Error,
    },
    /// A process did not start, or not become ready.
    #[error("{program}: {reason}")]
    Process {
        /// Name of the program.
        program: String,
        /// What happened, with the end of its log if there is one.
        reason: String,
    },
    /// A real part is not there.
    #[error("{part} is missing: {remedy}")]
    Missing {
        /// Name of the part.
        part: String,
        /// What to do.
        remedy: String,
    },
}

impl Error {
    pub(crate) fn os(namespace: &str, step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Os { namespace: namespace.to_owned(), step: step.into(), source: source.into() }
    }
}

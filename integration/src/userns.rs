//! Owns the way to the privilege for network namespaces: root's, or that of a user namespace entered before `main`.
//! Knows nothing of network namespaces themselves.
//!
//! A user namespace can be entered only while a process has one thread, and a test harness has more by the time a
//! test runs. So `enter` is a constructor of every program that links this library: it runs before `main`, and does
//! nothing where the privilege is already there. `cargo test`, an IDE's test button and a debugger all work as they
//! are; there is no runner to configure.
#![allow(unsafe_code)]

use std::fs;
use std::sync::OnceLock;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// `CAP_NET_ADMIN` (linux/capability.h).
const NET_ADMIN: u32 = 12;
/// `CAP_SYS_ADMIN` (linux/capability.h).
const SYS_ADMIN: u32 = 21;

static ENTERED: OnceLock<Result<(), String>> = OnceLock::new();

/// Whether this process may make network namespaces, as far as capabilities say; the error names what is missing.
pub fn privilege() -> Result<(), String> {
    if is_capable() {
        return Ok(());
    }
    match ENTERED.get() {
        Some(Err(reason)) => Err(reason.clone()),
        Some(Ok(())) | None => Err("no CAP_SYS_ADMIN and CAP_NET_ADMIN".to_owned()),
    }
}

/// Whether this process lives in a user namespace that `enter` made, so that `nsenter` must enter that one too.
pub fn is_entered() -> bool {
    matches!(ENTERED.get(), Some(Ok(())))
}

// SAFETY: `.init_array` holds pointers to functions of this type, which the C library calls once, before `main`, on
// the only thread; `enter` never unwinds, and uses nothing that needs `main` to have begun.
#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = enter;

/// Enters a user namespace as its root, unless this process has the capabilities already.
extern "C" fn enter() {
    if is_capable() {
        return;
    }
    let _ = ENTERED.set(become_root_of_a_new_one());
}

fn become_root_of_a_new_one() -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| format!("unshare(CLONE_NEWUSER): {error}"))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {uid} 1")),
        ("gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| format!("/proc/self/{file}: {error}"))?;
    }
    Ok(())
}

fn is_capable() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & (1 << NET_ADMIN) != 0 && mask & (1 << SYS_ADMIN) != 0)
    })
}

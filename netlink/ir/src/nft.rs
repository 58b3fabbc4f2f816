//! Owns the run of Debian's `nft` as a witness in tests, in a network namespace of its own. Knows nothing of
//! what is tested.

use std::io::Write;
use std::process::{Command, Stdio};

/// Checks a script with `nft -c` against an empty ruleset.
pub(crate) fn check(script: &str) -> Result<(), String> {
    run("nft -c -f -", script).map(drop)
}

/// Loads a script into an empty ruleset, and lists what is there then.
pub(crate) fn load_and_list(script: &str) -> Result<String, String> {
    run("nft -f - && nft list ruleset", script)
}

fn run(shell: &str, script: &str) -> Result<String, String> {
    let mut child = Command::new("unshare")
        .args(["-U", "-r", "-n", "sh", "-c", &format!("command -v nft >/dev/null || exit 77; {shell}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program `unshare` starts (Debian package util-linux)");
    // A refused script may end nft before it has read all; its answer says more than the broken pipe.
    let _ = child.stdin.take().expect("stdin is piped").write_all(script.as_bytes());
    let output = child.wait_with_output().expect("nft ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(
        output.status.code(),
        Some(77),
        "these tests need the program `nft` (Debian package nftables)"
    );
    assert!(
        !stderr.contains("unshare:") && !stderr.contains("Operation not permitted"),
        "these tests need user namespaces (sysctl user.max_user_namespaces, \
         kernel.unprivileged_userns_clone) or root: {stderr}"
    );
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(stderr)
    }
}

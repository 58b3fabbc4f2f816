//! Owns network namespaces for tests: each is one thread's, and gone with it. Knows nothing of what runs inside.

use nix::sched::{CloneFlags, unshare};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs a closure in a fresh network namespace on a thread of its own, and gives back what it returns. Processes
/// that it starts are in that namespace too.
///
/// # Panics
/// If the closure does, and without the privilege to make a namespace: a test that cannot run must not pass.
pub fn run<T: Send>(closure: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
                panic!(
                    "no network namespace: {errno}. Run the tests as root, or in a user namespace: \
                     unshare --user --map-root-user --net cargo test"
                );
            }
            closure()
        });
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs a program in the namespace of the calling thread, `input` on its standard input.
///
/// # Errors
/// What it wrote to standard error, if it failed or cannot be started.
pub fn command(program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.as_mut().map(|stdin| stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    let _ = writer.join();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

//! Owns a program that is run to its end in a namespace, such as nft. Knows nothing of which one.

use crate::host::Host;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where programs of administrators are; an ordinary user's PATH may lack these.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

impl Host {
    /// Runs a program in this namespace with this on its standard input, and returns its standard output; the error is what
    /// it said. A program without a folder is looked for where administrators' are. Panics if there is none.
    #[track_caller]
    pub fn try_shell(&self, program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let path =
            SYSTEM_FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file());
        let Some(path) = path else { panic!("there is no {program}: run ./setup test, which installs it") };
        let run = || {
            let mut child = Command::new(path)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // A program that does not read says why elsewhere.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        };
        match self.run(run) {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// As [`Host::try_shell`]; panics with what the program said if it fails.
    #[track_caller]
    pub fn shell(&self, program: &str, arguments: &[&str], input: &str) -> String {
        match self.try_shell(program, arguments, input) {
            Ok(output) => output,
            Err(error) => panic!("{}: {program} {arguments:?}: {error}", self.name()),
        }
    }
}

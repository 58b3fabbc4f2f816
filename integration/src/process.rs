//! Owns a program that runs in a namespace: its start, its log, its end. Knows nothing of which program it is.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::Error;
use crate::netns::Netns;
use crate::wait;

/// Lines of a process's log that are kept.
const LOG_LINES: usize = 20_000;
/// Lines of the log that a failing test shows.
const TAIL_LINES: usize = 40;

/// A child process in a namespace. It is killed when the value is dropped; if that is because the test failed, the
/// end of its log is printed.
#[derive(Debug)]
pub struct Process {
    program: String,
    child: Child,
    log: Log,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a program in a namespace, without standard input, with both outputs going to [`Process::log`].
    pub fn spawn(ns: &Netns, mut command: Command) -> Result<Self, Error> {
        let name = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
        let program = format!("{} in {}", name.to_string_lossy(), ns.name());
        let log = Log::default();
        let start = || -> io::Result<(Child, io::PipeReader)> {
            let (reader, writer) = io::pipe()?;
            command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
            // A child begins where the thread that made it is.
            let child = ns.run(|| command.spawn())?;
            // The command holds the pipe's other end, and with it the log open.
            drop(command);
            Ok((child, reader))
        };
        let (child, output) = start()
            .map_err(|error| Error::Process { program: program.clone(), reason: error.to_string() })?;
        let keep = log.clone();
        let reader = thread::spawn(move || keep.follow(output));
        Ok(Self { program, child, log, reader: Some(reader) })
    }

    /// Its program's name and its namespace, for messages.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote so far, to both outputs: the last 20,000 lines.
    pub fn log(&self) -> String {
        self.log.tail(LOG_LINES)
    }

    /// Waits for a line of the log that contains a text, and returns that line; panics after the deadline, or if the
    /// process ends before.
    #[track_caller]
    pub fn wait_for_line(&mut self, text: &str, deadline: Duration) -> String {
        self.wait_for_words(&[text], deadline)
    }

    /// Waits for a line of the log that holds all of these, and returns it. Panics after the deadline, or if the program ends
    /// before it said so.
    #[track_caller]
    pub fn wait_for_words(&mut self, words: &[&str], deadline: Duration) -> String {
        let what = format!("{words:?} in the log of {}", self.program);
        wait::until(&what, deadline, || {
            let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
            let found = self.log.lock().iter().find(has_all).cloned();
            if found.is_none() && !self.is_running() {
                panic!("{} ended before it said {words:?}", self.program);
            }
            found
        })
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        if let Err(error) = kill(Pid::from_raw(self.child.id().cast_signed()), signal) {
            panic!("{}: {signal}: {error}", self.program);
        }
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let program = self.program.clone();
        wait::until(&format!("the end of {program}"), deadline, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("still running".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    #[track_caller]
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(wait::SOON)
    }

    /// Ends it without asking (SIGKILL).
    pub fn kill(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(reader) = self.reader.take().filter(JoinHandle::is_finished) {
            let _ = reader.join();
        }
        if thread::panicking() {
            eprintln!("the last lines of {}:\n{}", self.program, self.log.tail(TAIL_LINES));
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, output: io::PipeReader) {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let mut lines = self.lock();
            if lines.len() == LOG_LINES {
                lines.pop_front();
            }
            lines.push_back(String::from_utf8_lossy(&line).into_owned());
        }
    }

    fn tail(&self, count: usize) -> String {
        let lines = self.lock();
        lines.iter().skip(lines.len().saturating_sub(count)).map(|line| format!("{line}\n")).collect()
    }
}

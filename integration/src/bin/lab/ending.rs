//! Owns the lab's end by a signal or by Enter: processes are ended, and with them the namespaces. Knows nothing of what
//! the processes are.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code of a program that a signal (2, SIGINT) ended, as shells say it.
const INTERRUPTED: i32 = 130;

/// Ends the processes that it knows, and this one, when SIGINT or SIGTERM comes.
#[derive(Debug)]
pub(crate) struct Ending {
    processes: Arc<Mutex<Vec<u32>>>,
    waits: Arc<Mutex<bool>>,
}

impl Ending {
    /// Listens for the signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let this = Self { processes: Arc::default(), waits: Arc::default() };
        let (processes, waits) = (this.processes.clone(), this.waits.clone());
        let (ready, started) = mpsc::channel();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let listened = listen(&ready);
            if listened.is_ok() {
                for pid in processes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    let pid = Pid::from_raw(pid.cast_signed());
                    // It may have ended by itself.
                    if kill(pid, Signal::SIGKILL).is_ok() {
                        let _ = waitpid(pid, None);
                    }
                }
                // Whoever kept the lab up ends it like this; before that it is an interruption.
                let waits = *waits.lock().unwrap_or_else(PoisonError::into_inner);
                std::process::exit(if waits { 0 } else { INTERRUPTED });
            }
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for signals ended")))?;
        Ok(this)
    }

    /// Adds a process to those to end.
    pub(crate) fn add(&self, pid: u32) {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    /// Waits for Enter, where there is somebody to press it; a signal ends the program as a whole.
    pub(crate) fn wait(&self) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let entered = io::stdin().is_terminal().then(|| io::stdin().read_line(&mut String::new()));
        if !matches!(entered, Some(Ok(read)) if read > 0) {
            loop {
                thread::park();
            }
        }
    }
}

/// Returns when one of the signals comes; what became of the listening itself goes through the channel.
fn listen(ready: &mpsc::Sender<io::Result<()>>) -> Result<(), ()> {
    let listening = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let signals = runtime.block_on(async {
            Ok::<_, io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
        })?;
        Ok((runtime, signals))
    });
    match listening {
        Ok((runtime, (mut interrupt, mut terminate))) => {
            let _ = ready.send(Ok(()));
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            Ok(())
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            Err(())
        }
    }
}

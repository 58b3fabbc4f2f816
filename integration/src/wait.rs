//! Owns waiting for a condition, with a deadline and with what was seen last. Knows nothing of what is waited for.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for what should take a moment, on a machine that is busy with other tests.
pub const SOON: Duration = Duration::from_secs(20);

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// What a look at the world says: the value that was waited for, or the state that it is not there in.
pub trait Observation {
    /// What is waited for.
    type Value;

    /// The value, or the state in words.
    fn settle(self) -> Result<Self::Value, String>;
}

impl<T> Observation for Option<T> {
    type Value = T;

    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing yet".to_owned())
    }
}

impl<T, E: Display> Observation for Result<T, E> {
    type Value = T;

    fn settle(self) -> Result<T, String> {
        self.map_err(|state| state.to_string())
    }
}

impl Observation for bool {
    type Value = ();

    fn settle(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("not yet".to_owned()) }
    }
}

/// Looks until the value is there, and returns it; panics after the deadline, with what was seen last.
#[track_caller]
pub fn until<O: Observation>(what: &str, deadline: Duration, look: impl FnMut() -> O) -> O::Value {
    match try_until(deadline, look) {
        Ok(value) => value,
        Err(state) => panic!("waited {deadline:?} for {what}; last seen: {state}"),
    }
}

/// Looks until the value is there, or the deadline is over; the error is what was seen last.
pub fn try_until<O: Observation>(
    deadline: Duration,
    mut look: impl FnMut() -> O,
) -> Result<O::Value, String> {
    let end = Instant::now() + deadline;
    loop {
        match look().settle() {
            Ok(value) => return Ok(value),
            Err(state) if Instant::now() >= end => return Err(state),
            Err(_) => thread::park_timeout(PAUSE),
        }
    }
}

//! A wall clock for single processes, which a test can set.
//!
//! Linux has one date for all processes, and the usual tools that change it for one process make Redis hang.
//! `machine_shim.c` beside this file is compiled when a test needs it and preloaded into the process, a
//! server or a client: it moves the date and leaves all other clocks alone.

use crate::options::Options;
use crate::shim::{Machine, Number};
use crate::wait;
use std::process::Command;
use std::time::Duration;

/// Longest time until a server sees a new date: Valkey 9 reads the clock once in a millisecond.
const LAG: Duration = Duration::from_millis(2);

/// A clock that a test can set. Servers get it by [`Options::clock`], other processes by
/// [`show_to`](Self::show_to).
#[derive(Debug, Default)]
pub struct Clock(Machine);

impl Clock {
    /// A clock with the machine's time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock `ahead_ms` milliseconds ahead of the machine's clock; negative values set it behind.
    /// Returns when each process sees the new date.
    pub fn set(&self, ahead_ms: i64) {
        self.begin_to_set(ahead_ms);
        wait::pass(LAG);
    }

    /// Sets the clock and returns at once: a server may use the old date for another moment.
    pub fn begin_to_set(&self, ahead_ms: i64) {
        self.0.set(Number::DateAheadUs, ahead_ms * 1000);
    }

    /// Makes the program use this clock. The clock must outlive the program.
    pub fn show_to(&self, command: &mut Command) {
        command.envs(self.0.variables.clone());
    }
}

impl Options {
    /// Makes the server use the given clock. The clock must outlive the server.
    pub fn clock(self, clock: &Clock) -> Self {
        self.machine(&clock.0)
    }
}

//! A wall clock of a process's own, which a test can set.
//!
//! The date of the machine cannot be changed for one process, and tools that try make Redis hang.
//! `clock_shim.c` beside this file is compiled when a test needs it and preloaded into the process,
//! a server or a client: it moves the date and leaves all other clocks alone.

use crate::options::Options;
use crate::{shim, wait};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Valkey 9 looks at the clock once in a millisecond.
const LAG: Duration = Duration::from_millis(2);

/// A clock that can be set, of all processes that it was given to: by [`Options::clock`] servers,
/// by [`show_to`](Self::show_to) others.
#[derive(Debug)]
pub struct Clock {
    file: File,
    library: PathBuf,
    dir: TempDir,
}

impl Default for Clock {
    fn default() -> Self {
        let dir = TempDir::with_prefix("kvlock-clock-").expect("a temporary folder");
        let library = shim::compile("clock_shim.c", dir.path());
        let file = File::create(offset_path(dir.path())).expect("make the file of a clock");
        let clock = Self { file, library, dir };
        clock.set(0);
        clock
    }
}

impl Clock {
    /// One that shows the time of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets it that many milliseconds ahead of the machine's, or behind, and returns when
    /// each process sees that.
    pub fn set(&self, ahead_ms: i64) {
        self.begin_to_set(ahead_ms);
        wait::pass(LAG);
    }

    /// Sets it and returns at once: a server may go by the date of before for another moment.
    pub fn begin_to_set(&self, ahead_ms: i64) {
        let us = ahead_ms * 1000;
        self.file.write_all_at(&us.to_ne_bytes(), 0).expect("set a clock");
    }

    /// Lets that program see this clock, which must outlive it.
    pub fn show_to(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    fn variables(&self) -> [(&'static str, PathBuf); 2] {
        let offset = offset_path(self.dir.path());
        [("LD_PRELOAD", self.library.clone()), ("KVLOCK_CLOCK_FILE", offset)]
    }
}

impl Options {
    /// Starts the server with that clock, which must outlive it.
    pub fn clock(self, clock: &Clock) -> Self {
        clock.variables().into_iter().fold(self, |options, (name, value)| options.env(name, value))
    }
}

fn offset_path(dir: &Path) -> PathBuf {
    dir.join("offset")
}

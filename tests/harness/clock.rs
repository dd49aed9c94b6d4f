//! A wall clock of a server's own, which a test can set.
//!
//! The date of the machine cannot be changed for one process, and tools that try make Redis hang.
//! `clock_shim.c` beside this file is compiled when a test needs it and preloaded into the server:
//! it moves the date and leaves all other clocks alone.

use crate::kind::workspace;
use crate::options::Options;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A clock that can be set, of all servers that [`Options::clock`] was given it for.
#[derive(Debug)]
pub struct Clock {
    file: File,
    dir: TempDir,
}

impl Default for Clock {
    fn default() -> Self {
        let dir = TempDir::with_prefix("kvlock-clock-").expect("a temporary folder");
        compile_shim(dir.path());
        let file = File::create(offset_path(dir.path())).expect("make the file of a clock");
        let clock = Self { file, dir };
        clock.set(0);
        clock
    }
}

impl Clock {
    /// One that shows the time of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets it to so many milliseconds ahead of the machine's, or behind. It takes effect at once.
    pub fn set(&self, ahead_ms: i64) {
        let us = ahead_ms * 1000;
        self.file.write_all_at(&us.to_ne_bytes(), 0).expect("set a clock");
    }
}

impl Options {
    /// Starts the server with that clock, which must outlive it.
    pub fn clock(self, clock: &Clock) -> Self {
        let dir = clock.dir.path();
        self.env("LD_PRELOAD", shim_path(dir)).env("KVLOCK_CLOCK_FILE", offset_path(dir))
    }
}

fn offset_path(dir: &Path) -> PathBuf {
    dir.join("offset")
}

fn shim_path(dir: &Path) -> PathBuf {
    dir.join("shim.so")
}

fn compile_shim(dir: &Path) {
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    compile.arg(shim_path(dir)).arg(workspace().join("tests/harness/clock_shim.c"));
    let done = compile.status().unwrap_or_else(|e| panic!("{compile:?}: {e}"));
    assert!(done.success(), "{compile:?}: {done}");
}

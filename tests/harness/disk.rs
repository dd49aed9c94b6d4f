//! A disk for one server, which a test can slow down, and whose power it can cut.
//!
//! `machine_shim.c` beside this file is compiled when a test needs it, and preloaded into the server. It
//! delays each `fsync` by a time that the test sets, and records how much of the append-only file is synced.
//! A loss of power loses the rest of the file.

use crate::options::Options;
use crate::server::Server;
use crate::shim::{Machine, Number};
use crate::{observe, wait};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// The disk of one server, passed to it by [`Options::disk`].
#[derive(Debug, Default)]
pub struct Disk(Machine);

impl Disk {
    /// A disk as fast as the machine's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Delays each later `fsync` by the given time.
    pub fn delay_syncs(&self, by: Duration) {
        let us = i64::try_from(by.as_micros()).expect("less than ages");
        self.0.set(Number::SyncDelayUs, us);
    }

    /// Waits until the effects of all answered commands are on disk. With `everysec` that takes about one
    /// second.
    pub fn wait_until_synced(&self, server: &Server) {
        let (file, mut eye) = (append_only_file(server.dir()), server.connect());
        wait::until("the append-only file is synced", LIMIT, || {
            // During a sync the server may keep commands in a buffer and not write them to the file.
            let unwritten = observe::info_number(&mut eye, "aof_buffer_length");
            let (size, synced) = (fs::metadata(&file).expect("its size").len(), self.synced());
            let seen = format!("{synced} of {size} bytes, {unwritten} to write");
            if unwritten == 0 && synced == size { Ok(()) } else { Err(seen) }
        });
    }

    fn synced(&self) -> u64 {
        self.0.get(Number::Synced).cast_unsigned()
    }

    /// Ends the server as a loss of power would: only the synced part of its append-only file is left.
    /// For servers that have not rewritten that file.
    pub fn cut_power(&self, server: &Server) {
        server.kill9();
        let file = append_only_file(server.dir());
        let file = File::options().write(true).open(file).expect("open the append-only file");
        // A server that finds a truncated command at the end of the file cuts it off.
        let size = file.metadata().expect("its size").len();
        file.set_len(self.synced().min(size)).expect("cut the append-only file");
    }
}

impl Options {
    /// Makes the server use that disk, which must outlive the server. Cannot be combined with a clock.
    pub fn disk(self, disk: &Disk) -> Self {
        self.machine(&disk.0)
    }
}

/// Path of the append-only file to which the server in the folder `dir` writes.
pub fn append_only_file(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("appendonlydir")).expect("the folder of append-only files");
    let mut files = files.map(|file| file.expect("a file").path());
    files
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .expect("a file that is appended to")
}

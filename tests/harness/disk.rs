//! A disk of a server's own, which a test can slow down, and whose power it can cut.
//!
//! `disk_shim.c` beside this file is compiled when a test needs it and preloaded into the server. It
//! makes each `fsync` take longer, and takes down how much of the append-only file is synced; the
//! rest is what a loss of power loses.

use crate::options::Options;
use crate::server::Server;
use crate::{observe, shim, wait};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);

/// The disk of the one server that [`Options::disk`] was given it for.
#[derive(Debug)]
pub struct Disk {
    file: File,
    library: PathBuf,
    dir: TempDir,
}

impl Default for Disk {
    fn default() -> Self {
        let dir = TempDir::with_prefix("kvlock-disk-").expect("a temporary folder");
        let library = shim::compile("disk_shim.c", dir.path());
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(numbers_path(dir.path()));
        let file = file.expect("make the file of a disk");
        file.write_all_at(&[0; 16], 0).expect("write the file of a disk");
        Self { file, library, dir }
    }
}

impl Disk {
    /// One that is as fast as the machine's.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has each `fsync` that begins from now on take that much longer.
    pub fn delay_syncs(&self, by: Duration) {
        let us = i64::try_from(by.as_micros()).expect("less than ages");
        self.file.write_all_at(&us.to_ne_bytes(), 0).expect("slow a disk down");
    }

    /// Waits until all that the server has answered is safe, which takes a second with `everysec`.
    pub fn wait_until_synced(&self, server: &Server) {
        let (file, mut eye) = (append_only_file(server.dir()), server.connect());
        wait::until("the append-only file is synced", LIMIT, || {
            // While a sync is under way, the server puts off even to write.
            let unwritten = observe::info_number(&mut eye, "aof_buffer_length");
            let (size, synced) = (fs::metadata(&file).expect("its size").len(), self.synced());
            let seen = format!("{synced} of {size} bytes, {unwritten} to write");
            if unwritten == 0 && synced == size { Ok(()) } else { Err(seen) }
        });
    }

    fn synced(&self) -> u64 {
        let mut synced = [0; 8];
        self.file.read_exact_at(&mut synced, 8).expect("ask a disk");
        u64::from_ne_bytes(synced)
    }

    /// Ends the server as a loss of power would: nothing is left of its append-only file but what
    /// was synced. For servers that have not rewritten that file.
    pub fn cut_power(&self, server: &Server) {
        server.kill9();
        let file = append_only_file(server.dir());
        let file = File::options().write(true).open(file).expect("open the append-only file");
        // A server that finds its file torn makes it shorter.
        let size = file.metadata().expect("its size").len();
        file.set_len(self.synced().min(size)).expect("cut the append-only file");
    }
}

impl Options {
    /// Starts the server with that disk, which must outlive it; not together with a clock.
    pub fn disk(self, disk: &Disk) -> Self {
        self.env("LD_PRELOAD", &disk.library).env("KVLOCK_DISK_FILE", numbers_path(disk.dir.path()))
    }
}

/// The file to which a server that works in `dir` appends.
pub fn append_only_file(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("appendonlydir")).expect("the folder of append-only files");
    let mut files = files.map(|file| file.expect("a file").path());
    files
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .expect("a file that is appended to")
}

fn numbers_path(dir: &Path) -> PathBuf {
    dir.join("numbers")
}

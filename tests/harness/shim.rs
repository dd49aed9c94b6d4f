//! Small libraries in C: one that is preloaded into a process to change its date and delay its disk syncs, and
//! a module that calls commands.

use crate::kind::workspace;
use crate::module_file::target;
use crate::options::Options;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

/// The fields of `struct machine` in `machine_shim.c`, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    DateAheadUs,
    SyncDelayUs,
    Synced,
}

/// The date and the disk delay that some processes see. Must outlive these processes.
#[derive(Debug)]
pub(crate) struct Machine {
    numbers: File,
    /// Environment variables for a process that uses it.
    pub(crate) variables: [(&'static str, PathBuf); 2],
    _dir: TempDir,
}

impl Default for Machine {
    /// A machine with the real date, without delays.
    fn default() -> Self {
        let dir = TempDir::with_prefix("kvlock-machine-").expect("a temporary folder");
        let path = dir.path().join("numbers");
        let mut options = File::options();
        let numbers = options.read(true).write(true).create_new(true).open(&path);
        let library = compile("machine_shim.c", dir.path());
        let variables = [("LD_PRELOAD", library), ("KVLOCK_MACHINE_FILE", path)];
        let machine = Self { numbers: numbers.expect("make a machine"), variables, _dir: dir };
        machine.set(Number::Synced, 0);
        machine
    }
}

impl Machine {
    pub(crate) fn set(&self, number: Number, value: i64) {
        self.numbers.write_all_at(&value.to_ne_bytes(), number as u64 * 8).expect("set a machine");
    }

    pub(crate) fn get(&self, number: Number) -> i64 {
        let mut value = [0; 8];
        self.numbers.read_exact_at(&mut value, number as u64 * 8).expect("ask a machine");
        i64::from_ne_bytes(value)
    }
}

impl Options {
    pub(crate) fn machine(self, machine: &Machine) -> Self {
        machine.variables.iter().fold(self, |options, (name, value)| options.env(name, value))
    }
}

/// The module that calls commands, compiled once per process.
static CALLER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = TempDir::new_in(target()).expect("a temporary folder");
    // Each run replaces the previous run's file.
    let module = target().join("caller.so");
    fs::rename(compile("caller.c", folder.path()), &module).expect("put the module in its place");
    module.canonicalize().expect("the path of the module")
});

impl Options {
    /// Loads another module as well, which calls commands: see `caller.c`.
    pub fn caller(self, argument: &str) -> Self {
        self.config("loadmodule", format_args!("{} {argument}", CALLER.display()))
    }
}

/// Compiles a file of this folder to a library in `dir`, and returns the library's path.
fn compile(source: &str, dir: &Path) -> PathBuf {
    let library = dir.join("shim.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    compile.arg(&library).arg(workspace().join("tests/harness").join(source));
    let done = compile.status().unwrap_or_else(|e| panic!("{compile:?}: {e}"));
    assert!(done.success(), "{compile:?}: {done}");
    library
}

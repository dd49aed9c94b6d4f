//! Small libraries in C: those that are preloaded into a server, to change what it sees of its machine,
//! and a module that calls commands.

use crate::kind::workspace;
use crate::module_file::target;
use crate::options::Options;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

/// The other module, compiled once.
static CALLER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = TempDir::new_in(target()).expect("a temporary folder");
    // Every run replaces the file of the one before.
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

/// Compiles that file of this folder, and returns the library, which is in `dir`.
pub(crate) fn compile(source: &str, dir: &Path) -> PathBuf {
    let library = dir.join("shim.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    compile.arg(&library).arg(workspace().join("tests/harness").join(source));
    let done = compile.status().unwrap_or_else(|e| panic!("{compile:?}: {e}"));
    assert!(done.success(), "{compile:?}: {done}");
    library
}

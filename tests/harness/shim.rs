//! Small libraries in C that are preloaded into a server, to change what it sees of its machine.

use crate::kind::workspace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles that file of this folder, and returns the library, which is in `dir`.
pub(crate) fn compile(source: &str, dir: &Path) -> PathBuf {
    let library = dir.join("shim.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    compile.arg(&library).arg(workspace().join("tests/harness").join(source));
    let done = compile.status().unwrap_or_else(|e| panic!("{compile:?}: {e}"));
    assert!(done.success(), "{compile:?}: {done}");
    library
}

//! Where the module under test is.

use crate::kind::workspace;
use std::path::PathBuf;

/// The `kvlock.so` that servers load: what `KVLOCK_MODULE` names, else the one that
/// `scripts/build` left in cargo's target folder. A missing file is a panic that says what to run,
/// never a skipped test.
pub fn path() -> PathBuf {
    find("KVLOCK_MODULE", "kvlock.so", "scripts/build")
}

/// The same with the feature `planted`, for tests of what happens when the module has a bug: what
/// `KVLOCK_PLANTED_MODULE` names, else what `scripts/build --planted` left.
pub fn planted_path() -> PathBuf {
    find("KVLOCK_PLANTED_MODULE", "kvlock-planted.so", "scripts/build --planted")
}

fn find(variable: &str, name: &str, built_by: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| in_target(name), PathBuf::from);
    assert!(path.exists(), "{} is not there: run `{built_by}`", path.display());
    // The server resolves it in a folder of its own.
    path.canonicalize().expect("the path of the module")
}

fn in_target(name: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    workspace().join(target).join(name)
}

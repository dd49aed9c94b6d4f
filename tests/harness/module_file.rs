//! The file of the module under test.

use crate::kind::workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

#[path = "../../module/sources.rs"]
mod sources;

/// Path of the `kvlock.so` that servers load: the file that `KVLOCK_MODULE` names, else the file that
/// `scripts/build` made in cargo's target folder. Panics with the command to run if the file of
/// `scripts/build` is missing, or was not built from the current sources.
pub fn path() -> PathBuf {
    static BUILT: LazyLock<PathBuf> =
        LazyLock::new(|| built(&target(), "kvlock.so", "scripts/build"));
    named("KVLOCK_MODULE").unwrap_or_else(|| BUILT.clone())
}

/// Path of the module with the feature `provoke`, in which a test can cause failures such as panics: the file
/// that `KVLOCK_PROVOKE_MODULE` names, else the file that `scripts/build --provoke` made.
pub fn provoke_path() -> PathBuf {
    static BUILT: LazyLock<PathBuf> =
        LazyLock::new(|| built(&target(), "kvlock-provoke.so", "scripts/build --provoke"));
    named("KVLOCK_PROVOKE_MODULE").unwrap_or_else(|| BUILT.clone())
}

/// The file that this environment variable names, if it is set. Its age is not checked.
fn named(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    // An absolute path, since the server runs in another folder.
    Some(path.canonicalize().unwrap_or_else(|e| panic!("{variable}: {}: {e}", path.display())))
}

pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    workspace().join(named.unwrap_or_else(|| PathBuf::from("target")))
}

/// Path of the module of the given name in the given folder. Panics if the module is missing, or was not built
/// from the current sources.
pub fn built(target: &Path, name: &str, built_by: &str) -> PathBuf {
    let path = target.join(name);
    let Ok(module) = fs::read(&path) else {
        panic!("{} is not there: run `{built_by}`", path.display())
    };
    let now = sources::fingerprint(&workspace().join("module")).expect("read the sources");
    let says = module.windows(now.len()).any(|bytes| bytes == now.as_bytes());
    assert!(says, "{} is not of the module's sources now: run `{built_by}`", path.display());
    path.canonicalize().expect("the path of the module")
}

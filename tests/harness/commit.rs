//! Which commit of the project this is.

use std::path::Path;
use std::process::Command;

/// As short as git makes it, and whether the files are other ones.
pub(crate) fn commit() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "no commit".to_owned();
    };
    let changed = git(&["status", "--porcelain"]).is_none_or(|changes| !changes.is_empty());
    format!("commit {commit}{}", if changed { " with changes" } else { "" })
}

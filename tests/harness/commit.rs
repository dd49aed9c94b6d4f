//! The tested commit of the project.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

fn git(words: &[&str]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit, abbreviated by git, followed by "with changes" if git lists changed or untracked files outside
/// the folder `docs`. "no commit" if git reports none. Cached after the first call.
pub fn commit() -> &'static str {
    static FIRST: OnceLock<String> = OnceLock::new();
    FIRST.get_or_init(look)
}

fn look() -> String {
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "no commit".to_owned();
    };
    let files = ["status", "--porcelain", "--", ":/", ":(top,exclude)docs"];
    let changed = git(&files).is_none_or(|changes| !changes.is_empty());
    format!("{commit}{}", if changed { " with changes" } else { "" })
}

/// Returns whether the project has that commit.
pub fn exists(commit: &str) -> bool {
    git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_some()
}

/// Returns whether the checked out commit is the given commit, or one of its descendants.
pub fn is_ancestor(commit: &str) -> bool {
    git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_some()
}

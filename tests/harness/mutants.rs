//! Results of `scripts/test mutants --publish`: a line for each source file in `docs/evidence/mutants.tsv`, and
//! the table of `docs/evidence.md` that is rendered from it.

use crate::kind::workspace;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

/// The mutants of one source file.
#[derive(Debug)]
pub struct Mutants {
    /// Path from the root of the workspace.
    pub file: String,
    /// Commit whose tests ran.
    pub commit: String,
    noticed: u64,
    missed: u64,
    /// The changes that no test noticed, separated by semicolons.
    survivors: String,
}

/// All published counts, by file.
///
/// # Panics
///
/// If the table is missing, or a line of it has another form.
#[must_use]
pub fn published() -> Vec<Mutants> {
    let path = workspace().join("docs/evidence/mutants.tsv");
    let text = fs::read_to_string(path).expect("read the table of mutants");
    text.lines().map(|line| parse(line).unwrap_or_else(|| panic!("not a row: {line}"))).collect()
}

fn parse(line: &str) -> Option<Mutants> {
    let [file, commit, noticed, missed, survivors] = line.split('\t').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    Some(Mutants {
        file: file.to_owned(),
        commit: commit.to_owned(),
        noticed: noticed.parse().ok()?,
        missed: missed.parse().ok()?,
        survivors: survivors.to_owned(),
    })
}

/// The table for `docs/evidence.md`, followed by the files of the core that have no counts.
pub(crate) fn table() -> String {
    let folders = ["module/core/src", "module/core/src/arguments"];
    let names = |folder| {
        let files = fs::read_dir(workspace().join(folder)).expect("the sources of the core");
        files.map(move |file| format!("{folder}/{}", file.expect("a source").file_name().display()))
    };
    rendered(
        &published(),
        folders.into_iter().flat_map(names).filter(|it| it.ends_with(".rs")).collect(),
    )
}

fn rendered(published: &[Mutants], mut untried: BTreeSet<String>) -> String {
    let mut text = "| file | commit | noticed | not noticed |\n|---|---|---|---|\n".to_owned();
    for Mutants { file, commit, noticed, missed, survivors } in published {
        untried.remove(file);
        let survivors: String = survivors
            .split_terminator(';')
            .map(|change| format!("<br>`{}`", change.replace('|', "\\|")))
            .collect();
        writeln!(
            text,
            "| `{file}` | {commit} | {noticed} of {} | {missed}{survivors} |",
            noticed + missed
        )
        .expect("it is text");
    }
    for file in untried {
        writeln!(text, "| `{file}` | – | not tried | |").expect("it is text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_named_and_files_without_counts_are_listed() {
        let line = "src/a.rs\t1234567\t8\t2\treplace && with || in f;replace > with >= in g";
        let files = ["src/a.rs", "src/b.rs"].map(str::to_owned);
        let text = rendered(&[parse(line).unwrap()], files.into());
        let row = "| `src/a.rs` | 1234567 | 8 of 10 | 2<br>`replace && with \\|\\| in f`<br>`replace > with >= in g` |";
        assert!(text.contains(row), "{text}");
        assert!(text.ends_with("| `src/b.rs` | – | not tried | |\n"), "{text}");
        assert!(parse("src/a.rs\t1234567\t8").is_none());
    }
}

//! Results of `scripts/test mutants --publish`: a line for each source file in `docs/evidence/mutants.tsv`, and
//! the table of `docs/evidence.md` that is rendered from it.

use crate::kind::workspace;
use std::fmt::Write as _;
use std::fs;

/// The mutants of one source file.
#[derive(Debug)]
pub struct Mutants {
    /// Path from the root of the workspace.
    pub file: String,
    /// Commit whose tests ran. If it is two commits with `..` between them, the tests of the second ran, and only
    /// mutants of the lines that had changed since the first were tested.
    pub commit: String,
    noticed: usize,
    /// The changes that no test noticed.
    survivors: Vec<String>,
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
    let mut words = line.split('\t').map(str::to_owned);
    let (file, commit) = (words.next()?, words.next()?);
    Some(Mutants { file, commit, noticed: words.next()?.parse().ok()?, survivors: words.collect() })
}

/// The table for `docs/evidence.md`.
pub(crate) fn table(published: &[Mutants]) -> String {
    let mut text = "| file | commit | noticed | not noticed |\n|---|---|---|---|\n".to_owned();
    for Mutants { file, commit, noticed, survivors } in published {
        let all = noticed + survivors.len();
        let survivors: Vec<_> =
            survivors.iter().map(|change| format!("`{}`", change.replace('|', "\\|"))).collect();
        let survivors = survivors.join("<br>");
        writeln!(text, "| `{file}` | {commit} | {noticed} of {all} | {survivors} |")
            .expect("it is text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_counted_and_named() {
        let line = "src/a.rs\t1234567\t8\treplace && with || in f\treplace g with [0; 2]";
        let row = "| `src/a.rs` | 1234567 | 8 of 10 | `replace && with \\|\\| in f`<br>`replace g with [0; 2]` |\n";
        assert!(
            table(&[parse(line).unwrap()]).ends_with(row),
            "{}",
            table(&[parse(line).unwrap()])
        );
        let row = "| `src/b.rs` | 1234567 | 9 of 9 |  |\n";
        assert!(table(&[parse("src/b.rs\t1234567\t9").unwrap()]).ends_with(row));
        assert!(parse("src/a.rs\t1234567").is_none());
    }
}

//! Checks that measured figures are only in rendered tables, and that each table of benchmarks names one
//! commit.
//!
//! A figure in prose goes out of date without notice. Numbers that are settings, limits, or aims may be in
//! prose: each page has a list of these.

use super::read;
use harness::commit::is_ancestor;
use harness::kind::workspace;
use std::collections::BTreeSet;

/// Pages, and the numbers with units that they may contain outside of rendered tables and code.
const PAGES: [(&str, &[&str]); 5] = [
    ("README.md", &["10,000 ms", "5,000 ms"]),
    (
        "docs/performance.md",
        &[
            "0.5 s",
            "1 ms",
            "1.5 s",
            "10 seconds",
            "100 ms",
            "15 minutes",
            "16 KiB",
            "2 ms",
            "2 s",
            "20 ms",
            "3 s",
            "30 s",
            "300 ms",
            "50 ms",
        ],
    ),
    ("docs/guarantees.md", &["1 %", "1.5 times", "100 ms", "12 s", "16 s", "2 ms", "2 s", "20 ms"]),
    (
        "docs/evidence.md",
        &[
            "0.2 s",
            "0.3 s",
            "1 ms",
            "1 s",
            "1 times",
            "1.5 s",
            "100 MiB",
            "100 ms",
            "18 %",
            "2 s",
            "20 ms",
            "20 times",
            "200 ms",
            "200 times",
            "4 s",
            "5 s",
            "56 %",
            "600 ms",
        ],
    ),
    (
        "docs/operations.md",
        &[
            "1 ms",
            "2 ms",
            "10 s",
            "100 ms",
            "20 ms",
            "24 hours",
            "30 seconds",
            "300 seconds",
            "350 MB",
            "350 bytes",
            "4,096 bytes",
            "4.117 seconds",
            "400 bytes",
            "5 ms",
            "55,000 bytes",
            "550 MB",
            "64 times",
        ],
    ),
];

/// Units of times, sizes, rates and ratios.
const UNITS: [&str; 23] = [
    "us",
    "ms",
    "s",
    "seconds",
    "minutes",
    "hours",
    "days",
    "bytes",
    "KiB",
    "MiB",
    "GiB",
    "KB",
    "MB",
    "kB",
    "%",
    "x",
    "times",
    "instructions",
    "commands",
    "grants",
    "milliseconds",
    "microseconds",
    "percent",
];

/// Beginnings of comments. After such a comment, text is written by a program, up to the next comment that
/// begins otherwise.
const RENDERED: [&str; 5] =
    ["bench:begin", "others:begin", "instructions:begin", "campaign ", "matrix"];

/// Characters around a word that do not belong to it.
const AROUND: [char; 11] = ['(', ')', '[', ']', '.', ',', ';', ':', '*', '|', '–'];

/// The lines of a page that are written by hand, without code.
fn prose(page: &str) -> Vec<(usize, String)> {
    let (mut is_code, mut is_rendered) = (false, false);
    let mut lines = Vec::new();
    for (number, line) in page.lines().enumerate() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            is_rendered = RENDERED.iter().any(|mark| comment.starts_with(mark));
        } else if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !is_rendered {
            let words: Vec<_> = line.split('`').step_by(2).collect();
            lines.push((number + 1, words.join(" ")));
        }
    }
    lines
}

/// The numbers with a unit in a line, as `10 ms`, even if the line has no space between number and unit.
fn figures(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = line.split_whitespace().map(|word| word.trim_matches(AROUND)).peekable();
    while let Some(word) = words.next() {
        let digits = word.find(|c: char| !c.is_ascii_digit() && !",.".contains(c));
        let (number, rest) = word.split_at(digits.unwrap_or(word.len()));
        let unit = if rest.is_empty() { words.peek().copied().unwrap_or_default() } else { rest };
        if number.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit) {
            found.push(format!("{number} {unit}"));
        }
    }
    found
}

#[test]
fn a_figure_is_a_number_with_a_unit() {
    let line = "It takes 1,000 ms (2.25x), **80 %** of 3 and version 9.1.x of `x`: 5s, 20 times.";
    assert_eq!(figures(line), ["1,000 ms", "2.25 x", "80 %", "5 s", "20 times"]);
}

#[test]
fn prose_has_no_measured_figure() {
    for (name, allowed) in PAGES {
        let page = read(&workspace().join(name));
        let found: Vec<(usize, String)> = prose(&page)
            .into_iter()
            .flat_map(|(number, line)| figures(&line).into_iter().map(move |it| (number, it)))
            .collect();
        let strange: Vec<_> =
            found.iter().filter(|(_, figure)| !allowed.contains(&figure.as_str())).collect();
        assert!(strange.is_empty(), "{name}: measured? Then they belong into a table: {strange:?}");
        let is_used = |it: &&&str| found.iter().any(|(_, figure)| figure == **it);
        let unused: Vec<_> = allowed.iter().filter(|it| !is_used(it)).collect();
        assert!(unused.is_empty(), "{name} does not contain {unused:?}");
    }
}

#[test]
fn each_table_of_benchmarks_names_one_commit_of_this_branch() {
    for name in ["README.md", "docs/performance.md"] {
        let page = read(&workspace().join(name));
        let tables = page.split("<!-- ").skip(1).filter(|part| part.contains(":begin"));
        for table in tables {
            let title = table.lines().next().unwrap_or_default();
            let commits: BTreeSet<_> = commits(table).collect();
            assert_eq!(commits.len(), 1, "{name}, {title}: {commits:?}");
            let all = commits.iter().all(|commit| is_ancestor(commit));
            assert!(all, "{name}, {title}: {commits:?} is no commit of this branch");
        }
    }
}

/// The commits in a text: words of at least seven hexadecimal digits after the word `at`.
fn commits(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split([' ', '\n', '|', ',']).filter(|word| !word.is_empty());
    let pairs = words.clone().zip(words.skip(1)).filter(|(at, _)| *at == "at").map(|(_, it)| it);
    pairs.filter(|it| it.len() >= 7 && it.chars().all(|c| c.is_ascii_hexdigit()))
}

/// The commits in a table: words of seven or eight hexadecimal digits, with a letter and a decimal digit.
fn in_table(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| row.split(|c: char| !c.is_ascii_alphanumeric()));
    let is_commit = |word: &&str| {
        let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
        let is_hex = word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        (7..=8).contains(&word.len())
            && is_hex
            && has(char::is_ascii_digit)
            && has(char::is_ascii_lowercase)
    };
    words.filter(is_commit).collect()
}

#[test]
fn commits_in_tables_are_of_this_branch() {
    let named =
        in_table("| a bug | fixed in 3af2860, 1000000 times |\nnot a table: 4b30a07\n| deadbee |");
    assert_eq!(named, BTreeSet::from(["3af2860"]));
    for name in ["docs/evidence.md", "docs/operations.md", "docs/guarantees.md"] {
        let page = read(&workspace().join(name));
        let named = in_table(&page);
        let unknown: Vec<_> = named.iter().filter(|commit| !is_ancestor(commit)).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?} are no commits of this branch");
    }
}

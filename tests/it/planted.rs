//! `tests/planted.txt` names every bug that can be planted, and no other.

use harness::kind::workspace;
use std::collections::BTreeSet;
use std::fs;

/// The names between the quotes of the list of bugs.
fn bugs() -> BTreeSet<String> {
    let source = fs::read_to_string(workspace().join("module/core/src/planted.rs")).unwrap();
    let list = source.split("\nbugs! {\n").nth(1).expect("the list of bugs");
    let lines = list.lines().take_while(|line| *line != "}");
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// The rows of the table, each cut into words.
fn rows() -> Vec<Vec<String>> {
    let table = fs::read_to_string(workspace().join("tests/planted.txt")).unwrap();
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn every_bug_has_a_test_that_finds_it_and_every_row_a_bug() {
    let bugs = bugs();
    assert!(!bugs.is_empty());
    let named: BTreeSet<String> = rows().into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(named, bugs);
    for row in rows() {
        assert!(["kvlock-core", "kvlock-tests"].contains(&row[1].as_str()), "{row:?}");
        assert!(row.len() >= 3, "no test: {row:?}");
    }
}

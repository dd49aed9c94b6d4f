//! `tests/planted.txt` names every bug that can be planted, and no other; `tests/kills.txt` says which
//! parts of the tests find it.

use harness::kind::workspace;
use harness::{Server, Value, cmd, module_file};
use std::collections::BTreeSet;
use std::fs;

/// The names between the quotes of the list of bugs.
fn bugs() -> BTreeSet<String> {
    let source = fs::read_to_string(workspace().join("module/core/src/planted.rs")).unwrap();
    let list = source.split("\nbugs! {\n").nth(1).expect("the list of bugs");
    let lines = list.lines().take_while(|line| *line != "}");
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// The rows of a table, each cut into words.
fn rows_of(table: &str) -> Vec<Vec<String>> {
    let table = fs::read_to_string(workspace().join(table)).unwrap();
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
}

fn rows() -> Vec<Vec<String>> {
    rows_of("tests/planted.txt")
}

/// The parts of the tests, in the order of the columns of `tests/kills.txt`.
const PARTS: [&str; 9] =
    ["core", "it", "simulation", "chaos", "rounds", "scripts", "crashes", "holders", "fuzz"];

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

#[test]
fn the_matrix_says_what_finds_a_bug() {
    let matrix = rows_of("tests/kills.txt");
    // A bug that is new has no row until the script has tried it.
    let known: BTreeSet<_> = matrix.iter().map(|row| row[0].clone()).collect();
    assert!(known.is_subset(&bugs()), "not bugs: {:?}", known.difference(&bugs()));
    for row in &matrix {
        assert_eq!(row.len(), 1 + PARTS.len(), "{row:?}");
        assert!(row[1..3].contains(&"+".to_owned()), "found by luck alone: {row:?}");
    }
    for named in rows() {
        let part = match (&*named[1], named[2].starts_with("campaign::")) {
            ("kvlock-core", _) => "core",
            (_, true) => "scripts",
            (_, false) => "it",
        };
        let column = PARTS.iter().position(|it| *it == part).unwrap();
        let Some(row) = matrix.iter().find(|row| row[0] == named[0]) else { continue };
        assert_ne!(row[1 + column], "-", "{named:?} finds it, but the matrix does not say so");
    }
}

#[test]
fn only_the_build_for_tests_can_be_told_to_panic() {
    let server = Server::start();
    let mut control = server.connect();
    assert_eq!(control.run("LOCK.PANIC command").code(), "ERR");
    assert_eq!(control.run("MODULE UNLOAD kvlock"), Value::Status("OK".into()));
    let path = module_file::path().display().to_string();
    assert!(control.call(cmd!["MODULE", "LOAD", path, "provoke", "load"]).is_error());
    assert!(!server.log().contains("panic"), "{}", server.log());
    assert_eq!(control.call(cmd!["MODULE", "LOAD", path]), Value::Status("OK".into()));
}

//! The patches in `tests/planted` apply to the sources, and each names the tests that find its bug.
//! `tests/kills.txt` lists the parts of the tests that find each bug.

use harness::kind::workspace;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The parts of the tests that a patch can name. `scripts/test planted` runs them.
const PARTS: [&str; 9] =
    ["unit", "core", "crate", "quorum", "it", "client", "model", "simulation", "campaign"];

/// Every patch by its name.
fn patches() -> BTreeMap<String, PathBuf> {
    let folders = ["client", "module"].map(|folder| workspace().join("tests/planted").join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let named = files.map(|file| {
        let path = file.unwrap().path();
        assert!(path.extension().is_some_and(|it| it == "patch"), "no patch: {path:?}");
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)
    });
    named.collect()
}

/// The lines of a patch before its first diff.
fn header(patch: &str) -> Vec<&str> {
    patch.lines().take_while(|line| !line.starts_with("diff ")).collect()
}

#[test]
fn every_patch_applies_to_the_product_code() {
    let patches = patches();
    assert!(patches.len() > 80, "{}", patches.len());
    let bad = patches.values().filter(|path| {
        let mut check = Command::new("git");
        check.args(["apply", "--check"]).arg(path).current_dir(workspace());
        let output = check.output().unwrap();
        if !output.status.success() {
            println!("{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
        }
        !output.status.success()
    });
    let bad: Vec<_> = bad.collect();
    assert!(bad.is_empty(), "make these patches again, so that they plant the same bug: {bad:?}");
    for (name, path) in patches {
        let patch = fs::read_to_string(path).unwrap();
        let files = patch.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        for file in files {
            let is_product =
                ["module/core/src/", "module/src/", "client/src/", "client/quorum/src/"];
            assert!(is_product.iter().any(|of| file.starts_with(of)), "{name} changes {file}");
        }
    }
}

#[test]
fn every_patch_describes_its_bug_and_names_tests() {
    for (name, path) in patches() {
        let patch = fs::read_to_string(path).unwrap();
        let header = header(&patch);
        let sentences: Vec<_> = header.iter().take_while(|line| !line.is_empty()).collect();
        let ends = sentences.last().is_some_and(|line| line.ends_with('.'));
        assert!(ends, "{name}: no sentence says what it is");
        let found: Vec<_> =
            header.iter().filter_map(|line| line.strip_prefix("Found by ")).collect();
        assert!(!found.is_empty(), "{name}: found by no test");
        for line in found {
            let (test, words) = line.split_once(": ").expect("the words of the failure");
            let (part, what) = test.split_once(' ').expect("a part and a test");
            assert!(PARTS.contains(&part), "{name}: {line}");
            assert!(!what.is_empty() && words.len() > 4, "{name}: {line}");
        }
    }
}

#[test]
fn the_matrix_has_a_row_for_every_patch() {
    let matrix = fs::read_to_string(workspace().join("tests/kills.txt")).unwrap();
    let rows = matrix.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    let names: Vec<_> = rows.iter().map(|row| row[0]).collect();
    let patches = patches();
    let mut wanted: Vec<_> = patches.keys().map(String::as_str).collect();
    wanted.sort_by_key(|name| (patches[*name].parent().map(PathBuf::from), *name));
    assert_eq!(names, wanted);
    // The columns, and the commit of each.
    let named = |first: &str| {
        let line = matrix.lines().find_map(|line| line.strip_prefix(first));
        line.unwrap_or_else(|| panic!("no line {first}")).split_whitespace().count()
    };
    let columns = named("# part ");
    assert_eq!(named("# at "), columns);
    for row in &rows {
        assert_eq!(row.len(), 1 + columns, "{row:?}");
        assert!(row[1..].iter().all(|cell| ["+", "-", "?", "."].contains(cell)), "{row:?}");
        assert!(row[1..].iter().any(|cell| ["+", "?"].contains(cell)), "found by nothing: {row:?}");
    }
}

//! A server that dies: what it knows afterwards, and whether anything is granted twice. Short runs
//! of `scripts/campaign crashes`.

mod torn;

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crashes")).args(arguments).output().unwrap()
}

/// Each row that is tried must see that the server died, and what that costs without a promise.
fn try_some(rows: &str) {
    let output =
        run(&["--only", rows, "--times", "2", "--grants", "500", "--seed", "1", "--jobs", "3"]);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{rows}: {}\n{out}\n{err}", output.status);
    assert!(out.lines().any(|line| line.contains(rows)), "{out}");
}

#[test]
fn a_server_that_is_killed_forgets_no_more_than_it_may() {
    try_some("kill/");
}

#[test]
fn a_loss_of_power_costs_no_more_than_it_may() {
    try_some("power/");
}

#[test]
fn a_wrong_option_is_refused() {
    let output = run(&["--only", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("kill/no-file, ") && err.contains("Usage: crashes"), "{err}");
}

//! Short runs of `scripts/campaign failovers`: that a fault happened, that the zeros which are promised are
//! zeros, and that tokens grow.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_failovers")).args(arguments).output().unwrap()
}

fn assert_right(arguments: &[&str]) {
    let output = run(arguments);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{arguments:?}: {}\n{out}\n{err}", output.status);
}

fn try_once(scenario: &str) {
    assert_right(&["--zeros", "--scenario", scenario]);
}

#[test]
fn grants_that_no_replica_has_heard_of() {
    try_once("lost-link");
}

#[test]
fn grants_that_the_promoted_replica_has_not_heard_of() {
    try_once("stale");
}

#[test]
fn a_primary_that_stood_still_while_it_was_replaced() {
    try_once("paused");
}

#[test]
fn a_primary_that_is_cut_off_with_some_of_its_clients() {
    try_once("partition");
}

#[test]
fn coordinated_failovers_under_load() {
    try_once("coordinated");
}

#[test]
fn a_rolling_restart_under_load() {
    try_once("rolling");
}

#[test]
fn servers_whose_clocks_are_apart() {
    try_once("clocks");
}

#[test]
fn a_service_goes_on_through_failovers() {
    assert_right(&["--service", "--seconds", "20"]);
}

#[test]
fn a_wrong_option_is_refused() {
    let output = run(&["--scenario", "none"]);
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("[possible values: lost-link, stale, "), "{err}");
}

//! Short runs of `scripts/campaign holders`: that a fault happened, that no two clients believed at once,
//! and that nothing stale was accepted; and proof that it would have been seen.

use harness::module_file;
use std::process::{Command, Output};

fn holders(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holders"));
    command.args(["--seed", "1", "--scenario"]).args(arguments);
    command
}

fn said(mut command: Command) -> (Output, String) {
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = format!("{command:?}: {}\n{out}\n{err}", output.status);
    (output, text)
}

fn run(arguments: &[&str]) -> (Output, String) {
    said(holders(arguments))
}

/// The number before that.
fn count(text: &str, what: &str) -> u64 {
    let line = text.lines().find(|line| {
        line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with(what)
    });
    let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {what} in {text}"))
}

fn right(arguments: &[&str]) -> String {
    let (output, text) = run(arguments);
    assert!(output.status.success(), "{text}");
    assert!(count(&text, "grants whose beliefs were checked") > 0, "{text}");
    text
}

#[test]
fn holders_that_are_killed_leave_their_locks_to_the_first_in_line() {
    right(&["killed", "--kills", "2", "--at-once", "1"]);
}

#[test]
fn holders_that_were_stopped_write_nothing_stale() {
    let text = right(&["stopped", "--stops", "4", "--at-once", "2", "--tries", "500"]);
    let of = |what: &str| count(&text, &format!("careless holders, store that {what}"));
    assert_eq!(of("looks at tokens: stale writes taken"), 0, "{text}");
    // The same writes at the other store show that they were stale.
    assert!(of("looks at tokens: stale writes refused") >= 1000, "{text}");
    assert!(of("does not look: stale writes taken") >= 1000, "{text}");
}

#[test]
fn a_waiter_that_is_stopped_costs_its_offer() {
    right(&["waiting", "--stops", "1", "--at-once", "1"]);
}

#[test]
fn the_date_of_the_clients_has_no_say() {
    right(&["dates", "--seconds", "3"]);
}

#[test]
fn holders_without_processor_time_do_not_overlap() {
    right(&["starved", "--seconds", "2"]);
}

#[test]
fn holders_whose_runtime_is_blocked_do_not_overlap() {
    right(&["blocked", "--seconds", "2"]);
}

#[test]
fn clients_that_are_killed_stopped_and_cut_off_do_not_overlap() {
    let text = right(&["mixture", "--seconds", "4", "--grants", "500"]);
    for fault in ["clients killed", "clients stopped", "connections cut"] {
        assert!(count(&text, fault) > 0, "{text}");
    }
}

#[test]
fn clients_that_count_validity_wrongly_are_found() {
    let (output, text) = run(&["mixture", "--seconds", "2", "--grants", "400", "--wrong-clock"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("VIOLATION Overlap: "), "{text}");
}

#[test]
fn the_last_in_line_being_served_first_is_found() {
    let mut command = holders(&["killed", "--kills", "1", "--at-once", "1"]);
    command.env("KVLOCK_MODULE", module_file::planted_path()).env("KVLOCK_PLANTED", "lifo");
    let (output, text) = said(command);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("VIOLATION Fifo: "), "{text}");
}

#[test]
fn a_wrong_option_is_refused() {
    let (output, text) = run(&["none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("[possible values: killed, stopped, waiting, "));
}

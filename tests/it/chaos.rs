//! A short run of `scripts/campaign chaos`, and proof that it would have seen a bug.

use crate::campaign::count;
use harness::module_file;
use std::process::{Command, Output};

/// Few enough clients that the other tests get their share of the machine.
const CLIENTS: &str = "16";

fn chaos(seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command.args(["--seconds", seconds, "--seed", "1", "--clients", CLIENTS]);
    command
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}\n{err}", output.status)
}

#[test]
fn ten_seconds_of_it_break_no_rule() {
    let output = chaos("10").output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" 0 violations, 0 crashes"), "{text}");
    for figure in [
        "fault: CLIENT KILL in the turn of a hand-off",
        "fault: connection reset by a waiter",
        "fault: a reader away and back",
        "fault: a reader replaced",
        "fault: SESSION.CLOSE",
        "lock: grants",
        "shared: shared grants",
        "shared: grants to one alone",
        "shared: downgrades",
        "semaphore: grants",
        "latch: waiters released",
        "quiet: grants",
        "waits through a session",
        "moments in which locks were left to scripts",
        "scripts: grants",
    ] {
        assert!(count(&text, figure) > 0, "{figure}: {text}");
    }
    let of_a_stranger =
        |line: &&str| line.contains("  fault: ") && line.ends_with(" by a stranger");
    assert!(text.lines().any(|line| of_a_stranger(&line)), "{text}");
}

/// It ends at the first violation, which is in the first round or soon after.
fn sees(bug: &str, violation: &str) {
    let module = module_file::planted_path();
    let mut command = chaos("90");
    let output = command.env("KVLOCK_MODULE", module).env("KVLOCK_PLANTED", bug).output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{bug} is not seen: {text}");
    assert!(text.contains(&format!("VIOLATION {violation}")), "{bug} is not seen: {text}");
}

#[test]
fn it_sees_the_last_waiter_being_served_first() {
    sees("lifo", "Fifo");
}

#[test]
fn it_sees_a_newcomer_overtake_those_who_wait() {
    sees("overtaking", "Fifo");
}

#[test]
fn it_sees_a_release_by_somebody_else() {
    sees("release-any-owner", "Stale");
}

#[test]
fn it_sees_what_may_be_wrong_with_sessions() {
    for bug in
        ["outcome-twice", "lost-at-takeover", "away-granted", "session-outlives", "foreign-session"]
    {
        sees(bug, "session");
    }
    sees("written-taken-back", "Exclusion");
}

#[test]
fn it_sees_who_comes_back_left_out() {
    sees("place-lost", "");
}

#[test]
fn it_sees_a_lock_left_to_scripts_for_ever() {
    sees("moment-never-ends", "Prompt");
}

#[test]
fn it_sees_permits_that_are_left_to_the_dead() {
    sees("dead-keep-permits", "the permits of");
}

#[test]
fn it_sees_a_reader_overtake_a_writer() {
    sees("reader-overtakes", "Fifo");
}

#[test]
fn it_sees_a_writer_among_readers() {
    sees("writer-among-readers", "Exclusion");
}

#[test]
fn it_sees_one_permit_too_many() {
    sees("one-permit-too-many", "Permits");
}

#[test]
fn it_sees_a_large_request_overtaken_by_small_ones() {
    sees("permits-overtake", "Fifo");
}

#[test]
fn it_sees_a_participant_count_twice() {
    sees("counts-twice", "Latch");
}

#[test]
fn it_sees_a_free_lock_being_refused() {
    sees("refuses-free", "Refusal");
}

#[test]
fn a_wrong_option_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_chaos")).arg("--sed").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("Usage: chaos"));
}

//! A short run of `scripts/campaign chaos`, and proof that it would have seen a bug.

use crate::campaign::{campaign, count, planted, right, sees_one_of};

#[test]
fn ten_seconds_of_it_break_no_rule() {
    let text = right(&["chaos", "--seconds", "10", "--seed", "1"]);
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
        "quiet: semaphores replaced",
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
    sees_either(bug, &[violation]);
}

/// The same of one that may show in several ways.
fn sees_either(bug: &str, violations: &[&str]) {
    sees_one_of(planted(campaign(&["chaos", "--seconds", "90", "--seed", "1"]), bug), violations);
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
        sees(bug, "Surprise: session");
    }
    sees("written-taken-back", "Exclusion");
}

#[test]
fn it_sees_who_comes_back_left_out() {
    sees("place-lost", "");
}

#[test]
fn it_sees_a_lock_left_to_scripts_for_ever() {
    // Who waits is late, or, without a limit, never answered.
    sees_either("moment-never-ends", &["Prompt", "Answered"]);
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
fn it_sees_a_repetition_take_more_permits() {
    sees("drain-takes-twice", "Surprise: r");
}

#[test]
fn it_sees_a_reader_left_in_line() {
    sees("one-reader-only", "Surprise: r");
}

#[test]
fn it_sees_one_semaphore_taken_for_another() {
    sees("remembers-for-ever", "Surprise: scratch-semaphore");
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

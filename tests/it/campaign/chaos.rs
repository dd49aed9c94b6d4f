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

/// One bug for each rule that it judges by; `scripts/test planted --matrix chaos` tries all bugs. It ends
/// at the first violation, which is in the first round or soon after.
macro_rules! it_sees {
    ($($name:ident: $bug:literal $($violation:literal)|+;)+) => {
        $(
            #[test]
            fn $name() {
                let run = campaign(&["chaos", "--seconds", "90", "--seed", "1"]);
                sees_one_of(planted(run, $bug), &[$($violation),+]);
            }
        )+
    };
}

it_sees! {
    it_sees_the_last_waiter_being_served_first: "lifo" "Fifo";
    it_sees_a_release_by_somebody_else: "release-any-owner" "Stale";
    it_sees_an_outcome_told_twice: "outcome-twice" "Surprise: session";
    it_sees_a_grant_taken_back_that_was_written: "written-taken-back" "Exclusion";
    // Who waits is late, or, without a limit, never answered.
    it_sees_a_lock_left_to_scripts_for_ever: "moment-never-ends" "Prompt" | "Answered";
    it_sees_one_permit_too_many: "one-permit-too-many" "Permits";
    it_sees_a_participant_count_twice: "counts-twice" "Latch";
    it_sees_a_reader_left_in_line: "one-reader-only" "Surprise: r";
    it_sees_one_semaphore_taken_for_another: "remembers-for-ever" "Surprise: scratch-semaphore";
    it_sees_a_free_lock_being_refused: "refuses-free" "Refusal";
}

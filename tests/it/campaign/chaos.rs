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

/// It ends at the first violation. `scripts/test planted --matrix chaos` tries all bugs.
#[test]
fn it_sees_the_last_waiter_being_served_first() {
    let run = campaign(&["chaos", "--seconds", "90", "--seed", "1"]);
    sees_one_of(planted(run, "lifo"), &["Fifo"]);
}

//! The same for locks that are shared, permits and latches.

use super::Rule;
use super::planted::{acquire, believing, break_it, call, finds, granted, ms, passes, release};
use super::planted::{renew, rules, unknown, wait};
use crate::history::{Call, Outcome, Request};

const LEASE: u64 = 100;

fn share(owner: &str, sent: u64, answered: u64, token: u64, holds: u64) -> Call {
    let request = Request::Share { lease: ms(LEASE), timeout: None };
    call(owner, request, sent, answered, Outcome::Granted { token, holds })
}

/// A wait to share of at most 50 ms that was in line two milliseconds after it was sent.
fn wait_to_share(owner: &str, sent: u64, answered: u64, outcome: Outcome) -> Call {
    let request = Request::Share { lease: ms(LEASE), timeout: Some(ms(50)) };
    Call { queued: Some(ms(sent + 2)), ..call(owner, request, sent, answered, outcome) }
}

fn unshare(owner: &str, sent: u64, answered: u64, left: u64) -> Call {
    call(owner, Request::ReleaseShare, sent, answered, Outcome::Released { left })
}

#[test]
fn a_clean_history_of_readers_and_writers_passes() {
    passes(&[
        believing(share("r1", 0, 1, 10, 1), 95),
        believing(share("r2", 2, 3, 10, 1), 95),
        share("r2", 4, 5, 10, 2),
        wait("w", 6, 21, granted(11)),
        wait_to_share("r3", 9, 25, granted(12)),
        wait_to_share("r4", 12, 26, granted(12)),
        renew("r1", 13, 14, Outcome::Done),
        unshare("r2", 15, 16, 1),
        unshare("r2", 17, 18, 0),
        unshare("r1", 19, 20, 0),
        release("w", 23, 24, 0),
        unshare("r3", 27, 28, 0),
        // One of them comes again while the other is there.
        share("r3", 29, 30, 12, 1),
        unshare("r3", 31, 32, 0),
        unshare("r4", 33, 34, 0),
    ]);
}

#[test]
fn a_writer_among_readers_is_found() {
    finds(Rule::Exclusion, &[share("r", 0, 1, 10, 1), acquire("w", 50, 51, 11, 1)]);
    passes(&[share("r", 0, 1, 10, 1), break_it(40, 41), acquire("w", 50, 51, 11, 1)]);
    passes(&[share("r", 0, 1, 10, 1), acquire("w", 50, 98, 11, 1)]);
    // The lease of one reader ends, not that of the other.
    finds(
        Rule::Exclusion,
        &[
            share("r1", 0, 1, 10, 1),
            share("r2", 60, 61, 10, 1),
            unshare("r1", 70, 71, 0),
            acquire("w", 110, 111, 11, 1),
        ],
    );
}

#[test]
fn a_reader_beside_a_writer_is_found() {
    finds(Rule::Exclusion, &[acquire("w", 0, 1, 10, 1), share("r", 50, 51, 11, 1)]);
    let believed = [
        believing(acquire("w", 0, 1, 10, 1), 99),
        break_it(5, 6),
        believing(share("r", 7, 8, 11, 1), 99),
    ];
    finds(Rule::Belief, &believed);
}

#[test]
fn a_token_that_a_reader_has_in_common_with_a_writer_is_found() {
    finds(
        Rule::TokenOrder,
        &[acquire("w", 0, 1, 10, 1), release("w", 2, 3, 0), share("r", 4, 5, 10, 1)],
    );
    finds(
        Rule::TokenOrder,
        &[share("r", 0, 1, 10, 1), unshare("r", 2, 3, 0), acquire("w", 4, 5, 10, 1)],
    );
}

#[test]
fn a_reader_in_a_period_that_was_over_is_found() {
    let calls = [
        share("r1", 0, 1, 10, 1),
        unshare("r1", 2, 3, 0),
        acquire("w", 4, 5, 11, 1),
        release("w", 6, 7, 0),
        share("r2", 8, 9, 10, 1),
    ];
    // Also, in the order of the tokens, the writer was there with it.
    assert_eq!(rules(&calls), [Rule::TokenOrder, Rule::Exclusion]);
}

#[test]
fn a_downgrade_keeps_writers_out_and_gets_a_token_of_its_own() {
    let calls = |token: u64, holds: u64| {
        [
            acquire("w", 0, 1, 10, 1),
            share("w", 2, 3, 10, 1),
            wait("next", 4, 16, granted(13)),
            release("w", 8, 9, 0),
            share("w", 10, 11, token, holds),
            unshare("w", 14, 15, 0),
        ]
    };
    passes(&calls(12, 1));
    finds(Rule::TokenOrder, &calls(10, 1)[..5]);
    let mut early = calls(12, 1);
    early[2] = wait("next", 4, 12, granted(13));
    assert_eq!(rules(&early), [Rule::Exclusion, Rule::Stale]);
}

#[test]
fn a_waiting_writer_that_is_overtaken_by_a_reader_is_found() {
    let calls = |reader: Call| {
        [
            share("r1", 0, 1, 10, 1),
            wait("w", 5, 31, granted(11)),
            reader,
            unshare("r1", 28, 29, 0),
            unshare("r2", 28, 29, 0),
            release("w", 32, 33, 0),
        ]
    };
    finds(Rule::Fifo, &calls(share("r2", 10, 11, 10, 1)));
    // It was not in line yet when that one came.
    passes(&calls(share("r2", 6, 11, 10, 1)));
    finds(
        Rule::Fifo,
        &[share("r1", 0, 1, 10, 1), wait("w", 5, 56, Outcome::Refused), share("r2", 10, 11, 10, 1)],
    );
}

#[test]
fn a_waiting_reader_that_is_overtaken_by_a_writer_is_found() {
    finds(
        Rule::Fifo,
        &[
            acquire("w1", 0, 1, 10, 1),
            wait_to_share("r", 5, 26, granted(12)),
            wait("w2", 10, 21, granted(11)),
            release("w1", 19, 20, 0),
            release("w2", 23, 24, 0),
        ],
    );
}

#[test]
fn a_reader_that_is_not_let_in_beside_others_is_found() {
    let calls = |writer: Option<Call>| {
        let mut calls = vec![share("r1", 0, 1, 10, 1), wait_to_share("r2", 10, 45, granted(10))];
        calls.extend(writer);
        calls
    };
    finds(Rule::Prompt, &calls(None));
    passes(&calls(Some(wait("w", 2, 30, Outcome::Withdrawn))));
    passes(&calls(Some(unknown(acquire("w", 2, 3, 0, 0)))));
}

#[test]
fn a_lock_that_is_left_to_dead_readers_is_found() {
    let late = wait("w", 90, 139, granted(11));
    finds(Rule::Prompt, &[share("r", 0, 1, 10, 1), late.clone()]);
    passes(&[share("r", 0, 1, 10, 1), renew("r", 60, 61, Outcome::Done), late.clone()].map(
        |call| {
            if call.owner == "w" {
                Call {
                    answer: Some((ms(165), granted(11))),
                    sent: ms(118),
                    queued: Some(ms(120)),
                    ..call
                }
            } else {
                call
            }
        },
    ));
    finds(Rule::Prompt, &[share("r", 0, 1, 10, 1), unshare("r", 91, 92, 0), late]);
}

#[test]
fn a_reader_that_loses_its_share_before_its_lease_ends_is_found() {
    finds(Rule::Exclusion, &[share("r", 0, 1, 10, 1), renew("r", 50, 51, Outcome::Refused)]);
    finds(Rule::Stale, &[share("r", 0, 1, 10, 1), renew("r", 110, 111, Outcome::Done)]);
}

const PERMITS: u64 = 3;

fn take(owner: &str, sent: u64, answered: u64, outcome: Outcome) -> Call {
    let request = Request::Permits { of: PERMITS, lease: ms(LEASE), timeout: None };
    call(owner, request, sent, answered, outcome)
}

fn holds(permits: u64) -> Outcome {
    Outcome::Holds { permits }
}

/// A wait of at most 50 ms that was in line two milliseconds after it was sent, and until then.
fn wait_for_permits(owner: &str, sent: u64, until: u64, answered: u64, outcome: Outcome) -> Call {
    let request = Request::Permits { of: PERMITS, lease: ms(LEASE), timeout: Some(ms(50)) };
    let (queued, in_line_at) = (Some(ms(sent + 2)), Some(ms(until)));
    Call { queued, in_line_at, ..call(owner, request, sent, answered, outcome) }
}

fn give_back(owner: &str, sent: u64, answered: u64, left: u64) -> Call {
    call(owner, Request::ReleasePermits, sent, answered, Outcome::Released { left })
}

#[test]
fn a_clean_history_of_permits_passes() {
    passes(&[
        take("a", 0, 1, holds(2)),
        take("b", 2, 3, holds(1)),
        take("c", 4, 5, Outcome::Refused),
        wait_for_permits("large", 6, 18, 22, holds(3)),
        take("d", 10, 23, Outcome::Refused),
        give_back("a", 12, 13, 1),
        renew("b", 14, 15, Outcome::Done),
        give_back("a", 16, 17, 0),
        give_back("b", 20, 21, 0),
        give_back("large", 24, 25, 0),
        take("e", 26, 27, holds(3)),
        // Its lease ends.
        take("f", 127, 128, holds(3)),
        break_it(130, 131),
        take("g", 132, 133, holds(3)),
    ]);
}

#[test]
fn one_permit_too_many_is_found() {
    finds(Rule::Permits, &[take("a", 0, 1, holds(2)), take("b", 2, 3, holds(2))]);
    finds(
        Rule::Permits,
        &[take("a", 0, 1, holds(2)), take("b", 2, 3, holds(1)), take("b", 4, 5, holds(2))],
    );
    finds(
        Rule::Permits,
        &[take("a", 0, 1, holds(3)), give_back("a", 2, 3, 2), take("b", 4, 5, holds(2))],
    );
    passes(&[
        take("a", 0, 1, holds(3)),
        unknown(give_back("a", 2, 3, 0)),
        take("b", 4, 5, holds(2)),
        give_back("a", 6, 7, 0),
    ]);
}

#[test]
fn permits_of_the_living_that_are_given_away_are_found() {
    let renewed = [
        take("a", 0, 1, holds(3)),
        renew("a", 60, 61, Outcome::Done),
        take("b", 120, 121, holds(1)),
    ];
    finds(Rule::Permits, &renewed);
    let [first, renewal, second] = renewed;
    passes(&[first, unknown(renewal), second]);
    finds(Rule::Exclusion, &[take("a", 0, 1, holds(3)), renew("a", 50, 51, Outcome::Refused)]);
    passes(&[take("a", 0, 1, holds(3)), renew("a", 99, 100, Outcome::Refused)]);
    finds(Rule::Stale, &[take("a", 0, 1, Outcome::Refused), give_back("a", 2, 3, 0)]);
}

#[test]
fn a_large_request_that_is_overtaken_by_small_ones_is_found() {
    let calls = |seen: u64, outcome: Outcome| {
        [
            take("a", 0, 1, holds(2)),
            wait_for_permits("large", 2, seen, 53, outcome),
            take("small", 10, 11, holds(1)),
            give_back("small", 12, 13, 0),
            give_back("a", 50, 51, 0),
        ]
    };
    finds(Rule::Fifo, &calls(12, holds(3)));
    finds(Rule::Fifo, &calls(5, Outcome::Refused));
    // Nobody saw it in line after the other was granted: it may have been served first.
    passes(&calls(5, Outcome::Withdrawn));
}

#[test]
fn permits_that_the_dead_keep_are_found() {
    finds(Rule::Prompt, &[take("a", 0, 1, holds(3)), wait_for_permits("b", 90, 91, 139, holds(1))]);
    passes(&[take("a", 0, 1, holds(3)), wait_for_permits("b", 90, 91, 120, holds(1))]);
}

#[test]
fn more_permits_believed_in_than_there_are_are_found() {
    // The server may take back what it granted, and clients must not believe in it any more.
    let broken = |second| {
        let first = believing(take("a", 0, 1, holds(2)), 60);
        [first, break_it(2, 3), believing(take("b", 10, 11, holds(second)), 80)]
    };
    finds(Rule::Belief, &broken(2));
    passes(&broken(1));
    let [first, gone, second] = broken(2);
    passes(&[first, gone, give_back("a", 5, 6, 0), second]);
}

fn set_latch(sent: u64, answered: u64, count: u64) -> Call {
    call("setter", Request::SetLatch { count }, sent, answered, Outcome::Done)
}

fn count_down(owner: &str, sent: u64, answered: u64, left: u64) -> Call {
    call(owner, Request::CountDown, sent, answered, Outcome::Released { left })
}

/// A wait of at most 50 ms that was in line two milliseconds after it was sent.
fn wait_for_latch(owner: &str, sent: u64, answered: u64, outcome: Outcome) -> Call {
    let request = Request::AwaitLatch { timeout: ms(50) };
    Call { queued: Some(ms(sent + 2)), ..call(owner, request, sent, answered, outcome) }
}

#[test]
fn a_clean_history_of_latches_passes() {
    passes(&[
        wait_for_latch("early", 0, 1, Outcome::Done),
        set_latch(2, 3, 2),
        wait_for_latch("x", 4, 13, Outcome::Done),
        count_down("a", 5, 6, 1),
        count_down("a", 7, 8, 1),
        wait_for_latch("y", 8, 14, Outcome::Done),
        count_down("b", 11, 12, 0),
        // Again, and somebody waits in vain.
        set_latch(15, 16, 2),
        count_down("c", 17, 18, 1),
        wait_for_latch("z", 19, 70, Outcome::Refused),
        break_it(80, 81),
        wait_for_latch("late", 82, 83, Outcome::Done),
    ]);
}

#[test]
fn a_release_before_zero_is_found() {
    let calls =
        [set_latch(0, 1, 2), count_down("a", 2, 3, 1), wait_for_latch("x", 4, 9, Outcome::Done)];
    finds(Rule::Latch, &calls);
    let [set, count, wait] = calls;
    // Counting twice does not help.
    let again = count_down("a", 5, 6, 1);
    finds(Rule::Latch, &[set.clone(), count.clone(), wait.clone(), again]);
    let other = unknown(count_down("b", 5, 6, 0));
    passes(&[set.clone(), count.clone(), wait.clone(), other]);
    passes(&[set, count, wait, break_it(5, 6)]);
}

#[test]
fn a_waiter_that_is_not_released_at_zero_is_found() {
    let calls = |answer: u64, outcome: Outcome| {
        [set_latch(0, 1, 1), wait_for_latch("x", 2, answer, outcome), count_down("a", 10, 11, 0)]
    };
    finds(Rule::Latch, &calls(40, Outcome::Done));
    finds(
        Rule::Latch,
        &calls(53, Outcome::Refused).map(|call| {
            // Within the time that it may take, but it was told that its time was over.
            if call.request == Request::CountDown {
                Call { sent: ms(40), answer: Some((ms(41), Outcome::Released { left: 0 })), ..call }
            } else {
                call
            }
        }),
    );
    passes(&calls(20, Outcome::Done));
}

#[test]
fn a_count_that_does_not_count_is_found() {
    let calls = [set_latch(0, 1, 3), count_down("a", 2, 3, 2), count_down("b", 4, 5, 2)];
    finds(Rule::Latch, &calls);
    let [set, first, second] = calls;
    passes(&[set.clone(), first, set_latch(3, 4, 3), second]);
    // Sent again after a cut, one may count in the latch of that name that comes next.
    let late = [count_down("a", 2, 40, 2), count_down("b", 4, 5, 2)];
    finds(Rule::Latch, &[std::slice::from_ref(&set), &late[..]].concat());
    passes(&[&[set, set_latch(20, 21, 3)], &late[..]].concat());
}

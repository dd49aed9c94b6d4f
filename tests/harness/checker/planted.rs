//! Every rule sees the violation that it is there for, and a correct history passes.

use super::{Limits, Rule, check};
use crate::history::{Call, Outcome, Request};
use std::time::Duration;

const LEASE: u64 = 100;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A call of `owner` on `k`, sent and answered at these milliseconds.
pub(super) fn call(
    owner: &str,
    request: Request,
    sent: u64,
    answered: u64,
    outcome: Outcome,
) -> Call {
    Call::new(("k", owner), request, ms(sent), (ms(answered), outcome))
}

pub(super) fn acquire(owner: &str, sent: u64, answered: u64, token: u64, holds: u64) -> Call {
    let request = Request::Acquire { lease: ms(LEASE), timeout: None };
    call(owner, request, sent, answered, Outcome::Granted { token, holds })
}

/// A wait of at most 50 ms that was in line two milliseconds after it was sent.
pub(super) fn wait(owner: &str, sent: u64, answered: u64, outcome: Outcome) -> Call {
    let request = Request::Acquire { lease: ms(LEASE), timeout: Some(ms(50)) };
    Call { queued: Some(ms(sent + 2)), ..call(owner, request, sent, answered, outcome) }
}

pub(super) fn granted(token: u64) -> Outcome {
    Outcome::Granted { token, holds: 1 }
}

pub(super) fn release(owner: &str, sent: u64, answered: u64, left: u64) -> Call {
    call(owner, Request::Release, sent, answered, Outcome::Released { left })
}

pub(super) fn renew(owner: &str, sent: u64, answered: u64, outcome: Outcome) -> Call {
    call(owner, Request::Renew { lease: ms(LEASE) }, sent, answered, outcome)
}

pub(super) fn break_it(sent: u64, answered: u64) -> Call {
    call("admin", Request::Break, sent, answered, Outcome::Done)
}

pub(super) fn believing(call: Call, valid_until: u64) -> Call {
    Call { valid_until: Some(ms(valid_until)), ..call }
}

pub(super) fn unknown(call: Call) -> Call {
    Call { answer: call.answer.map(|(at, _)| (at, Outcome::Unknown)), ..call }
}

pub(super) fn rules(calls: &[Call]) -> Vec<Rule> {
    let limits = Limits { slack: ms(2), prompt: ms(20) };
    check(calls, &limits).iter().map(|violation| violation.rule).collect()
}

#[track_caller]
pub(super) fn finds(rule: Rule, calls: &[Call]) {
    assert_eq!(rules(calls), [rule]);
}

#[track_caller]
pub(super) fn passes(calls: &[Call]) {
    assert_eq!(rules(calls), []);
}

#[test]
fn a_clean_history_passes() {
    passes(&[
        believing(acquire("a", 0, 1, 10, 1), 95),
        acquire("a", 2, 3, 10, 2),
        release("a", 4, 5, 1),
        believing(renew("a", 6, 7, Outcome::Done), 100),
        wait("b", 10, 31, granted(11)),
        wait("c", 15, 66, Outcome::Refused),
        release("a", 30, 32, 0),
        release("a", 33, 34, 0).refused(),
        believing(renew("b", 32, 33, Outcome::Done), 127),
        wait("d", 120, 134, granted(20)),
        break_it(140, 141),
        acquire("e", 142, 143, 21, 1),
    ]);
}

impl Call {
    fn refused(self) -> Self {
        Self { answer: self.answer.map(|(at, _)| (at, Outcome::Refused)), ..self }
    }
}

#[test]
fn keys_do_not_mix() {
    let other = |call: Call| Call { key: "other".to_owned(), ..call };
    passes(&[acquire("a", 0, 1, 10, 1), other(acquire("b", 2, 3, 9, 1))]);
}

#[test]
fn a_smaller_token_after_a_larger_one_is_found() {
    let backwards = [acquire("a", 0, 1, 10, 1), release("a", 2, 3, 0), acquire("b", 4, 5, 9, 1)];
    // In the order of the tokens b was the first, and had it when a was granted.
    assert_eq!(rules(&backwards), [Rule::TokenOrder, Rule::Exclusion]);
    let [first, release, second] = backwards;
    passes(&[first, release, unknown(second)]);
}

#[test]
fn a_token_of_two_owners_is_found() {
    finds(
        Rule::TokenOrder,
        &[acquire("a", 0, 1, 10, 1), release("a", 2, 3, 0), acquire("b", 4, 5, 10, 1)],
    );
}

#[test]
fn a_token_that_comes_back_after_its_release_is_found() {
    finds(
        Rule::TokenOrder,
        &[acquire("a", 0, 1, 10, 1), release("a", 2, 3, 0), acquire("a", 4, 5, 10, 1)],
    );
}

#[test]
fn a_grant_while_another_holds_is_found() {
    finds(Rule::Exclusion, &[acquire("a", 0, 1, 10, 1), acquire("b", 50, 51, 11, 1)]);
    passes(&[acquire("a", 0, 1, 10, 1), acquire("b", 50, 98, 11, 1)]);
    passes(&[acquire("a", 0, 1, 10, 1), break_it(40, 60), acquire("b", 50, 51, 11, 1)]);
    passes(&[
        acquire("a", 0, 1, 10, 1),
        unknown(release("a", 40, 45, 0)),
        acquire("b", 50, 51, 11, 1),
    ]);
}

#[test]
fn a_break_before_the_grant_is_no_excuse() {
    finds(
        Rule::Exclusion,
        &[break_it(0, 1), acquire("a", 2, 3, 10, 1), acquire("b", 50, 51, 11, 1)],
    );
}

#[test]
fn a_grant_before_the_end_of_a_renewed_lease_is_found() {
    let renewed = [
        acquire("a", 0, 1, 10, 1),
        renew("a", 60, 61, Outcome::Done),
        acquire("b", 120, 121, 11, 1),
    ];
    finds(Rule::Exclusion, &renewed);
    let [grant, renewal, next] = renewed;
    passes(&[grant, unknown(renewal), next]);
}

#[test]
fn a_wait_holds_from_when_the_lock_was_free_at_the_earliest() {
    // b cannot have had it before 99 ms: so not lost again at 150 ms.
    finds(
        Rule::Exclusion,
        &[
            acquire("a", 0, 1, 10, 1),
            wait("b", 60, 101, granted(11)),
            acquire("c", 150, 151, 12, 1),
        ],
    );
}

#[test]
fn a_lock_that_is_lost_before_its_lease_ends_is_found() {
    finds(Rule::Exclusion, &[acquire("a", 0, 1, 10, 1), renew("a", 50, 51, Outcome::Refused)]);
    passes(&[acquire("a", 0, 1, 10, 1), renew("a", 99, 100, Outcome::Refused)]);
    passes(&[acquire("a", 0, 1, 10, 1), break_it(20, 21), renew("a", 50, 51, Outcome::Refused)]);
}

#[test]
fn two_who_believe_to_hold_at_once_are_found() {
    let believed = [
        believing(acquire("a", 0, 1, 10, 1), 99),
        break_it(5, 6),
        believing(acquire("b", 7, 8, 11, 1), 99),
    ];
    finds(Rule::Belief, &believed);
    let [first, deletion, second] = believed;
    passes(&[first, release("a", 3, 4, 0), deletion, second]);
}

#[test]
fn a_re_entry_with_another_token_is_found() {
    let calls = [acquire("a", 0, 1, 10, 1), break_it(0, 2), acquire("a", 2, 3, 11, 2)];
    finds(Rule::Reentry, &calls);
}

#[test]
fn a_re_entry_that_counts_twice_is_found() {
    finds(Rule::Reentry, &[acquire("a", 0, 1, 10, 1), acquire("a", 2, 3, 10, 3)]);
    finds(
        Rule::Reentry,
        &[
            acquire("a", 0, 1, 10, 1),
            acquire("a", 2, 3, 10, 2),
            acquire("a", 4, 5, 10, 3),
            release("a", 6, 7, 1),
        ],
    );
    passes(&[
        acquire("a", 0, 1, 10, 1),
        acquire("a", 2, 3, 10, 2),
        acquire("a", 4, 5, 10, 2),
        release("a", 6, 7, 0),
    ]);
}

#[test]
fn a_release_of_what_another_holds_is_found() {
    finds(
        Rule::Stale,
        &[
            acquire("a", 0, 1, 10, 1),
            break_it(2, 3),
            acquire("b", 4, 5, 11, 1),
            release("a", 6, 7, 0),
        ],
    );
    passes(&[
        acquire("a", 0, 1, 10, 1),
        break_it(2, 3),
        acquire("b", 4, 5, 11, 1),
        release("a", 6, 7, 0).refused(),
    ]);
}

#[test]
fn a_renewal_after_the_lease_is_found() {
    finds(Rule::Stale, &[acquire("a", 0, 1, 10, 1), renew("a", 104, 105, Outcome::Done)]);
    passes(&[acquire("a", 0, 1, 10, 1), renew("a", 100, 105, Outcome::Done)]);
    passes(&[
        acquire("a", 0, 1, 10, 1),
        unknown(renew("a", 50, 60, Outcome::Done)),
        renew("a", 140, 141, Outcome::Done),
    ]);
}

#[test]
fn a_release_by_who_holds_nothing_is_found() {
    finds(Rule::Stale, &[release("a", 0, 1, 0)]);
    finds(Rule::Stale, &[acquire("a", 0, 1, 10, 1), release("a", 2, 3, 0), release("a", 4, 5, 0)]);
    passes(&[unknown(acquire("a", 0, 1, 10, 1)), release("a", 2, 3, 0)]);
}

#[test]
fn an_unknown_acquire_of_the_owner_excuses_what_it_may_have_done() {
    passes(&[
        acquire("a", 0, 1, 10, 1),
        acquire("b", 101, 102, 11, 1),
        release("b", 103, 104, 0),
        unknown(acquire("a", 105, 106, 0, 0)),
        renew("a", 107, 108, Outcome::Done),
        release("a", 109, 110, 0),
        acquire("c", 111, 112, 12, 1),
    ]);
}

#[test]
fn a_waiter_that_is_overtaken_is_found() {
    let calls = |first: Call| {
        [
            acquire("a", 0, 1, 10, 1),
            first,
            wait("c", 15, 31, granted(11)),
            release("a", 30, 32, 0),
            release("c", 34, 35, 0),
        ]
    };
    finds(Rule::Fifo, &calls(wait("b", 10, 36, granted(12))));
    // Nobody saw b in line before c came.
    passes(&calls(Call { queued: Some(ms(16)), ..wait("b", 10, 36, granted(12)) }));
    passes(&calls(wait("b", 10, 36, Outcome::Withdrawn)));
    passes(&calls(wait("b", 10, 36, Outcome::Failed)));
}

#[test]
fn only_who_is_away_may_be_overtaken() {
    let calls = |request: Request, away: &[(u64, u64)]| {
        let away = away.iter().map(|(from, to)| (ms(*from), ms(*to))).collect();
        [
            acquire("a", 0, 1, 10, 1),
            Call { away, ..wait("b", 10, 36, granted(12)) },
            call("c", request, 29, 31, granted(11)),
            release("a", 28, 32, 0),
            release("c", 34, 35, 0),
        ]
    };
    let wait = || Request::Acquire { lease: ms(LEASE), timeout: Some(ms(50)) };
    finds(Rule::Fifo, &calls(wait(), &[(15, 20), (33, 34)]));
    passes(&calls(wait(), &[(15, 20), (30, 34)]));
    // Who knows no line may come first, but not while somebody has it.
    passes(&calls(Request::Foreign { lease: ms(LEASE) }, &[]));
    let foreign = call("b", Request::Foreign { lease: ms(LEASE) }, 5, 6, granted(11));
    finds(Rule::Exclusion, &[acquire("a", 0, 1, 10, 1), foreign]);
}

#[test]
fn who_is_away_hears_late_that_its_time_is_over() {
    let late = |away: &[(Duration, Duration)]| {
        let wait = wait("b", 10, 61 + 500, Outcome::Refused);
        [acquire("a", 0, 1, 10, 1), Call { away: away.to_vec(), ..wait }]
    };
    let told = |calls: &[Call]| check(calls, &Limits::default()).len();
    assert_eq!(told(&late(&[])), 1);
    assert_eq!(told(&late(&[(ms(50), ms(52))])), 0);
}

#[test]
fn a_waiter_that_is_starved_until_its_timeout_is_found() {
    finds(
        Rule::Fifo,
        &[
            acquire("a", 0, 1, 10, 1),
            wait("b", 10, 61, Outcome::Refused),
            release("a", 30, 31, 0),
            acquire("c", 32, 33, 11, 1),
        ],
    );
}

#[test]
fn a_waiter_that_is_not_served_in_time_is_found() {
    let calls = |released: u64| {
        [
            acquire("a", 0, 1, 10, 1),
            wait("b", 10, 58, granted(11)),
            release("a", released, released + 1, 0),
        ]
    };
    finds(Rule::Prompt, &calls(30));
    passes(&calls(40));
    // Somebody whom nobody heard of again may have had it in between.
    let mut excused = calls(30).to_vec();
    excused.push(unknown(acquire("c", 32, 33, 0, 0)));
    passes(&excused);
}

#[test]
fn a_waiter_that_came_when_the_lock_was_free_and_is_not_served_is_found() {
    let calls = [
        acquire("a", 0, 1, 10, 1),
        release("a", 10, 11, 0),
        wait("b", 30, 79, granted(11)),
        release("b", 80, 81, 0),
    ];
    finds(Rule::Prompt, &calls);
    let mut excused = calls.to_vec();
    excused.push(unknown(acquire("c", 20, 21, 0, 0)));
    passes(&excused);
}

#[test]
fn a_waiter_that_is_not_served_when_the_lease_ends_is_found() {
    finds(Rule::Prompt, &[acquire("a", 0, 1, 10, 1), wait("b", 90, 130, granted(11))]);
    passes(&[acquire("a", 0, 1, 10, 1), wait("b", 90, 120, granted(11))]);
    finds(Rule::Prompt, &[acquire("a", 0, 1, 10, 1), wait("b", 90, 141, Outcome::Refused)]);
}

#[test]
fn a_try_that_is_refused_though_the_lock_is_free_is_found() {
    let refused = |owner: &str, sent: u64| {
        let request = Request::Acquire { lease: ms(LEASE), timeout: None };
        call(owner, request, sent, sent + 1, Outcome::Refused)
    };
    finds(Rule::Refusal, &[refused("a", 5)]);
    let calls = |tried| [acquire("a", 0, 1, 10, 1), release("a", 10, 11, 0), refused("b", tried)];
    finds(Rule::Refusal, &calls(14));
    // It crosses the release, or the server may be a moment behind.
    passes(&calls(10));
    passes(&calls(12));
    finds(Rule::Refusal, &[acquire("a", 0, 1, 10, 1), refused("b", 104)]);
    passes(&[acquire("a", 0, 1, 10, 1), refused("b", 99)]);
    // Somebody else waits, or was given it and never heard of that, or asked late.
    passes(&[refused("b", 14), wait("c", 13, 20, granted(11))]);
    let unknown = unknown(acquire("c", 2, 3, 0, 0));
    passes(&[unknown.clone(), refused("b", 120)]);
    finds(Rule::Refusal, &[unknown, refused("b", 126)]);
    // Who held it asks for one hold more than it had.
    passes(&[acquire("a", 0, 1, 10, 1), refused("a", 130)]);
    let back = [acquire("a", 0, 1, 10, 1), release("a", 10, 11, 0), refused("a", 130)];
    finds(Rule::Refusal, &back);
}

#[test]
fn a_timeout_that_is_too_early_or_too_late_is_found() {
    finds(Rule::Prompt, &[acquire("a", 0, 1, 10, 1), wait("b", 10, 40, Outcome::Refused)]);
    finds(Rule::Prompt, &[acquire("a", 0, 1, 10, 1), wait("b", 10, 81, Outcome::Refused)]);
    passes(&[acquire("a", 0, 1, 10, 1), wait("b", 10, 59, Outcome::Refused)]);
}

#[test]
fn a_call_that_is_never_answered_is_found() {
    finds(Rule::Answered, &[Call { answer: None, ..acquire("a", 0, 1, 10, 1) }]);
}

#[test]
fn a_million_calls_are_checked_in_seconds() {
    let mut calls = Vec::new();
    for turn in 0..250_000 {
        let (owner, at) = (format!("o{}", turn % 50), turn * 4);
        calls.push(Call { queued: Some(ms(at)), ..wait(&owner, at, at + 1, granted(turn)) });
        calls.push(renew(&owner, at + 1, at + 2, Outcome::Done));
        calls.push(renew("nobody", at + 1, at + 2, Outcome::Refused));
        calls.push(release(&owner, at + 2, at + 3, 0));
    }
    let start = std::time::Instant::now();
    passes(&calls);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

//! Judges the records of a round by the promises of its suite.

use crate::round::Round;
use crate::round_log::{Records, RoundLog};
use crate::suites::Promises;
use crate::workload::{BEYOND, BOUND_LEASE, is_heard_by_scripts, wrong_results};
use harness::checker::{Limits, Rule, check};
use harness::coverage::Span;
use harness::evidence::OVERLAPS;
use harness::history::{Call, Outcome, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// Tolerance for the ends of leases and timeouts: see `Limits::slack`.
const SLACK: Duration = Duration::from_millis(2);

/// Longest delay of a hand-off where promptness is promised: longer than any fault stops the server.
const PROMPT: Duration = Duration::from_secs(3);

/// Tolerance for the time in which a lock is left free for the few clients with scripts that listen for it.
const LEFT_FREE: Duration = Duration::from_millis(50);

/// Time after the failure of a wait in which the server has taken its grant back, unless it may not write. A crowd of
/// grants may have to be taken back before.
const TAKEN_BACK: Duration = Duration::from_secs(2);

/// Duration of an offer to a waiter, if its lease is longer.
const OFFER: Duration = Duration::from_secs(2);

/// Longest time between a renewal and the moment at which its task notices and records it.
const STALE_SLACK: Duration = Duration::from_millis(100);

/// Longest time until a client knows that a latch is open. The client may have to reconnect.
const LATE_LATCH: Duration = Duration::from_millis(500);

/// Limit of the delay of a hand-off where promptness is not judged.
const AGES: Duration = Duration::from_secs(86_400);

/// Returns the violations of the promises.
pub(crate) fn judge(promises: Promises, round: &Round, calls: &[Call]) -> Vec<String> {
    let mut violations = Vec::new();
    let log = &round.log;
    let records = log.records();
    let whole = without_lost_latches(calls, &records, log);
    let mut judged = whole.clone();
    if promises == Promises::EveryRule {
        judged.iter_mut().for_each(|call| doubt(call, &records));
    } else {
        judged.iter_mut().for_each(shorten);
    }
    let prompt = if promises == Promises::EveryRule { PROMPT } else { AGES };
    for violation in check(&judged, &Limits { slack: SLACK, prompt, left_free }) {
        match violation.rule {
            _ if promises == Promises::EveryRule => violations.push(violation.to_string()),
            Rule::Belief => {
                log.add(OVERLAPS, 1);
                if promises == Promises::Beliefs || promises >= Promises::NoOverlap {
                    violations.push(violation.to_string());
                }
            }
            Rule::TokenOrder => {
                log.add("a later grant had the smaller token", 1);
                // One of the two grants may be of a primary that was replaced.
                let is_of_two = |(told, asked): (Duration, Duration)| {
                    let apart = asked.saturating_sub(told);
                    log.report.took("two servers granted the same lock", apart);
                    let meets =
                        |at| records.splits.iter().any(|it| (it.from..=it.to).contains(&at));
                    // The earlier grant has the larger token. A replaced primary may have issued that token
                    // after a restart, ahead of its successor's tokens.
                    if meets(told) && !meets(asked) {
                        log.add("tokens below one of a primary that was started again", 1);
                    }
                    meets(asked) || meets(told)
                };
                let excused = violation.between.is_some_and(is_of_two);
                if promises >= Promises::NoOverlap || promises == Promises::Tokens && !excused {
                    violations.push(violation.to_string());
                }
            }
            Rule::Answered | Rule::Latch => violations.push(violation.to_string()),
            // Where beliefs must not overlap, no lock may be granted again before its lease can have ended.
            Rule::Exclusion | Rule::Permits | Rule::Reentry => {
                if promises >= Promises::NoOverlap {
                    violations.push(violation.to_string());
                }
            }
            // Checked below, with the renewals.
            Rule::Stale => {}
            // The tasks record too little for these rules. A dropped guard is released in the background,
            // late if its connection was cut, and no task reads the queue.
            Rule::Fifo | Rule::Prompt | Rule::Refusal => {}
        }
    }
    if promises >= Promises::NoOverlap && promises != Promises::EveryRule {
        violations.extend(stale(&whole, &records));
    }
    if promises != Promises::EveryRule {
        violations.extend(left_at_latches(&judged, &records, log));
    }
    violations.extend(wrong_results(&records));
    for (key, at) in &records.gone {
        if let Some(next) = next_grant(calls, key, *at) {
            log.report.took("from a client that is gone to the next grant of its lock", next);
        }
        violations.extend(kept_too_long(calls, &records, key, *at));
        violations.extend(outlived(calls, &records, (key, *at), round));
    }
    let promised = records.violations.into_iter().filter(|(least, _)| promises >= *least);
    violations.extend(promised.map(|(_, violation)| violation));
    violations
}

fn left_free(key: &str) -> Duration {
    if is_heard_by_scripts(key) { LEFT_FREE } else { Duration::ZERO }
}

/// Makes the outcome of a failed wait unknown if its grant may last until the lease ends: there was a failover before
/// the grant was taken back, writes were refused, or the grant counts as sent although the user was deleted.
fn doubt(call: &mut Call, records: &Records) {
    let waits = call.request.asks() && call.request.timeout().is_some();
    let Some((at, outcome @ Outcome::Failed)) = &mut call.answer else { return };
    let span = Span { from: *at, to: *at + TAKEN_BACK };
    let may_last = |name: &str| {
        ["failover", "ACL DELUSER", "CONFIG SET"].iter().any(|fault| name.contains(fault))
    };
    if waits && records.faults.iter().any(|(name, fault)| may_last(name) && fault.meets(span)) {
        *outcome = Outcome::Unknown;
    }
}

/// Shortens a lease to the time that the server promises in any case. A waiter is offered the lock for two
/// seconds, and a bound lock is free when its session ends.
fn shorten(call: &mut Call) {
    let waits = call.request.timeout().is_some();
    if let Request::Acquire { lease, .. }
    | Request::Share { lease, .. }
    | Request::Permits { lease, .. } = &mut call.request
    {
        *lease = match *lease {
            BOUND_LEASE => Duration::ZERO,
            other if waits => other.min(OFFER),
            other => other,
        };
    }
}

/// Reentries, renewals and releases that succeeded although the lease was over or another owner had the
/// lock. Leases are not shortened here: the client has extended an offer at once, or has lost it. A round with
/// bound locks is not judged, since the end of their sessions is unknown.
fn stale(whole: &[Call], records: &Records) -> Vec<String> {
    let is_bound = |call: &Call| {
        call.request.asks() && call.request.lease().is_none_or(|lease| lease == BOUND_LEASE)
    };
    if whole.iter().any(is_bound) {
        return Vec::new();
    }
    let all: Vec<Call> = whole.iter().chain(&records.renewals).cloned().collect();
    let found = check(&all, &Limits { slack: STALE_SLACK, prompt: AGES, left_free });
    let found = found.into_iter().filter(|it| it.rule == Rule::Stale);
    found.map(|violation| violation.to_string()).collect()
}

/// Waits that were refused although their latch had been open for more than [`LATE_LATCH`], with no fault in
/// between. An open latch has no key, so it also admits later waiters until it is set again.
fn left_at_latches(judged: &[Call], records: &Records, log: &RoundLog) -> Vec<String> {
    let mut left = Vec::new();
    let opened = |call: &&Call| match call.answer {
        Some((at, Outcome::Released { left: 0 })) if call.request == Request::CountDown => Some(at),
        _ => None,
    };
    let openings: Vec<(&Call, Duration)> =
        judged.iter().filter_map(|call| Some((call, opened(&call)?))).collect();
    for wait in judged.iter().filter(|it| matches!(it.request, Request::AwaitLatch { .. })) {
        let Some((ended, outcome)) = wait.answer else { continue };
        let until = wait.sent + wait.request.timeout().unwrap_or_default();
        let of_it =
            |(call, at): &&(&Call, Duration)| call.key == wait.key && *at + LATE_LATCH < until;
        let Some((opening, at)) = openings.iter().filter(of_it).max_by_key(|(_, at)| *at) else {
            continue;
        };
        let span = Span { from: *at.min(&wait.sent), to: ended };
        // If the latch was set later, or while the countdown was in flight, it may not have stayed open.
        let set_again = judged.iter().any(|call| {
            let answered = call.answer.map_or(Duration::MAX, |(at, _)| at);
            let sets = matches!(call.request, Request::SetLatch { .. });
            sets && call.key == wait.key && answered > opening.sent && call.sent < ended
        });
        if set_again || records.faults.iter().any(|(_, fault)| fault.meets(span)) {
            continue;
        }
        log.add("waits for latches that had to open", 1);
        if outcome == Outcome::Refused {
            left.push(format!("Latch: open since {at:?}, and not released: {wait}"));
        }
    }
    left
}

/// Returns the calls without those on latches that existed while a primary was replaced. Latches are not
/// replicated synchronously, so such a latch may be lost, and a lost latch counts as open.
fn without_lost_latches(calls: &[Call], records: &Records, log: &RoundLog) -> Vec<Call> {
    let mut latches: BTreeMap<&str, Span> = BTreeMap::new();
    for call in calls {
        let to = call.answer.map_or(Duration::MAX, |(at, _)| at);
        if matches!(call.request, Request::SetLatch { .. } | Request::AwaitLatch { .. }) {
            let span = latches.entry(&call.key).or_insert(Span { from: call.sent, to });
            (span.from, span.to) = (span.from.min(call.sent), span.to.max(to));
        }
    }
    let all = latches.len();
    latches.retain(|_, span| records.splits.iter().any(|apart| apart.meets(*span)));
    log.add("latches judged", (all - latches.len()) as u64);
    log.add("latches in a failover, not judged", latches.len() as u64);
    calls.iter().filter(|call| !latches.contains_key(call.key.as_str())).cloned().collect()
}

/// A violation if the bound lock of a vanished client was held for too long without a reason. A failover is a
/// reason: the new primary has no binding.
fn kept_too_long(calls: &[Call], records: &Records, key: &str, at: Duration) -> Option<String> {
    let refused = |call: &&Call| match call.answer {
        Some((answered, Outcome::Refused)) => call.key == key && answered > at + BEYOND,
        _ => false,
    };
    let next = next_grant(calls, key, at).map(|next| at + next);
    let until =
        next.or_else(|| calls.iter().find(refused)?.answer.map(|(answered, _)| answered))?;
    let span = Span { from: at.saturating_sub(BEYOND), to: until };
    let takes_over =
        |(name, _): &&(&str, Span)| ["failover", "replaced"].iter().any(|it| name.contains(it));
    let mut excuses =
        records.faults.iter().filter(takes_over).map(|(_, span)| span).chain(&records.splits);
    let is_wrong = until > at + BEYOND && !excuses.any(|excuse| excuse.meets(span));
    is_wrong.then(|| format!("Kept: {key} at {until:?}, and its client was gone at {at:?}"))
}

/// A violation if a bound lock was not free soon after its session must have ended. Also `None` if no client
/// waited for the lock, or if there was a fault near that time.
fn outlived(
    calls: &[Call],
    records: &Records,
    (key, at): (&str, Duration),
    round: &Round,
) -> Option<String> {
    let over = at + round.session;
    let span = Span { from: at.saturating_sub(round.session), to: over + PROMPT };
    let is_near = |fault: &Span| fault.meets(span);
    let waits = |call: &&Call| {
        let answered = call.answer.map_or(Duration::MAX, |(answered, _)| answered);
        let asks = call.request.asks() && call.request.timeout().is_some();
        asks && call.key == key && (at..over).contains(&call.sent) && answered > over
    };
    let wait = calls.iter().find(waits)?;
    if records.faults.iter().any(|(_, fault)| is_near(fault)) || records.splits.iter().any(is_near)
    {
        return None;
    }
    round.log.add("bound locks judged by the time to live of their session", 1);
    let free = next_grant(calls, key, at).map_or(Duration::MAX, |next| at + next);
    let answered = wait.answer.map_or(Duration::MAX, |(answered, _)| answered);
    (free.min(answered) > over + PROMPT)
        .then(|| format!("Kept: {key}, whose client was gone at {at:?}, not free for {wait}"))
}

/// Time from `at` to the next grant of the lock.
fn next_grant(calls: &[Call], key: &str, at: Duration) -> Option<Duration> {
    let granted = |call: &Call| match call.answer {
        Some((answered, Outcome::Granted { .. })) if call.key == key => answered.checked_sub(at),
        _ => None,
    };
    calls.iter().filter_map(granted).min()
}

/// History of the round in readable lines.
pub(crate) fn diary(calls: &[Call], round: &Round) -> Vec<String> {
    let records = round.log.records();
    let faults = records.faults.iter().map(|(what, span)| format!("{what} {span:?}"));
    let believed = |call: &Call| {
        let Call { valid_until, queued, .. } = call;
        format!("{call}, believed until {valid_until:?}, in line at {queued:?}")
    };
    let calls = calls.iter().chain(&records.renewals).map(believed);
    let violations = records.violations.iter().map(|(_, what)| what.clone());
    faults.chain(violations).chain(calls).chain(records.recent.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use std::sync::Arc;

    fn round() -> Round {
        Round::new(vec!["k".to_owned()], vec![1000], 0, Arc::<Report>::default())
    }

    #[test]
    fn overlapping_beliefs_are_counted_and_are_violations_where_excluded() {
        let round = round();
        for (owner, token) in [("one", 1), ("other", 2)] {
            let lease = Duration::from_secs(1);
            let request = Request::Acquire { lease, timeout: None };
            let call = round.recorder.sent("k", owner, request);
            round.recorder.answered(call, Outcome::Granted { token, holds: 1 });
            round.recorder.believed(call, round.recorder.now() + lease);
        }
        let calls = round.recorder.calls();
        let violations = judge(Promises::NoOverlap, &round, &calls);
        for rule in ["Belief: ", "Exclusion: "] {
            assert!(violations.iter().any(|it| it.starts_with(rule)), "{violations:?}");
        }
        assert_eq!(judge(Promises::Tokens, &round, &calls), [""; 0]);
        assert_eq!(round.log.report.count("two believed to hold a lock"), 2);
    }

    #[test]
    fn a_waiter_may_release_until_its_whole_lease_is_over() {
        let (round, s) = (round(), Duration::from_secs);
        let released_after = |after| {
            let request = Request::Acquire { lease: s(6), timeout: Some(s(1)) };
            let granted = Outcome::Granted { token: 1, holds: 1 };
            let released = Outcome::Released { left: 0 };
            let calls = [
                Call::new(("k", "one"), request, s(0), (s(1), granted)),
                Call::new(("k", "one"), Request::Release, s(1) + after, (s(2) + after, released)),
            ];
            judge(Promises::NoOverlap, &round, &calls)
        };
        assert_eq!(released_after(2 * OFFER), [""; 0]);
        assert!(released_after(s(7))[0].starts_with("Stale: "));
    }

    #[test]
    fn a_failed_wait_holds_nothing_unless_its_grant_could_not_be_taken_back() {
        let s = Duration::from_secs;
        let request = Request::Acquire { lease: s(60), timeout: Some(s(60)) };
        let granted = Outcome::Granted { token: 2, holds: 1 };
        let mut next = Call::new(("k", "next"), request.clone(), s(1), (s(20), granted));
        next.queued = Some(next.sent);
        let failed = Call::new(("k", "first"), request, s(0), (s(1), Outcome::Failed));
        let judged = |fault, at| {
            let round = round();
            round.log.fault(fault, Span { from: at, to: at });
            judge(Promises::EveryRule, &round, &[failed.clone(), next.clone()])
        };
        assert_eq!(judged("failover on demand", s(2)), [""; 0]);
        for (fault, at) in [("DEBUG SLEEP", s(2)), ("failover on demand", s(4))] {
            assert!(judged(fault, at)[0].starts_with("Prompt: not served though free"), "{fault}");
        }
    }

    #[test]
    fn a_bound_lock_that_outlives_its_client_is_a_violation_without_a_failover() {
        let (lease, at) = (Duration::from_secs(60), Duration::from_secs(3));
        let request = Request::Acquire { lease, timeout: None };
        let then = |after| {
            let granted = Outcome::Granted { token: 2, holds: 1 };
            [Call::new(("k", "next"), request.clone(), at, (at + after, granted))]
        };
        let late = then(BEYOND + Duration::from_secs(1));
        assert!(kept_too_long(&late, &Records::default(), "k", at).is_some());
        assert_eq!(kept_too_long(&then(BEYOND), &Records::default(), "k", at), None);
        assert_eq!(kept_too_long(&late, &Records::default(), "other", at), None);
        let span = Span { from: at, to: at };
        let records = Records { faults: vec![("failover on demand", span)], ..Records::default() };
        assert_eq!(kept_too_long(&late, &records, "k", at), None);
        let never = [Call::new(("k", "next"), request, at, (at + 2 * BEYOND, Outcome::Refused))];
        assert!(
            kept_too_long(&never, &Records::default(), "k", at + Duration::from_millis(1))
                .is_some()
        );
    }

    #[test]
    fn a_wait_at_an_open_latch_must_end_unless_the_latch_may_be_set_again() {
        let (round, ms) = (round(), Duration::from_millis);
        let call = |owner, request, [sent, answered]: [u64; 2], outcome| {
            Call::new(("k", owner), request, ms(sent), (ms(answered), outcome))
        };
        let found = |at| {
            let timeout = ms(2_000);
            let calls = [
                call("first", Request::SetLatch { count: 1 }, at, Outcome::Done),
                call("last", Request::CountDown, [10, 20], Outcome::Released { left: 0 }),
                call("waiter", Request::AwaitLatch { timeout }, [30, 2_030], Outcome::Refused),
            ];
            !left_at_latches(&calls, &Records::default(), &round.log).is_empty()
        };
        assert!(found([1, 2]), "set before the countdown was sent");
        assert!(!found([5, 19]), "in flight with the countdown");
        assert!(!found([40, 50]), "set after the countdown");
    }

    #[test]
    fn a_smaller_token_requested_later_is_a_violation_unless_a_primary_was_replaced() {
        let (round, ms) = (round(), Duration::from_millis);
        let granted = |owner, token, sent: u64| {
            let (request, answer) = (
                Request::Acquire { lease: ms(1), timeout: None },
                Outcome::Granted { token, holds: 1 },
            );
            Call::new(("k", owner), request, ms(sent), (ms(sent + 1), answer))
        };
        let calls = [granted("one", 2, 0), granted("other", 1, 8)];
        let is_found = |promises| {
            judge(promises, &round, &calls).iter().any(|it| it.starts_with("TokenOrder: "))
        };
        assert!(is_found(Promises::NoOverlap) && is_found(Promises::Tokens));
        round.log.split(Span { from: ms(5), to: ms(9) });
        assert!(is_found(Promises::NoOverlap));
        assert_eq!(judge(Promises::Tokens, &round, &calls), [""; 0]);
    }
}

//! What was seen in a round, judged by what is promised.

use crate::notes::{Notes, Seen};
use crate::round::Round;
use crate::suites::Promises;
use crate::workload::BEYOND;
use harness::checker::{Limits, Rule, check};
use harness::coverage::Span;
use harness::history::{Call, Outcome, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// How exact clocks are.
const SLACK: Duration = Duration::from_millis(2);

/// How late a hand-off may be where that is promised: longer than any fault keeps the server from its
/// work.
const PROMPT: Duration = Duration::from_secs(3);

/// Elsewhere nothing is judged by how long it took.
const AGES: Duration = Duration::from_secs(86_400);

/// What of it was promised not to be.
pub(crate) fn judge(promises: Promises, round: &Round, calls: &[Call]) -> Vec<String> {
    let mut violations = Vec::new();
    let notes = &round.notes;
    let seen = notes.seen();
    let judged = without_lost_latches(calls, &seen, notes);
    let prompt = if promises == Promises::EveryRule { PROMPT } else { AGES };
    for violation in check(&judged, &Limits { slack: SLACK, prompt }) {
        match violation.rule {
            _ if promises == Promises::EveryRule => violations.push(violation.to_string()),
            Rule::Belief => {
                notes.add("two believed to hold a lock", 1);
                if promises >= Promises::NoOverlap {
                    violations.push(violation.to_string());
                }
            }
            Rule::TokenOrder => {
                notes.add("a later grant had the smaller token", 1);
                // The deposed primary gives the smaller one.
                let is_of_two = |(told, asked): (Duration, Duration)| {
                    let apart = asked.saturating_sub(told);
                    notes.report.took("two servers granted the same lock", apart);
                    seen.apart.iter().any(|apart| (apart.from..=apart.to).contains(&asked))
                };
                if promises >= Promises::NoOverlap || !violation.between.is_some_and(is_of_two) {
                    violations.push(violation.to_string());
                }
            }
            Rule::Answered | Rule::Latch => violations.push(violation.to_string()),
            // They are about what servers do, and not about what the tasks know: a guard has its
            // lease in two steps and is given back before its end, and places in line may end with
            // a server. Whether everybody gets on is looked at elsewhere.
            _ => {}
        }
    }
    for (key, at) in &seen.gone {
        if let Some(next) = next_grant(calls, key, *at) {
            notes.report.took("from a client that is gone to the next grant of its lock", next);
        }
        violations.extend(kept(calls, &seen, key, *at));
    }
    let promised = seen.violations.into_iter().filter(|(least, _)| promises >= *least);
    violations.extend(promised.map(|(_, violation)| violation));
    violations
}

/// Replicas are not asked to confirm latches: those that were there while a primary was replaced may be
/// gone, and then they are open.
fn without_lost_latches(calls: &[Call], seen: &Seen, notes: &Notes) -> Vec<Call> {
    let mut latches: BTreeMap<&str, Span> = BTreeMap::new();
    for call in calls {
        let to = call.answer.map_or(Duration::MAX, |(at, _)| at);
        if matches!(call.request, Request::SetLatch { .. } | Request::AwaitLatch { .. }) {
            let span = latches.entry(&call.key).or_insert(Span { from: call.sent, to });
            (span.from, span.to) = (span.from.min(call.sent), span.to.max(to));
        }
    }
    let all = latches.len();
    latches.retain(|_, span| seen.apart.iter().any(|apart| apart.meets(*span)));
    notes.add("latches judged", (all - latches.len()) as u64);
    notes.add("latches in a failover, not judged", latches.len() as u64);
    calls.iter().filter(|call| !latches.contains_key(call.key.as_str())).cloned().collect()
}

/// A bound lock of a client that was gone then and that is kept for long, for no reason: a server that
/// takes over knows of no binding.
fn kept(calls: &[Call], seen: &Seen, key: &str, at: Duration) -> Option<String> {
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
        seen.faults.iter().filter(takes_over).map(|(_, span)| span).chain(&seen.apart);
    let is_wrong = until > at + BEYOND && !excuses.any(|excuse| excuse.meets(span));
    is_wrong.then(|| format!("Kept: {key} at {until:?}, and its client was gone at {at:?}"))
}

/// How long after that moment that lock was granted.
fn next_grant(calls: &[Call], key: &str, at: Duration) -> Option<Duration> {
    let granted = |call: &Call| match call.answer {
        Some((answered, Outcome::Granted { .. })) if call.key == key => answered.checked_sub(at),
        _ => None,
    };
    calls.iter().filter_map(granted).min()
}

/// What was seen, for people.
pub(crate) fn diary(calls: &[Call], round: &Round) -> Vec<String> {
    let seen = round.notes.seen();
    let faults = seen.faults.iter().map(|(what, span)| format!("{what} {span:?}"));
    let believed = |call: &Call| {
        let Call { valid_until, queued, .. } = call;
        format!("{call}, believed until {valid_until:?}, in line at {queued:?}")
    };
    let calls = calls.iter().chain(&seen.renewals).map(believed);
    let violations = seen.violations.iter().map(|(_, what)| what.clone());
    faults.chain(violations).chain(calls).chain(seen.said.iter().cloned()).collect()
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
    fn two_who_believe_at_once_are_counted_and_wrong_where_that_is_promised_not_to_be() {
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
        assert!(matches!(&violations[..], [one] if one.starts_with("Belief")), "{violations:?}");
        assert_eq!(judge(Promises::Tokens, &round, &calls), [""; 0]);
        assert_eq!(round.notes.report.count("two believed to hold a lock"), 2);
    }

    #[test]
    fn a_bound_lock_that_outlives_its_client_is_found_unless_a_server_took_over() {
        let (lease, at) = (Duration::from_secs(60), Duration::from_secs(3));
        let request = Request::Acquire { lease, timeout: None };
        let then = |after| {
            let granted = Outcome::Granted { token: 2, holds: 1 };
            [Call::new(("k", "next"), request.clone(), at, (at + after, granted))]
        };
        let late = then(BEYOND + Duration::from_secs(1));
        assert!(kept(&late, &Seen::default(), "k", at).is_some());
        assert_eq!(kept(&then(BEYOND), &Seen::default(), "k", at), None);
        assert_eq!(kept(&late, &Seen::default(), "other", at), None);
        let span = Span { from: at, to: at };
        let seen = Seen { faults: vec![("failover on demand", span)], ..Seen::default() };
        assert_eq!(kept(&late, &seen, "k", at), None);
        let never = [Call::new(("k", "next"), request, at, (at + 2 * BEYOND, Outcome::Refused))];
        assert!(kept(&never, &Seen::default(), "k", at + Duration::from_millis(1)).is_some());
    }

    #[test]
    fn a_smaller_token_that_was_asked_for_later_is_wrong_unless_a_primary_was_deposed() {
        let (round, ms) = (round(), Duration::from_millis);
        let granted = |owner, token, sent: u64| {
            let (request, answer) = (
                Request::Acquire { lease: ms(1), timeout: None },
                Outcome::Granted { token, holds: 1 },
            );
            Call::new(("k", owner), request, ms(sent), (ms(sent + 1), answer))
        };
        let calls = [granted("one", 2, 0), granted("other", 1, 8)];
        let is_found = |promises| match &judge(promises, &round, &calls)[..] {
            [one] => one.starts_with("TokenOrder"),
            other => panic!("{other:?}"),
        };
        assert!(is_found(Promises::NoOverlap) && is_found(Promises::Tokens));
        round.notes.apart(Span { from: ms(5), to: ms(9) });
        assert!(is_found(Promises::NoOverlap));
        assert_eq!(judge(Promises::Tokens, &round, &calls), [""; 0]);
    }
}

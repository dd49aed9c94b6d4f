//! Finds waiters that were left in a queue although the lock was free, or was only shared and they wanted to
//! share it. Also finds requests that were refused although the lock was free.
//!
//! Each hold, also one that a request with an unknown outcome may have got, is assumed to end as late as the
//! calls allow. For waiters, a granted hold begins with the reply, so a late reply counts as time in which the
//! lock was free. For refusals, a hold begins when its request was sent.

use super::holds::{Hold, Later, Span, answered, is_unknown, lease};
use super::{Limits, Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::collections::BTreeSet;
use std::time::Duration;

/// Reports requests that were queued for too long while the lock was free. Reports requests to share that were
/// queued for too long while no owner held the lock exclusively, and no exclusive request was in flight. Also
/// reports wrong refusals: see [`check_tries`].
pub(super) fn check(
    calls: &[&Call],
    holds: &[Hold<'_>],
    later: &Later<'_, '_>,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    let held: Vec<(&Hold<'_>, Duration)> =
        holds.iter().zip(later).map(|(hold, later)| (hold, hold.possible_end(*later))).collect();
    let from_answer = |(hold, end): &(&Hold<'_>, Duration)| (hold.granted, *end);
    let unknown = |alone_only: bool| {
        let asked = calls.iter().filter(move |call| {
            let alone = matches!(call.request, Request::Acquire { .. });
            is_unknown(call) && call.request.asks() && (alone || !alone_only)
        });
        asked.map(|call| (call.sent, answered(call).saturating_add(lease(call))))
    };
    let waits = |call: &&&Call| call.queued.is_some() && call.request.asks();

    let taken = held.iter().map(from_answer).chain(unknown(false));
    let waiting: Vec<&Call> = calls.iter().filter(waits).copied().collect();
    check_waiting(&waiting, taken, "free", limits, report);

    let alone = held.iter().filter(|(hold, _)| !hold.shared).map(from_answer);
    let wanted_alone = calls.iter().filter(|call| matches!(call.request, Request::Acquire { .. }));
    let wanted_alone = wanted_alone.map(|call| (call.sent, answered(call)));
    let taken = alone.chain(wanted_alone).chain(unknown(true));
    let to_share = |call: &&Call| matches!(call.request, Request::Share { .. });
    let waiting: Vec<&Call> = waiting.into_iter().filter(to_share).collect();
    check_waiting(&waiting, taken, "only shared", limits, report);

    let taken = held.iter().map(|(hold, end)| (hold.grant.sent, *end)).collect();
    check_tries(calls, taken, limits, report);
}

/// Reports each waiter that was queued for too long within one gap between the spans in `taken`.
fn check_waiting(
    waiting: &[&Call],
    taken: impl Iterator<Item = Span>,
    state: &str,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    if waiting.is_empty() {
        return;
    }
    let idle = outside(taken.collect());
    for call in waiting {
        let Some(queued) = call.queued else { continue };
        let first = idle.partition_point(|(_, end)| *end <= queued);
        let until = answered(call);
        let spans = idle[first..].iter().take_while(|(begin, _)| *begin < until);
        let left = spans.map(|(begin, end)| (queued.max(*begin), until.min(*end)));
        if let Some((begin, _)) =
            left.into_iter().find(|(begin, end)| end.saturating_sub(*begin) > limits.prompt)
        {
            report.add(Rule::Prompt, format!("not served though {state} since {begin:?}: {call}"));
        }
    }
}

/// Reports requests without a wait that were refused outside the spans in `taken`, at a time when no other
/// call can have had an effect. Refused requests without a wait count as calls without an effect.
fn check_tries(calls: &[&Call], mut taken: Vec<Span>, limits: &Limits, report: &mut Report<'_>) {
    for call in calls {
        let until = match call.answer {
            Some((_, Outcome::Refused)) if is_try(call) => continue,
            // The server may execute the request late, and then revoke the undelivered grant.
            None | Some((_, Outcome::Unknown | Outcome::Failed)) if !lease(call).is_zero() => {
                answered(call).saturating_add(lease(call) + limits.prompt)
            }
            _ => answered(call),
        };
        // The call may have its effect at any time in this span.
        taken.push((call.sent, until));
    }
    let idle = outside(taken);
    // A request of an owner that may have a hold already is not judged. It may ask for one more hold with
    // `HOLDS`, and such a request is refused if the lock is lost.
    let mut has = BTreeSet::new();
    for call in calls {
        match call.answer {
            Some((at, Outcome::Refused)) if is_try(call) && !has.contains(&call.owner) => {
                let tolerance = limits.slack + (limits.left_free)(&call.key);
                let free = idle.get(idle.partition_point(|(_, end)| *end < at));
                if let Some((since, _)) =
                    free.filter(|(since, _)| since.saturating_add(tolerance) < call.sent)
                {
                    let text = format!("refused though free since {since:?}: {call}");
                    report.add(Rule::Refusal, text);
                }
            }
            Some((_, Outcome::Released { left: 0 })) => drop(has.remove(&call.owner)),
            Some((_, Outcome::Refused | Outcome::Withdrawn | Outcome::Failed)) => {}
            _ => drop(has.insert(&call.owner)),
        }
    }
}

/// Returns whether the call requests a lock or permits, and does not wait. Requests of clients that do not use the
/// queue do not count.
fn is_try(call: &Call) -> bool {
    let foreign = matches!(call.request, Request::Foreign { .. });
    call.request.asks() && call.request.timeout().is_none() && !foreign
}

/// The times that none of these spans covers.
fn outside(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let (mut result, mut from) = (Vec::new(), Duration::ZERO);
    for (begin, end) in spans {
        if begin > from {
            result.push((from, begin));
        }
        from = from.max(end);
    }
    result.push((from, Duration::MAX));
    result
}

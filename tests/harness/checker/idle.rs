//! Whether somebody was left in line, or sent away, although nobody can have had what it wants.
//!
//! For keys that several may have at a time: each hold is taken to last as long as the calls allow,
//! and what is left are times in which nobody can have had anything.

use super::holds::{Hold, answered, asks_for_lock, is_unknown, lease};
use super::{Limits, Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::collections::BTreeSet;
use std::time::Duration;

/// A time, from its beginning to its end.
pub(super) type Span = (Duration, Duration);

/// Nobody waits for a lock that is free; nobody waits to share one that others share, if no one
/// before it wants it alone.
pub(super) fn check_lock(
    calls: &[&Call],
    holds: &[Hold<'_>],
    limits: &Limits,
    report: &mut Report<'_>,
) {
    // From the answer on: what comes late is late for its owner, too.
    let held = |hold: &Hold<'_>| (hold.granted, hold.possible_end());
    let unknown = |alone_only: bool| {
        let asked = calls.iter().filter(move |call| {
            let alone = matches!(call.request, Request::Acquire { .. });
            is_unknown(call) && asks_for_lock(call) && (alone || !alone_only)
        });
        asked.map(|call| (call.sent, answered(call).saturating_add(lease(call))))
    };
    let waits = |call: &&&Call| call.queued.is_some() && asks_for_lock(call);

    let taken = holds.iter().map(held).chain(unknown(false)).collect();
    let waiting: Vec<&Call> = calls.iter().filter(waits).copied().collect();
    check(&waiting, taken, "free", limits, report);

    let alone = holds.iter().filter(|hold| !hold.shared).map(held);
    let wanted_alone = calls.iter().filter(|call| matches!(call.request, Request::Acquire { .. }));
    let wanted_alone = wanted_alone.map(|call| (call.sent, answered(call)));
    let taken = alone.chain(wanted_alone).chain(unknown(true)).collect();
    let to_share = |call: &&Call| matches!(call.request, Request::Share { .. });
    let waiting: Vec<&Call> = waiting.into_iter().filter(to_share).collect();
    check(&waiting, taken, "only shared", limits, report);
}

/// Reports whoever was in line for too long outside the times in which something was `taken`.
pub(super) fn check(
    waiting: &[&Call],
    taken: Vec<Span>,
    state: &str,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    let idle = outside(taken);
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

/// Reports who asked without waiting, and was refused although nothing was `taken`, nobody can have
/// waited, and nothing of which nobody knows can have been done.
pub(super) fn check_tries(
    calls: &[&Call],
    mut taken: Vec<Span>,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    for call in calls {
        let until = match call.answer {
            Some((_, Outcome::Refused)) if is_try(call) => continue,
            // It may be done late, and a grant that went astray is taken back.
            None | Some((_, Outcome::Unknown | Outcome::Failed)) if !lease(call).is_zero() => {
                answered(call).saturating_add(lease(call) + limits.prompt)
            }
            _ => answered(call),
        };
        // Of all others, what they do while they last.
        taken.push((call.sent, until));
    }
    let idle = outside(taken);
    // Who has it, and asks for one more, is refused when it is lost.
    let mut has = BTreeSet::new();
    for call in calls {
        match call.answer {
            Some((at, Outcome::Refused)) if is_try(call) && !has.contains(&call.owner) => {
                let free = idle.get(idle.partition_point(|(_, end)| *end < at));
                if let Some((since, _)) =
                    free.filter(|(since, _)| since.saturating_add(limits.slack) < call.sent)
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

/// Whether it asks for something and does not wait for it.
fn is_try(call: &Call) -> bool {
    matches!(
        call.request,
        Request::Acquire { timeout: None, .. }
            | Request::Share { timeout: None, .. }
            | Request::Permits { timeout: None, .. }
    )
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

//! Checks that a latch opened when it had been counted down, and not before.

use super::holds::{answered, is_unknown};
use super::{Limits, Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) fn check(calls: &[&Call], limits: &Limits, report: &mut Report<'_>) {
    check_not_before(calls, report);
    check_after(calls, limits, report);
    check_numbers(calls, report);
}

pub(super) fn is_of_latch(request: &Request) -> bool {
    matches!(request, Request::SetLatch { .. } | Request::AwaitLatch { .. })
}

fn is_done(call: &Call) -> bool {
    matches!(call.answer, Some((_, Outcome::Done)))
}

/// Reports each waiter that was released before enough participants had counted the latch down.
fn check_not_before(calls: &[&Call], report: &mut Report<'_>) {
    let mut sets: Vec<(&Call, u64)> = calls
        .iter()
        .filter_map(|call| match call.request {
            Request::SetLatch { count } if is_done(call) => Some((*call, count)),
            _ => None,
        })
        .collect();
    sets.sort_by_key(|(set, _)| answered(set));
    let released =
        |call: &&&Call| matches!(call.request, Request::AwaitLatch { .. }) && is_done(call);
    for wait in calls.iter().filter(released) {
        let before = sets.partition_point(|(set, _)| answered(set) <= wait.sent);
        let Some((set, count)) = before.checked_sub(1).map(|last| sets[last]) else { continue };
        let since = |call: &&&Call| call.sent <= answered(wait) && answered(call) >= set.sent;
        let broken = |call: &&Call| call.request == Request::Break;
        if calls.iter().filter(since).any(broken) {
            continue;
        }
        let counted = calls.iter().filter(since).filter(|call| {
            let counted = matches!(call.answer, Some((_, Outcome::Released { .. })));
            call.request == Request::CountDown && (counted || is_unknown(call))
        });
        let counted: BTreeSet<&str> = counted.map(|call| call.owner.as_str()).collect();
        if (counted.len() as u64) < count {
            let text = format!("released though {} of {count} have counted: {wait}", counted.len());
            report.add(Rule::Latch, text);
        }
    }
}

/// Reports each waiter that was queued when the latch opened, and was not released soon.
fn check_after(calls: &[&Call], limits: &Limits, report: &mut Report<'_>) {
    let opened = |call: &&&Call| {
        call.request == Request::CountDown
            && matches!(call.answer, Some((_, Outcome::Released { left: 0 })))
    };
    let mut openings: Vec<&Call> = calls.iter().filter(opened).copied().collect();
    openings.sort_by_key(|call| call.sent);
    for wait in calls {
        let (Some(queued), Request::AwaitLatch { timeout }) = (wait.queued, &wait.request) else {
            continue;
        };
        let first = openings.partition_point(|opening| opening.sent <= queued);
        let Some(opening) = openings.get(first) else { continue };
        let at = answered(opening);
        let timed_out = matches!(wait.answer, Some((_, Outcome::Refused)))
            && at + limits.slack < wait.sent + *timeout;
        // If the outcome is unknown, `told` is the time at which the client gave up, which proves nothing.
        let is_late = wait.answer.is_none_or(|(told, outcome)| {
            outcome != Outcome::Unknown && told > at.saturating_add(limits.prompt)
        });
        if timed_out || is_late {
            report.add(Rule::Latch, format!("not released by {opening}: {wait}"));
        }
    }
}

/// Reports two participants of one latch whose first countdowns got the same number as reply: each
/// participant must count down by one.
fn check_numbers(calls: &[&Call], report: &mut Report<'_>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut told: BTreeMap<u64, &Call> = BTreeMap::new();
    let begins: Vec<(Duration, Duration)> = calls
        .iter()
        .filter(|call| {
            let set = matches!(call.request, Request::SetLatch { .. });
            set && (is_done(call) || is_unknown(call))
        })
        .map(|call| (call.sent, answered(call)))
        .collect();
    for call in calls.iter().filter(|call| call.request == Request::CountDown) {
        // A repeated countdown changes nothing, and its reply is the current count.
        let first = seen.insert(&call.owner);
        let Some((at, Outcome::Released { left })) = call.answer.filter(|_| first) else {
            continue;
        };
        if let Some(other) = told.insert(left, call) {
            // The call that was sent first may have counted last.
            let until = at.max(answered(other));
            let between = |(sent, end): &(Duration, Duration)| *end >= other.sent && *sent <= until;
            if !begins.iter().any(between) {
                report.add(Rule::Latch, format!("counted the same: {other}; {call}"));
            }
        }
    }
}

//! Checks that calls were answered, waits ended in time, and waiters were served in order.

use super::holds::{Hold, was_away};
use super::{Limits, Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::time::Duration;

pub(super) fn check_answered(calls: &[&Call], report: &mut Report<'_>) {
    for call in calls.iter().filter(|call| call.answer.is_none()) {
        report.add(Rule::Answered, call.to_string());
    }
}

pub(super) fn check_timeouts(calls: &[&Call], limits: &Limits, report: &mut Report<'_>) {
    for call in calls {
        let (Some(timeout), Some((at, Outcome::Refused))) = (timeout(call), call.answer) else {
            continue;
        };
        let waited = at - call.sent;
        // A client whose session is away receives the outcome only when it reads the session again.
        let away: Duration = call.away.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        if waited + limits.slack < timeout || waited > timeout + limits.prompt + away {
            report.add(Rule::Prompt, format!("waited {waited:?}: {call}"));
        }
    }
}

/// Reports each wait that was overtaken: after the wait was queued, a request was sent and granted first, even
/// if that request wants fewer permits. A wait whose session was away may be overtaken.
pub(super) fn check_fifo(
    calls: &[&Call],
    holds: &[Hold<'_>],
    limits: &Limits,
    report: &mut Report<'_>,
) {
    // An owner that may have the lock already, and a client that does not use the queue, may overtake.
    let came = |hold: &&Hold<'_>| !hold.goes_on && !is_foreign(hold.grant);
    let mut grants: Vec<&Hold<'_>> = holds.iter().filter(came).collect();
    grants.sort_by_key(|hold| hold.grant.sent);
    // For each grant: the grant with the smallest token, and the one with the earliest reply, among this grant
    // and all that were requested later.
    let lowest = best_from(&grants, |hold| hold.token);
    let earliest = best_from(&grants, |hold| hold.granted);
    for call in calls {
        let Some(queued) = call.queued else { continue };
        let later = grants.partition_point(|hold| hold.grant.sent <= queued);
        let passed = |hold: &&&Hold<'_>| !was_away(call, hold.grant.sent, hold.granted);
        let (lowest, earliest) = if call.away.is_empty() {
            (lowest.get(later).copied(), earliest.get(later).copied())
        } else {
            let there = || grants[later..].iter().filter(passed).copied();
            (there().min_by_key(|hold| hold.token), there().min_by_key(|hold| hold.granted))
        };
        let (Some(lowest), Some(earliest)) = (lowest, earliest) else { continue };
        let token = match call.answer {
            Some((_, Outcome::Granted { token, holds: 1 })) => token,
            _ => 0,
        };
        let until_timeout = match (call.answer, timeout(call)) {
            (Some((_, Outcome::Refused)), Some(timeout)) => {
                Some((call.sent + timeout).saturating_sub(limits.slack))
            }
            _ => None,
        };
        let in_line = call.in_line_at.max(until_timeout);
        let other = if lowest.token < token { lowest } else { earliest };
        if lowest.token < token || Some(earliest.granted) < in_line {
            report.add(Rule::Fifo, format!("overtaken by {}: {call}", other.grant));
        }
    }
}

fn is_foreign(call: &Call) -> bool {
    matches!(call.request, Request::Foreign { .. })
}

fn best_from<'h, 'a, K: Ord>(
    grants: &[&'h Hold<'a>],
    key: impl Fn(&Hold<'a>) -> K,
) -> Vec<&'h Hold<'a>> {
    let mut best: Vec<&'h Hold<'a>> = Vec::with_capacity(grants.len());
    for &hold in grants.iter().rev() {
        let so_far = best.last().copied().filter(|b| key(b) <= key(hold));
        best.push(so_far.unwrap_or(hold));
    }
    best.reverse();
    best
}

/// Longest wait of a call; `None` if it does not wait or waits without limit.
fn timeout(call: &Call) -> Option<Duration> {
    call.request.timeout().filter(|timeout| !timeout.is_zero())
}

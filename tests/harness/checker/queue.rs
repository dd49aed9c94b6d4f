//! Whether waiters were served in order and in time.

use super::holds::{Hold, answered, asks_for_lock, is_unknown, lease, was_away};
use super::{Limits, Report, Rule, idle};
use crate::history::{Call, Outcome, Request};
use std::time::Duration;

pub(super) fn check(calls: &[&Call], holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    check_answered(calls, report);
    check_timeouts(calls, limits, report);
    check_fifo(calls, holds, limits, report);
    if holds.iter().any(|hold| hold.shared) {
        idle::check_lock(calls, holds, limits, report);
    } else {
        check_hand_offs(calls, holds, limits, report);
    }
    let held = holds.iter().map(|hold| (hold.grant.sent, hold.possible_end()));
    idle::check_tries(calls, held.collect(), limits, report);
}

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
        // Who is away hears of it when it is back.
        let away: Duration = call.away.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        if waited + limits.slack < timeout || waited > timeout + limits.prompt + away {
            report.add(Rule::Prompt, format!("waited {waited:?}: {call}"));
        }
    }
}

/// Who is sent after another was seen in line is not granted before that one, unless it was away.
fn check_fifo(calls: &[&Call], holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    // Who goes on with what it had did not come then, and who knows no line may overtake.
    let came = |hold: &&Hold<'_>| !hold.goes_on && !is_foreign(hold.grant);
    let mut grants: Vec<&Hold<'_>> = holds.iter().filter(came).collect();
    grants.sort_by_key(|hold| hold.grant.sent);
    // Of all that were sent from this one on: the smallest token, and the first that was answered.
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
        match (call.answer, timeout(call)) {
            (Some((_, Outcome::Granted { token, holds: 1 })), _) if lowest.token < token => {
                report.add(Rule::Fifo, format!("overtaken by {}: {call}", lowest.grant));
            }
            // It was in line until its timeout.
            (Some((_, Outcome::Refused)), Some(timeout))
                if earliest.granted + limits.slack < call.sent + timeout =>
            {
                report.add(Rule::Fifo, format!("overtaken by {}: {call}", earliest.grant));
            }
            _ => {}
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

/// When a hold ends and somebody is in line, the next grant arrives soon.
fn check_hand_offs(calls: &[&Call], holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    let line = Line::of(calls);
    for (index, hold) in holds.iter().enumerate() {
        let Some(end) = latest_end(hold) else {
            continue;
        };
        let next = holds.get(index + 1).map_or(Duration::MAX, |next| next.granted);
        if let Some(waiter) = line.left_waiting(end, next, limits.prompt) {
            report.add(
                Rule::Prompt,
                format!(
                    "not served though free since {end:?}: {waiter}; held before: {}",
                    hold.grant
                ),
            );
        }
    }
}

/// The last moment at which a hold can still have been there, if the calls tell.
fn latest_end(hold: &Hold<'_>) -> Option<Duration> {
    match hold.release {
        Some(release) if release.sure => Some(answered(release.call)),
        Some(_) => None,
        None => hold.lease_end(),
    }
}

/// Who was in line, and what unknown calls may have held the lock, by the time of beginning and
/// with the latest end so far.
struct Line<'a> {
    waiters: Vec<(Duration, &'a Call)>,
    /// Each with its own end.
    each: Vec<(Duration, &'a Call)>,
    unknown: Vec<(Duration, Duration)>,
}

impl<'a> Line<'a> {
    fn of(calls: &[&'a Call]) -> Self {
        let mut waiters: Vec<(Duration, &Call)> =
            calls.iter().filter_map(|call| Some((call.queued?, *call))).collect();
        waiters.sort_by_key(|(queued, _)| *queued);
        let each = waiters.clone();
        for index in 1..waiters.len() {
            if answered(waiters[index].1) < answered(waiters[index - 1].1) {
                waiters[index].1 = waiters[index - 1].1;
            }
        }
        let mut unknown: Vec<(Duration, Duration)> = Vec::new();
        for call in calls.iter().filter(|call| is_unknown(call) && asks_for_lock(call)) {
            let end = answered(call).saturating_add(lease(call));
            unknown.push((call.sent, unknown.last().map_or(end, |(_, before)| end.max(*before))));
        }
        Self { waiters, each, unknown }
    }

    /// Somebody who was in line for that long while the lock was free: it was from `end` to `next`.
    fn left_waiting(&self, end: Duration, next: Duration, prompt: Duration) -> Option<&'a Call> {
        let excused = |since: Duration| self.may_be_held_by_an_unknown(since, since + prompt);
        let last = next.checked_sub(prompt).filter(|last| *last > end)?;
        if let Some(waiter) = self.waiting_through(end, end + prompt).filter(|_| !excused(end)) {
            return Some(waiter);
        }
        let first = self.each.partition_point(|(queued, _)| *queued <= end);
        let came_later = self.each[first..].iter().take_while(|(queued, _)| *queued < last);
        let left = came_later.filter(|(queued, call)| answered(call) > *queued + prompt);
        left.map(|(queued, call)| (*queued, *call))
            .find(|(queued, _)| !excused(*queued))
            .map(|w| w.1)
    }

    /// Somebody who was in line at `begin` and still not answered at `end`.
    fn waiting_through(&self, begin: Duration, end: Duration) -> Option<&'a Call> {
        let before = self.waiters.partition_point(|(queued, _)| *queued <= begin);
        let (_, call) = self.waiters.get(before.checked_sub(1)?)?;
        (answered(call) > end).then_some(*call)
    }

    fn may_be_held_by_an_unknown(&self, begin: Duration, end: Duration) -> bool {
        let before = self.unknown.partition_point(|(sent, _)| *sent <= end);
        before > 0 && self.unknown[before - 1].1 >= begin
    }
}

/// How long a call waits, if it does and not without limit.
pub(super) fn timeout(call: &Call) -> Option<Duration> {
    let timeout = match call.request {
        Request::Acquire { timeout, .. }
        | Request::Share { timeout, .. }
        | Request::Permits { timeout, .. } => timeout,
        Request::AwaitLatch { timeout } => Some(timeout),
        _ => None,
    };
    timeout.filter(|timeout| !timeout.is_zero())
}

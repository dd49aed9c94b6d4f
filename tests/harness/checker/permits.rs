//! Whether the permits of a semaphore were given out as there are.
//!
//! Permits have no token that would tell the order of the grants. What is certain is how many an
//! owner has at the least: from the answer of a grant on, until its release was sent, somebody may
//! have broken it, or the lease can have ended.

use super::holds::{answered, is_unknown, lease, was_away};
use super::idle::{self, Span};
use super::queue::{check_answered, check_timeouts, timeout};
use super::{Limits, Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn check(calls: &[&Call], limits: &Limits, report: &mut Report<'_>) {
    check_answered(calls, report);
    check_timeouts(calls, limits, report);
    check_fifo(calls, limits, report);
    let mut owners: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for &call in calls.iter().filter(|call| call.request != Request::Break) {
        owners.entry(&call.owner).or_default().push(call);
    }
    let breaks: Vec<&Call> =
        calls.iter().filter(|call| call.request == Request::Break).copied().collect();
    let (mut certain, mut possible) = (Vec::new(), Vec::new());
    for calls in owners.values() {
        certain.extend(certainly_held(calls, &breaks, limits, report));
        possible.extend(possibly_held(calls));
    }
    check_number(calls, certain, Rule::Permits, report);
    check_number(calls, believed(calls), Rule::Belief, report);
    let waits =
        |call: &&&Call| call.queued.is_some() && matches!(call.request, Request::Permits { .. });
    let waiting: Vec<&Call> = calls.iter().filter(waits).copied().collect();
    idle::check(&waiting, possible.clone(), "all are free", limits, report);
    idle::check_tries(calls, possible, limits, report);
}

/// Never are more out than there are.
fn check_number(calls: &[&Call], certain: Vec<(Span, u64)>, rule: Rule, report: &mut Report<'_>) {
    let of = calls.iter().filter_map(|call| match call.request {
        Request::Permits { of, .. } => Some(of),
        _ => None,
    });
    let Some(of) = of.max() else { return };
    let mut steps: Vec<(Duration, bool, u64)> = Vec::new();
    for ((begin, end), permits) in certain.into_iter().filter(|((begin, end), _)| begin < end) {
        steps.extend([(begin, true, permits), (end, false, permits)]);
    }
    // Where one ends another may begin.
    steps.sort_unstable();
    let mut out = 0;
    for (at, more, permits) in steps {
        out = if more { out + permits } else { out - permits };
        if more && out > of {
            report.add(rule, format!("{out} of {of} permits are out at {at:?}"));
        }
    }
}

/// What clients say that they believed to have, and when: of an owner that asks once.
fn believed(calls: &[&Call]) -> Vec<(Span, u64)> {
    let mut released: BTreeMap<&str, Duration> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.request == Request::ReleasePermits) {
        released.entry(&call.owner).or_insert(call.sent);
    }
    let belief = |call: &&Call| match (call.answer, call.valid_until) {
        (Some((at, Outcome::Holds { permits })), Some(until)) => {
            let end = released.get(call.owner.as_str()).map_or(until, |sent| until.min(*sent));
            Some(((at, end), permits))
        }
        _ => None,
    };
    calls.iter().filter_map(belief).collect()
}

/// What one owner holds at the least, and when. Reports what it cannot have been told.
fn certainly_held(
    calls: &[&Call],
    breaks: &[&Call],
    limits: &Limits,
    report: &mut Report<'_>,
) -> Vec<(Span, u64)> {
    let mut owner = Owner::default();
    for call in calls {
        owner.take_in(call, breaks, limits, report);
    }
    owner.change(Duration::MAX, 0, breaks, limits);
    owner.spans
}

#[derive(Default)]
struct Owner {
    /// How many it holds at the least, since then.
    permits: u64,
    since: Duration,
    /// The first moment at which its lease can have ended.
    end: Duration,
    /// When it asked for the first of them.
    asked: Duration,
    /// It may hold some that nobody knows of.
    unsure: bool,
    /// What it had before.
    spans: Vec<(Span, u64)>,
}

impl Owner {
    fn take_in(&mut self, call: &Call, breaks: &[&Call], limits: &Limits, report: &mut Report<'_>) {
        let from_sending = call.sent + lease(call);
        match (&call.request, call.answer) {
            (_, Some((_, Outcome::Failed))) => {}
            (Request::Permits { .. }, Some((at, Outcome::Holds { permits }))) => {
                let had = self.permits;
                self.change(at, permits, breaks, limits);
                if had == 0 {
                    (self.end, self.asked) = (from_sending, call.sent);
                } else {
                    self.end = self.end.max(from_sending);
                }
            }
            (Request::Permits { .. }, _) if is_unknown(call) => self.unsure = true,
            (Request::Renew { .. }, Some((_, Outcome::Done))) => self.end = from_sending,
            (Request::Renew { .. }, _) if is_unknown(call) => self.end = self.end.min(from_sending),
            (Request::ReleasePermits, Some((_, Outcome::Released { left }))) => {
                if self.permits == 0 && !self.unsure {
                    report.add(Rule::Stale, format!("done by who holds nothing: {call}"));
                }
                self.change(call.sent, left, breaks, limits);
            }
            (Request::ReleasePermits, _) if is_unknown(call) => {
                self.unsure = true;
                self.change(call.sent, 0, breaks, limits);
            }
            (Request::Renew { .. } | Request::ReleasePermits, Some((at, Outcome::Refused))) => {
                let end = self.certain_end(breaks, limits);
                if self.permits > 0 && at < end && !self.unsure {
                    report.add(Rule::Exclusion, format!("lost while held until {end:?}: {call}"));
                }
                self.change(call.sent, 0, breaks, limits);
            }
            _ => {}
        }
    }

    /// From then on it has so many.
    fn change(&mut self, at: Duration, permits: u64, breaks: &[&Call], limits: &Limits) {
        let end = self.certain_end(breaks, limits).min(at);
        self.spans.extend((self.permits > 0).then_some(((self.since, end), self.permits)));
        (self.since, self.permits) = (at, permits);
    }

    /// The first moment at which it can have lost what it has.
    fn certain_end(&self, breaks: &[&Call], limits: &Limits) -> Duration {
        let may_break = breaks.iter().filter(|call| answered(call) >= self.asked);
        let broken = may_break.map(|call| call.sent.max(self.since));
        broken.fold(self.end.saturating_sub(limits.slack), Duration::min)
    }
}

/// When one owner can have held any.
fn possibly_held(calls: &[&Call]) -> Option<Span> {
    let had = |call: &Call| matches!(call.answer, Some((_, Outcome::Holds { .. })));
    let asks = |call: &Call| matches!(call.request, Request::Permits { .. });
    let renewed = |call: &Call| matches!(call.answer, Some((_, Outcome::Done)));
    let may_set = |call: &&&Call| match call.request {
        Request::Permits { .. } => is_unknown(call) || had(call),
        Request::Renew { .. } => is_unknown(call) || renewed(call),
        _ => false,
    };
    let begins = calls.iter().filter(may_set).filter(|call| asks(call));
    let begin = begins.map(|call| if had(call) { answered(call) } else { call.sent }).min()?;
    let ends = calls.iter().filter(may_set);
    let end = ends.map(|call| answered(call).saturating_add(lease(call))).max()?;
    let released = calls.last().filter(|call| {
        call.request == Request::ReleasePermits
            && matches!(call.answer, Some((_, Outcome::Released { left: 0 } | Outcome::Refused)))
    });
    Some((begin, released.map_or(end, |call| end.min(answered(call)))))
}

/// Who is sent after another was seen in line is not granted while that one still is, however few
/// it wants.
fn check_fifo(calls: &[&Call], limits: &Limits, report: &mut Report<'_>) {
    let mut first: BTreeMap<&str, &Call> = BTreeMap::new();
    for &call in calls.iter().filter(|call| matches!(call.request, Request::Permits { .. })) {
        first.entry(&call.owner).or_insert(call);
    }
    // What an owner that had some takes more of may have been its own.
    let mut grants: Vec<&Call> = first
        .into_values()
        .filter(|call| matches!(call.answer, Some((_, Outcome::Holds { .. }))))
        .collect();
    grants.sort_by_key(|call| call.sent);
    let mut earliest: Vec<&Call> = Vec::with_capacity(grants.len());
    for &grant in grants.iter().rev() {
        let best = earliest.last().copied().filter(|best| answered(best) <= answered(grant));
        earliest.push(best.unwrap_or(grant));
    }
    earliest.reverse();
    for call in calls {
        let Some(queued) = call.queued else { continue };
        let until_timeout = match (call.answer, timeout(call)) {
            (Some((_, Outcome::Refused)), Some(timeout)) => {
                Some((call.sent + timeout).saturating_sub(limits.slack))
            }
            _ => None,
        };
        let Some(in_line) = call.in_line_at.max(until_timeout) else { continue };
        let later = grants.partition_point(|grant| grant.sent <= queued);
        let passed = |other: &&&Call| !was_away(call, other.sent, answered(other));
        let first = if call.away.is_empty() {
            earliest.get(later)
        } else {
            let there = grants[later..].iter().filter(passed);
            there.min_by_key(|other| answered(other))
        };
        if let Some(other) = first.filter(|other| answered(other) < in_line) {
            report.add(Rule::Fifo, format!("overtaken by {other}: {call}"));
        }
    }
}

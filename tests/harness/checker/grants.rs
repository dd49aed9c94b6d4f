//! Rules for grants of locks and permits.

use super::holds::{Hold, Later, Span, Touch, WHOLE, answered, lease};
use super::{Limits, Report, Rule};
use crate::history::{Call, Request};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn check(
    calls: &[&Call],
    holds: &[Hold<'_>],
    later: &Later<'_, '_>,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    check_token_order(holds, later, report);
    check_exclusion(holds, limits, report);
    check_stale(holds, later, limits, report);
    let permits = calls.iter().filter_map(|call| match call.request {
        Request::Permits { of, .. } => Some(of),
        _ => None,
    });
    let permits = permits.max();
    check_number(permits.unwrap_or(WHOLE), holds, believed_until, Rule::Belief, report);
    if let Some(of) = permits {
        let end = |hold: &Hold<'_>| Some(hold.earliest_end(Duration::ZERO, limits));
        check_number(of, holds, end, Rule::Permits, report);
    }
}

/// Reports each grant with a smaller token that was requested after a grant with a larger token had been
/// answered.
fn check_token_order(holds: &[Hold<'_>], later: &Later<'_, '_>, report: &mut Report<'_>) {
    for (hold, later) in holds.iter().zip(later) {
        if let Some(later) = later.filter(|later| later.granted < hold.grant.sent) {
            let text = format!("the smaller token came later: {}; {}", later.grant, hold.grant);
            report.add_token(text, later.granted, hold.grant.sent);
        }
    }
}

/// Reports each grant that was answered before the previous holds can have ended. Reports each call whose
/// reply shows that its owner lost the lock too early. Holds with the same token are shares, which do not
/// exclude each other.
fn check_exclusion(holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    let mut free = (Duration::ZERO, None::<&Hold<'_>>);
    for period in holds.chunk_by(|one, next| one.token == next.token) {
        let (before, last) = free;
        for hold in period.iter().filter(|hold| hold.granted < before) {
            let last = last.map(|last| last.grant.to_string()).unwrap_or_default();
            report.add(
                Rule::Exclusion,
                format!("granted while held until {before:?}: {last}; {}", hold.grant),
            );
        }
        let ends = period.iter().map(|hold| (hold.earliest_end(before, limits), Some(hold)));
        free = ends.clone().max_by_key(|(end, _)| *end).unwrap_or(free);
        for (end, hold) in ends {
            let refused = hold.map(|hold| hold.refused.as_slice()).unwrap_or_default();
            for refused in refused.iter().filter(|call| answered(call) < end) {
                let grant = hold.map(|hold| hold.grant.to_string()).unwrap_or_default();
                report.add(
                    Rule::Exclusion,
                    format!("lost while held until {end:?}: {grant}; {refused}"),
                );
            }
        }
    }
}

/// Time until which the owner relies on the hold; `None` if no validity was recorded. This is the end of the
/// validity, or the sending of a release or of a refused call, if that is earlier.
fn believed_until(hold: &Hold<'_>) -> Option<Duration> {
    let sets = hold.sets.iter().map(|set| set.call);
    let valid_until = sets.chain([hold.grant]).filter_map(|set| set.valid_until).max()?;
    let release = hold.release.iter().map(|release| release.call);
    let over = release.chain(hold.refused.iter().copied()).map(|call| call.sent);
    Some(over.fold(valid_until, Duration::min))
}

/// Reports holds that together have more than `of` units at one moment. A hold counts until the time that
/// `end` returns. If `end` returns `None`, the hold does not count.
fn check_number(
    of: u64,
    holds: &[Hold<'_>],
    end: impl Fn(&Hold<'_>) -> Option<Duration>,
    rule: Rule,
    report: &mut Report<'_>,
) {
    let spans = |hold| end(hold).into_iter().flat_map(|end| hold.units_until(end));
    let all = holds.iter().flat_map(|hold| spans(hold).map(move |span| (span, hold)));
    let all: Vec<((Span, u64), &Hold<'_>)> =
        all.filter(|(((begin, end), _), _)| begin < end).collect();
    let mut steps: Vec<(Duration, bool, usize)> = Vec::new();
    for (number, (((begin, end), _), _)) in all.iter().enumerate() {
        steps.extend([(*begin, true, number), (*end, false, number)]);
    }
    // A hold may begin at the moment at which another ends.
    steps.sort_unstable();
    let (mut out, mut held) = (0, BTreeSet::new());
    for (at, begins, number) in steps {
        let ((_, units), _) = all[number];
        if !begins {
            out -= units;
            held.remove(&number);
            continue;
        }
        out += units;
        held.insert(number);
        if out > of {
            let grants: Vec<_> = held.iter().map(|held| all[*held].1.grant.to_string()).collect();
            report.add(rule, format!("too many hold it at {at:?}: {}", grants.join("; ")));
        }
    }
}

/// Returns whether a break may have prolonged a lease from its end until `until`.
fn is_broken(hold: &Hold<'_>, end: Option<Duration>, until: Duration) -> bool {
    let prolongs = |it: &&Call| Some(it.sent) <= end && until <= answered(it);
    hold.breaks.iter().any(prolongs)
}

/// Reports re-entries, renewals and releases that succeeded after the owner had lost the lock: to a later
/// grant, or by expiry.
fn check_stale(
    holds: &[Hold<'_>],
    later: &Later<'_, '_>,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    for (hold, later) in holds.iter().zip(later) {
        let mut end = Some(hold.first_end());
        for Touch { call, sure } in hold.sets.iter().chain(&hold.release) {
            if let Some(later) = later.filter(|later| *sure && later.granted < call.sent) {
                report.add(
                    Rule::Stale,
                    format!("done though another holds it: {}; {call}", later.grant),
                );
            } else if end.is_some_and(|end| *sure && end.saturating_add(limits.slack) < call.sent)
                && !is_broken(hold, end, call.sent)
            {
                report.add(
                    Rule::Stale,
                    format!("done though the lease was over at {end:?}: {}; {call}", hold.grant),
                );
            }
            let set = call.answer.map(|(at, _)| at + lease(call)).filter(|_| *sure);
            end = end.zip(set).map(|(end, set)| end.max(set));
        }
    }
}

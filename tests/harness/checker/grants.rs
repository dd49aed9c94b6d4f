//! Who may be granted a lock, and when.

use super::holds::{Hold, Touch, answered, lease};
use super::{Limits, Report, Rule};
use crate::history::Request;
use std::time::Duration;

pub(super) fn check(holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    check_token_order(holds, report);
    check_exclusion(holds, limits, report);
    check_belief(holds, report);
    check_stale(holds, limits, report);
}

/// No grant with a larger token was over before one with a smaller token began.
fn check_token_order(holds: &[Hold<'_>], report: &mut Report<'_>) {
    for (hold, later) in holds.iter().zip(first_granted_after(holds)) {
        if let Some(later) = later.filter(|later| later.granted < hold.grant.sent) {
            let text = format!("the smaller token came later: {}; {}", later.grant, hold.grant);
            report.add_token(text, later.granted, hold.grant.sent);
        }
    }
}

/// Nobody is granted the lock, and its owner is not told that it is lost, before it can be. Those
/// who share it have one token and do not disturb each other.
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
        let ends = period.iter().map(|hold| (earliest_end(hold, before, limits), Some(hold)));
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

/// The first moment at which a hold can have ended, given the first at which it can have begun.
fn earliest_end(hold: &Hold<'_>, free_before: Duration, limits: &Limits) -> Duration {
    let begin = hold.grant.sent.max(free_before);
    let mut end = begin + lease(hold.grant);
    for set in &hold.sets {
        let from_sending = set.call.sent + lease(set.call);
        end = match set.call.request {
            // A re-entry never shortens; a renewal says what it is.
            Request::Acquire { .. } | Request::Share { .. } | Request::Foreign { .. } => {
                end.max(from_sending)
            }
            _ if set.sure => from_sending,
            _ => end.min(from_sending),
        };
    }
    let release = hold.release.map(|release| release.call);
    let others = release.iter().chain(&hold.breaks).map(|call| call.sent.max(begin));
    others.fold(end.saturating_sub(limits.slack), Duration::min)
}

/// From a grant's arrival to its release or the end of its validity nobody else believes to hold.
fn check_belief(holds: &[Hold<'_>], report: &mut Report<'_>) {
    let mut beliefs: Vec<(Duration, Duration, &Hold<'_>)> = Vec::new();
    for hold in holds {
        let sets = hold.sets.iter().map(|set| set.call);
        let valid_until = sets.chain([hold.grant]).filter_map(|set| set.valid_until).max();
        let released =
            hold.release.iter().map(|release| release.call).chain(hold.refused.iter().copied());
        if let Some(valid_until) = valid_until {
            beliefs.push((
                hold.granted,
                released.map(|call| call.sent).fold(valid_until, Duration::min),
                hold,
            ));
        }
    }
    beliefs.sort_by_key(|(begin, _, _)| *begin);
    // The one who believes for the longest, of those who hold it alone and of those who share it.
    let mut last: [Option<(Duration, &Hold<'_>)>; 2] = [None, None];
    for (begin, end, hold) in beliefs {
        let [alone, sharing] = last;
        let others = [alone, sharing.filter(|_| !hold.shared)];
        if let Some((until, other)) = others.into_iter().flatten().find(|(until, _)| begin < *until)
        {
            report.add(
                Rule::Belief,
                format!("two believe to hold it until {until:?}: {}; {}", other.grant, hold.grant),
            );
        }
        let own = &mut last[usize::from(hold.shared)];
        if own.is_none_or(|(until, _)| end > until) {
            *own = Some((end, hold));
        }
    }
}

/// Who has lost the lock, to another or to time, cannot re-enter, renew or release it.
fn check_stale(holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    for (hold, later) in holds.iter().zip(first_granted_after(holds)) {
        let mut end = Some(hold.granted + lease(hold.grant));
        for Touch { call, sure } in hold.sets.iter().chain(&hold.release) {
            if let Some(later) = later.filter(|later| *sure && later.granted < call.sent) {
                report.add(
                    Rule::Stale,
                    format!("done though another holds it: {}; {call}", later.grant),
                );
            } else if end.is_some_and(|end| *sure && end + limits.slack < call.sent) {
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

/// For each hold the one with a larger token whose grant was answered first.
fn first_granted_after<'h, 'a>(holds: &'h [Hold<'a>]) -> Vec<Option<&'h Hold<'a>>> {
    let mut first: Option<&Hold<'a>> = None;
    let mut result = Vec::with_capacity(holds.len());
    let periods: Vec<_> = holds.chunk_by(|one, next| one.token == next.token).collect();
    for period in periods.into_iter().rev() {
        result.extend(period.iter().map(|_| first));
        let earliest = period.iter().min_by_key(|hold| hold.granted);
        first = first.into_iter().chain(earliest).min_by_key(|hold| hold.granted);
    }
    result.reverse();
    result
}

//! Who may be granted a lock, and when.

use super::holds::{Hold, Touch, lease};
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
            report.add(
                Rule::TokenOrder,
                format!("the smaller token came later: {}; {}", later.grant, hold.grant),
            );
        }
    }
}

/// Nobody is granted the lock, and its owner is not told that it is lost, before it can be.
fn check_exclusion(holds: &[Hold<'_>], limits: &Limits, report: &mut Report<'_>) {
    let mut free = Duration::ZERO;
    for (index, hold) in holds.iter().enumerate() {
        free = earliest_end(hold, free, limits);
        if let Some(next) = holds.get(index + 1).filter(|next| next.granted < free) {
            report.add(
                Rule::Exclusion,
                format!("granted while held until {free:?}: {}; {}", hold.grant, next.grant),
            );
        }
        for refused in
            hold.refused.iter().filter(|call| call.answer.is_some_and(|(at, _)| at < free))
        {
            report.add(
                Rule::Exclusion,
                format!("lost while held until {free:?}: {}; {refused}", hold.grant),
            );
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
            Request::Acquire { .. } => end.max(from_sending),
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
    let mut last: Option<(Duration, &Hold<'_>)> = None;
    for (begin, end, hold) in beliefs {
        if let Some((until, other)) = last.filter(|(until, _)| begin < *until) {
            report.add(
                Rule::Belief,
                format!("two believe to hold it until {until:?}: {}; {}", other.grant, hold.grant),
            );
        }
        if last.is_none_or(|(until, _)| end > until) {
            last = Some((end, hold));
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
    for hold in holds.iter().rev() {
        result.push(first);
        if first.is_none_or(|f| hold.granted < f.granted) {
            first = Some(hold);
        }
    }
    result.reverse();
    result
}

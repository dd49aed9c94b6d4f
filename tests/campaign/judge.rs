//! What was seen in a round, judged by what is promised.

use crate::round::Round;
use crate::suites::Promises;
use harness::checker::{Limits, Rule, check};
use harness::history::{Call, Outcome};
use std::cmp::Reverse;
use std::time::Duration;

/// Nothing here is judged by how long it took.
const LIMITS: Limits =
    Limits { slack: Duration::from_millis(2), prompt: Duration::from_secs(86_400) };

/// What of it was promised not to be.
pub(crate) fn judge(promises: Promises, round: &Round, calls: &[Call]) -> Vec<String> {
    let mut wrongs = Vec::new();
    let notes = &round.notes;
    for violation in check(calls, &LIMITS) {
        match violation.rule {
            Rule::Belief => {
                notes.add("two believed to hold a lock", 1);
                if promises.no_overlap {
                    wrongs.push(violation.to_string());
                }
            }
            // See below: the deposed primary gives the smaller one.
            Rule::TokenOrder if !promises.no_overlap => {}
            Rule::TokenOrder => {
                notes.add("a later grant had the smaller token", 1);
                wrongs.push(violation.to_string());
            }
            Rule::Answered => wrongs.push(violation.to_string()),
            // They are about what servers do, and not about what the tasks know: a guard has its
            // lease in two steps and is given back before its end, and places in line may end with
            // a server. Whether everybody gets on is looked at elsewhere.
            _ => {}
        }
    }
    let seen = notes.seen();
    if !promises.no_overlap {
        for (late, told) in smaller_later(calls) {
            notes.add("a later grant had the smaller token", 1);
            let apart = late.sent.saturating_sub(told);
            notes.report.took("two servers granted the same lock", apart);
            if !seen.apart.iter().any(|apart| (apart.from..=apart.to).contains(&late.sent)) {
                wrongs.push(format!("TokenOrder: a smaller token, and no deposed primary: {late}"));
            }
        }
    }
    wrongs.extend(seen.stale.iter().map(|what| format!("Stale: a write was accepted: {what}")));
    if promises.no_overlap {
        wrongs.extend(seen.refused_holders);
    }
    if promises.no_loss {
        wrongs.extend(seen.lost_early.iter().map(|what| format!("Lost: {what}")));
    }
    wrongs.extend(seen.surprises);
    wrongs
}

/// Grants that were asked for when somebody had already been told of one with a larger token, and when
/// that was.
fn smaller_later(calls: &[Call]) -> Vec<(&Call, Duration)> {
    let mut granted: Vec<(&str, u64, Duration, &Call)> = calls
        .iter()
        .filter_map(|call| match call.answer {
            Some((at, Outcome::Granted { token, .. })) => {
                Some((call.key.as_str(), token, at, call))
            }
            _ => None,
        })
        .collect();
    granted.sort_unstable_by_key(|(key, token, at, _)| (*key, Reverse(*token), *at));
    let mut late = Vec::new();
    for of_key in granted.chunk_by(|one, next| one.0 == next.0) {
        // Of all with larger tokens.
        let mut first_told = Duration::MAX;
        for (_, _, at, call) in of_key {
            if first_told < call.sent {
                late.push((*call, first_told));
            }
            first_told = first_told.min(*at);
        }
    }
    late
}

/// What was seen, for people.
pub(crate) fn diary(calls: &[Call], round: &Round) -> Vec<String> {
    let seen = round.notes.seen();
    let faults = seen.faults.iter().map(|(what, span)| format!("{what} {span:?}"));
    let believed = |call: &Call| format!("{call}, believed until {:?}", call.valid_until);
    let calls = calls.iter().chain(&seen.renewals).map(believed);
    faults.chain(seen.lost_early.iter().cloned()).chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::history::{Recorder, Request};
    use std::thread::sleep;

    #[test]
    fn a_smaller_token_that_was_asked_for_later_is_found() {
        let recorder = Recorder::new();
        let ask = || {
            let lease = Duration::from_secs(1);
            recorder.sent("k", "somebody", Request::Acquire { lease, timeout: None })
        };
        let is_granted =
            |call, token| recorder.answered(call, Outcome::Granted { token, holds: 1 });
        let (one, two) = (ask(), ask());
        is_granted(two, 2);
        // Nobody knows which of these two was first.
        is_granted(one, 1);
        assert!(smaller_later(&recorder.calls()).is_empty());
        sleep(Duration::from_millis(1));
        is_granted(ask(), 1);
        assert_eq!(smaller_later(&recorder.calls()).len(), 1);
    }
}

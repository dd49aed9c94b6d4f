//! What was seen in a round, judged by what is promised.

use crate::ground::Ground;
use crate::round::Round;
use harness::checker::{Limits, Rule, check};
use harness::history::{Call, Outcome};
use std::cmp::Reverse;
use std::time::Duration;

/// How many of many similar things are shown.
const SHOWN: usize = 5;

/// Nothing here is judged by how long it took.
const LIMITS: Limits =
    Limits { slack: Duration::from_millis(2), prompt: Duration::from_secs(86_400) };

/// What of it was promised not to be.
pub(crate) fn judge<G: Ground>(ground: &G, round: &Round, calls: &[Call]) -> Vec<String> {
    let mut wrongs = Vec::new();
    let tally = &round.tally;
    for violation in check(calls, &LIMITS) {
        match violation.rule {
            Rule::Belief => {
                tally.add("two believed to hold a lock", 1);
                if ground.promises().no_overlap {
                    wrongs.push(violation.to_string());
                }
            }
            // See below: the deposed primary gives the smaller one.
            Rule::TokenOrder if !ground.promises().no_overlap => {}
            Rule::TokenOrder => {
                tally.add("a later grant had the smaller token", 1);
                wrongs.push(violation.to_string());
            }
            Rule::Answered => wrongs.push(violation.to_string()),
            // They are about what servers do, and not about what the tasks know: a guard has its
            // lease in two steps and is given back before its end, and places in line may end with
            // a server. Whether everybody gets on is looked at elsewhere.
            _ => {}
        }
    }
    let seen = tally.seen();
    if !ground.promises().no_overlap {
        for (late, told) in smaller_later(calls) {
            tally.add("a later grant had the smaller token", 1);
            tally.took("two servers granted the same lock", late.sent.saturating_sub(told));
            if !seen.apart.iter().any(|apart| (apart.from..=apart.to).contains(&late.sent)) {
                wrongs.push(format!("a smaller token, and no deposed primary: {late}"));
            }
        }
    }
    wrongs.extend(seen.stale.iter().map(|what| format!("a stale write was accepted: {what}")));
    if ground.promises().no_overlap {
        wrongs.extend(seen.refused_holders);
    }
    seen.lost_early.iter().take(SHOWN).for_each(|what| println!("lost early: {what}"));
    if ground.promises().no_loss {
        wrongs.extend(seen.lost_early.iter().map(|what| format!("a grant was lost: {what}")));
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

/// Leaves what was seen where somebody can read it.
pub(crate) fn keep(calls: &[Call], round: &Round, wrongs: &[String]) {
    let path = std::env::temp_dir().join(format!("kvlock-topologies-{}.txt", std::process::id()));
    let seen = round.tally.seen();
    let faults = seen.faults.iter().map(|(what, span)| format!("{what} {span:?}"));
    let believed = |call: &Call| format!("{call}, believed until {:?}", call.valid_until);
    let calls = calls.iter().chain(&seen.renewals).map(believed);
    let lines: Vec<String> = wrongs
        .iter()
        .cloned()
        .chain(faults)
        .chain(seen.lost_early.iter().cloned())
        .chain(calls)
        .collect();
    match std::fs::write(&path, lines.join("\n")) {
        Ok(()) => println!("the calls of the round are in {}", path.display()),
        Err(why) => println!("the calls of the round are lost: {why}"),
    }
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

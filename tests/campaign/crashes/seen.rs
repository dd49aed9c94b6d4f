//! What crashes have cost.

use harness::checker::{Limits, Rule, check};
use harness::history::{Call, Outcome, Request};
use std::time::Duration;

/// A server whose disk is slow answers late.
const LIMITS: Limits = Limits { slack: Duration::from_millis(2), prompt: Duration::from_secs(5) };

/// The owner that wants all locks when the server is back.
pub(super) const AFTERWARDS: &str = "impatient";

/// What was seen in one life of a server and the beginning of the next, or in all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// How many times the server died.
    pub(super) crashes: u64,
    /// Grants that clients knew of.
    pub(super) grants: u64,
    /// Those of them that had neither been released nor were over when the server was back.
    pub(super) standing: u64,
    /// Those of these that the server then did not know.
    pub(super) lost: u64,
    /// Locks that were granted while somebody could rely on having them.
    pub(super) twice: u64,
    /// Grants whose token was not larger than that of each grant which was answered before they
    /// were asked for, of whichever lock.
    pub(super) tokens_back: u64,
    /// The largest token so far.
    last_token: u64,
    /// What else was wrong.
    pub(super) violations: Vec<String>,
}

impl Seen {
    /// Judges all that clients were told in one life of a server and right after it.
    pub(super) fn judge(&mut self, calls: &[Call]) {
        self.count_tokens(calls);
        for violation in check(calls, &LIMITS) {
            match violation.rule {
                Rule::Exclusion => self.twice += 1,
                // In a quarantine; or the release was lost with the server.
                Rule::Refusal if violation.text.contains(AFTERWARDS) => {}
                _ => self.violations.push(violation.to_string()),
            }
        }
    }

    fn count_tokens(&mut self, calls: &[Call]) {
        let granted = |call: &Call| match (&call.request, call.answer) {
            (Request::Acquire { .. }, Some((at, Outcome::Granted { token, .. }))) => {
                Some((call.sent, at, token))
            }
            _ => None,
        };
        let mut by_sending: Vec<_> = calls.iter().filter_map(granted).collect();
        let mut by_answer = by_sending.clone();
        by_sending.sort_unstable();
        by_answer.sort_unstable_by_key(|(_, at, _)| *at);
        let mut answered = by_answer.iter().peekable();
        for (sent, _, token) in by_sending {
            while let Some((_, _, known)) = answered.next_if(|(_, at, _)| *at < sent) {
                self.last_token = self.last_token.max(*known);
            }
            self.tokens_back += u64::from(token <= self.last_token);
        }
        let largest = by_answer.iter().map(|(_, _, token)| *token).max();
        self.last_token = self.last_token.max(largest.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LEASE: Duration = Duration::from_secs(100);

    fn grant(key: &str, owner: &str, sent_ms: u64, token: u64) -> Call {
        let request = Request::Acquire { lease: LEASE, timeout: None };
        let [sent, at] = [sent_ms, sent_ms + 10].map(Duration::from_millis);
        Call::new((key, owner), request, sent, (at, Outcome::Granted { token, holds: 1 }))
    }

    #[test]
    fn a_grant_to_a_second_is_seen() {
        let mut seen = Seen::default();
        seen.judge(&[grant("k", "a", 0, 5), grant("l", "b", 20, 6), grant("k", "c", 40, 7)]);
        assert_eq!((seen.twice, seen.tokens_back), (1, 0), "{seen:?}");
        assert_eq!(seen.violations, [""; 0]);
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen_whichever_the_lock_and_whenever_the_crash() {
        let mut seen = Seen::default();
        seen.judge(&[grant("k", "a", 0, 5), grant("l", "b", 20, 5), grant("m", "c", 40, 6)]);
        assert_eq!((seen.twice, seen.tokens_back), (0, 1), "{seen:?}");
        seen.judge(&[grant("k", "a", 0, 6), grant("l", "b", 20, 7)]);
        assert_eq!((seen.twice, seen.tokens_back), (0, 2), "{seen:?}");
    }

    #[test]
    fn grants_that_cross_may_have_any_order() {
        let mut seen = Seen::default();
        seen.judge(&[grant("k", "a", 0, 6), grant("l", "b", 5, 5)]);
        assert_eq!(seen.tokens_back, 0, "{seen:?}");
    }
}

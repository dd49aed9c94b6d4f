//! Checks whether a correct lock could have produced a history.
//!
//! The checker knows only the calls. It reports a violation only if no order of execution explains the calls.
//! It assumes that a call takes effect at one moment between its sending and its reply. A lease does not end
//! before its length has passed since the *sending* of the call that set it. A call with an unknown outcome
//! may have taken effect or not. So delays of a test's threads do not make the checker report a correct
//! server. Only the limits of promptness depend on the machine, and the test sets them.
//!
//! | rule | meaning |
//! |---|---|
//! | [`Rule::TokenOrder`] | a later grant has a larger token, and only owners that share the lock have the same token |
//! | [`Rule::Exclusion`] | no other owner is granted a lock, and no holder loses it, before the holder's lease can have ended; sharers may hold it together |
//! | [`Rule::Belief`] | at no moment do two owners believe that they hold the lock, unless they share it; nor do owners believe that they have more permits than exist |
//! | [`Rule::Reentry`] | a re-entry keeps the token and adds at most one hold; a release removes at most one, or all |
//! | [`Rule::Stale`] | re-entering, renewing or releasing a lost lock is refused |
//! | [`Rule::Fifo`] | a request sent after a waiter was queued is not granted before it, unless the waiter's session was away |
//! | [`Rule::Prompt`] | a free lock is granted to its waiters in time, and timeouts are kept |
//! | [`Rule::Refusal`] | a request for a free lock without waiters is granted |
//! | [`Rule::Permits`] | no more permits are held than exist |
//! | [`Rule::Latch`] | no waiter is released before the latch is counted down, all are after, and no participant counts twice |
//! | [`Rule::Answered`] | every call is answered |
//!
//! Fencing tokens give the order of the grants, so checking takes O(n log n) if breaks, latches and sessions
//! that were away are few. Permits have no tokens; they are judged by the number that each owner certainly
//! has. The checker assumes that the calls of one owner on one lock do not overlap, except repeated waits.

mod grants;
#[cfg(test)]
mod histories;
mod holds;
mod idle;
mod latches;
mod queue;

use crate::history::Call;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A rule for histories; see the table of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the module's table says what each of them is")]
pub enum Rule {
    TokenOrder,
    Exclusion,
    Belief,
    Reentry,
    Stale,
    Fifo,
    Prompt,
    Refusal,
    Permits,
    Latch,
    Answered,
}

/// Calls that contradict each other: a correct server cannot have answered them so.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule that the calls break.
    pub rule: Rule,
    /// The calls that contradict each other, in readable form.
    pub text: String,
    /// For a token that is not larger than an earlier one: when the earlier grant was answered, and when the
    /// later one was requested.
    pub between: Option<(Duration, Duration)>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

/// Tolerance for clocks, and the required speed of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tolerance for the ends of leases and timeouts: the server counts them in whole milliseconds, and some
    /// servers read the clock only once per millisecond.
    pub slack: Duration,
    /// Longest delay of a reply after a lock became free, a latch opened or a timeout passed.
    pub prompt: Duration,
    /// Longest time in which the server leaves a free lock of this name to clients that take it with scripts: 5 ms
    /// for each process that listens for the lock, whether it then takes the lock or not.
    pub left_free: fn(&str) -> Duration,
}

impl Default for Limits {
    /// Limits for a machine that also runs other tests.
    fn default() -> Self {
        Self {
            slack: Duration::from_millis(2),
            prompt: Duration::from_millis(500),
            left_free: never,
        }
    }
}

/// No lock is left to scripts.
pub fn never(_: &str) -> Duration {
    Duration::ZERO
}

/// Returns all violations in a history.
pub fn check(calls: &[Call], limits: &Limits) -> Vec<Violation> {
    let mut keys: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        keys.entry(&call.key).or_default().push(call);
    }
    let mut violations = Vec::new();
    for calls in keys.values_mut() {
        calls.sort_by_key(|call| call.sent);
        let mut report = Report(&mut violations);
        queue::check_answered(calls, &mut report);
        queue::check_timeouts(calls, limits, &mut report);
        if calls.iter().any(|call| latches::is_of_latch(&call.request)) {
            latches::check(calls, limits, &mut report);
            continue;
        }
        let holds = holds::holds(calls, limits, &mut report);
        let later = holds::first_granted_after(&holds);
        grants::check(calls, &holds, &later, limits, &mut report);
        queue::check_fifo(calls, &holds, limits, &mut report);
        idle::check(calls, &holds, &later, limits, &mut report);
    }
    violations
}

/// Panics if there are violations, and shows the first 20.
pub fn assert_correct(calls: &[Call], limits: &Limits) {
    let violations = check(calls, limits);
    let text: Vec<String> = violations.iter().take(20).map(Violation::to_string).collect();
    assert!(
        violations.is_empty(),
        "{} violations in {} calls:\n{}",
        violations.len(),
        calls.len(),
        text.join("\n")
    );
}

struct Report<'a>(&'a mut Vec<Violation>);

impl Report<'_> {
    fn add(&mut self, rule: Rule, text: String) {
        self.0.push(Violation { rule, text, between: None });
    }

    fn add_token(&mut self, text: String, answered: Duration, asked: Duration) {
        let between = Some((answered, asked));
        self.0.push(Violation { rule: Rule::TokenOrder, text, between });
    }
}

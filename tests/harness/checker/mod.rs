//! Checks whether a correct lock could have produced a history.
//!
//! The checker knows nothing but the calls. Whatever it reports cannot be explained by any order of
//! execution: a call takes effect at one moment between its sending and its answer, a lease ends at
//! the earliest when its length has passed since the *sending* of what set it, and an unknown call
//! may have happened or not. So it never blames a correct server, whatever the machine does to the
//! threads of a test; only the promptness limits depend on the machine, and are the test's to set.
//!
//! | rule | what it says |
//! |---|---|
//! | [`Rule::TokenOrder`] | a later grant has the larger token, and no two grants share one, but those that share the lock |
//! | [`Rule::Exclusion`] | nobody is granted a lock, and no holder loses it, before its lease can have ended; those who share it may be many |
//! | [`Rule::Belief`] | at no moment do two clients believe to hold it |
//! | [`Rule::Reentry`] | re-entering keeps the token and counts by one |
//! | [`Rule::Stale`] | re-entering, renewing or releasing what is lost is refused |
//! | [`Rule::Fifo`] | who was in line first is granted first |
//! | [`Rule::Prompt`] | what is free goes to its waiters in time, and timeouts are kept |
//! | [`Rule::Refusal`] | who asks for what nobody has or waits for is granted it |
//! | [`Rule::Permits`] | never are more permits out than there are |
//! | [`Rule::Latch`] | nobody is released before a latch was counted down, everybody after; nobody counts twice |
//! | [`Rule::Answered`] | every call is answered |
//!
//! Fencing tokens are unique and give the order of the grants, which is why everything takes
//! O(n log n); permits have none, and are judged by what is certain of the number that each owner has. An owner's own calls on one lock are taken to follow each other, as the client does it.

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

/// What a history broke; see the table above.
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

/// One thing that cannot have happened on a correct server.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule it breaks.
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

/// How exact the clocks are, and how fast the server has to be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How much earlier than the calls say a lease may end: the server counts whole milliseconds of
    /// a clock that it reads once per turn of its loop.
    pub slack: Duration,
    /// Longest delay of a reply after a lock became free or a timeout passed.
    pub prompt: Duration,
}

impl Default for Limits {
    /// For a machine that is busy with other tests.
    fn default() -> Self {
        Self { slack: Duration::from_millis(2), prompt: Duration::from_millis(500) }
    }
}

/// Everything that is wrong with a history; nothing for a correct one.
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

/// Panics with all violations, if there are any.
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

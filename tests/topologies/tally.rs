//! What was done and seen in a round, or in all of them.

use harness::coverage::Span;
use harness::history::Call;
use kvlock::Error;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Mutex<BTreeMap<String, u64>>,
    /// The most of something, in milliseconds.
    most: Mutex<BTreeMap<String, u128>>,
    seen: Mutex<Seen>,
}

/// What the judgement at the end of a round needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) faults: Vec<(&'static str, Span)>,
    pub(crate) cancels: Vec<Span>,
    /// When two servers may have taken themselves for the primary.
    pub(crate) apart: Vec<Span>,
    /// Renewals by the watchdog, from when they were due.
    pub(crate) renewals: Vec<Call>,
    /// Holders whose write was refused.
    pub(crate) refused_holders: Vec<String>,
    /// Stale writes that the store accepted.
    pub(crate) stale: Vec<String>,
    /// Who was told of a loss before the lease was over.
    pub(crate) lost_early: Vec<String>,
    /// What nothing explains.
    pub(crate) surprises: Vec<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub(crate) fn add(&self, what: &str, count: u64) {
        *locked(&self.counts).entry(what.to_owned()).or_default() += count;
    }

    /// Notes how long something took, of which the most counts.
    pub(crate) fn took(&self, what: &str, time: Duration) {
        let mut most = locked(&self.most);
        let most = most.entry(what.to_owned()).or_default();
        *most = time.as_millis().max(*most);
    }

    pub(crate) fn count(&self, what: &str) -> u64 {
        locked(&self.counts).get(what).copied().unwrap_or(0)
    }

    pub(crate) fn fault(&self, what: &'static str, span: Span) {
        self.add(&format!("fault: {what}"), 1);
        self.add("faults", 1);
        locked(&self.seen).faults.push((what, span));
    }

    pub(crate) fn apart(&self, span: Span) {
        locked(&self.seen).apart.push(span);
    }

    pub(crate) fn cancel(&self, from: Duration, to: Duration) {
        locked(&self.seen).cancels.push(Span { from, to });
    }

    pub(crate) fn renewed(&self, renewal: Call) {
        self.add("renewals seen", 1);
        locked(&self.seen).renewals.push(renewal);
    }

    pub(crate) fn not_renewed(&self, renewal: Call) {
        self.add("renewals that came to nothing", 1);
        locked(&self.seen).renewals.push(renewal);
    }

    pub(crate) fn stale(&self, what: String) {
        self.add("stale writes accepted", 1);
        locked(&self.seen).stale.push(what);
    }

    pub(crate) fn refused_holder(&self, what: String) {
        self.add("writes refused of who believed to hold", 1);
        locked(&self.seen).refused_holders.push(what);
    }

    pub(crate) fn lost_early(&self, what: String) {
        self.add("told of a loss before the lease was over", 1);
        locked(&self.seen).lost_early.push(what);
    }

    /// Notes an error: one that passes by itself is to be expected here.
    pub(crate) fn trouble(&self, what: &str, trouble: &Error) {
        self.add(&format!("{what} failed"), 1);
        if !trouble.is_retryable() && !trouble.is_lost() {
            locked(&self.seen).surprises.push(format!("{what}: {trouble:?}"));
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        locked(&self.seen).clone()
    }

    pub(crate) fn merge(&self, other: &Self) {
        for (what, count) in locked(&other.counts).iter() {
            self.add(what, *count);
        }
        for (what, ms) in locked(&other.most).iter() {
            let mut most = locked(&self.most);
            let most = most.entry(what.clone()).or_default();
            *most = (*most).max(*ms);
        }
    }

    pub(crate) fn print(&self) {
        for (what, count) in locked(&self.counts).iter() {
            println!("{count:>10}  {what}");
        }
        for (what, ms) in locked(&self.most).iter() {
            println!("{ms:>10}  ms at most: {what}");
        }
    }
}

//! Records that the tasks and faults of a round make for the judgement at its end.

use crate::report::Report;
use crate::suites::Promises;
use harness::coverage::Span;
use harness::history::Call;
use kvlock::Error;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of recent commands that are shown after a violation.
const REMEMBERED: usize = 4_000;

#[derive(Debug, Default)]
pub(crate) struct RoundLog {
    pub(crate) report: Arc<Report>,
    records: Mutex<Records>,
}

/// Records for the judgement at the end of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) faults: Vec<(&'static str, Span)>,
    pub(crate) cancels: Vec<Span>,
    /// Times in which two servers may both have acted as primary.
    pub(crate) splits: Vec<Span>,
    /// Renewals by the watchdog. The call of a failed one begins when the renewal was due. The call of a
    /// successful one begins then or at the task's previous check, whichever is later.
    pub(crate) renewals: Vec<Call>,
    /// Bound locks of clients that vanished, with the time.
    pub(crate) gone: Vec<(String, Duration)>,
    /// Observations of each value of a result, by key and value.
    pub(crate) results: BTreeMap<(String, String), Vec<Shown>>,
    /// Calls that received neither a result nor the lock of the result in time.
    pub(crate) late_results: Vec<Span>,
    /// Recent commands and bytes that were sent but are not recorded as calls.
    pub(crate) recent: VecDeque<String>,
    /// Violations that tasks saw, each with the weakest promise that excludes it.
    pub(crate) violations: Vec<(Promises, String)>,
}

/// An observation of a value by a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The work was about to return the value.
    Made,
    /// The work that would have returned the value was about to fail.
    Failed,
    Found,
}

impl RoundLog {
    pub(crate) fn new(report: Arc<Report>) -> Self {
        Self { report, records: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, what: &str, count: u64) {
        self.report.add(what, count);
    }

    pub(crate) fn fault(&self, what: &'static str, span: Span) {
        self.add(&format!("fault: {what}"), 1);
        self.add("faults", 1);
        self.open().faults.push((what, span));
    }

    pub(crate) fn split(&self, span: Span) {
        self.open().splits.push(span);
    }

    pub(crate) fn cancel(&self, from: Duration, to: Duration) {
        self.open().cancels.push(Span { from, to });
    }

    /// Increments a counter, and records something for the judgement.
    pub(crate) fn keep(&self, what: &str, keep: impl FnOnce(&mut Records)) {
        self.add(what, 1);
        keep(&mut self.open());
    }

    pub(crate) fn sent(&self, line: String) {
        let recent = &mut self.open().recent;
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(line);
    }

    pub(crate) fn show(&self, key: &str, value: &str, shown: Shown) {
        let name = (key.to_owned(), value.to_owned());
        let mut records = self.open();
        let all = records.results.entry(name).or_default();
        if !all.contains(&shown) {
            all.push(shown);
        }
    }

    pub(crate) fn renewed(&self, renewal: Call) {
        self.keep("renewals seen", |records| records.renewals.push(renewal));
    }

    /// Counts and records a violation, with the weakest promise that excludes it.
    pub(crate) fn broken(&self, what: &str, least: Promises, violation: String) {
        self.keep(what, |records| records.violations.push((least, violation)));
    }

    /// Records an unexplained event.
    pub(crate) fn surprise(&self, what: String) {
        self.open().violations.push((Promises::Nothing, format!("Surprise: {what}")));
    }

    /// Counts an error. Errors that are neither transient nor the loss of a lock are unexplained.
    pub(crate) fn trouble(&self, what: &str, trouble: &Error) {
        self.add(&format!("{what} failed"), 1);
        if !trouble.is_retryable() && !trouble.is_lost() {
            self.surprise(format!("{what}: {trouble:?}"));
        }
    }

    pub(crate) fn records(&self) -> Records {
        self.open().clone()
    }
}

//! What the tasks and the faults of a round note for the judgement at its end.

use crate::report::Report;
use crate::suites::Promises;
use harness::coverage::Span;
use harness::history::Call;
use kvlock::Error;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How much of what was sent last is shown when something is wrong.
const REMEMBERED: usize = 4_000;

#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) report: Arc<Report>,
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
    /// Clients that were gone with a bound lock: its name, and when.
    pub(crate) gone: Vec<(String, Duration)>,
    /// What was seen of each value of a result, by its key and the value.
    pub(crate) results: BTreeMap<(String, String), Vec<Shown>>,
    /// Calls that got neither a result nor its lock in time.
    pub(crate) late_results: Vec<Span>,
    /// What was sent last that is in no history.
    pub(crate) said: VecDeque<String>,
    /// What tasks saw that must not be, where that is promised at least.
    pub(crate) violations: Vec<(Promises, String)>,
}

/// What a task has seen of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Work was about to return it.
    Made,
    /// Work was about to fail with it.
    Failed,
    Found,
}

impl Notes {
    pub(crate) fn new(report: Arc<Report>) -> Self {
        Self { report, seen: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, what: &str, count: u64) {
        self.report.add(what, count);
    }

    pub(crate) fn fault(&self, what: &'static str, span: Span) {
        self.add(&format!("fault: {what}"), 1);
        self.add("faults", 1);
        self.open().faults.push((what, span));
    }

    pub(crate) fn apart(&self, span: Span) {
        self.open().apart.push(span);
    }

    pub(crate) fn cancel(&self, from: Duration, to: Duration) {
        self.open().cancels.push(Span { from, to });
    }

    /// Counts that, and keeps it for the judgement.
    pub(crate) fn keep(&self, what: &str, keep: impl FnOnce(&mut Seen)) {
        self.add(what, 1);
        keep(&mut self.open());
    }

    pub(crate) fn said(&self, line: String) {
        let said = &mut self.open().said;
        if said.len() == REMEMBERED {
            said.pop_front();
        }
        said.push_back(line);
    }

    pub(crate) fn show(&self, key: &str, value: &str, shown: Shown) {
        let name = (key.to_owned(), value.to_owned());
        let mut seen = self.open();
        let all = seen.results.entry(name).or_default();
        if !all.contains(&shown) {
            all.push(shown);
        }
    }

    pub(crate) fn renewed(&self, renewal: Call) {
        self.keep("renewals seen", |seen| seen.renewals.push(renewal));
    }

    /// Counts what must not be where that is promised at least.
    pub(crate) fn broken(&self, what: &str, least: Promises, violation: String) {
        self.keep(what, |seen| seen.violations.push((least, violation)));
    }

    /// Notes what nothing explains.
    pub(crate) fn surprise(&self, what: String) {
        self.open().violations.push((Promises::Nothing, format!("Surprise: {what}")));
    }

    /// Records an error. Transient errors are expected here.
    pub(crate) fn trouble(&self, what: &str, trouble: &Error) {
        self.add(&format!("{what} failed"), 1);
        if !trouble.is_retryable() && !trouble.is_lost() {
            self.surprise(format!("{what}: {trouble:?}"));
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.open().clone()
    }
}

//! What was done, how often, and what came as a surprise.

use harness::coverage::Span;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// How many violations are shown; the first few tell the story.
const SHOWN: usize = 20;

#[derive(Default)]
pub(crate) struct Tally {
    counts: Mutex<BTreeMap<String, u64>>,
    surprises: Mutex<Vec<String>>,
    /// Which fault was done when.
    faults: Mutex<Vec<(&'static str, Span)>>,
    /// When waits were taken back.
    cancels: Mutex<Vec<Span>>,
}

impl Tally {
    pub(crate) fn add(&self, what: &str, count: u64) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += count;
    }

    /// Notes a fault that was done, or at least begun.
    pub(crate) fn fault(&self, what: &'static str, from: Duration, to: Duration) {
        self.add(&format!("fault: {what}"), 1);
        self.faults.lock().unwrap().push((what, Span { from, to }));
    }

    pub(crate) fn faults(&self) -> Vec<(&'static str, Span)> {
        self.faults.lock().unwrap().clone()
    }

    /// Notes that somebody took a wait back.
    pub(crate) fn cancel(&self, from: Duration, to: Duration) {
        self.cancels.lock().unwrap().push(Span { from, to });
    }

    pub(crate) fn cancels(&self) -> Vec<Span> {
        self.cancels.lock().unwrap().clone()
    }

    /// What was done when, for whoever has to understand a violation.
    pub(crate) fn diary(&self) -> Vec<String> {
        let line = |(what, Span { from, to }): (_, _)| format!("{what} from {from:?} to {to:?}");
        self.faults().into_iter().map(line).collect()
    }

    /// How many calls there were, and how many faults.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let counts = self.counts.lock().unwrap();
        let faults = counts.iter().filter(|(what, _)| what.starts_with("fault: "));
        (counts.get("calls").copied().unwrap_or(0), faults.map(|(_, count)| count).sum())
    }

    /// Notes a reply that nothing explains.
    pub(crate) fn surprise(&self, what: String) {
        self.surprises.lock().unwrap().push(what);
    }

    pub(crate) fn surprises(&self) -> Vec<String> {
        self.surprises.lock().unwrap().clone()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (what, count) in other.counts.lock().unwrap().iter() {
            self.add(what, *count);
        }
    }

    pub(crate) fn print(&self, origin: &str, rounds: u64, violations: &[String], crashes: usize) {
        for (what, count) in self.counts.lock().unwrap().iter() {
            println!("{count:>10}  {what}");
        }
        for violation in violations.iter().take(SHOWN) {
            println!("VIOLATION {violation}");
        }
        let (calls, faults) = self.totals();
        println!(
            "{origin}: {rounds} rounds, {calls} calls, {faults} faults, {} violations, {crashes} crashes",
            violations.len(),
        );
    }
}

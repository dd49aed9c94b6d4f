//! What was done, how often, and what came as a surprise.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// How many violations are shown; the first few tell the story.
const SHOWN: usize = 20;

#[derive(Default)]
pub(crate) struct Tally {
    counts: Mutex<BTreeMap<String, u64>>,
    surprises: Mutex<Vec<String>>,
    diary: Mutex<Vec<String>>,
}

impl Tally {
    pub(crate) fn add(&self, what: &str, count: u64) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += count;
    }

    /// Notes a fault that was done.
    pub(crate) fn fault(&self, what: &str) {
        self.add(&format!("fault: {what}"), 1);
    }

    /// Notes what was done when, for whoever has to understand a violation.
    pub(crate) fn note(&self, line: String) {
        self.diary.lock().unwrap().push(line);
    }

    pub(crate) fn diary(&self) -> Vec<String> {
        self.diary.lock().unwrap().clone()
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

    pub(crate) fn print(&self, seed: u64, rounds: u64, violations: &[String], crashes: usize) {
        let counts = self.counts.lock().unwrap();
        let mut faults = 0;
        for (what, count) in counts.iter() {
            println!("{count:>10}  {what}");
            faults += if what.starts_with("fault: ") { *count } else { 0 };
        }
        for violation in violations.iter().take(SHOWN) {
            println!("VIOLATION {violation}");
        }
        let calls = counts.get("calls").copied().unwrap_or(0);
        println!(
            "seed {seed}: {rounds} rounds, {calls} calls, {faults} faults, {} violations, {crashes} crashes",
            violations.len(),
        );
    }
}

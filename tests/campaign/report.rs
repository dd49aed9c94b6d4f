//! Results of a suite: counts, durations and violations.

use harness::evidence::Record;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of violations of each kind that are printed: the first few show the cause.
const SHOWN: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Report {
    totals: Mutex<Totals>,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    counts: BTreeMap<String, u64>,
    /// In microseconds.
    times: BTreeMap<String, Vec<i64>>,
    violations: Vec<String>,
    /// Summary of the results, for the suite's row.
    figure: String,
    /// Messages that say where artifacts are.
    artifacts: Vec<String>,
}

impl Report {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to a counter.
    pub(crate) fn add(&self, what: &str, count: u64) {
        *self.totals().counts.entry(what.to_owned()).or_default() += count;
    }

    /// The counter of the given name.
    pub(crate) fn count(&self, what: &str) -> u64 {
        self.totals().counts.get(what).copied().unwrap_or(0)
    }

    /// Number of kinds of faults that happened.
    pub(crate) fn kinds(&self) -> usize {
        self.totals().counts.keys().filter(|what| what.starts_with("fault: ")).count()
    }

    /// Records a time in microseconds.
    pub(crate) fn time(&self, what: &str, us: i64) {
        self.totals().times.entry(what.to_owned()).or_default().push(us);
    }

    /// Records a time that is given as a duration.
    pub(crate) fn took(&self, what: &str, time: Duration) {
        self.time(what, i64::try_from(time.as_micros()).expect("not for centuries"));
    }

    /// Minimum, median, 99th percentile and maximum of the recorded times, as text.
    pub(crate) fn spread(&self, what: &str) -> String {
        let mut times = self.totals().times.get(what).cloned().unwrap_or_default();
        times.sort_unstable();
        spread(&times)
    }

    /// Sets the summary of the results for the suite's row.
    pub(crate) fn figure(&self, figure: String) {
        self.totals().figure = figure;
    }

    /// Records a violation: its kind, a colon, and the details.
    pub(crate) fn violation(&self, what: impl Into<String>) {
        self.totals().violations.push(what.into());
    }

    /// Requires that a counter has reached a minimum.
    pub(crate) fn wants(&self, what: &str, least: u64) {
        let count = self.count(what);
        if count < least {
            self.violation(format!("Little: {what}: {count} instead of {least}"));
        }
    }

    /// Requires that at most `of` cases were excused, or ten if that is more. A case is excused if, for
    /// example, a process had no processor time.
    pub(crate) fn excuses(&self, what: &str, of: u64) {
        let count = self.count(what);
        if count > of.max(10) {
            self.violation(format!("Little: {what}: {count} times, for {of}"));
        }
    }

    /// Requires that times were recorded, and that at most half of them exceed a limit. The others may be
    /// late on a busy machine.
    pub(crate) fn is_mostly_below(&self, what: &str, us: i64) {
        let late = {
            let totals = self.totals();
            let times = totals.times.get(what).map(Vec::as_slice).unwrap_or_default();
            (times.iter().filter(|time| **time > us).count(), times.len())
        };
        if late.1 == 0 {
            self.violation(format!("Little: {what}: nothing was measured"));
        }
        if 2 * late.0 > late.1 {
            self.violation(format!("Late: {what}: {} of {} by more than {us} us", late.0, late.1));
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.totals().violations.is_empty()
    }

    /// Writes these lines to a file for later reading. Replaces the file of an earlier call in this process
    /// for the same suite.
    pub(crate) fn keep(&self, suite: &str, lines: &[String]) {
        let name = format!("kvlock-{}-{}.txt", suite.replace('/', "-"), std::process::id());
        let path = std::env::temp_dir().join(name);
        let said = match std::fs::write(&path, lines.join("\n")) {
            Ok(()) => format!("what happened is in {}", path.display()),
            Err(why) => format!("what happened is lost: {why}"),
        };
        self.totals().artifacts.push(said);
    }

    /// The suite's row of the printed table: description, origin (commit, server and seed), summary of the
    /// results, and the command that repeats the run.
    pub(crate) fn row(&self, what: &str, origin: &str, again: &str) -> String {
        let totals = self.totals();
        let (figure, count) = (&totals.figure, totals.violations.len());
        let colon = if figure.is_empty() { "" } else { ": " };
        format!("| {what} | {origin} | {figure}{colon}{count} violations | `{again}` |")
    }

    /// Fills a record of the run with its results.
    pub(crate) fn fill(&self, record: &mut Record) {
        let totals = self.totals();
        for (what, count) in &totals.counts {
            match what.strip_prefix("fault: ") {
                Some(fault) => record.faults.insert(fault.to_owned(), *count),
                None => record.counts.insert(what.clone(), *count),
            };
        }
        for (what, times) in &totals.times {
            let mut times = times.clone();
            times.sort_unstable();
            record.times_us.insert(what.clone(), [0, 50, 99, 100].map(|it| percentile(&times, it)));
        }
        record.figure.clone_from(&totals.figure);
        record.violations.clone_from(&totals.violations);
    }

    /// Prints the counts, the spread of each measured time, and the first violations of each kind.
    pub(crate) fn print(&self) {
        let mut totals = self.totals();
        for (what, count) in &totals.counts {
            println!("{count:>10}  {what}");
        }
        for (what, times) in &mut totals.times {
            times.sort_unstable();
            println!("{:>10}  {what}: {}", times.len(), spread(times));
        }
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for wrong in &totals.violations {
            kinds.entry(wrong.split(':').next().unwrap_or_default()).or_default().push(wrong);
        }
        for (kind, violations) in kinds {
            println!("{:>10}  violations: {kind}", violations.len());
            violations.iter().take(SHOWN).for_each(|wrong| println!("VIOLATION {wrong}"));
        }
        totals.artifacts.iter().for_each(|artifact| println!("{artifact}"));
    }
}

fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(0)
}

/// Minimum, median, 99th percentile and maximum of sorted times, as text.
fn spread(sorted: &[i64]) -> String {
    let at = |percent| percentile(sorted, percent);
    let ms = |us: i64| format!("{}.{:03} ms", us / 1000, us.unsigned_abs() % 1000);
    let names = ["least", "p50", "p99", "max"].into_iter().zip([0, 50, 99, 100]);
    names
        .map(|(name, percent)| format!("{name} {}", ms(at(percent))))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_were_not_measured_do_not_pass() {
        let is_right = |times: &[i64]| {
            let report = Report::default();
            times.iter().for_each(|us| report.time("late", *us));
            report.is_mostly_below("late", 20);
            report.is_right()
        };
        assert!(is_right(&[20]) && is_right(&[5, 30]));
        assert!(!is_right(&[30]) && !is_right(&[]));
    }

    #[test]
    fn the_spread_of_times() {
        let times: Vec<i64> = (1..=200).map(|ms| ms * 1000).collect();
        let all = "least 1.000 ms, p50 101.000 ms, p99 199.000 ms, max 200.000 ms";
        assert_eq!(spread(&times), all);
        assert_eq!(spread(&[1500]), "least 1.500 ms, p50 1.500 ms, p99 1.500 ms, max 1.500 ms");
    }
}

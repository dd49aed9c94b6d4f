//! Runs clients on real servers under faults. Judges the replies, and each client's beliefs: the times in which
//! it relies on a lock.
//!
//! Most suites are a topology, a setting, a workload and faults; the others repeat one scenario. [`suites`]
//! is the table of all suites. The beginning of a name, up to a slash, selects all suites that start with
//! it. Each suite prints its counts, its violations, and a row of results with commit, server and
//! seed. The exit status is 1 if a suite has a violation: for example, a promise was broken, or a required
//! count was not reached.
//!
//! The seed decides the random choices, but not the order in which threads and tasks run.

// The types of the futures are deeply nested.
#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test that is run by hand, too: a panic is how it fails, and its numbers are small"
)]

mod crashes;
mod faults;
mod judge;
mod memory;
mod processes;
mod promotion;
mod report;
mod round;
mod round_log;
mod scripts;
mod setting;
mod store;
mod suites;
mod topology;
mod workload;

use crate::report::Report;
use crate::suites::Suite;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, value_parser};
use harness::commit::commit;
use harness::evidence::{self, Record};
use harness::kind::Kind;
use harness::options::chosen_io_threads;
use harness::random::Seed;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Runs workloads on real servers under faults, and checks what every client saw
#[derive(Clone, Parser)]
#[command(name = "campaign", args_override_self = true)]
struct Options {
    /// Suites to run: names, or how they begin
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// List all suites, or those: name, rows of docs/evidence.md, description
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    seed: Seed,
    /// Duration of each suite that runs for a time
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Repetitions of each suite that repeats one scenario
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Approximate number of grants that ends a suite, where grants do
    #[arg(long, value_name = "N")]
    grants: Option<u64>,
    /// Inject only faults whose names contain these words
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    fault: String,
    /// Continue until this counter is above zero, for at most ten minutes more
    #[arg(long, value_name = "WORDS")]
    until: Option<String>,
    /// Write each run into docs/evidence/, and the tables of the documents
    #[arg(long)]
    publish: bool,
    /// Only write the tables of the documents again, from docs/evidence/
    #[arg(long)]
    render: bool,
    /// Do not demand that each fault of a suite comes: for a run of seconds
    #[arg(long)]
    some: bool,
    /// Continue until each fault has happened during each kind of operation at least N times
    #[arg(long, value_name = "N", default_value_t = 0)]
    pairs: u64,
    /// Check only what must be zero, not that locks were granted twice where that is expected: for a
    /// machine so busy that a failover takes longer than a lease
    #[arg(long)]
    zeros: bool,
    /// Give client processes a clock that is too slow: the violations must be found
    #[arg(long)]
    wrong_clock: bool,
    /// Suites to run in parallel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    jobs: u64,
}

impl Options {
    fn time(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(seconds))
    }

    fn times(&self, times: u64) -> u64 {
        self.times.unwrap_or(times)
    }

    /// The suites to run: at least one.
    fn suites(&self) -> Vec<Suite> {
        let begins = |suite: &Suite, name: &String| {
            let rest = suite.name.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || name.ends_with('/'))
        };
        let mut all = suites::all();
        if let Some(name) = self.suites.iter().find(|name| !all.iter().any(|it| begins(it, name))) {
            wrong(&format!("there is no suite {name:?}: see --list"));
        }
        let is_named = |suite: &Suite| self.suites.contains(&suite.name);
        // A control must find overlaps. In a few seconds, or with only some faults, it may find none, so it
        // then runs only if it is named in full.
        let brief = self.some || !self.fault.is_empty();
        all.retain(|suite| {
            self.suites.iter().any(|name| begins(suite, name))
                && (is_named(suite) || !brief || !suite.is_control())
        });
        if all.is_empty() && !self.list {
            wrong("which suites? See --list");
        }
        if all.is_empty() { suites::all() } else { all }
    }
}

fn wrong(what: &str) -> ! {
    Options::command().error(ErrorKind::ValueValidation, what).exit()
}

fn main() -> ExitCode {
    if processes::serve(std::env::args().skip(1)).is_some() {
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    if options.render {
        render();
        return ExitCode::SUCCESS;
    }
    let suites = options.suites();
    if options.list {
        for Suite { name, evidence, what, .. } in suites {
            println!("{name:32} {evidence:28} {what}");
        }
        return ExitCode::SUCCESS;
    }
    println!("seed {}", options.seed.number);
    // The commit of the running code, read now: another commit may follow during the run.
    commit();
    let rows = run(&options, &suites);
    if options.publish {
        render();
    }
    println!("\n| what | commit, server, seed | figure | again with |\n|---|---|---|---|");
    rows.iter().for_each(|(row, _)| println!("{row}"));
    if rows.iter().all(|(_, right)| *right) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Renders the tables of the documents again, and writes the pages that changed.
fn render() {
    for (path, text, rendered) in evidence::pages() {
        if text != rendered {
            std::fs::write(&path, rendered).expect("write a page");
            println!("wrote {}", path.display());
        }
    }
}

/// Runs the suites. Returns the row of each suite, and whether it has no violation.
fn run(options: &Options, suites: &[Suite]) -> Vec<(String, bool)> {
    let todo = Mutex::new(suites.iter().enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((number, suite)) = { todo.lock().unwrap().next() } {
            let report = Arc::new(Report::default());
            let begun = Instant::now();
            let own = Options { seed: options.seed.of_part(suite.seeded_by()), ..options.clone() };
            let played = catch_unwind(AssertUnwindSafe(|| (suite.play)(&own, &report)));
            if played.is_err() {
                report.violation("Panic: it gave up, see above");
            }
            let mut done = done.lock().unwrap();
            println!("\n{}", suite.name);
            report.print();
            let again = options.again(&suite.name);
            let mut record = options.record(suite, &again, begun.elapsed());
            report.fill(&mut record);
            if options.publish
                && let Err(why) = record.publish()
            {
                println!("{why}");
            }
            let row = report.row(&suite.what, &options.seed.origin(), &again);
            done.push((number, row, report.is_right()));
        }
    };
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(number, ..)| *number);
    done.into_iter().map(|(_, row, right)| (row, right)).collect()
}

/// Name and version of the server under test, and its number of I/O threads if one was chosen.
fn server() -> String {
    let (kind, threads) = (Kind::chosen(), chosen_io_threads());
    let threads = threads.map(|number| format!(" with {number} I/O threads")).unwrap_or_default();
    format!("{kind} {}{threads}", kind.version())
}

impl Options {
    /// A record of a run of the given suite, still without results.
    fn record(&self, suite: &Suite, again: &str, wall: Duration) -> Record {
        Record {
            suite: suite.name.clone(),
            rows: suite.evidence.to_owned(),
            commit: commit().to_owned(),
            server: server(),
            seed: self.seed.number,
            again: again.to_owned(),
            wall_s: wall.as_secs(),
            complete: !self.some && self.fault.is_empty(),
            figure: String::new(),
            counts: BTreeMap::new(),
            faults: BTreeMap::new(),
            times_us: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// The command line for the given suite alone, with the seed.
    fn again(&self, suite: &str) -> String {
        let quoted = |word: String| if word.contains(' ') { format!("'{word}'") } else { word };
        let given = std::env::args().skip(1).filter(|word| !self.suites.contains(word));
        let mut words: Vec<String> = ["scripts/campaign".to_owned(), suite.to_owned()].into();
        words.extend(given.map(quoted));
        if !words.contains(&"--seed".to_owned()) {
            words.extend(["--seed".to_owned(), self.seed.number.to_string()]);
        }
        words.join(" ")
    }
}

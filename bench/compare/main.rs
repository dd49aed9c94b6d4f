//! Measures kvlock beside common alternatives. `scripts/bench` runs it.
//!
//! ```text
//! compare                     all scenarios: one round, and more while these end within 15 minutes, at most 5
//! compare --quick             one short round with fewer measurements, in about two minutes
//! compare --only 2,3          only these scenarios; results go to target/bench/part/
//! compare --whom 'kvlock;BLPOP' only these contenders; likewise
//! compare --cells '1 waiter'  only tables with the given name; likewise
//! compare --rounds 1          one round at most
//! compare --minutes 5         no further round that would end later
//! compare --publish           replaces these scenarios in the published results
//! compare --render            tables and pictures from the committed results
//! ```
//!
//! | file | |
//! |---|---|
//! | `contender.rs` | contenders |
//! | `scenario.rs` | scenarios |
//! | `measure.rs` | one measurement: a new server, load generators, one period of time |
//! | `process.rs`, `server.rs`, `machine.rs` | processes, and their processor time |
//! | `figures.rs`, `waiting.rs`, `holding.rs`, `family.rs`, `dying.rs`, `noisy.rs`, `fleet.rs`, `once.rs` | from events to figures |
//! | `results.rs`, `table.rs`, `plot.rs`, `publish.rs` | from figures to documents |
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "it measures and prints; whatever goes wrong ends it"
)]

mod contender;
mod dying;
mod family;
mod figures;
mod fleet;
mod holding;
mod machine;
mod measure;
mod noisy;
mod once;
mod plot;
mod process;
mod publish;
mod results;
mod scenario;
mod server;
mod table;
mod waiting;

use crate::results::{BUSY, Results};
use crate::scenario::{Cell, Effort, Measured};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct Options {
    quick: bool,
    render: bool,
    publish: bool,
    only: Option<Vec<String>>,
    whom: Option<Vec<String>>,
    cells: Option<Vec<String>>,
    rounds: usize,
    /// A further round starts only if it is expected to end within this time.
    minutes: f64,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            quick: false,
            render: false,
            publish: false,
            only: None,
            whom: None,
            cells: None,
            rounds: 5,
            minutes: 14.8,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => (options.quick, options.rounds) = (true, 1),
                "--render" => options.render = true,
                "--publish" => options.publish = true,
                "--rounds" => options.rounds = words.next().and_then(|n| n.parse().ok()).unwrap(),
                "--minutes" => options.minutes = words.next().and_then(|n| n.parse().ok()).unwrap(),
                "--only" => options.only = list(words.next(), ','),
                "--whom" => options.whom = list(words.next(), ';'),
                "--cells" => options.cells = list(words.next(), ';'),
                _ => {
                    println!("{USAGE}");
                    std::process::exit(2);
                }
            }
        }
        // Ratios compare figures of one run. So a scenario is published with all its contenders, or not at
        // all.
        assert!(
            !options.publish
                || (options.whom.is_none() && options.cells.is_none() && !options.quick),
            "--publish needs whole scenarios"
        );
        options
    }

    /// Returns the folder of the results. Quick and partial runs are kept apart from the published results.
    fn folder(&self) -> PathBuf {
        let is_part = [&self.only, &self.whom, &self.cells].iter().any(|list| list.is_some());
        match (self.quick, is_part) {
            (false, false) => published(),
            (true, _) => server::brought("").join("../quick"),
            (false, true) => server::brought("").join("../part"),
        }
    }

    fn asks_for(&self, cell: &Cell) -> bool {
        let is_in = |list: &Option<Vec<String>>, name: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|listed| listed == name))
        };
        // This measurement takes minutes, and runs only with `--only`.
        let on_demand = cell.scenario == "14" && cell.name.starts_with("1,000,000");
        (self.only.is_some() || !on_demand)
            && is_in(&self.only, cell.scenario)
            && is_in(&self.whom, cell.contender.name)
            && is_in(&self.cells, &cell.name)
    }
}

const USAGE: &str = "usage: scripts/bench [--quick] [--only 1,2,…] [--whom 'kvlock;BLPOP;…'] \
    [--cells '1 waiter;10 waiters'] [--rounds N] [--minutes M] [--publish] | --render";

/// Splits a list. Names may contain commas, so lists of names are separated by semicolons.
fn list(words: Option<String>, between: char) -> Option<Vec<String>> {
    Some(words.expect("a list").split(between).map(str::to_owned).collect())
}

fn published() -> PathBuf {
    harness::kind::workspace().join("bench/results")
}

fn main() {
    let options = Options::read();
    let (root, mut folder) = (harness::kind::workspace(), options.folder());
    if options.render {
        let results = publish::read(&folder);
        publish::write(&results, &folder);
        publish::fill_documents(&results, root);
        return;
    }
    machine::pin_children();
    let mut results = measure(&options);
    if options.publish {
        folder = published();
        results = results::merged(publish::read(&folder), results);
        publish::write(&results, &folder);
    }
    if folder == published() {
        publish::fill_documents(&results, root);
    }
    println!("{}", table::provenance(&results));
    println!("{}", table::summary(&results));
    println!("all figures: {}", folder.join("tables.md").display());
}

fn measure(options: &Options) -> Results {
    let effort = Effort { quick: options.quick, seconds: if options.quick { 0.25 } else { 0.6 } };
    let mut cells = scenario::all(effort);
    cells.retain(|cell| options.asks_for(cell));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut results = Results {
        command: ["scripts/bench"]
            .into_iter()
            .chain(arguments.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" "),
        machine: machine::describe(),
        ..Results::default()
    };
    let begun = Instant::now();
    let (mut round_took, budget) =
        (Duration::ZERO, Duration::from_secs_f64(60.0 * options.minutes));
    while results.rounds < options.rounds && begun.elapsed() + round_took < budget {
        round_took = round(&cells, &mut results);
        results.rounds += 1;
        results.minutes = begun.elapsed().as_secs_f64() / 60.0;
        // An interrupted run keeps the results so far.
        publish::write(&results, &options.folder());
    }
    results
}

/// Measures all cells of a round. Each round begins each table with another contender. Returns the expected
/// duration of a later round.
fn round(cells: &[Cell], results: &mut Results) -> Duration {
    let mut again = Duration::ZERO;
    let tables = cells.chunk_by(|a, b| a.scenario == b.scenario && a.name == b.name);
    for table in tables {
        let first = results.rounds % table.len();
        for place in 0..table.len() {
            let (cell, begun) = (&table[(first + place) % table.len()], Instant::now());
            one(cell, results);
            if !cell.once {
                again += begun.elapsed();
            }
        }
    }
    // Rows are in the order of the cells.
    let order = |row: &results::Row| {
        cells.iter().position(|c| {
            c.scenario == row.scenario && c.name == row.cell && c.contender.name == row.contender
        })
    };
    results.rows.sort_by_key(order);
    again
}

fn one(cell: &Cell, results: &mut Results) {
    let Cell { scenario, name, contender, .. } = cell;
    if cell.once && results.rounds > 0 {
        return;
    }
    if let Err(why) = process::program(contender) {
        results.absent.insert(contender.name.to_owned(), why);
        return;
    }
    eprint!("round {} scenario {scenario}, {name}: {} … ", results.rounds + 1, contender.name);
    let begun = Instant::now();
    // A failure of one measurement is reported, and the others continue.
    let measure = || {
        let measured = catch_unwind(AssertUnwindSafe(|| (cell.measure)()));
        measured.unwrap_or_else(|_| Err("it failed".to_owned()))
    };
    let elsewhere = |measured: &Measured| {
        measured.as_ref().ok().and_then(|(figures, _)| figures.get("elsewhere_share").copied())
    };
    let mut measured = measure();
    if elsewhere(&measured).is_some_and(|share| share > BUSY) {
        eprint!("the machine was busy, again … ");
        let again = measure();
        if elsewhere(&again).is_some() && elsewhere(&again) < elsewhere(&measured) {
            measured = again;
        }
    }
    match measured {
        Ok((figures, version)) => {
            eprintln!("{:.1} s", begun.elapsed().as_secs_f64());
            // The raw load generator has no version of its own.
            if cell.has_version() && !version.is_empty() {
                results.versions.insert(contender.name.to_owned(), version);
            }
            results.row(scenario, name, contender.name).add(figures);
        }
        Err(why) => {
            eprintln!("{why}");
            results.row(scenario, name, contender.name).trouble.push(why);
        }
    }
}

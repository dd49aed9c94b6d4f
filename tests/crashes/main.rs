//! What the death of a server costs: counts the grants that are lost, those that are given to a
//! second, and tokens that do not grow.
//!
//! A real server dies in the middle of a load and is started again, so many times for each way to
//! keep grants; each time its clients know of about so many of them. `--only` takes the rows whose
//! name has that in it, and so many rows are tried at a time. Prints a table, and ends with 1 if
//! something is promised and not so, or if a grant survived that nobody had kept. The seed decides
//! what is done and when the server dies, not how the threads meet.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "a test that is run by hand, too: a panic is how it fails"
)]

mod keeping;
mod load;
mod seen;
mod trial;

use crate::keeping::Keeping;
use crate::seen::Seen;
use crate::trial::Trial;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, value_parser};
use harness::Kind;
use harness::random::{Random, Seed};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

/// Counts what the death of a server costs: grants that are lost, or given to a second
#[derive(Parser)]
#[command(name = "crashes", args_override_self = true)]
struct Options {
    /// How often a server dies, for each way to keep grants
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        value_parser = value_parser!(u64).range(1..),
    )]
    times: u64,
    /// About how many grants clients know of, each time
    #[arg(long, value_name = "N", default_value_t = 750)]
    grants: u64,
    #[command(flatten)]
    seed: Seed,
    /// So many rows are tried at a time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = value_parser!(u64).range(1..),
    )]
    jobs: u64,
    /// Only the rows whose name has that in it, such as kill/everysec+quarantine
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Options {
    /// The rows that are tried: at least one.
    fn rows(&self) -> Vec<Keeping> {
        let mut rows = Keeping::all();
        rows.retain(|row| self.only.iter().all(|part| row.name().contains(part)));
        if rows.is_empty() {
            let names: Vec<String> = Keeping::all().into_iter().map(Keeping::name).collect();
            let what = format!("no row is named like that; there are {}", names.join(", "));
            Self::command().error(ErrorKind::ValueValidation, what).exit()
        }
        rows
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let rows = options.rows();
    println!("seed {}, on {}", options.seed.number, Kind::chosen());
    let mut wrongs = Vec::new();
    println!("| keeping | crashes | granted | standing | lost | granted twice | tokens back |");
    println!("|---|---|---|---|---|---|---|");
    for (row, seen) in run(&options, &rows) {
        let name = row.name();
        let Some(seen) = seen else {
            wrongs.push(format!("{name}: it gave up, see above"));
            continue;
        };
        let Seen { crashes, grants, standing, lost, twice, tokens_back, .. } = &seen;
        println!(
            "| {name} | {crashes} | {grants} | {standing} | {lost} | {twice} | {tokens_back} |"
        );
        wrongs.extend(row.wrongs(&seen).into_iter().map(|wrong| format!("{name}: {wrong}")));
    }
    println!("{}", options.seed.origin());
    wrongs.iter().for_each(|wrong| println!("WRONG {wrong}"));
    if wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each row, and what was seen, unless a thread of it panicked.
fn run(options: &Options, rows: &[Keeping]) -> Vec<(Keeping, Option<Seen>)> {
    let random = Random::new(options.seed.number);
    let todo = Mutex::new((0..).zip(rows));
    let next = || todo.lock().unwrap().next();
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((number, row)) = next() {
            let random = random.part(number);
            let trial = || Trial::new(*row, random).run(options.times, options.grants);
            let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(trial)).ok();
            done.lock().unwrap().push((number, *row, seen));
        }
    };
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(number, ..)| *number);
    done.into_iter().map(|(_, row, seen)| (row, seen)).collect()
}

//! What the death of a server costs: counts the grants that are lost, those that are given to a
//! second, and tokens that do not grow.
//!
//! ```text
//! crashes [--times N] [--grants N] [--seed S] [--only NAME] [--jobs N]
//! ```
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
use harness::Kind;
use harness::random::Random;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::SystemTime;

struct Options {
    times: u64,
    grants: u64,
    seed: u64,
    jobs: usize,
    rows: Vec<Keeping>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seed = u64::from(clock.subsec_nanos());
        let mut options = Self { times: 20, grants: 750, seed, jobs: 2, rows: Keeping::all() };
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.as_str() {
                "--times" => options.times = value.parse().ok()?,
                "--grants" => options.grants = value.parse().ok()?,
                "--seed" => options.seed = value.parse().ok()?,
                "--jobs" => options.jobs = value.parse().ok().filter(|jobs| *jobs > 0)?,
                "--only" => options.rows.retain(|row| row.name().contains(&value)),
                _ => return None,
            }
        }
        (options.times > 0 && !options.rows.is_empty()).then_some(options)
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        println!(
            "usage: crashes [--times N] [--grants N] [--seed S] [--only NAME] [--jobs N]\n       \
             names: {}",
            Keeping::all().into_iter().map(Keeping::name).collect::<Vec<_>>().join(", ")
        );
        return ExitCode::from(2);
    };
    println!("seed {}, on {}", options.seed, Kind::chosen());
    let mut wrongs = Vec::new();
    println!("| keeping | crashes | granted | standing | lost | granted twice | tokens back |");
    println!("|---|---|---|---|---|---|---|");
    for (row, seen) in run(&options) {
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
    wrongs.iter().for_each(|wrong| println!("WRONG {wrong}"));
    if wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Each row, and what was seen, unless a thread of it panicked.
fn run(options: &Options) -> Vec<(Keeping, Option<Seen>)> {
    let random = Random::new(options.seed);
    let todo = Mutex::new((0..).zip(&options.rows));
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

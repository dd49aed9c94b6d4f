//! Load on several servers that are something to each other while they are killed, stopped, cut off
//! and replaced: whether two ever believe to hold the same lock, whether tokens grow, and whether
//! anybody is forgotten.
//!
//! ```text
//! topologies --on sentinel|cluster|five [--setting NAME] [--seconds N] [--seed S] [--pairs N]
//!            [--fault WORDS]
//! topologies --on sentinel|cluster --promotions N
//! ```
//!
//! | on | settings, the first unless it is said |
//! |---|---|
//! | `sentinel`: a primary, two replicas, three Sentinels | `replicas`, `quarantine`, `default` |
//! | `cluster`: three masters with a replica each | `replicas`, `default` |
//! | `five`: a quorum of five servers | `quarantine`, `jumps`, `forgetful` |
//!
//! Goes on for so many seconds, and then until each fault has met each operation under way so many
//! times. With `--fault` only those happen in whose names these words are. What is promised of a setting must hold, or it ends with 1; what is not is counted. The
//! seed decides what is done, not how the tasks meet.
//!
//! With `--promotions` it measures instead how long after the death of a primary the first lock is
//! granted, and the first plain write is done.

// The types of the futures are deep.
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
    reason = "a test that is run by hand, too: a panic is how it fails, and its numbers are small"
)]

mod cluster;
mod five;
mod ground;
mod judge;
mod load;
mod promotion;
mod round;
mod sentinel;
mod store;
mod tally;
mod way;

use crate::ground::Ground;
use crate::tally::Tally;
use harness::coverage::Coverage;
use harness::random::Random;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// How long a round may begin new faults.
const ROUND: Duration = Duration::from_secs(30);

/// How many violations are shown; the first few tell the story.
const SHOWN: usize = 20;

struct Options {
    on: String,
    setting: String,
    seconds: u64,
    seed: u64,
    pairs: u64,
    fault: String,
    promotions: u64,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut options = Self {
            on: String::new(),
            setting: String::new(),
            seconds: 300,
            seed: u64::from(clock.subsec_nanos()),
            pairs: 0,
            fault: String::new(),
            promotions: 0,
        };
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.as_str() {
                "--on" => options.on = value,
                "--setting" => options.setting = value,
                "--seconds" => options.seconds = value.parse().ok()?,
                "--seed" => options.seed = value.parse().ok()?,
                "--fault" => options.fault = value,
                "--pairs" => options.pairs = value.parse().ok()?,
                "--promotions" => options.promotions = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(options)
    }
}

fn main() -> ExitCode {
    let done = Options::parse(std::env::args().skip(1)).and_then(|options| run(&options));
    done.unwrap_or_else(|| {
        println!(
            "usage: topologies --on sentinel|cluster|five [--setting NAME] [--seconds N] [--seed S] \
             [--pairs N] [--fault WORDS] [--promotions N]"
        );
        ExitCode::from(2)
    })
}

fn run(options: &Options) -> Option<ExitCode> {
    let code = match (options.on.as_str(), options.promotions) {
        ("sentinel", 0) => campaign(options, &sentinel::Watched::start(&options.setting)?),
        ("cluster", 0) => campaign(options, &cluster::Nodes::start(&options.setting)?),
        ("five", 0) => campaign(options, &five::Five::start(&options.setting)?),
        ("sentinel", count) => promotion::of_sentinel(count),
        ("cluster", count) => promotion::of_cluster(count),
        _ => return None,
    };
    Some(code)
}

fn campaign<G: Ground>(options: &Options, ground: &G) -> ExitCode {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let random = Random::new(options.seed);
    println!("seed {}, on {} {}", options.seed, options.on, options.setting);
    let total = Tally::default();
    let happens = |fault: &&str| ground.happens(fault) && fault.contains(&options.fault);
    let faults: Vec<&'static str> =
        G::FAULTS.iter().map(|fault| fault.name).filter(happens).collect();
    assert!(!faults.is_empty(), "no fault has {:?} in its name", options.fault);
    let mut coverage = Coverage::of(faults.iter().copied());
    let (mut rounds, mut wrongs) = (0, Vec::new());
    while wrongs.is_empty() && (Instant::now() < end || coverage.least() < options.pairs) {
        rounds += 1;
        let left = end.saturating_duration_since(Instant::now());
        let time = if coverage.least() < options.pairs { ROUND } else { ROUND.min(left) };
        let few = |fault: &&&str| coverage.least_of(fault) < options.pairs;
        let few: Vec<&'static str> = faults.iter().filter(few).copied().collect();
        let wanted = if few.is_empty() { &faults } else { &few };
        let verdict = round::run(ground, rounds, time, &random.part(rounds), wanted, &mut coverage);
        total.merge(&verdict.tally);
        wrongs.extend(verdict.wrongs);
    }
    print!("{coverage}");
    total.print();
    wrongs.iter().take(SHOWN).for_each(|wrong| println!("WRONG {wrong}"));
    println!(
        "on {} {}, seed {}: {rounds} rounds, {} calls, {} grants, {} faults, {} overlaps, {} tokens \
         out of order, {} stale writes, {} wrongs",
        options.on,
        options.setting,
        options.seed,
        total.count("calls"),
        total.count("grants"),
        total.count("faults"),
        total.count("two believed to hold a lock"),
        total.count("a later grant had the smaller token"),
        total.count("stale writes accepted"),
        wrongs.len(),
    );
    if wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

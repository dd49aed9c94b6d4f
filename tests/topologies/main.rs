//! Load on several servers that are something to each other while they are killed, stopped, cut off
//! and replaced: whether two ever believe to hold the same lock, whether tokens grow, and whether
//! anybody is forgotten.
//!
//! | on | settings, the first unless it is said |
//! |---|---|
//! | `sentinel`: a primary, two replicas, three Sentinels | `replicas`, `quarantine`, `default` |
//! | `cluster`: three masters with a replica each | `replicas`, `default` |
//! | `five`: a quorum of five servers | `quarantine`, `jumps`, `forgetful` |
//!
//! Goes on for so many seconds, and then until each fault has met each operation under way so many
//! times: see `--help`. What is promised of a setting must hold, or it ends with 1; what is not is
//! counted. The seed decides what is done, not how the tasks meet.
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
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use harness::coverage::Coverage;
use harness::random::{Random, Seed};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a round may begin new faults.
const ROUND: Duration = Duration::from_secs(30);

/// How many violations are shown; the first few tell the story.
const SHOWN: usize = 20;

/// Loads several servers that are something to each other while they are killed, stopped, cut off
/// and replaced
#[derive(Parser)]
#[command(name = "topologies", args_override_self = true)]
struct Options {
    /// What the servers are to each other: a quorum, if five
    #[arg(long, value_name = "WHAT", value_parser = ["sentinel", "cluster", "five"])]
    on: String,
    /// What is done against lost grants: replicas (the first unless it is said), quarantine or
    /// default with Sentinels; replicas or default in a cluster; quarantine, jumps or forgetful on
    /// five
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    setting: String,
    /// Goes on for so long, at least
    #[arg(long, value_name = "N", default_value_t = 300)]
    seconds: u64,
    #[command(flatten)]
    seed: Seed,
    /// Goes on until each fault has met each operation under way so many times
    #[arg(long, value_name = "N", default_value_t = 0)]
    pairs: u64,
    /// Only the faults in whose names these words are
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    fault: String,
    /// Kills so many primaries instead, and measures how long until the next one grants; not on
    /// five
    #[arg(long, value_name = "N", default_value_t = 0)]
    promotions: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    run(&options).unwrap_or_else(|| {
        let what = match options.promotions {
            0 => format!("{} has no setting {:?}", options.on, options.setting),
            _ => format!("{} has no promotions", options.on),
        };
        Options::command().error(ErrorKind::ValueValidation, what).exit()
    })
}

/// Nothing if there is no such setting, or if nobody is promoted there.
fn run(options: &Options) -> Option<ExitCode> {
    let code = match (options.on.as_str(), options.promotions) {
        ("sentinel", 0) => campaign(options, &sentinel::Watched::start(&options.setting)?),
        ("cluster", 0) => campaign(options, &cluster::Nodes::start(&options.setting)?),
        ("five", 0) => campaign(options, &five::Five::start(&options.setting)?),
        ("sentinel", count) => promotion::of_sentinel(count),
        ("cluster", count) => promotion::of_cluster(count),
        _ => return None,
    };
    if options.promotions > 0 {
        println!("{}", options.seed.origin());
    }
    Some(code)
}

fn campaign<G: Ground>(options: &Options, ground: &G) -> ExitCode {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let random = Random::new(options.seed.number);
    println!("seed {}, on {} {}", options.seed.number, options.on, options.setting);
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
        "{}, on {} {}: {rounds} rounds, {} calls, {} grants, {} faults, {} overlaps, {} tokens \
         out of order, {} stale writes, {} wrongs",
        options.seed.origin(),
        options.on,
        options.setting,
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

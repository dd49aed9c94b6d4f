//! What the faults of client processes do to each other's locks: holders and waiters that are
//! killed, stopped, starved, cut off, or whose date jumps.
//!
//! The clients are processes of their own, on one real server, and use the crate `kvlock`. Each
//! says when it believes to hold which lock; they all read the same clock. At the end that must be
//! what a lock allows: see [`beliefs`].
//!
//! Ends with 0 when it is, and each fault has happened as often as it was to; else with 1. With
//! `--wrong-clock` the clients count validity by a clock that is too slow: that must be seen.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_wrap,
    reason = "a test that is run by hand, too: a panic is how it fails, and its numbers are small"
)]

mod beliefs;
mod client;
mod end;
mod killed;
mod load;
mod process;
mod role;
mod said;
mod scene;
mod stopped;
mod store;
mod tally;
mod waiting;

use crate::role::Role;
use crate::scene::{Scene, Shop};
use crate::store::Store;
use crate::tally::Tally;
use clap::{Parser, value_parser};
use harness::random::{Random, Seed};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SCENARIOS: [&str; 7] =
    ["killed", "stopped", "waiting", "dates", "starved", "blocked", "mixture"];

/// Kills, stops, starves and cuts off client processes, and looks whether two held a lock
#[derive(Parser)]
#[command(name = "holders", args_override_self = true)]
struct Options {
    #[command(flatten)]
    seed: Seed,
    /// Only this scenario
    #[arg(long, value_name = "NAME", value_parser = SCENARIOS)]
    scenario: Option<String>,
    /// Holders that are killed with ten in line
    #[arg(long, value_name = "N", default_value_t = 200)]
    kills: u64,
    /// Holders and waiters that are stopped, each
    #[arg(long, value_name = "N", default_value_t = 200)]
    stops: u64,
    /// Stale writes after each stop of a careless holder
    #[arg(long, value_name = "N", default_value_t = 1000)]
    tries: u64,
    /// Grants in the mixture of faults
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    grants: u64,
    /// What goes on for a time goes on for so long, at least
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// How many locks are worked on at a time, where each is apart from the others
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = value_parser!(u64).range(1..),
    )]
    at_once: u64,
    /// The clients count validity by a clock that is too slow: that must be seen
    #[arg(long)]
    wrong_clock: bool,
}

impl Options {
    fn scenarios(&self) -> impl Iterator<Item = &'static str> {
        let wanted = |name: &&str| self.scenario.as_deref().is_none_or(|only| only == *name);
        SCENARIOS.into_iter().filter(wanted)
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    // What the processes are that this program starts of itself.
    match words.peek().map(String::as_str) {
        Some("client") => {
            client::run(Role::parse(words.skip(1)).expect("a role"));
            return ExitCode::SUCCESS;
        }
        Some("store") => {
            store::serve(Path::new(&words.nth(1).expect("a socket")));
            return ExitCode::SUCCESS;
        }
        Some("burn") => {
            let ms = words.nth(1).and_then(|ms| ms.parse().ok()).expect("milliseconds");
            burn(Duration::from_millis(ms));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let options = Options::parse();
    println!("seed {}", options.seed.number);
    let total = Tally::default();
    for name in options.scenarios() {
        let (tally, begun) = (Tally::default(), Instant::now());
        play(name, &options, &tally);
        println!("\n{name}, {} s", begun.elapsed().as_secs());
        tally.print();
        total.merge(&tally);
    }
    println!(
        "\n{}: {} grants whose beliefs were checked, {} violations",
        options.seed.origin(),
        total.count("grants whose beliefs were checked"),
        total.wrongs(),
    );
    if total.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Keeps a processor busy.
fn burn(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Plays a scenario on a server of its own.
fn play(name: &'static str, options: &Options, tally: &Tally) {
    let scene = Scene::set(name, options.seed.number, options.wrong_clock);
    let mut random = Random::new(options.seed.number);
    let (time, at_once) = (options.time(), options.at_once);
    match name {
        "killed" => killed::run(&scene, options.kills, at_once, &random, tally),
        "stopped" => {
            let shop = Shop { scene, store: Store::start() };
            stopped::run(&shop, options.stops, at_once, options.tries, &random, tally);
            return shop.scene.close(tally);
        }
        "waiting" => waiting::run(&scene, options.stops, at_once, tally),
        "dates" => load::dates(&scene, time, &mut random, tally),
        "starved" => load::starved(&scene, time, tally),
        "blocked" => load::blocked(&scene, time, tally),
        _ => load::mixture(&scene, time, options.grants, &mut random, tally),
    }
    scene.close(tally);
}

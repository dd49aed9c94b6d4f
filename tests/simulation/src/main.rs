//! Simulates many seeds, and ends with 1 if one of them breaks a promise.
//!
//! ```text
//! cargo run --release -p kvlock-simulation -- --seeds 10000 --steps 1000
//! cargo run --release -p kvlock-simulation -- --seed 17 --steps 1000         one run, with its log
//! cargo run --release -p kvlock-simulation -- --scene failovers --from 5000 --seeds 1000
//! cargo run --release -p kvlock-simulation -- --scene single --off bound-stays
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand")]

#[path = "../../harness/commit.rs"]
mod commit;

use kvlock_core::Bug;
use kvlock_simulation::{Counts, Keeping, Safeguard, Scene, Settings, run, shrink};
use std::process::ExitCode;
use std::time::Instant;

/// What is asked for.
struct Arguments {
    from: u64,
    seeds: u64,
    steps: u64,
    one: Option<u64>,
    settings: Settings,
}

fn arguments() -> Result<Arguments, String> {
    let mut asked =
        Arguments { from: 0, seeds: 1_000, steps: 1_000, one: None, settings: Settings::all() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|why| format!("{word} {value}: {why}"));
        match word.as_str() {
            "--from" => asked.from = number()?,
            "--seeds" => asked.seeds = number()?,
            "--steps" => asked.steps = number()?,
            "--seed" => asked.one = Some(number()?),
            "--scene" => asked.settings.scene = Some(named(&Scene::ALL, &value)?),
            "--keeping" => asked.settings.keeping = Some(named(&Keeping::ALL, &value)?),
            "--off" => asked.settings.off = Some(safeguard(&value)?),
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(asked)
}

/// A safeguard, or the one that a planted bug of the core switches off.
fn safeguard(name: &str) -> Result<Safeguard, String> {
    let planted = Bug::ALL.iter().find(|(_, named)| *named == name);
    planted.map_or_else(|| named(Safeguard::ALL, name), |(bug, _)| Ok(Safeguard::Core(*bug)))
}

/// The one that is called so.
fn named<T: Copy + std::fmt::Debug>(all: &[T], name: &str) -> Result<T, String> {
    let found = all.iter().find(|one| format!("{one:?}").eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| format!("{name} is none of {all:?}"))
}

fn main() -> ExitCode {
    let asked = match arguments() {
        Ok(asked) => asked,
        Err(trouble) => {
            eprintln!("{trouble}");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = asked.one {
        return show(seed, &asked);
    }
    let (begun, mut counts, mut bad) = (Instant::now(), Counts::default(), 0_u64);
    for seed in asked.from..asked.from + asked.seeds {
        let report = run(seed, asked.steps, &asked.settings, false);
        counts.add(&report.counts);
        if let Some(violation) = report.violation {
            bad += 1;
            println!("seed {seed}: {violation}");
            if bad == 1 {
                tell(seed, &asked);
            }
        }
    }
    println!("{counts:?}");
    let (seeds, steps) = (asked.seeds, asked.steps);
    let (commit, from, time) = (commit::commit(), asked.from, begun.elapsed());
    println!(
        "{commit}: {seeds} seeds from {from} of {steps} steps in {time:.0?}: {bad} violations"
    );
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One seed, with its log, as far as it takes to go wrong.
fn show(seed: u64, asked: &Arguments) -> ExitCode {
    let report = run(seed, asked.steps, &asked.settings, true);
    if report.violation.is_some() {
        tell(seed, asked);
        return ExitCode::FAILURE;
    }
    report.log.iter().for_each(|line| println!("{line}"));
    println!("{:?}", report.counts);
    ExitCode::SUCCESS
}

fn tell(seed: u64, asked: &Arguments) {
    let (steps, report) = shrink(seed, asked.steps, &asked.settings);
    report.log.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}, {steps} steps: {:?}", report.violation);
}

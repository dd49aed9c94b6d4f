//! Runs the simulation with many seeds, or with one. The exit status is 1 if a run breaks a rule.
//!
//! ```text
//! cargo run --release -p kvlock-simulation -- --seeds 10000 --steps 1000
//! cargo run --release -p kvlock-simulation -- --seed 17 --steps 1000         one run, with its log
//! cargo run --release -p kvlock-simulation -- --scene failovers --from 5000 --seeds 1000
//! cargo run --release -p kvlock-simulation -- --scene single --off fence
//! ```

#![allow(clippy::print_stdout, reason = "it is run by hand")]

#[path = "../../harness/commit.rs"]
#[allow(dead_code, unreachable_pub, reason = "the harness publishes it, and uses more of it")]
mod commit;

use clap::Parser;
use kvlock_simulation::{Counts, Keeping, Safeguard, Scene, Settings, run, shrink};
use std::process::ExitCode;
use std::time::Instant;

/// Simulates clients and servers in virtual time, and checks all promises
#[derive(Parser)]
struct Options {
    /// First seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// Number of steps of each
    #[arg(long, value_name = "N", default_value_t = 1000)]
    steps: u64,
    /// End with the first violation
    #[arg(long)]
    first: bool,
    /// Only this seed, with its log
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Topology and faults
    #[arg(long)]
    scene: Option<Scene>,
    /// What keeps grants in failovers
    #[arg(long)]
    keeping: Option<Keeping>,
    /// Safeguard to switch off
    #[arg(long)]
    off: Option<Safeguard>,
    /// Check only written keys and replies, not the state of the lock table
    #[arg(long)]
    outside: bool,
}

impl Options {
    fn settings(&self) -> Settings {
        Settings { scene: self.scene, keeping: self.keeping, off: self.off, outside: self.outside }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let Options { from, seeds, steps, seed, first, .. } = options;
    let settings = options.settings();
    if let Some(seed) = seed {
        return show(seed, steps, &settings);
    }
    let (begun, mut counts, mut bad) = (Instant::now(), Counts::default(), 0_u64);
    for seed in from..from + seeds {
        let report = run(seed, steps, &settings, false);
        counts.add(&report.counts);
        if let Some(violation) = report.violation {
            bad += 1;
            println!("seed {seed}: {violation}");
            if bad == 1 {
                tell(seed, steps, &settings);
            }
            if first {
                break;
            }
        }
    }
    println!("{counts:?}");
    let (commit, time) = (commit::commit(), begun.elapsed());
    println!(
        "commit {commit}: {seeds} seeds from {from} of {steps} steps in {time:.0?}: {bad} violations"
    );
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the log of one seed. If the run breaks a rule, prints the log of the run that [`shrink`] returns.
fn show(seed: u64, steps: u64, settings: &Settings) -> ExitCode {
    let report = run(seed, steps, settings, true);
    if report.violation.is_some() {
        tell(seed, steps, settings);
        return ExitCode::FAILURE;
    }
    report.log.iter().for_each(|line| println!("{line}"));
    println!("{:?}", report.counts);
    ExitCode::SUCCESS
}

fn tell(seed: u64, steps: u64, settings: &Settings) {
    let (steps, report) = shrink(seed, steps, settings);
    report.log.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}, {steps} steps: {:?}", report.violation);
}

//! Explores larger safe worlds than the tests do, or all worlds whose names contain the argument. Exits with
//! 1 if one of them has an unexpected result, or if no name contains the argument.
//!
//! ```text
//! cargo run --release -p kvlock-model
//! cargo run --release -p kvlock-model 'a stale replica'
//! ```

#![allow(clippy::print_stdout, reason = "it is run by hand")]

#[path = "../../harness/commit.rs"]
#[allow(dead_code, unreachable_pub, reason = "the harness publishes it, and uses more of it")]
mod commit;

use kvlock_model::worlds::{LARGE, SMALL};
use std::process::ExitCode;

fn main() -> ExitCode {
    let rows: Vec<_> = match std::env::args().nth(1) {
        None => LARGE.iter().collect(),
        Some(name) => SMALL.iter().chain(LARGE).filter(|row| row.name.contains(&name)).collect(),
    };
    let all: Vec<_> = rows.into_iter().map(|row| row.explore()).collect();
    let states: usize = all.iter().map(|(count, _)| count).sum();
    println!("{}: {states} states", commit::commit());
    let good = states > 0 && all.iter().all(|(_, good)| *good);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

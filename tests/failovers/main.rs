//! What each setting buys in failovers: counts the grants that two clients believe to have at the
//! same time, those that are lost, and tokens that do not grow.
//!
//! Real servers and Sentinels, each server behind a proxy that can cut it off. The settings run side
//! by side. Prints the table of `docs/guarantees.md`, and ends with 1 if a zero that is promised is
//! none, or if a fault that was to happen did not. With `--zeros` it may be that locks are not
//! granted twice where that is expected, as on a machine so busy that a failover takes longer than a
//! lease. With `--service` a service goes on through failovers instead, and what it sees is printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::missing_panics_doc,
    reason = "a test that is run by hand, too: a panic is how it fails"
)]

mod clocks;
mod load;
mod lost;
mod scenario;
mod seen;
mod service;
mod setting;
mod split;

use crate::scenario::Scenario;
use crate::seen::Seen;
use crate::setting::{Expected, Setting};
use clap::Parser;
use harness::random::Seed;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The leases of what is held through a failover: longer than one takes.
const LEASE: Duration = Duration::from_secs(12);

/// Counts what each setting buys in failovers
#[derive(Parser)]
#[command(name = "failovers", args_override_self = true)]
struct Options {
    /// How often each scenario is tried under each setting
    #[arg(long, value_name = "N", default_value_t = 1)]
    tries: u64,
    /// Only this scenario
    #[arg(
        long = "scenario",
        value_enum,
        value_name = "NAME",
        default_values_t = Scenario::ALL,
        hide_default_value = true,
    )]
    scenarios: Vec<Scenario>,
    /// Only this setting
    #[arg(
        long = "setting",
        value_enum,
        value_name = "NAME",
        default_values_t = Setting::ALL,
        hide_default_value = true,
    )]
    settings: Vec<Setting>,
    /// Only the zeros are asked for: locks need not be granted twice where that is expected
    #[arg(long)]
    zeros: bool,
    /// A service goes on through a failover every ten seconds instead
    #[arg(long)]
    service: bool,
    #[command(flatten)]
    seed: Seed,
    /// The service goes on for so long
    #[arg(long, value_name = "N", default_value_t = 300)]
    seconds: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.service {
        return service::run(Duration::from_secs(options.seconds), &options.seed);
    }
    let columns: Vec<_> = thread::scope(|scope| {
        let options = &options;
        let run = |setting: &Setting| {
            let setting = *setting;
            scope.spawn(move || column(options, setting))
        };
        let running: Vec<_> = options.settings.iter().map(run).collect();
        running.into_iter().map(|column| column.join()).collect()
    });
    let mut wrongs = Vec::new();
    let mut table = Vec::new();
    for (setting, column) in options.settings.iter().zip(columns) {
        let Ok(column) = column else {
            wrongs.push(format!("{}: it gave up, see above", setting.name()));
            continue;
        };
        for (scenario, seen) in &column {
            let expected = match setting.expected(*scenario) {
                Expected::Each if options.zeros => Expected::Any,
                expected => expected,
            };
            // Nothing that is done against it must be why nothing is lost.
            let loses = scenario.loses() && *setting == Setting::Default;
            let said = |wrong| format!("{} / {}: {wrong}", scenario.name(), setting.name());
            let splits = *scenario == Scenario::Partition && *setting == Setting::Default;
            wrongs.extend(seen.wrongs(expected, loses, splits).into_iter().map(said));
        }
        table.push((*setting, column));
    }
    print(&options, &table);
    println!("{}", options.seed.origin());
    wrongs.iter().for_each(|wrong| println!("WRONG {wrong}"));
    if wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All tries of all scenarios under one setting.
fn column(options: &Options, setting: Setting) -> Vec<(Scenario, Seen)> {
    let of_it = options.scenarios.iter().filter(|scenario| scenario.is_for(setting));
    of_it
        .map(|scenario| {
            let mut all = Seen::default();
            for number in 0..options.tries {
                // One for each, so that nothing of a try goes on in the next.
                let runtime = Runtime::new().expect("a runtime");
                let one = scenario.run(setting, number, &runtime);
                println!("{} / {}: {one:?}", scenario.name(), setting.name());
                all.add(one);
                runtime.shutdown_background();
            }
            (*scenario, all)
        })
        .collect()
}

fn print(options: &Options, table: &[(Setting, Vec<(Scenario, Seen)>)]) {
    let head: String =
        table.iter().map(|(setting, _)| format!(" `{}` |", setting.name())).collect();
    println!("\n| {} tries each |{head}\n|---|{}", options.tries, "---|".repeat(table.len()));
    for scenario in &options.scenarios {
        let cells: String = table
            .iter()
            .map(|(_, column)| match column.iter().find(|(of, _)| of == scenario) {
                Some((_, seen)) => format!(
                    " {} of {}; granted {}, lost {} |",
                    seen.doubled, seen.tries, seen.granted, seen.lost
                ),
                None => " – |".to_owned(),
            })
            .collect();
        println!("| {} |{cells}", scenario.name());
    }
    let notes = table.iter().flat_map(|(_, column)| column);
    for (scenario, seen) in notes {
        seen.notes.iter().for_each(|note| println!("{}: {note}", scenario.name()));
    }
}

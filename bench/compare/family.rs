//! Shared locks and permits; and a thousand readers that are granted a lock at once, followed by a writer,
//! repeatedly (`bench/raw/crowd.rs`).

use crate::contender::named;
use crate::figures::{self, Figures};
use crate::measure::{Clients, Mode, Part, Plan, nanoseconds};
use crate::process::Process;
use crate::scenario::{Cells, Effort, Measured};
use crate::server::{Backend, Setting};

/// Adds the measurements of shared locks and semaphores. Redisson has two semaphores: one with leases, like
/// kvlock's, whose protocol `Lua + pub/sub` uses, and one without, whose protocol `Lua counter` uses.
pub(crate) fn add(cells: &mut Cells, effort: Effort) {
    let shared = ["kvlock", "Lua + pub/sub"].as_slice();
    let permits = ["kvlock", "Lua + pub/sub", "Lua counter"].as_slice();
    for (name, mode, who) in [
        ("a share of a lock, depth 16", Mode::Share, shared),
        ("one permit, depth 16", Mode::Permit, permits),
    ] {
        for who in who {
            let plan = Plan::uncontended(named(who), 50, effort.seconds);
            cells.plan(["10", name, who], Plan { mode, depth: 16, ..plan }, figures::common);
        }
    }
    for who in ["kvlock", "Redisson"] {
        if effort.quick {
            continue;
        }
        let plan = Plan::uncontended(named(who), 64, effort.seconds);
        let plan = Plan { mode: Mode::Share, ..plan };
        cells.plan(["10", "a share of a lock, 64 tasks", who], plan, figures::common);
    }
    for who in shared {
        let seconds = if effort.quick { 1.0 } else { 6.0 };
        cells.add("10", "1,000 readers and a writer", who, move || crowd(who, 1_000, seconds));
    }
}

/// The times of a turn, as printed by the load generator.
struct Turn {
    probed: bool,
    granted: u64,
    stall: u64,
    quiet: u64,
    leaving: u64,
    leaving_stall: u64,
    writer: u64,
}

fn crowd(who: &'static str, readers: usize, seconds: f64) -> Measured {
    let contender = named(who);
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let plan = Plan { mode: Mode::Crowd, ..Plan::contended(contender, readers, seconds) };
    let part = Part { contender, tasks: readers, clients: Clients::OwnEach };
    let mut process = Process::start(contender, &plan.arguments(&part, &backend.url(), readers));
    let version = process.ready()?;
    let start = driver::now();
    process.go(start, start + nanoseconds(seconds));
    let turns: Vec<Turn> = process
        .lines()?
        .iter()
        .map(|line| parse(line).ok_or_else(|| line.clone()))
        .collect::<Result<_, _>>()?;
    Ok((figures(&turns), version))
}

fn parse(line: &str) -> Option<Turn> {
    let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    let [probed, granted, stall, quiet, leaving, leaving_stall, writer] =
        <[u64; 7]>::try_from(numbers).ok()?;
    Some(Turn { probed: probed == 1, granted, stall, quiet, leaving, leaving_stall, writer })
}

/// In some turns, a probe measures the delays of other clients. Durations are from the turns without it.
fn figures(turns: &[Turn]) -> Figures {
    let mut figures = Figures::new();
    figures.insert("turns".to_owned(), turns.len() as f64);
    let mut put = |name: &str, probed: bool, of: fn(&Turn) -> u64| {
        let values = turns.iter().filter(|turn| turn.probed == probed).map(of);
        figures::percentiles(&mut figures, name, values);
    };
    put("granted", false, |turn| turn.granted);
    put("leaving", false, |turn| turn.leaving);
    put("writer", false, |turn| turn.writer);
    put("stall", true, |turn| turn.stall);
    put("quiet", true, |turn| turn.quiet);
    put("leaving_stall", true, |turn| turn.leaving_stall);
    figures
}

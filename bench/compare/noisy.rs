//! Delays of other clients while the server works on many waits of one session, and without such waits.
//! `bench/raw/crowd/noisy.rs` acts as all of these clients.

use crate::contender::named;
use crate::figures::{self, Figures};
use crate::machine::{self, Used};
use crate::measure::{Clients, Mode, Part, Plan, nanoseconds};
use crate::process::Process;
use crate::scenario::{Cells, Effort, Measured};
use crate::server::{Backend, Setting};

/// Measured phases: the name in tables, and the name for the load generator.
const PHASES: [(&str, &str); 6] = [
    ("made", "made"),
    ("opened by one latch", "opened"),
    ("granted as leases end", "granted"),
    ("timed out", "timed-out"),
    ("closed with their session", "closed"),
    ("left away, then closed", "left-away"),
];

/// Names of the times that the load generator reports for the other clients.
const KINDS: [&str; 4] = ["ping", "set", "hand_off", "late"];

pub(crate) fn add(cells: &mut Cells, effort: Effort) {
    let counts: &[(&str, usize)] = if effort.quick {
        &[("20,000", 20_000)]
    } else {
        &[("100,000", 100_000), ("1,000,000", 1_000_000)]
    };
    let seconds = 5.0 * effort.seconds;
    for (count, waits) in counts {
        for (what, phase) in PHASES {
            let name = format!("{count} waits {what}");
            for (who, waits) in [("kvlock, crowd", *waits), ("kvlock, quiet", 0)] {
                cells.add("14", &name, who, move || measure(waits, phase, seconds));
            }
        }
    }
}

/// Measures until the phase is complete; without waits, for the given time.
fn measure(waits: usize, phase: &'static str, seconds: f64) -> Measured {
    let contender = named("kvlock, crowd");
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let plan = Plan { mode: Mode::Noisy, ..Plan::uncontended(contender, waits, seconds) };
    let part = Part { contender, tasks: waits, clients: Clients::One };
    let mut arguments = plan.arguments(&part, &backend.url(), waits);
    arguments.push(format!("phase={phase}"));
    let mut process = Process::start(contender, &arguments);
    let version = process.ready()?;
    let (busy, before, load) = (machine::busy(), backend.look(), Used::of(&[process.pid()]));
    let start = driver::now();
    process.go(start, start + nanoseconds(seconds));
    let lines = process.lines()?;
    let after = backend.look();
    let ours = after.cpu_us(&before) + Used::of(&[process.pid()]).since(&load);
    let mut figures = Figures::new();
    let took = |name: &str| {
        let parse = |line: &String| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        lines.iter().filter_map(parse).collect::<Vec<u64>>()
    };
    for kind in KINDS {
        figures::percentiles(&mut figures, kind, took(kind).into_iter());
    }
    if let Some(phase) = took("phase").first().filter(|_| waits > 0) {
        figures.insert("phase_ms".to_owned(), *phase as f64 / 1e6);
    }
    figures.insert("longest_turn_us".to_owned(), after.info("kvlock_longest_turn_us"));
    let elsewhere = machine::elsewhere(busy, machine::busy(), ours);
    figures.insert("elsewhere_share".to_owned(), elsewhere);
    Ok((figures, version))
}

//! The cost of waits, hand-offs to sessions and blocked clients, the effect of locks on other commands, and
//! the share of the cycles that each kind of client gets.

use crate::contender::{Contender, named};
use crate::figures::{self, Figures, longest_wait_ms};
use crate::machine::Used;
use crate::measure::{Clients, Mode, Outcome, Part, Plan, nanoseconds};
use crate::process::Process;
use crate::scenario::Measured;
use crate::server::{Backend, Setting};
use std::thread::sleep;
use std::time::Duration;

/// Minimum time that the clients have to begin their waits before the measurement starts.
const SETTLE_S: f64 = 1.0;

/// Measures the cost of waits: one client holds the lock all the time, and the others wait.
pub(crate) fn measure(contender: &'static Contender, waiters: usize, seconds: f64) -> Measured {
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let idle = backend.look();
    let plan = Plan::contended(contender, waiters + 1, seconds);
    let plan = Plan { hold_us: 60_000_000, lease_ms: 120_000, ..plan };
    let mut running = plan.start(&backend.url());
    let versions = running.iter().map(|(_, process)| process.ready());
    let versions = versions.collect::<Result<Vec<_>, _>>()?;
    let start = driver::now() + 50_000_000;
    for (_, process) in &mut running {
        process.go(start, start + nanoseconds(60.0));
    }
    sleep(Duration::from_secs_f64(plan.settle.max(SETTLE_S)));
    let pids: Vec<u32> = running.iter().map(|(_, process)| process.pid()).collect();
    let (load_before, before) = (Used::of(&pids), backend.look());
    sleep(Duration::from_secs_f64(seconds));
    let (load_after, after) = (Used::of(&pids), backend.look());

    let mut figures = Figures::new();
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    let each = waiters as f64;
    put("resident_bytes", (before.resident - idle.resident) / each);
    if before.is_redis() {
        for (name, field) in [("memory_bytes", "used_memory"), ("connections", "connected_clients")]
        {
            put(name, (before.info(field) - idle.info(field)) / each);
        }
    }
    let sent = contender.sends.iter().map(|name| after.calls(name) - before.calls(name));
    put("commands_per_s", sent.sum::<f64>() / seconds / each);
    put("server_share", after.cpu_us(&before) / seconds / 1e6);
    put("load_share", load_after.since(&load_before) / seconds / 1e6);
    Ok((figures, versions.into_iter().next().unwrap_or_default()))
}

/// Times of hand-offs through a session and to blocked clients, in turn.
pub(crate) fn in_turn(waiters: usize, seconds: f64) -> Measured {
    let contender = named("kvlock session");
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let plan = Plan { mode: Mode::Pairs, ..Plan::uncontended(contender, waiters, seconds) };
    let part = Part { contender, tasks: waiters, clients: Clients::One };
    let mut process = Process::start(contender, &plan.arguments(&part, &backend.url(), waiters));
    let version = process.ready()?;
    let start = driver::now();
    process.go(start, start + nanoseconds(seconds));
    let parse = |line: &String| {
        let (blocked, session) = line.split_once(' ')?;
        Some([blocked.parse().ok()?, session.parse().ok()?])
    };
    let turns: Option<Vec<[u64; 2]>> = process.lines()?.iter().map(parse).collect();
    let turns = turns.ok_or("it does not say how long they took")?;
    let mut figures = Figures::new();
    figures.insert("hand_offs".to_owned(), turns.len() as f64);
    figures::percentiles(&mut figures, "blocked", turns.iter().map(|[blocked, _]| *blocked));
    figures::percentiles(&mut figures, "session", turns.iter().map(|[_, session]| *session));
    let p50 = |name: &str| figures.get(name).copied().unwrap_or(f64::NAN);
    let ratio = p50("session_p50_us") / p50("blocked_p50_us");
    figures.insert("of_blocked".to_owned(), ratio);
    Ok((figures, version))
}

/// Average time of the server for each of the plain commands.
pub(crate) fn per_command(outcome: &Outcome) -> Figures {
    let mut all = figures::common(outcome);
    let [_, before, after] = &outcome.looks;
    for command in ["set", "get", "hset", "del"] {
        let calls = after.calls(command) - before.calls(command);
        let microseconds = after.microseconds(command) - before.microseconds(command);
        all.insert(format!("{command}_us"), microseconds / calls);
    }
    // A cycle has four plain commands.
    let per_cycle = all.get("server_cpu_us").copied().unwrap_or(f64::NAN);
    all.insert("server_cpu_per_command_us".to_owned(), per_cycle / 4.0);
    all
}

/// Times of two plain commands: `SET` and `GET`, or `HSET` and `DEL`.
pub(crate) fn of_others(outcome: &Outcome) -> Figures {
    let mut all = figures::common(outcome);
    let others = outcome.plan.parts.iter().map(|part| part.tasks).sum::<usize>() - 1;
    let mine = outcome.done().filter(|cycle| cycle.task == others);
    let pairs = mine.flat_map(|c| [c.got - c.wanted, c.released - c.releasing]);
    figures::percentiles(&mut all, "two_commands", pairs);
    all
}

/// The share of the cycles that each kind of client gets, and its longest wait. The tasks of the first kind
/// have the lower numbers.
pub(crate) fn shares(outcome: &Outcome) -> Figures {
    let mut all = figures::fairness(outcome);
    let sizes: Vec<usize> = outcome.plan.parts.iter().map(|part| part.tasks).collect();
    let mut first = 0;
    for (part, tasks) in outcome.plan.parts.iter().zip(sizes) {
        let mine = outcome.done().filter(|c| (first..first + tasks).contains(&c.task)).count();
        let name = part.contender.name;
        let share = mine as f64 / outcome.done().count().max(1) as f64;
        all.insert(format!("share of {name}"), share);
        all.insert(format!("longest wait of {name}, ms"), longest_wait_ms(outcome, first, tasks));
        first += tasks;
    }
    all
}

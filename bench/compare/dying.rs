//! Elections with candidates and observers, and locks of a process that is killed.

use crate::contender::{Contender, named};
use crate::figures::{self, Figures};
use crate::machine::Used;
use crate::measure::{Clients, Mode, Part, Plan, nanoseconds};
use crate::process::Process;
use crate::scenario::{Cells, Effort, Measured};
use crate::server::{Backend, Setting};
use std::thread::sleep;
use std::time::Duration;

/// Time during which the cost of holding locks is measured.
const KEPT: Duration = Duration::from_secs(2);
/// Number of locks that the holder acquires at the same time. With 100,000 concurrent acquires, it would have
/// no time to renew the first locks.
const AT_ONCE: usize = 100;
const LEADER_LEASE_MS: u64 = 3_000;
const LEASE_MS: u64 = 2_000;

/// Elections: candidates and observers.
pub(crate) fn elections(cells: &mut Cells, effort: Effort) {
    let who = ["kvlock election", "etcd election", "SET NX poller"];
    for who in who {
        let contender = named(who);
        let part = Part { contender, tasks: 3, clients: Clients::Several(3) };
        let plan = Plan::contended(contender, 3, 5.0 * effort.seconds);
        let plan = Plan { parts: vec![part], hold_us: 2_000, yields: true, ..plan };
        let plan = Plan { lease_ms: LEADER_LEASE_MS, ..plan };
        cells.plan(["12", "the leader resigns", who], plan, |outcome| {
            in_ms(figures::hand_off(outcome))
        });
    }
    for who in who {
        let kills = if effort.quick { 1 } else { 4 };
        cells.add("12", "the leader is killed", who, move || killed_leaders(named(who), kills));
    }
    for (name, clients) in [("1,000 observers", 1_000), ("1,000 observers in one process", 1)] {
        for who in who {
            // The poller has no client to share, so this measurement would equal the other one.
            if clients == 1 && who == "SET NX poller" {
                continue;
            }
            let seconds = 5.0 * effort.seconds;
            cells.add("12", name, who, move || observed(named(who), 1_000, clients, seconds));
        }
    }
}

/// Killed holders of locks that are bound to a session, and of locks that are renewed.
pub(crate) fn locks(cells: &mut Cells, effort: Effort) {
    let few = ["etcd", "ZooKeeper"].as_slice();
    for (name, locks, more) in
        [("1 lock", 1, few), ("1,000 locks", 1_000, few), ("100,000 locks", 100_000, &[])]
    {
        for who in ["kvlock bound", "kvlock watched"].iter().chain(more) {
            if !effort.quick || locks == 1_000 {
                cells.add("13", name, who, move || killed_holder(named(who), locks));
            }
        }
    }
}

/// Starts a process whose tasks each acquire a lock, and hold it until the process is killed.
fn keeper(
    contender: &'static Contender,
    url: &str,
    [tasks, number, at_once]: [usize; 3],
    lease_ms: u64,
) -> Result<(Process, String), String> {
    let plan = Plan { mode: Mode::Keep, lease_ms, ..Plan::uncontended(contender, tasks, 0.0) };
    let part = Part { contender, tasks, clients: Clients::One };
    let mut arguments = plan.arguments(&part, url, tasks);
    let more = [format!("process={number}"), format!("at_once={at_once}")];
    arguments.extend(more.into_iter().chain(["warm_ms=0".to_owned()]));
    let mut process = Process::start(contender, &arguments);
    let version = process.ready()?;
    // A start in the past: the tasks begin at once.
    process.go(1, 1);
    Ok((process, version))
}

/// Times at which the first and the last task of the process had their locks.
fn times_held(process: &Process) -> Result<[u64; 2], String> {
    let line = process.line()?;
    let (first, last) = line.split_once(' ').ok_or_else(|| line.clone())?;
    Ok([first, last].map(|moment| moment.parse().unwrap_or(0)))
}

/// Adds each duration in milliseconds too.
fn in_ms(mut figures: Figures) -> Figures {
    for (name, us) in figures.clone() {
        if let Some(name) = name.strip_suffix("_us") {
            figures.insert(format!("{name}_ms"), us / 1_000.0);
        }
    }
    figures
}

fn milliseconds(since: u64, until: u64) -> f64 {
    until.saturating_sub(since) as f64 / 1e6
}

/// Kills a holder while another process waits for all of its locks.
fn killed_holder(contender: &'static Contender, locks: usize) -> Measured {
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let (holder, version) = keeper(contender, &backend.url(), [locks, 0, AT_ONCE], LEASE_MS)?;
    times_held(&holder)?;
    let (load, before) = (Used::of(&[holder.pid()]), backend.look());
    sleep(KEPT);
    let (load_after, after) = (Used::of(&[holder.pid()]), backend.look());
    let (next, _) = keeper(contender, &backend.url(), [locks, 1, locks], LEASE_MS)?;
    in_line(locks);
    let killed = driver::now();
    drop(holder);
    let [first, last] = times_held(&next)?;
    if first < killed {
        return Err("the holder lost locks while it lived".to_owned());
    }
    let share = |us: f64| us / 1e6 / KEPT.as_secs_f64();
    let figures = [
        ("first_ms", milliseconds(killed, first)),
        ("last_ms", milliseconds(killed, last)),
        ("server_share", share(after.cpu_us(&before))),
        ("load_share", share(load_after.since(&load))),
    ];
    Ok((figures.map(|(name, value)| (name.to_owned(), value)).into(), version))
}

/// Sleeps long enough for the given number of waiters to be queued, and for a random time more, so that the
/// kill is not at a fixed time after a renewal.
fn in_line(tasks: usize) {
    let any = driver::now() % 700;
    sleep(Duration::from_millis(1_000 + tasks as u64 / 20 + any));
}

/// Kills the leader repeatedly. Each candidate is a process.
fn killed_leaders(contender: &'static Contender, kills: usize) -> Measured {
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let (mut leader, version) = keeper(contender, &backend.url(), [1, 0, 1], LEADER_LEASE_MS)?;
    times_held(&leader)?;
    let mut took = Vec::new();
    for kill in 0..kills {
        let (next, _) = keeper(contender, &backend.url(), [1, kill + 1, 1], LEADER_LEASE_MS)?;
        in_line(1);
        let killed = driver::now();
        drop(leader);
        let [elected, _] = times_held(&next)?;
        took.push(elected.saturating_sub(killed));
        leader = next;
    }
    let mut figures = Figures::new();
    figures.insert("kills".to_owned(), took.len() as f64);
    figures::percentiles(&mut figures, "killed", took.into_iter());
    Ok((in_ms(figures), version))
}

/// Many observers of one election, while two candidates lead in turn.
fn observed(
    contender: &'static Contender,
    observers: usize,
    clients: usize,
    seconds: f64,
) -> Measured {
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let plan = Plan { mode: Mode::Observe, ..Plan::uncontended(contender, observers, seconds) };
    let plan = Plan { lease_ms: LEADER_LEASE_MS, keys: 1, ..plan };
    let part = Part { contender, tasks: observers, clients: Clients::Several(clients) };
    let idle = backend.look();
    let mut arguments = plan.arguments(&part, &backend.url(), observers);
    arguments.push("process=0".to_owned());
    let mut process = Process::start(contender, &arguments);
    let version = process.ready()?;
    backend.pin();
    sleep(Duration::from_secs(1));
    let before = backend.look();
    sleep(Duration::from_secs(1));
    let (after, start) = (backend.look(), driver::now());
    process.go(start, start + nanoseconds(seconds));
    let parse = |line: &String| {
        let (last, half) = line.split_once(' ')?;
        Some([last.parse().ok()?, half.parse().ok()?])
    };
    let turns: Option<Vec<[u64; 2]>> = process.lines()?.iter().map(parse).collect();
    let turns = turns.ok_or("it does not say how long they took")?;
    let mut figures = Figures::new();
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    let each = observers as f64;
    put("changes", turns.len() as f64);
    put("server_share", after.cpu_us(&before) / 1e6);
    put("resident_bytes", (before.resident - idle.resident) / each);
    if before.is_redis() {
        put("memory_bytes", (before.info("used_memory") - idle.info("used_memory")) / each);
        put(
            "connections",
            (before.info("connected_clients") - idle.info("connected_clients")) / each,
        );
    }
    figures::percentiles(&mut figures, "last", turns.iter().map(|[last, _]| *last));
    figures::percentiles(&mut figures, "half", turns.iter().map(|[_, half]| *half));
    Ok((in_ms(figures), version))
}

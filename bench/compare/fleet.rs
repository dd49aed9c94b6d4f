//! A fleet of client processes whose server restarts: it is ready at once, or loads for a while and answers
//! `LOADING`. Measures the time until all waits are queued again, and the cost.

use crate::contender::named;
use crate::figures::Figures;
use crate::machine::{self, Used};
use crate::measure::{Clients, Mode, Part, Plan};
use crate::process::Process;
use crate::scenario::{Cells, Effort, Measured};
use harness::{Connection, Server, Value, cmd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The lock for which all tasks wait, as in [`Plan::arguments`], and the lease of its holder.
const KEY: &str = "bench";
const LEASE_MS: u64 = 3_600_000;

/// Number of keys that make loading slow, and the size of their values. While it loads, the server handles
/// requests after each key.
const KEYS: u64 = 1_000;
const VALUE_BYTES: usize = 2_000;

/// Time limit of each step, and the polling interval.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn add(cells: &mut Cells, effort: Effort) {
    let (processes, waits) = if effort.quick { (2, 100) } else { (10, 1_000) };
    for (what, loading) in
        [("restart", Duration::ZERO), ("LOADING for 20 s", Duration::from_secs(20))]
    {
        let name = format!("{processes} processes, {waits} waits each, {what}");
        cells.add("15", &name, "kvlock crate", move || measure(processes, waits, loading));
    }
}

/// Observations of the server from its start until all tasks were queued.
#[derive(Default)]
struct Observations {
    /// Number of connections accepted since the start, at each poll.
    connects: Vec<(Duration, f64)>,
    /// Time of the first reply other than `LOADING`.
    loaded: Duration,
    in_line: Duration,
}

fn measure(processes: usize, waits: usize, loading: Duration) -> Measured {
    let all = processes * waits;
    let server = server(loading);
    machine::pin(&[server.pid()], &machine::cores().0);
    let mut fleet = Vec::new();
    for _ in 0..processes {
        let contender = named("kvlock crate");
        let plan = Plan { mode: Mode::Fleet, ..Plan::uncontended(contender, waits, 0.0) };
        let part = Part { contender, tasks: waits, clients: Clients::One };
        fleet.push(Process::start(contender, &plan.arguments(&part, &server.url(), waits)));
    }
    let versions = fleet.iter().map(Process::ready).collect::<Result<Vec<_>, _>>()?;
    fleet.iter_mut().for_each(|process| process.go(0, 0));
    let begun = Instant::now();
    while in_line(&mut server.connect()) != Some(all) {
        assert!(begun.elapsed() < PATIENCE, "they do not get in line");
        sleep(Duration::from_millis(100));
    }
    server.connect().call(cmd!["SAVE"]);
    let pids: Vec<u32> = fleet.iter().map(Process::pid).collect();
    let (busy, load) = (machine::busy(), Used::of(&pids));
    let begun = Instant::now();
    server.shut_down();
    let down = begun.elapsed();
    server.begin_again();
    machine::pin(&[server.pid()], &machine::cores().0);
    let started = Instant::now();
    let seen = watch(&server, started, all);
    let server_used = Used::of(&[server.pid()]).since(&Used::default());
    let load_used = Used::of(&pids).since(&load);
    let calls = calls(&mut server.connect());
    fleet.iter_mut().for_each(|process| process.go(0, 0));
    let mut gave_up = 0.0;
    for process in &fleet {
        let lines = process.lines()?;
        gave_up += lines.iter().find_map(|line| line.parse::<f64>().ok()).unwrap_or(f64::NAN);
    }
    let took_us = seen.in_line.as_secs_f64() * 1e6;
    let figures = [
        ("in_line_ms", (seen.in_line - seen.loaded).as_secs_f64() * 1e3),
        ("without_ms", (down + seen.in_line).as_secs_f64() * 1e3),
        ("loading_ms", seen.loaded.as_secs_f64() * 1e3),
        ("connects", seen.total() / processes as f64),
        ("connects_per_s", seen.most_in_a_second() / processes as f64),
        ("server_cpu_ms", server_used / 1e3),
        ("server_share", server_used / took_us),
        ("load_share", load_used / took_us),
        ("calls_per_wait", calls / all as f64),
        ("gave_up", gave_up),
        ("elsewhere_share", machine::elsewhere(busy, machine::busy(), server_used + load_used)),
    ];
    let figures: Figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok((figures, versions.into_iter().next().unwrap_or_default()))
}

/// A server with a held lock, and with enough data that loading takes `loading` after a restart.
fn server(loading: Duration) -> Server {
    let delay = u64::try_from(loading.as_micros()).unwrap_or(0) / KEYS;
    let server = Server::options()
        .module_config("max-waiters", 100_000)
        .module_config("max-waiters-per-key", 100_000)
        .config("maxclients", 15_000)
        .config("key-load-delay", delay)
        .config("loading-process-events-interval-bytes", 1_024)
        // Compressed values are short, so the server would handle requests only after many keys.
        .config("rdbcompression", "no")
        .start();
    let mut connection = server.connect();
    let script =
        "for i = 1, ARGV[1] do redis.call('set', 'other:' .. i, string.rep('x', ARGV[2])) end";
    connection.call(cmd!["EVAL", script, 0, KEYS, VALUE_BYTES]);
    connection.call(cmd!["LOCK.ACQUIRE", KEY, "holder", LEASE_MS]);
    server
}

/// Number of queued waiters, if the server reports it.
fn in_line(connection: &mut Connection) -> Option<usize> {
    let info = connection.ask(cmd!["LOCK.INFO", KEY]).ok()?;
    let Value::Array(_) = info else { return None };
    usize::try_from(info.field("waiters").integer()).ok()
}

/// Observes the server over one connection, so that all other connections belong to the fleet.
fn watch(server: &Server, started: Instant, all: usize) -> Observations {
    let mut seen = Observations::default();
    let mut connection = loop {
        match Connection::open(server.port()) {
            Ok(connection) => break connection,
            Err(_) => sleep(LOOK),
        }
        assert!(started.elapsed() < PATIENCE, "the server does not start");
    };
    loop {
        let waiting = in_line(&mut connection);
        let now = started.elapsed();
        if waiting.is_some() && seen.loaded.is_zero() {
            seen.loaded = now;
        }
        let stats = connection.ask(cmd!["INFO", "stats"]).map(|it| it.text()).unwrap_or_default();
        if let Some(total) = number(&stats, "total_connections_received") {
            seen.connects.push((now, total - 1.0));
        }
        if waiting == Some(all) {
            seen.in_line = now;
            return seen;
        }
        assert!(now < PATIENCE, "{waiting:?} of {all} are in line");
        sleep(LOOK);
    }
}

fn number(info: &str, field: &str) -> Option<f64> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
}

/// Number of acquires, waits and openings of sessions that the fleet has sent since the restart.
fn calls(connection: &mut Connection) -> f64 {
    let info = connection.call(cmd!["INFO", "commandstats"]).text();
    let of = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(name));
        let calls = line.and_then(|line| line.strip_prefix(":calls=")?.split(',').next());
        calls.and_then(|calls| calls.parse::<f64>().ok()).unwrap_or(0.0)
    };
    ["lock.acquire", "lock.wait", "session.open"].map(of).iter().sum()
}

impl Observations {
    fn total(&self) -> f64 {
        self.connects.last().map_or(0.0, |(_, total)| *total)
    }

    /// The largest number of new connections in any second.
    fn most_in_a_second(&self) -> f64 {
        let mut most = 0.0_f64;
        for (at, total) in &self.connects {
            let before =
                self.connects.iter().rfind(|(then, _)| *then + Duration::from_secs(1) <= *at);
            most = most.max(total - before.map_or(0.0, |(_, total)| *total));
        }
        most
    }
}

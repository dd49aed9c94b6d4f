//! Many tasks that need one result, which another program produces while it holds a lock. Measures the cost,
//! and the time until the last task has the result. The time starts before the result is stored and the lock
//! is released.

use crate::contender::{Needs, Program, named};
use crate::figures::Figures;
use crate::machine::{self, Used};
use crate::measure::{Clients, Mode, Part, Plan};
use crate::process::Process;
use crate::scenario::{Cells, Effort, Measured};
use harness::{Connection, Server, cmd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The key of the result, which [`Plan::arguments`] passes to the load generators.
const KEY: &str = "bench";
const LOCK: &str = "{bench}:lock";
const CHANNEL: &str = "redisson_lock__channel:{{bench}:lock}";
/// Redisson's channel for the lock. Redisson adds no braces to a name that already has braces.
const OWN_CHANNEL: &str = "redisson_lock__channel:{bench}:lock";
const LEASE_MS: u64 = 600_000;

/// Longest time until all tasks wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which the number of waiting tasks is polled.
const LOOK: Duration = Duration::from_millis(10);

/// Cells: name, number of tasks, and number of processes.
const SIZES: [(&str, usize, usize); 7] = [
    ("1 task", 1, 1),
    ("100 tasks in one process", 100, 1),
    ("100 tasks in 10 processes", 100, 10),
    ("100 tasks in 100 processes", 100, 100),
    ("10,000 tasks in one process", 10_000, 1),
    ("10,000 tasks in 10 processes", 10_000, 10),
    ("10,000 tasks in 100 processes", 10_000, 100),
];

const WHO: [&str; 6] = [
    "kvlock once",
    "kvlock double check",
    "kvlock single flight",
    "Lua double check",
    "Redisson double check",
    "SET NX double check",
];

pub(crate) fn add(cells: &mut Cells, effort: Effort) {
    for (name, tasks, processes) in SIZES {
        if effort.quick && tasks != 100 {
            continue;
        }
        for who in WHO {
            if named(who).waiters < tasks {
                continue;
            }
            cells.add("16", name, who, move || measure(who, tasks, processes));
        }
    }
}

fn measure(who: &'static str, tasks: usize, processes: usize) -> Measured {
    let contender = named(who);
    let server = server(contender.needs);
    machine::pin(&[server.pid()], &machine::cores().0);
    let mut control = server.connect();
    let by = if matches!(contender.needs, Needs::Module) { "kvlock" } else { contender.proto };
    take(&mut control, by);
    // A JVM starts slowly. So a peer runs as at most `contender.processes` processes. Each has one
    // client for each process that it replaces.
    let programs = match contender.program {
        Program::Ours(_) => processes,
        Program::Peer(_) => processes.min(contender.processes),
    };
    let each = tasks / programs;
    let plan = Plan { mode: Mode::Once, ..Plan::uncontended(contender, each, 0.0) };
    let clients = Clients::Several(processes / programs);
    let part = Part { contender, tasks: each, clients };
    let arguments = plan.arguments(&part, &server.url(), each);
    // Owner names contain task numbers, so these differ between processes.
    let start = |process: usize| {
        let first = format!("first={}", process * each);
        Process::start(contender, &[&arguments[..], &[first]].concat())
    };
    let mut all: Vec<_> = (0..programs).map(start).collect();
    let versions = all.iter().map(Process::ready).collect::<Result<Vec<_>, _>>()?;
    all.iter_mut().for_each(|process| process.go(0, 0));
    let wait = if contender.proto == "flight" { processes } else { tasks };
    let begun = Instant::now();
    while waiting(&mut control, contender.proto, processes) < wait {
        if begun.elapsed() > PATIENCE {
            return Err("they do not wait".to_owned());
        }
        sleep(LOOK);
    }
    let pids: Vec<u32> = all.iter().map(Process::pid).collect();
    let (busy, load) = (machine::busy(), Used::of(&pids));
    let used = Used::of(&[server.pid()]);
    let (before, begun) = (commands(&mut control), driver::now());
    store_and_release(&mut control, by);
    let (mut last, mut worked) = (begun, 0);
    for process in &all {
        for line in process.lines()? {
            let (at, works) = line.split_once(' ').ok_or(line.as_str())?;
            last = last.max(at.parse().map_err(|_| at)?);
            worked += works.parse::<u64>().map_err(|_| works)?;
        }
    }
    let server_used = Used::of(&[server.pid()]).since(&used);
    let load_used = Used::of(&pids).since(&load);
    let figures = [
        ("last_ms", (last - begun) as f64 / 1e6),
        // Counts the program that stored the result, and the tasks that did not find it.
        ("works", (1 + worked) as f64),
        ("commands_per_task", (commands(&mut control) - before) / tasks as f64),
        ("server_cpu_ms", server_used / 1e3),
        ("load_cpu_ms", load_used / 1e3),
        ("elsewhere_share", machine::elsewhere(busy, machine::busy(), server_used + load_used)),
    ];
    let figures: Figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok((figures, versions.into_iter().next().unwrap_or_default()))
}

fn server(needs: Needs) -> Server {
    let options = Server::options().config("maxclients", 30_000);
    if !matches!(needs, Needs::Module) {
        return options.without_module().start();
    }
    let options = options.module_config("max-waiters", 100_000);
    options.module_config("max-waiters-per-key", 100_000).start()
}

/// Acquires the lock with the protocol `by`. This process acts as the program that produces the result.
fn take(control: &mut Connection, by: &str) {
    match by {
        "kvlock" => control.call(cmd!["LOCK.ACQUIRE", LOCK, "maker", LEASE_MS]),
        "lua" | "redisson" => control.call(cmd!["HSET", LOCK, "maker", 1]),
        _ => control.call(cmd!["SET", LOCK, "maker", "PX", LEASE_MS]),
    };
}

fn store_and_release(control: &mut Connection, by: &str) {
    if by == "kvlock" {
        let store = cmd!["LOCK.RELEASE", LOCK, "maker", "STORE", KEY, "value", "PX", LEASE_MS];
        control.call(store);
        return;
    }
    control.call(cmd!["SET", KEY, "value", "PX", LEASE_MS]);
    control.call(cmd!["DEL", LOCK]);
    match by {
        "lua" => control.call(cmd!["PUBLISH", CHANNEL, 0]),
        "redisson" => control.call(cmd!["PUBLISH", OWN_CHANNEL, 0]),
        _ => return,
    };
}

/// Estimates the number of waiters from counters of the server.
fn waiting(control: &mut Connection, proto: &str, processes: usize) -> usize {
    let count = match proto {
        "lua" => control.call(cmd!["PUBSUB", "NUMSUB", CHANNEL])[1].integer(),
        "redisson" => {
            // All threads of a client share a subscription. Each thread tries before and after the
            // subscription.
            let heard = control.call(cmd!["PUBSUB", "NUMSUB", OWN_CHANNEL])[1].integer();
            let all = heard >= i64::try_from(processes).unwrap_or(i64::MAX);
            let tries = ["eval", "evalsha"].map(|command| calls(control, command));
            if all { tries.iter().sum::<i64>() / 2 } else { 0 }
        }
        // Counts the attempts to set the lock, except the one in `take`. A task makes one when it begins to
        // wait, and then every 100 ms.
        "poller" => calls(control, "set") - 1,
        _ => control.call(cmd!["LOCK.INFO", LOCK]).field("waiters").integer(),
    };
    usize::try_from(count).unwrap_or(0)
}

/// Number of commands that the server has executed.
fn commands(control: &mut Connection) -> f64 {
    let info = control.call(cmd!["INFO", "stats"]).text();
    let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(f64::NAN)
}

fn calls(control: &mut Connection, command: &str) -> i64 {
    let info = control.call(cmd!["INFO", "commandstats"]).text();
    let start = format!("cmdstat_{command}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
    let count = |name: &str| {
        let found = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        found.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    // `EVALSHA` fails if the server does not know the script yet. The client then sends the script.
    count("calls") - count("failed_calls")
}

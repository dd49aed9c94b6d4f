//! One measurement: a new server, load generators, one period of time.

use crate::contender::Contender;
use crate::machine::{self, Used};
use crate::process::{Cycle, Process};
use crate::server::{Backend, Setting, Snapshot};
use std::time::Duration;

/// Time before the start, in which all load generators read their line of input.
const NOTICE_NS: u64 = 50_000_000;

/// Kind of object that the tasks acquire and release, or another kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Lock,
    /// A share of a lock that others share too.
    Share,
    /// One permit of a semaphore.
    Permit,
    /// A lock that all readers share at once, and then a writer holds, in turn.
    Crowd,
    /// Hand-offs in turn: of one lock to a blocked client, of another to a session.
    Pairs,
    /// A lock of each task, which it holds until its process is killed.
    Keep,
    /// Changes between two leaders, seen by observers.
    Observe,
    /// Requests of other clients while the server works on many waits of one session.
    Noisy,
    /// One lock for which all tasks wait over a restart of the server.
    Fleet,
    /// One result that all tasks need.
    Once,
    /// Several locks of each task.
    Set,
}

/// A planned measurement. All parts use the same locks.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) mode: Mode,
    pub(crate) keys: usize,
    /// Number of locks that a task takes at the same time.
    pub(crate) width: usize,
    pub(crate) hold_us: u64,
    /// Time between a release and the next acquire of a task.
    pub(crate) think_us: u64,
    pub(crate) lease_ms: u64,
    /// Number of commands in a pipeline; 1 for none.
    pub(crate) depth: usize,
    /// `true` if a task waits after its release until another task of its process has the lock, and only then makes
    /// its next request.
    pub(crate) yields: bool,
    /// `true` if locks are released; otherwise their leases end.
    pub(crate) releases: bool,
    pub(crate) setting: Setting,
    /// Time at the start that is not counted, in seconds: compilers warm up and queues fill.
    pub(crate) settle: f64,
    pub(crate) seconds: f64,
}

/// The load of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) contender: &'static Contender,
    pub(crate) tasks: usize,
    /// Number of processes, and number of the library's clients that their tasks share.
    pub(crate) clients: Clients,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// All tasks in one process, with one client.
    One,
    /// One process, with the given number of clients.
    Several(usize),
    /// The given number of processes, each with one client.
    Processes(usize),
    /// Each task has its own client, unless [`Contender::is_one_client`]. Runs in as many processes as
    /// [`Contender::processes`] allows.
    OwnEach,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    /// Snapshots before the start of the load generators, at the start of the measurement, and at its end.
    pub(crate) looks: [Snapshot; 3],
    pub(crate) load_cpu_us: f64,
    /// The share of the machine's processor time that other programs used.
    pub(crate) elsewhere: f64,
    /// Start and end of the measurement.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) cycles: Vec<Cycle>,
    pub(crate) versions: Vec<String>,
}

impl Plan {
    /// One contender, on locks without contention.
    pub(crate) fn uncontended(contender: &'static Contender, tasks: usize, seconds: f64) -> Self {
        let part = Part { contender, tasks, clients: Clients::One };
        Self {
            parts: vec![part],
            mode: Mode::Lock,
            keys: tasks,
            width: 1,
            hold_us: 0,
            think_us: 0,
            lease_ms: 30_000,
            depth: 1,
            yields: false,
            releases: true,
            setting: Setting::Memory,
            settle: 0.05,
            seconds,
        }
    }

    /// One contender with the given number of tasks, each with its own client. All of them want the same
    /// lock.
    pub(crate) fn contended(contender: &'static Contender, tasks: usize, seconds: f64) -> Self {
        let part = Part { contender, tasks, clients: Clients::OwnEach };
        let plan = Self::uncontended(contender, tasks, seconds);
        // Many clients need more time until all are queued.
        let settle = contender.settle + tasks as f64 / contender.in_line_per_s;
        Self { parts: vec![part], keys: 1, settle, ..plan }
    }

    /// The arguments of one load generator.
    pub(crate) fn arguments(&self, part: &Part, url: &str, tasks: usize) -> Vec<String> {
        let clients = match part.clients {
            _ if part.contender.is_one_client => 1,
            Clients::One | Clients::Processes(_) => 1,
            Clients::Several(clients) => clients,
            Clients::OwnEach => tasks,
        };
        let mode = match self.mode {
            Mode::Lock => "lock",
            Mode::Share => "share",
            Mode::Permit => "permit",
            Mode::Crowd => "crowd",
            Mode::Pairs => "pairs",
            Mode::Keep => "keep",
            Mode::Observe => "observe",
            Mode::Noisy => "noisy",
            Mode::Fleet => "fleet",
            Mode::Once => "once",
            Mode::Set => "set",
        };
        let yes = |whether| if whether { "yes" } else { "no" };
        vec![
            format!("url={url}"),
            // The key is the same for all processes. Names of warm-up locks also contain `process`, so that
            // processes do not share these locks.
            "key=bench".to_owned(),
            format!("mode={mode}"),
            format!("keys={}", self.keys),
            format!("width={}", self.width),
            format!("tasks={tasks}"),
            format!("clients={clients}"),
            format!("hold_us={}", self.hold_us),
            format!("think_us={}", self.think_us),
            format!("lease_ms={}", self.lease_ms),
            format!("warm_ms={}", if self.releases { part.contender.warm_ms } else { 0 }),
            format!("depth={}", self.depth),
            format!("yields={}", yes(self.yields)),
            format!("release={}", yes(self.releases)),
        ]
    }

    /// Starts the load generators. Returns each with the number of its first task.
    pub(crate) fn start(&self, url: &str) -> Vec<(usize, Process)> {
        let (mut first, mut running) = (0, Vec::new());
        for part in &self.parts {
            let processes = match part.clients {
                Clients::OwnEach => part.contender.processes.min(part.tasks),
                Clients::Processes(processes) => processes,
                Clients::One | Clients::Several(_) => 1,
            };
            for number in 0..processes {
                let tasks = part.tasks / processes + usize::from(number < part.tasks % processes);
                let mut arguments = self.arguments(part, url, tasks);
                arguments.push(format!("process={}", running.len()));
                running.push((first, Process::start(part.contender, &arguments)));
                first += tasks;
            }
        }
        running
    }

    /// Measures on a new server.
    pub(crate) fn run(&self) -> Result<Outcome, String> {
        let needs = self.parts.first().expect("a part").contender.needs;
        self.run_on(&Backend::start(needs, self.setting))
    }

    /// Measures on the given server.
    pub(crate) fn run_on(&self, backend: &Backend) -> Result<Outcome, String> {
        backend.pin();
        let idle = backend.look();
        let mut running = self.start(&backend.url());
        let versions =
            running.iter().map(|(_, process)| process.ready()).collect::<Result<_, _>>()?;
        // Pins processes that the server started for new connections.
        backend.pin();
        let pids: Vec<u32> = running.iter().map(|(_, process)| process.pid()).collect();

        let start = driver::now() + NOTICE_NS;
        let end = start + nanoseconds(self.settle + self.seconds);
        for (_, process) in &mut running {
            process.go(start, end);
        }
        sleep_until(start + nanoseconds(self.settle));
        let (begin, replica) = (driver::now(), backend.replica_used());
        let (busy, load_before, before) = (machine::busy(), Used::of(&pids), backend.look());
        sleep_until(end);
        let (load_after, after) = (Used::of(&pids), backend.look());
        let load_cpu_us = load_after.since(&load_before);
        let ours = load_cpu_us + after.cpu_us(&before) + backend.replica_used().since(&replica);
        let elsewhere = machine::elsewhere(busy, machine::busy(), ours);

        let mut cycles = Vec::new();
        for (first, process) in &running {
            cycles.extend(process.records(*first)?);
        }
        let (plan, looks) = (self.clone(), [idle, before, after]);
        Ok(Outcome { plan, looks, load_cpu_us, elsewhere, begin, end, cycles, versions })
    }
}

impl Outcome {
    pub(crate) fn seconds(&self) -> f64 {
        (self.end - self.begin) as f64 / 1e9
    }

    /// The cycles that ended during the measurement.
    pub(crate) fn done(&self) -> impl Iterator<Item = &Cycle> {
        self.cycles.iter().filter(|cycle| (self.begin..=self.end).contains(&cycle.released))
    }
}

pub(crate) fn nanoseconds(seconds: f64) -> u64 {
    Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap()
}

pub(crate) fn sleep_until(moment: u64) {
    std::thread::sleep(Duration::from_nanos(moment.saturating_sub(driver::now())));
}

//! The scenarios, with their contenders and measurements.

use crate::contender::{self, Contender, Program};
use crate::figures::{self, Figures};
use crate::measure::{Clients, Mode, Outcome, Part, Plan};
use crate::server::{Backend, Setting};
use crate::{dying, family, fleet, holding, noisy, once, waiting};

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) quick: bool,
    /// Duration of one measurement in seconds, unless the scenario needs more.
    pub(crate) seconds: f64,
}

/// Result of one measurement: figures, and the version of the contender's library.
pub(crate) type Measured = Result<(Figures, String), String>;

/// One measurement, repeated in every round unless `once` is set.
pub(crate) struct Cell {
    pub(crate) scenario: &'static str,
    pub(crate) name: String,
    pub(crate) contender: &'static Contender,
    pub(crate) measure: Box<dyn Fn() -> Measured>,
    /// `true` if the cell is measured in the first round only, because it takes long.
    pub(crate) once: bool,
}

impl Cell {
    /// Returns whether the results include a version of the contender.
    pub(crate) fn has_version(&self) -> bool {
        matches!(self.contender.program, Program::Peer(_)) || self.contender.name == "kvlock crate"
    }
}

const LIBRARIES: &[&str] = &[
    "kvlock crate",
    "Redisson",
    "redsync",
    "rueidislock",
    "redis-py Lock",
    "rslock",
    "redlock (npm)",
];
const BEYOND: &[&str] = &["etcd", "PostgreSQL"];
/// Contenders that wait over raw connections, without a client library.
const WAITING: [&str; 4] = ["kvlock", "kvlock session", "Lua + pub/sub", "BLPOP"];

#[derive(Default)]
pub(crate) struct Cells(Vec<Cell>);

impl Cells {
    pub(crate) fn add(
        &mut self,
        scenario: &'static str,
        name: &str,
        who: &'static str,
        measure: impl Fn() -> Measured + 'static,
    ) {
        let (contender, name) = (contender::named(who), name.to_owned());
        self.0.push(Cell { scenario, name, contender, measure: Box::new(measure), once: false });
    }

    pub(crate) fn plan(
        &mut self,
        [scenario, name, who]: [&'static str; 3],
        plan: Plan,
        figures: impl Fn(&Outcome) -> Figures + 'static,
    ) {
        self.add(scenario, name, who, move || measured(&plan, &figures));
    }
}

fn measured(plan: &Plan, figures: impl Fn(&Outcome) -> Figures) -> Measured {
    let outcome = plan.run()?;
    // If only one of the parts is a library, it is the last one.
    Ok((figures(&outcome), outcome.versions.last().cloned().unwrap_or_default()))
}

/// Returns all cells. Cells of the same table are adjacent in most cases, so that they are measured one after
/// the other.
pub(crate) fn all(effort: Effort) -> Vec<Cell> {
    let mut cells = Cells::default();
    uncontended(&mut cells, effort);
    hand_off(&mut cells, effort);
    contended(&mut cells, effort);
    many_locks(&mut cells, effort);
    expiry(&mut cells, effort);
    held(&mut cells, effort);
    waited_for(&mut cells, effort);
    tax(&mut cells, effort);
    mixed(&mut cells, effort);
    family::add(&mut cells, effort);
    in_turn(&mut cells, effort);
    dying::elections(&mut cells, effort);
    dying::locks(&mut cells, effort);
    noisy::add(&mut cells, effort);
    fleet::add(&mut cells, effort);
    once::add(&mut cells, effort);
    sets(&mut cells, effort);
    for cell in &mut cells.0 {
        cell.once = takes_long(cell);
    }
    cells.0
}

/// Returns whether a cell is measured in the first round only, so that there is time for at least three
/// rounds of the others. It is true for many measurements of libraries, for those with a million objects, and
/// for a few other slow measurements.
fn takes_long(cell: &Cell) -> bool {
    let who = cell.contender.name;
    let library = [LIBRARIES, BEYOND].concat().contains(&who);
    match cell.scenario {
        "7" | "11" | "14" if cell.name.starts_with("1,000,000") => true,
        "2" | "4" => library && !["kvlock crate", "PostgreSQL"].contains(&who),
        "3" => library && who != "kvlock crate",
        "5" => cell.name.starts_with("1,000,000") || library,
        // A round of the watchdog takes ten seconds.
        "6" => cell.name.starts_with("1,000,000") || library,
        "7" => library,
        "9" => who == "Redisson",
        "12" | "13" | "14" | "16" | "17" => false,
        // A server that loads its data takes twenty seconds.
        "15" => true,
        // With scripts, the release of a thousand readers takes seconds.
        "10" => library || (cell.name.starts_with("1,000") && who == "Lua + pub/sub"),
        _ if BEYOND.contains(&who) => true,
        _ => cell.name == "one at a time" && library && who != "kvlock crate",
    }
}

fn uncontended(cells: &mut Cells, effort: Effort) {
    let raw =
        ["kvlock", "kvlock, I/O threads", "Lua + pub/sub", "SET + script", "SET + DEL", "PING"];
    for (name, tasks) in [("one at a time", 1), ("64 tasks", 64)] {
        if effort.quick && tasks == 1 {
            continue;
        }
        let who =
            raw.iter().chain(&["redis-rs", "redis-rs default"]).chain(LIBRARIES).chain(BEYOND);
        for who in who {
            let plan = Plan::uncontended(contender::named(who), tasks, effort.seconds);
            cells.plan(["1", name, who], plan, figures::common);
        }
    }
    let settings = [
        ("depth 16", Setting::Memory),
        ("depth 16, append-only file", Setting::AppendOnly),
        ("depth 16, one replica", Setting::Replica),
    ];
    for (name, setting) in settings {
        if effort.quick && setting == Setting::Replica {
            continue;
        }
        for who in raw.iter().chain(&["kvlock, silent"]) {
            let plan = Plan::uncontended(contender::named(who), 50, effort.seconds);
            cells.plan(["1", name, who], Plan { depth: 16, setting, ..plan }, figures::common);
        }
    }
    if effort.quick {
        return;
    }
    let settings = [
        ("64 tasks, append-only file", Setting::AppendOnly),
        ("64 tasks, one replica", Setting::Replica),
    ];
    for (name, setting) in settings {
        for who in [
            "kvlock",
            "kvlock crate",
            "Lua + pub/sub",
            "Redisson",
            "redsync",
            "SET + script",
            "SET + DEL",
        ] {
            let plan = Plan::uncontended(contender::named(who), 64, effort.seconds);
            cells.plan(["1", name, who], Plan { setting, ..plan }, figures::common);
        }
    }
}

fn hand_off(cells: &mut Cells, effort: Effort) {
    let names = [
        ("1 waiter", 1),
        ("10 waiters", 10),
        ("100 waiters", 100),
        ("1,000 waiters", 1_000),
        ("5,000 waiters", 5_000),
    ];
    for (name, waiters) in names {
        if effort.quick && ![100, 1_000].contains(&waiters) {
            continue;
        }
        let who = WAITING.iter().chain(&["redis-rs, waiting"]).chain(LIBRARIES).chain(BEYOND);
        for who in who.filter(|who| contender::named(who).waiters >= waiters) {
            let seconds = if waiters > 1_000 { 3.0 } else { 1.5 } * effort.seconds;
            let clients = Clients::Several(waiters + 1);
            hand_off_among(cells, [name, who], (waiters + 1, clients), seconds);
        }
    }
    if !effort.quick {
        // After its release, a task pauses until the other task of its process has the lock. So about half
        // of the tasks are queued.
        for who in ["kvlock crate", "redis-rs, waiting"] {
            let among = (22, Clients::Processes(11));
            hand_off_among(cells, ["10 waiters, 11 processes", who], among, 1.5 * effort.seconds);
        }
    }
}

/// Hand-offs of one lock among these tasks. The holder keeps the lock for 2 ms, so that the others have time
/// to queue again.
fn hand_off_among(
    cells: &mut Cells,
    [name, who]: [&'static str; 2],
    (tasks, clients): (usize, Clients),
    seconds: f64,
) {
    let contender = contender::named(who);
    let parts = vec![Part { contender, tasks, clients }];
    let plan = Plan::contended(contender, tasks, seconds);
    let plan = Plan { parts, hold_us: 2_000, yields: true, ..plan };
    cells.plan(["2", name, who], plan, figures::hand_off);
}

fn contended(cells: &mut Cells, effort: Effort) {
    let names = [
        ("2 processes", 2, 0),
        ("10 processes", 10, 0),
        ("50 processes", 50, 0),
        ("2 processes, 1 ms", 2, 1_000),
        ("10 processes, 1 ms", 10, 1_000),
        ("50 processes, 1 ms", 50, 1_000),
    ];
    for (name, tasks, hold_us) in names {
        if effort.quick && (tasks, hold_us) != (10, 1_000) {
            continue;
        }
        for who in ["kvlock", "Lua + pub/sub", "BLPOP"].iter().chain(LIBRARIES).chain(BEYOND) {
            let plan = Plan::contended(contender::named(who), tasks, effort.seconds);
            cells.plan(["3", name, who], Plan { hold_us, ..plan }, figures::fairness);
        }
    }
}

/// Philosophers that need two neighbouring locks each, and tasks that need three locks each.
fn sets(cells: &mut Cells, effort: Effort) {
    let names = [
        ("5 philosophers", 5, 5, 2),
        ("100 philosophers", 100, 100, 2),
        ("1,000 tasks that need 3 of 100 locks", 1_000, 100, 3),
    ];
    for (name, tasks, keys, width) in names {
        if effort.quick && tasks != 5 {
            continue;
        }
        for who in ["kvlock set", "kvlock sorted", "Redisson MultiLock"] {
            let contender = contender::named(who);
            if contender.waiters < tasks {
                continue;
            }
            let plan = Plan::contended(contender, tasks, 3.0 * effort.seconds);
            let parts = vec![Part { contender, tasks, clients: Clients::Several(tasks.min(100)) }];
            let plan = Plan { parts, mode: Mode::Set, keys, width, hold_us: 1_000, ..plan };
            cells.plan(["17", name, who], plan, figures::fairness);
        }
    }
}

fn many_locks(cells: &mut Cells, effort: Effort) {
    let libraries = ["kvlock crate", "Redisson", "redsync", "rueidislock"];
    for who in WAITING.iter().copied().chain(libraries).chain(BEYOND.iter().copied()) {
        if effort.quick && who == "Redisson" {
            continue;
        }
        let contender = contender::named(who);
        let plan = Plan::contended(contender, 1_000, 1.5 * effort.seconds);
        let parts = vec![Part { contender, tasks: 1_000, clients: Clients::Several(10) }];
        cells.plan(["4", "100 locks", who], Plan { parts, keys: 100, ..plan }, |outcome| {
            let mut all = figures::fairness(outcome);
            all.extend(figures::hand_off(outcome));
            all
        });
    }
}

/// Ends of leases. The contenders do not include rueidislock, etcd and PostgreSQL, because these have no
/// leases that end while their owner lives.
fn expiry(cells: &mut Cells, effort: Effort) {
    let who = [
        "kvlock",
        "Lua + pub/sub",
        "kvlock crate",
        "Redisson",
        "redsync",
        "redis-py Lock",
        "rslock",
        "redlock (npm)",
    ];
    for (name, others) in [("empty server", 0), ("1,000,000 other keys", 1_000_000)] {
        if effort.quick && others > 0 {
            continue;
        }
        for who in who {
            if effort.quick && ["rslock", "redlock (npm)"].contains(&who) {
                continue;
            }
            // The delay of a client that polls depends on its pauses, not on the number of keys.
            let polls = ["redsync", "redis-py Lock", "rslock", "redlock (npm)"].contains(&who);
            if others > 0 && polls {
                continue;
            }
            let contender = contender::named(who);
            let plan = Plan::contended(contender, 100, (4.0 * effort.seconds).max(1.0));
            let parts = vec![Part { contender, tasks: 100, clients: Clients::Several(5) }];
            let plan = Plan { parts, keys: 20, lease_ms: 300, releases: false, ..plan };
            cells.add("5", name, who, move || {
                let backend = Backend::start(contender.needs, Setting::Memory);
                holding::populate(backend.server(), others);
                let outcome = plan.run_on(&backend)?;
                Ok((
                    figures::lateness(&outcome),
                    outcome.versions.first().cloned().unwrap_or_default(),
                ))
            });
        }
    }
}

fn held(cells: &mut Cells, effort: Effort) {
    for (name, locks) in [
        ("1,000 locks", 1_000),
        ("10,000 locks", 10_000),
        ("100,000 locks", 100_000),
        ("1,000,000 locks", 1_000_000),
    ] {
        if effort.quick && locks != 10_000 {
            continue;
        }
        for who in ["kvlock", "Lua + pub/sub", "SET + script"] {
            cells.add("6", name, who, move || holding::raw(contender::named(who), locks));
        }
        if locks == 100_000 && !effort.quick {
            for who in ["kvlock crate", "kvlock crate, bound"] {
                cells.add("6", name, who, move || holding::watchdog(contender::named(who), locks));
            }
        }
    }
}

fn waited_for(cells: &mut Cells, effort: Effort) {
    for (name, waiters) in [
        ("100 waiters", 100),
        ("1,000 waiters", 1_000),
        ("100,000 waiters", 100_000),
        ("1,000,000 waiters", 1_000_000),
    ] {
        if effort.quick && waiters > 100 {
            continue;
        }
        for who in WAITING.iter().chain(LIBRARIES).chain(BEYOND) {
            let contender = contender::named(who);
            if contender.waiters >= waiters && !(effort.quick && contender.waiters < 1_000) {
                cells.add("7", name, who, move || {
                    waiting::measure(contender, waiters, effort.seconds)
                });
            }
        }
    }
}

/// Hand-offs through a session, alternating with hand-offs to a blocked client.
fn in_turn(cells: &mut Cells, effort: Effort) {
    for (name, waiters) in [
        ("1 waiter", 1),
        ("100 waiters", 100),
        ("10,000 waiters", 10_000),
        ("100,000 waiters", 100_000),
        ("1,000,000 waiters", 1_000_000),
    ] {
        if !effort.quick || waiters == 100 {
            let seconds = 4.0 * effort.seconds;
            cells.add("11", name, "kvlock session", move || waiting::in_turn(waiters, seconds));
        }
    }
}

fn tax(cells: &mut Cells, effort: Effort) {
    for who in ["others", "others, module"] {
        let plan = Plan::uncontended(contender::named(who), 50, effort.seconds);
        cells.plan(["8", "saturated", who], Plan { depth: 16, ..plan }, waiting::per_command);
        let plan = Plan::uncontended(contender::named(who), 1, effort.seconds);
        cells.plan(["8", "idle", who], Plan { hold_us: 1_000, ..plan }, waiting::of_others);
    }
    for (name, tasks, contended) in [("64 lockers", 64, false), ("100 contenders", 100, true)] {
        for who in ["kvlock", "Lua + pub/sub"] {
            let lockers =
                Part { contender: contender::named(who), tasks, clients: Clients::Several(tasks) };
            let others =
                Part { contender: contender::named("others"), tasks: 1, clients: Clients::One };
            let plan = Plan::contended(lockers.contender, tasks, effort.seconds);
            let keys = if contended { 1 } else { tasks };
            let plan = Plan { parts: vec![lockers, others], keys, hold_us: 1_000, ..plan };
            cells.plan(["8", name, who], plan, waiting::of_others);
        }
    }
}

/// Clients of kvlock alone, and beside two processes of Redisson with ten threads each.
fn mixed(cells: &mut Cells, effort: Effort) {
    let names = [
        ("1 client, no pause", 1, 0),
        ("2 clients, no pause", 2, 0),
        ("20 clients, no pause", 20, 0),
        ("1 client, pauses of 50 ms", 1, 50_000),
        ("2 clients, pauses of 50 ms", 2, 50_000),
        ("20 clients, pauses of 50 ms", 20, 50_000),
    ];
    for (name, tasks, think_us) in names {
        if effort.quick && (tasks, think_us) != (2, 0) {
            continue;
        }
        let ours = contender::named("kvlock");
        let plan = Plan { hold_us: 1_000, think_us, ..Plan::contended(ours, tasks, 2.0) };
        cells.plan(["9", name, "kvlock"], plan.clone(), waiting::shares);
        let theirs = Part {
            contender: contender::named("Redisson"),
            tasks: 20,
            clients: Clients::Processes(2),
        };
        // Long enough to see waits of several seconds, except in a quick run.
        let seconds = if effort.quick { 2.0 } else { 10.0 };
        let parts = [plan.parts.clone(), vec![theirs]].concat();
        let plan = Plan { parts, seconds, settle: 1.0, ..plan };
        cells.plan(["9", name, "Redisson"], plan, waiting::shares);
    }
}

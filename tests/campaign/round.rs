//! Rounds of load on one topology: tasks on new locks, some faults, and the judgement.

use crate::Options;
use crate::faults::{self, BESIDE, Beside, Fault};
use crate::judge::{diary, judge};
use crate::memory::Memory;
use crate::report::Report;
use crate::round_log::RoundLog;
use crate::setting::SESSION;
use crate::store::Store;
use crate::suites::Rounds;
use crate::topology::{PairWithStrangers, Topology, cast, crash};
use crate::workload::{ClientRoute, Lines, WIRE_FAULTS};
use harness::coverage::{Coverage, Span};
use harness::evidence::OVERLAPS;
use harness::history::{Call, Recorder};
use harness::random::Random;
use harness::{Server, wait};
use std::cell::RefCell;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// A task without progress for this time is stuck: no failover, lease or quarantine takes as long.
const STUCK: Duration = Duration::from_secs(90);

/// Longest extension of a suite whose required counts are not reached. `--pairs` may extend a suite for
/// longer.
const AWAITED: Duration = Duration::from_secs(600);

/// Probability that a second fault overlaps with a fault, in percent.
const BESIDE_PERCENT: u64 = 30;

/// Counter of faults that overlapped with another.
const AT_ONCE: &str = "faults that overlapped with another";

/// Number of tasks that share each [`ClientRoute`].
const TASKS: usize = 6;

/// State that all tasks of a round share.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) keys: Vec<String>,
    pub(crate) leases_ms: Vec<u64>,
    /// Time to live of sessions that bind locks.
    pub(crate) session: Duration,
    pub(crate) recorder: Recorder,
    pub(crate) store: Store,
    pub(crate) log: RoundLog,
    pub(crate) lines: Lines,
    /// Number of turns of each task.
    pub(crate) turns: Vec<AtomicU64>,
    /// Number of grants on each way.
    grants: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Round {
    pub(crate) fn new(
        keys: Vec<String>,
        leases_ms: Vec<u64>,
        tasks: usize,
        report: Arc<Report>,
    ) -> Self {
        Self {
            keys,
            leases_ms,
            session: SESSION,
            recorder: Recorder::new(),
            store: Store::default(),
            log: RoundLog::new(report),
            lines: Lines::default(),
            turns: (0..tasks).map(|_| AtomicU64::new(0)).collect(),
            grants: (0..tasks / TASKS).map(|_| AtomicU64::new(0)).collect(),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Counts a grant to an owner. The owner's name begins with the number of its task.
    pub(crate) fn granted(&self, owner: &str) {
        self.log.add("grants", 1);
        let task = owner.split(':').next().and_then(|number| number.parse::<usize>().ok());
        if let Some(task) = task.filter(|_| !self.grants.is_empty()) {
            self.grants[task % self.grants.len()].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until each task has had a turn and more than ten grants were counted. Each way for which
    /// `follows` is true must also have had a grant; this is not checked if no way had a grant before the
    /// call. Panics if a server does not run, or if the wait takes too long.
    fn wait_for_progress(&self, servers: &[&Server], follows: impl Fn(usize) -> bool) {
        let of = |all: &[AtomicU64]| -> Vec<u64> {
            all.iter().map(|count| count.load(Ordering::SeqCst)).collect()
        };
        let now = || of(&self.turns).into_iter();
        let before: Vec<u64> = now().collect();
        let granted = self.log.report.count("grants");
        let granted_on = of(&self.grants);
        let without_grant = || -> Vec<usize> {
            let now = of(&self.grants);
            (0..now.len())
                .filter(|route| follows(*route) && now[*route] == granted_on[*route])
                .collect()
        };
        wait::until("every task gets on", STUCK, || {
            assert!(servers.iter().all(|server| server.is_running()), "a server is gone");
            let behind = |(_, (now, before)): &(usize, (u64, &u64))| now <= before;
            let stuck: Vec<usize> =
                now().zip(&before).enumerate().filter(behind).map(|(task, _)| task).collect();
            let grants = self.log.report.count("grants") - granted;
            let idle =
                if granted_on.iter().any(|grants| *grants > 0) { without_grant() } else { vec![] };
            if stuck.is_empty() && idle.is_empty() && grants > 10 {
                Ok(())
            } else {
                Err(format!("tasks {stuck:?} have not, {grants} grants, none on ways {idle:?}"))
            }
        });
    }
}

/// Plays rounds on a topology for the time in the options. If a wanted fault has not happened then or a
/// required count is not reached, continues for at most [`AWAITED`], or longer for `--pairs`. Ends after the
/// first round with a violation.
pub(crate) fn play(suite: &str, rounds: &Rounds, options: &Options, report: &Arc<Report>) {
    let mut random = Random::new(options.seed.number);
    let topology = (rounds.on)(rounds.setting);
    let end = Instant::now() + options.time(300);
    let faults: Vec<&'static Fault> =
        faults::all().filter(|fault| rounds.has(fault, options, &*topology)).collect();
    assert!(!faults.is_empty(), "no fault has {:?} in its name", options.fault);
    let beside: Vec<&Beside> = BESIDE
        .iter()
        .filter(|it| rounds.pace.settles && options.fault.is_empty() && (it.on)(&*topology))
        .collect();
    let wanted = if options.some { Vec::new() } else { rounds.wanted(&faults) };
    let due = RefCell::new(wanted.clone());
    random.shuffle(&mut due.borrow_mut());
    let of_clients =
        if cast::<PairWithStrangers>(&*topology).is_some() { &WIRE_FAULTS[..] } else { &[] };
    let names = faults.iter().map(|fault| fault.name).chain(of_clients.iter().copied());
    let mut coverage = Coverage::of(names.chain(beside.iter().map(|it| it.name)));
    let mut memory = Memory::default();
    let is_awaited = |what: &str| report.count(what) == 0;
    let floors = if options.some { &[][..] } else { rounds.work.floors() };
    let is_below = |(what, least): &(&str, u64)| report.count(what) < *least;
    let mut number = 0;
    loop {
        let wants_pairs = coverage.least() < options.pairs;
        let misses = options.until.as_deref().is_some_and(is_awaited)
            || report.count(OVERLAPS) < rounds.finds
            || !due.borrow().is_empty()
            || floors.iter().any(is_below);
        let wants_more = wants_pairs || misses && Instant::now() < end + AWAITED;
        let left = end.saturating_duration_since(Instant::now());
        if !report.is_right() || (left.is_zero() && !wants_more) {
            break;
        }
        number += 1;
        let longest = rounds.pace.round;
        let time = if left.is_zero() { longest } else { longest.min(left) };
        let mut drawn = faults.clone();
        drawn.retain(|fault| coverage.least_of(fault.name) < options.pairs);
        let one = One {
            suite,
            rounds,
            topology: &*topology,
            faults: if drawn.is_empty() { &faults } else { &drawn },
            beside: &beside,
            due: &due,
            random: random.part(number),
        };
        one.run(number, time, report, &mut coverage);
        if report.is_right() {
            memory.add(topology.servers());
        }
    }
    memory.publish(report);
    memory.growth().into_iter().for_each(|grown| report.violation(grown));
    if number == 0 {
        report.violation("Little: no round was played");
    }
    demand(rounds, options, report, &wanted, !beside.is_empty());
    print!("{coverage}");
    println!("{memory}");
    report.figure(topology.sum_up(report).unwrap_or_else(|| figure(report)));
}

/// Records a violation for each required fault or finding that is missing.
fn demand(
    rounds: &Rounds,
    options: &Options,
    report: &Report,
    wanted: &[&Fault],
    can_overlap: bool,
) {
    // A run ends at the first violation, so the rest may be missing.
    if !report.is_right() {
        return;
    }
    for fault in wanted {
        report.wants(&format!("fault: {}", fault.name), 1);
    }
    report.wants("failovers", wanted.iter().map(|fault| fault.failovers).sum());
    if !options.some {
        report.wants(AT_ONCE, u64::from(can_overlap));
        rounds.work.floors().iter().for_each(|(what, least)| report.wants(what, *least));
    }
    report.wants(OVERLAPS, rounds.finds);
}

/// The figure of a run: its grants and its faults.
fn figure(report: &Report) -> String {
    let count = |what| report.count(what);
    format!(
        "{} grants, {} faults of {} kinds, {} failovers, {} overlaps, {} tokens out of order, {} stale writes",
        count("grants"),
        count("faults"),
        report.kinds(),
        count("failovers"),
        count(OVERLAPS),
        count("a later grant had the smaller token"),
        count("stale writes accepted"),
    )
}

/// A round on the given topology, with these faults.
struct One<'a> {
    suite: &'a str,
    rounds: &'a Rounds,
    topology: &'a dyn Topology,
    faults: &'a [&'static Fault],
    /// Faults that can overlap with them.
    beside: &'a [&'static Beside],
    /// Faults that still have to happen. The last is next.
    due: &'a RefCell<Vec<&'static Fault>>,
    random: Random,
}

impl One<'_> {
    /// Runs the round for about the given time, and judges it.
    fn run(&self, number: u64, time: Duration, report: &Arc<Report>, coverage: &mut Coverage) {
        let runtime = Runtime::new().expect("a runtime");
        let routes = self.topology.routes(&runtime);
        let leases_ms = self.topology.leases_ms().to_vec();
        let tasks = routes.len() * TASKS;
        let round = Round::new(self.topology.keys(number), leases_ms, tasks, report.clone());
        let round = Arc::new(Round { session: self.rounds.setting.session(), ..round });
        let mut tasks = JoinSet::new();
        for task in 0..routes.len() * TASKS {
            let route = routes[task % routes.len()].clone();
            let random = self.random.part(1 + task as u64);
            tasks.spawn_on(
                self.rounds.work.start(round.clone(), route, task, random),
                runtime.handle(),
            );
        }
        let injected = catch_unwind(AssertUnwindSafe(|| self.inject(&round, time)));
        round.over.store(true, Ordering::SeqCst);
        let mut violations = end(&runtime, tasks, routes);
        let servers = self.topology.servers();
        if injected.is_err() {
            violations.push("Stuck: it did not go on: see the panic above".to_owned());
        } else if servers.iter().all(|server| server.is_running()) {
            violations.extend(self.left_behind(&round.keys));
        }
        violations.extend(servers.into_iter().filter_map(crash));
        let calls = round.recorder.calls();
        violations.extend(judge(self.rounds.promises, &round, &calls));
        let seen = round.log.records();
        let with_renewals: Vec<Call> = calls.iter().chain(&seen.renewals).cloned().collect();
        coverage.add(&seen.faults, &with_renewals, &seen.cancels);
        report.add("calls", calls.len() as u64);
        if !violations.is_empty() {
            let logs = self.topology.servers().into_iter().map(Server::log);
            let lines: Vec<String> =
                violations.iter().cloned().chain(diary(&calls, &round)).chain(logs).collect();
            report.keep(self.suite, &lines);
        }
        violations.into_iter().for_each(|violation| report.violation(violation));
        runtime.shutdown_background();
    }

    /// Injects faults one after another. If the pace settles, waits after each until the servers have
    /// recovered and every task has made progress.
    fn inject(&self, round: &Round, time: Duration) {
        let (topology, mut random) = (self.topology, self.random.part(0));
        let (end, pace) = (Instant::now() + time, self.rounds.pace);
        let mut known = (round.recorder.now(), topology.primaries());
        if pace.settles {
            self.wait_for_progress(round);
        }
        for number in 0..pace.faults {
            // On a busy machine the time may be over before any fault, so the first fault is always made.
            if number > 0 && Instant::now() >= end {
                break;
            }
            let due = self.due.borrow_mut().pop();
            let fault = due.unwrap_or_else(|| *random.weighted(self.faults, |fault| fault.weight));
            let mut moment = Moment { round, span: None, is_split: false };
            let from = round.recorder.now();
            thread::scope(|scope| {
                if let Some(beside) = self.beside(round, &mut random) {
                    scope.spawn(beside);
                }
                fault.happens(topology, &mut moment, &mut random);
            });
            let whole = Span { from, to: round.recorder.now() };
            let Moment { span, is_split, .. } = moment;
            round.log.fault(fault.name, span.unwrap_or(whole));
            if pace.settles {
                topology.recover();
                self.wait_for_progress(round);
            }
            if is_split {
                round.log.split(Span { from, to: round.recorder.now() });
            }
            note_replaced(round, topology, &mut known);
            sleep(pace.rest.mul_f64(random.below(100) as f64 / 100.0));
        }
        topology.recover();
        note_replaced(round, topology, &mut known);
    }

    /// Chooses a fault that overlaps with the next one: always until one has overlapped, then sometimes.
    fn beside<'r>(
        &'r self,
        round: &'r Round,
        random: &mut Random,
    ) -> Option<impl FnOnce() + Send + use<'r>> {
        let never = round.log.report.count(AT_ONCE) == 0;
        if self.beside.is_empty() || !(random.percent(BESIDE_PERCENT) || never) {
            return None;
        }
        let Beside { name, prepare, .. } = random.pick(self.beside);
        let act = prepare(self.topology, random);
        Some(move || {
            let from = round.recorder.now();
            act();
            round.log.fault(name, Span { from, to: round.recorder.now() });
            round.log.add(AT_ONCE, 1);
        })
    }

    fn wait_for_progress(&self, round: &Round) {
        round.wait_for_progress(&self.topology.servers(), |route| self.topology.follows(route));
    }

    /// Waits until the clients have left no state on the servers. Returns what is left after [`STUCK`].
    fn left_behind(&self, keys: &[String]) -> Vec<String> {
        let end = Instant::now() + STUCK;
        loop {
            let left = self.topology.left_behind(keys);
            if left.is_empty() || Instant::now() > end {
                return left;
            }
            sleep(Duration::from_millis(20));
        }
    }
}

/// If the primary has changed since the last check, records that two servers may have acted as primary until
/// the servers recovered, and checks again: on a busy machine, servers are also replaced without a fault,
/// sometimes twice.
fn note_replaced(round: &Round, topology: &dyn Topology, known: &mut (Duration, Vec<u16>)) {
    let next = (round.recorder.now(), topology.primaries());
    let (from, before) = replace(known, next);
    if before != known.1 {
        topology.recover();
        round.log.split(Span { from, to: round.recorder.now() });
        note_replaced(round, topology, known);
    }
}

/// Records the time of a fault without the recovery from it, and whether two servers may act as primary.
pub(crate) struct Moment<'a> {
    pub(crate) round: &'a Round,
    span: Option<Span>,
    is_split: bool,
}

impl Moment<'_> {
    /// Runs the fault itself, or a part of it. The span of the fault is from the first part to the last.
    pub(crate) fn is<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let from = self.span.map_or_else(|| self.round.recorder.now(), |before| before.from);
        let result = what();
        self.span = Some(Span { from, to: self.round.recorder.now() });
        result
    }

    /// Records that two servers may act as primary until the servers have recovered.
    pub(crate) fn leaves_two(&mut self) {
        self.is_split = true;
    }

    /// Sets the span of the fault: it begins now and lasts for the given time.
    pub(crate) fn lasts(&mut self, time: Duration) {
        let from = self.round.recorder.now();
        self.span = Some(Span { from, to: from + time });
    }
}

/// Waits until all tasks have ended and their background work is done. Then drops the clients, which would
/// otherwise keep sessions open.
fn end(runtime: &Runtime, mut tasks: JoinSet<()>, routes: Vec<ClientRoute>) -> Vec<String> {
    let ended = runtime.block_on(async {
        // Waits for all tasks, even if one of them has failed.
        let all = async {
            let mut ended = Ok(());
            while let Some(done) = tasks.join_next().await {
                ended = ended.and(done);
            }
            ended
        };
        let ended = tokio::time::timeout(STUCK, all).await;
        let settled = tokio::time::timeout(STUCK, async {
            for route in &routes {
                route.settled().await;
            }
        });
        (ended, settled.await)
    });
    match ended {
        (Ok(Ok(())), Ok(())) => Vec::new(),
        other => vec![format!("Stuck: tasks hang or failed: {other:?}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A topology for tests: the second server is the primary, and after the first recovery the third.
    struct Replaced {
        round: Arc<Round>,
        in_order: Mutex<Vec<Duration>>,
    }

    impl Topology for Replaced {
        fn servers(&self) -> Vec<&Server> {
            Vec::new()
        }

        fn routes(&self, _runtime: &Runtime) -> Vec<ClientRoute> {
            Vec::new()
        }

        fn leases_ms(&self) -> &[u64] {
            &[]
        }

        fn primary(&self, _random: &mut Random) -> &Server {
            panic!("there is none")
        }

        fn primaries(&self) -> Vec<u16> {
            vec![if self.in_order.lock().unwrap().is_empty() { 2 } else { 3 }]
        }

        fn recover(&self) {
            self.in_order.lock().unwrap().push(self.round.recorder.now());
        }
    }

    #[test]
    fn servers_that_are_replaced_are_apart_until_they_are_in_order() {
        let round = Round::new(Vec::new(), Vec::new(), 0, Arc::<Report>::default());
        let topology = Replaced { round: Arc::new(round), in_order: Mutex::default() };
        let round = &topology.round;
        let mut known = (round.recorder.now(), vec![1]);
        note_replaced(round, &topology, &mut known);
        let is_split = &round.log.records().splits;
        let in_order = topology.in_order.lock().unwrap();
        assert_eq!((is_split.len(), in_order.len()), (2, 2));
        for (span, at) in is_split.iter().zip(&*in_order) {
            assert!(span.meets(Span { from: *at, to: *at }), "{span:?}, in order at {at:?}");
        }
        assert_eq!(known.1, [3]);
    }
}

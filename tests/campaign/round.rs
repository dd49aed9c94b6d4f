//! Rounds of load on one topology: tasks on fresh locks, some faults, and what came of it.

use crate::Options;
use crate::faults::{self, Fault};
use crate::judge::{diary, judge};
use crate::notes::Notes;
use crate::report::Report;
use crate::store::Store;
use crate::suites::Rounds;
use crate::topology::{Topology, crash};
use crate::workload::Way;
use harness::coverage::{Coverage, Span};
use harness::history::{Call, Recorder};
use harness::random::Random;
use harness::wait;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Whoever gets nowhere for so long is stuck: far more than any failover, lease or quarantine here.
const STUCK: Duration = Duration::from_secs(90);

/// How long a round may begin new faults.
const ROUND: Duration = Duration::from_secs(30);

/// How many tasks share each way.
const TASKS: usize = 6;

/// How many faults a round has, at most.
const FAULTS: usize = 8;

/// What all tasks of a round share.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) keys: Vec<String>,
    pub(crate) leases_ms: Vec<u64>,
    pub(crate) recorder: Recorder,
    pub(crate) store: Store,
    pub(crate) notes: Notes,
    /// How often each task had its turn.
    pub(crate) turns: Vec<AtomicU64>,
    over: AtomicBool,
}

impl Round {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Every single task has its turn from now on, and locks are granted.
    fn wait_for_progress(&self) {
        let now = || self.turns.iter().map(|turns| turns.load(Ordering::SeqCst));
        let before: Vec<u64> = now().collect();
        let granted = self.notes.report.count("grants");
        wait::until("every task gets on", STUCK, || {
            let behind = |(_, (now, before)): &(usize, (u64, &u64))| now <= before;
            let stuck: Vec<usize> =
                now().zip(&before).enumerate().filter(behind).map(|(task, _)| task).collect();
            let grants = self.notes.report.count("grants") - granted;
            if stuck.is_empty() && grants > 10 {
                Ok(())
            } else {
                Err(format!("tasks {stuck:?} have not, {grants} grants"))
            }
        });
    }
}

/// Round after round on that topology, for as long as the options say. What is not promised is counted.
pub(crate) fn play(suite: &str, rounds: &Rounds, options: &Options, report: &Arc<Report>) {
    let random = Random::new(options.seed.number);
    let topology = (rounds.on)(rounds.setting);
    let end = Instant::now() + options.time(300);
    let happens = |fault: &&Fault| {
        let wanted = fault.name.contains(&options.fault) && !rounds.without.contains(&fault.name);
        wanted && (fault.on)(&*topology)
    };
    let faults: Vec<&'static Fault> = faults::all().filter(happens).collect();
    assert!(!faults.is_empty(), "no fault has {:?} in its name", options.fault);
    let mut coverage = Coverage::of(faults.iter().map(|fault| fault.name));
    let mut number = 0;
    while report.is_right() && (Instant::now() < end || coverage.least() < options.pairs) {
        number += 1;
        let left = end.saturating_duration_since(Instant::now());
        let time = if coverage.least() < options.pairs { ROUND } else { ROUND.min(left) };
        let mut wanted = faults.clone();
        wanted.retain(|fault| coverage.least_of(fault.name) < options.pairs);
        let one = One {
            suite,
            rounds,
            topology: &*topology,
            faults: if wanted.is_empty() { &faults } else { &wanted },
            random: random.part(number),
        };
        one.run(number, time, report, &mut coverage);
    }
    if number == 0 {
        report.violation("Little: no round was played");
    }
    print!("{coverage}");
    let count = |what| report.count(what);
    report.figure(format!(
        "{number} rounds, {} calls, {} grants under {} faults, {} overlaps, {} tokens out of \
         order, {} stale writes",
        count("calls"),
        count("grants"),
        count("faults"),
        count("two believed to hold a lock"),
        count("a later grant had the smaller token"),
        count("stale writes accepted"),
    ));
}

/// A round on that topology, with these faults.
struct One<'a> {
    suite: &'a str,
    rounds: &'a Rounds,
    topology: &'a dyn Topology,
    faults: &'a [&'static Fault],
    random: Random,
}

impl One<'_> {
    /// Runs it, and ends it in time.
    fn run(&self, number: u64, time: Duration, report: &Arc<Report>, coverage: &mut Coverage) {
        let runtime = Runtime::new().expect("a runtime");
        let ways = self.topology.ways(&runtime);
        let round = Arc::new(Round {
            keys: self.topology.keys(number),
            leases_ms: self.topology.leases_ms().to_vec(),
            recorder: Recorder::new(),
            store: Store::default(),
            notes: Notes::new(report.clone()),
            turns: (0..ways.len() * TASKS).map(|_| AtomicU64::new(0)).collect(),
            over: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for task in 0..ways.len() * TASKS {
            let way = ways[task % ways.len()].clone();
            let work = self.rounds.work[task % self.rounds.work.len()];
            let random = self.random.part(1 + task as u64);
            tasks.spawn_on((work.run)(round.clone(), way, task, random), runtime.handle());
        }
        let injected = catch_unwind(AssertUnwindSafe(|| self.inject(&round, time)));
        round.over.store(true, Ordering::SeqCst);
        let mut violations = end(&runtime, tasks, &ways);
        if injected.is_err() {
            violations.push("Stuck: it did not go on: see the panic above".to_owned());
        } else {
            violations.extend(self.left_behind(&round.keys));
        }
        violations.extend(self.topology.servers().into_iter().filter_map(crash));
        let calls = round.recorder.calls();
        violations.extend(judge(self.rounds.promises, &round, &calls));
        let seen = round.notes.seen();
        let with_renewals: Vec<Call> = calls.iter().chain(&seen.renewals).cloned().collect();
        coverage.add(&seen.faults, &with_renewals, &seen.cancels);
        report.add("calls", calls.len() as u64);
        if !violations.is_empty() {
            let lines: Vec<String> =
                violations.iter().cloned().chain(diary(&calls, &round)).collect();
            report.keep(self.suite, &lines);
        }
        violations.into_iter().for_each(|violation| report.violation(violation));
        drop(ways);
        runtime.shutdown_background();
    }

    /// Injects faults one after the other, and sees to it that everybody gets on after each.
    fn inject(&self, round: &Round, time: Duration) {
        let (topology, mut random) = (self.topology, self.random.part(0));
        let end = Instant::now() + time;
        round.wait_for_progress();
        for number in 0..FAULTS {
            // On a busy machine the time may be over before anything happened.
            if number > 0 && Instant::now() >= end {
                break;
            }
            let fault = faults::draw(self.faults, &mut random);
            let mut moment = Moment { round, span: None, apart: false };
            let before = topology.primaries();
            let from = round.recorder.now();
            (fault.act)(topology, &mut moment, &mut random);
            let whole = Span { from, to: round.recorder.now() };
            let Moment { span, apart, .. } = moment;
            round.notes.fault(fault.name, span.unwrap_or(whole));
            topology.recover();
            round.wait_for_progress();
            // On a busy machine servers are replaced unasked, too.
            if apart || before != topology.primaries() {
                round.notes.apart(Span { from, to: round.recorder.now() });
            }
            sleep(Duration::from_millis(random.below(300)));
        }
    }

    /// What is still there when all have gone and the last lease is over.
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

/// When a fault happens, as opposed to all that it takes to get over it.
pub(crate) struct Moment<'a> {
    round: &'a Round,
    span: Option<Span>,
    apart: bool,
}

impl Moment<'_> {
    /// The fault is what happens meanwhile.
    pub(crate) fn is<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let from = self.round.recorder.now();
        let result = what();
        self.span = Some(Span { from, to: self.round.recorder.now() });
        result
    }

    /// Until the servers are in order again two may take themselves for the primary.
    pub(crate) fn leaves_two(&mut self) {
        self.apart = true;
    }

    /// It goes on for that long from now on.
    pub(crate) fn lasts(&mut self, time: Duration) {
        let from = self.round.recorder.now();
        self.span = Some(Span { from, to: from + time });
    }
}

/// All tasks end, and what they have left to be done is done.
fn end(runtime: &Runtime, mut tasks: JoinSet<()>, ways: &[Way]) -> Vec<String> {
    let ended = runtime.block_on(async {
        let all = async {
            while let Some(done) = tasks.join_next().await {
                done?;
            }
            Ok::<_, tokio::task::JoinError>(())
        };
        let ended = tokio::time::timeout(STUCK, all).await;
        let settled = tokio::time::timeout(STUCK, async {
            for way in ways {
                way.settled().await;
            }
        });
        (ended, settled.await)
    });
    match ended {
        (Ok(Ok(())), Ok(())) => Vec::new(),
        other => vec![format!("Stuck: tasks hang or failed: {other:?}")],
    }
}

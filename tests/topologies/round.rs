//! A round: tasks on fresh locks, some faults, and what came of it.

use crate::ground::Ground;
use crate::judge::{judge, keep};
use crate::load;
use crate::store::Store;
use crate::tally::Tally;
use crate::way::Way;
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

/// How many tasks share each way.
const TASKS: usize = 6;

/// How many faults a round has, at most.
const FAULTS: usize = 8;

/// What all tasks of a round share.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) keys: Vec<String>,
    pub(crate) leases: Vec<Duration>,
    pub(crate) recorder: Recorder,
    pub(crate) store: Store,
    pub(crate) tally: Tally,
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
        let granted = self.tally.count("grants");
        wait::until("every task gets on", STUCK, || {
            let behind = |(_, (now, before)): &(usize, (u64, &u64))| now <= before;
            let stuck: Vec<usize> =
                now().zip(&before).enumerate().filter(behind).map(|(task, _)| task).collect();
            let grants = self.tally.count("grants") - granted;
            if stuck.is_empty() && grants > 10 {
                Ok(())
            } else {
                Err(format!("tasks {stuck:?} have not, {grants} grants"))
            }
        });
    }
}

/// What is wrong after a round, and what there is to be counted.
pub(crate) struct Verdict {
    pub(crate) wrongs: Vec<String>,
    pub(crate) tally: Tally,
}

/// Runs a round on that ground, and ends it in time. The faults are those that are wanted.
pub(crate) fn run<G: Ground>(
    ground: &G,
    number: u64,
    time: Duration,
    random: &Random,
    wanted: &[&str],
    coverage: &mut Coverage,
) -> Verdict {
    let runtime = Runtime::new().expect("a runtime");
    let ways = runtime.block_on(ground.ways());
    let round = Arc::new(Round {
        keys: ground.keys(number),
        leases: ground.leases(),
        recorder: Recorder::new(),
        store: Store::default(),
        tally: Tally::default(),
        turns: (0..ways.len() * TASKS).map(|_| AtomicU64::new(0)).collect(),
        over: AtomicBool::new(false),
    });
    let mut tasks = JoinSet::new();
    for task in 0..ways.len() * TASKS {
        let way = ways[task % ways.len()].clone();
        let work = load::work(round.clone(), way, task, random.part(1 + task as u64));
        tasks.spawn_on(work, runtime.handle());
    }
    let injected = {
        let inject = || inject(ground, &round, time, wanted, random.part(0));
        catch_unwind(AssertUnwindSafe(inject))
    };
    round.over.store(true, Ordering::SeqCst);
    let mut wrongs = end(&runtime, tasks, &ways);
    if injected.is_err() {
        wrongs.push("it did not go on: see the panic above".to_owned());
    } else {
        wrongs.extend(left_behind(ground, &round.keys));
    }
    wrongs.extend(ground.crashes());
    let calls = round.recorder.calls();
    wrongs.extend(judge(ground, &round, &calls));
    let seen = round.tally.seen();
    let with_renewals: Vec<Call> = calls.iter().chain(&seen.renewals).cloned().collect();
    coverage.add(&seen.faults, &with_renewals, &seen.cancels);
    round.tally.add("calls", calls.len() as u64);
    if !wrongs.is_empty() || !seen.lost_early.is_empty() {
        keep(&calls, &round, &wrongs);
    }
    drop(ways);
    runtime.shutdown_background();
    let tally = Tally::default();
    tally.merge(&round.tally);
    Verdict { wrongs, tally }
}

/// Injects faults one after the other, and sees to it that everybody gets on after each.
fn inject<G: Ground>(
    ground: &G,
    round: &Round,
    time: Duration,
    wanted: &[&str],
    mut random: Random,
) {
    let end = Instant::now() + time;
    let possible = || G::FAULTS.iter().filter(|fault| wanted.contains(&fault.name));
    round.wait_for_progress();
    for number in 0..FAULTS {
        // On a busy machine the time may be over before anything happened.
        if number > 0 && Instant::now() >= end {
            break;
        }
        let mut drawn = random.below(possible().map(|fault| fault.weight).sum());
        let fault = possible().find(|fault| {
            let hit = drawn < fault.weight;
            drawn = drawn.saturating_sub(fault.weight);
            hit
        });
        let fault = fault.expect("one of them is drawn");
        let mut moment = Moment { round, span: None, apart: false };
        let before = ground.primaries();
        let from = round.recorder.now();
        (fault.act)(ground, &mut moment, &mut random);
        let whole = Span { from, to: round.recorder.now() };
        let Moment { span, apart, .. } = moment;
        round.tally.fault(fault.name, span.unwrap_or(whole));
        ground.recover();
        round.wait_for_progress();
        // On a busy machine servers are replaced unasked, too.
        if apart || before != ground.primaries() {
            round.tally.apart(Span { from, to: round.recorder.now() });
        }
        sleep(Duration::from_millis(random.below(300)));
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
        other => vec![format!("tasks hang or failed: {other:?}")],
    }
}

/// What is still there when all have gone and the last lease is over.
fn left_behind<G: Ground>(ground: &G, keys: &[String]) -> Vec<String> {
    let end = Instant::now() + STUCK;
    loop {
        let left = ground.left_behind(keys);
        if left.is_empty() || Instant::now() > end {
            return left;
        }
        sleep(Duration::from_millis(20));
    }
}

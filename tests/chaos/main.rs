//! Mixed load of locks, shared locks, semaphores and latches, waited for by clients that block and
//! through sessions, and taken by scripts that know no line as Redisson's, on a primary and its replica while
//! everything that may happen to a server happens: clients are killed, writes are paused, keys are
//! deleted by strangers, databases are flushed, reloaded and swapped, the roles change. What the
//! clients saw is checked after every round.
//!
//! It goes on for so many seconds, and then until it has made so many calls, injected so many
//! faults, and each fault has met each operation under way so many times: see `--help`.
//!
//! Ends with 0 when no round broke a rule, no server crashed and their memory did not grow; at the
//! first that did, with 1 and what it was. The seed decides what is done, not how the threads meet.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    reason = "a test that is run by hand, too: a panic is how it fails, and its numbers are small"
)]

mod client;
mod faults;
mod latches;
mod load;
mod memory;
mod pair;
mod permits;
mod quiet;
mod readers;
mod scripts;
mod sessions;
mod tally;

use crate::memory::Memory;
use crate::pair::Pair;
use crate::sessions::Mailbox;
use crate::tally::Tally;
use clap::Parser;
use harness::checker::{Limits, check};
use harness::coverage::Coverage;
use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::{Random, Seed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the clients work before what they saw is checked.
const ROUND: Duration = Duration::from_secs(3);

/// How late a hand-off may be: longer than any fault keeps the server from its work.
const LIMITS: Limits = Limits { slack: Duration::from_millis(2), prompt: Duration::from_secs(3) };

/// What there is at a time, in each database: few enough that the clients meet.
const SORTS: [Sort; 5] = [Sort::Lock, Sort::Lock, Sort::Shared, Sort::Semaphore, Sort::Latch];

/// The database of the wild locks, which strangers delete, flush and swap.
const WILD: u32 = 0;

/// The database of the calm locks: only those who hold them, and time, end a hold. What is lost
/// there is lost for long, and seen.
const CALM: u32 = 2;

/// What a key is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A lock that is always wanted alone.
    Lock,
    /// A lock that many want to share.
    Shared,
    /// A semaphore.
    Semaphore,
    /// A latch.
    Latch,
    /// A lock of two clients: nobody comes by by whom the one that waits would be noticed.
    Quiet,
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Shared => "shared",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Quiet => "quiet",
        }
    }
}

/// A lock, or another of its family.
#[derive(Clone)]
pub(crate) struct Lock {
    pub(crate) key: String,
    pub(crate) sort: Sort,
    pub(crate) db: u32,
}

/// Loads a primary and its replica while everything that may happen to a server happens
#[derive(Parser)]
#[command(name = "chaos", args_override_self = true)]
struct Options {
    /// Goes on for so long, at least
    #[arg(long, value_name = "N", default_value_t = 300)]
    seconds: u64,
    #[command(flatten)]
    seed: Seed,
    /// So many clients at a time
    #[arg(long, value_name = "C", default_value_t = 32)]
    clients: u64,
    /// Goes on until so many calls are made
    #[arg(long, value_name = "N", default_value_t = 0)]
    calls: u64,
    /// Goes on until so many faults have happened
    #[arg(long, value_name = "N", default_value_t = 0)]
    faults: u64,
    /// Goes on until each fault has met each operation under way so many times
    #[arg(long, value_name = "N", default_value_t = 0)]
    pairs: u64,
}

impl Options {
    /// Whether there was enough of everything but time.
    fn suffices(&self, total: &Tally, coverage: &Coverage) -> bool {
        let (calls, faults) = total.totals();
        calls >= self.calls && faults >= self.faults && coverage.least() >= self.pairs
    }
}

/// What a round is about: everything that its threads share.
pub(crate) struct Round {
    pub(crate) pair: Pair,
    pub(crate) locks: Vec<Lock>,
    pub(crate) recorder: Recorder,
    pub(crate) tally: Tally,
    pub(crate) mailboxes: Vec<Mailbox>,
    over: AtomicBool,
    /// Nobody waits any more.
    done: AtomicBool,
}

impl Round {
    /// What strangers may touch.
    pub(crate) fn wild(&self) -> impl Iterator<Item = &Lock> {
        self.locks.iter().filter(|lock| lock.db == WILD)
    }

    /// Counts what was done to each sort of key.
    fn count(&self, calls: &[Call]) {
        for lock in &self.locks {
            let of_it = || calls.iter().filter(|call| call.key == lock.key);
            let add = |what: &str, count: usize| {
                self.tally.add(&format!("{}: {what}", lock.sort.name()), count as u64);
            };
            add("calls", of_it().count());
            let got = |call: &&Call| {
                matches!(call.answer, Some((_, Outcome::Granted { .. } | Outcome::Holds { .. })))
            };
            let released = |call: &&Call| {
                matches!(call.request, Request::AwaitLatch { .. })
                    && matches!(call.answer, Some((_, Outcome::Done)))
            };
            match lock.sort {
                Sort::Latch => add("waiters released", of_it().filter(released).count()),
                Sort::Lock | Sort::Quiet | Sort::Semaphore => {
                    add("grants", of_it().filter(got).count());
                }
                Sort::Shared => {
                    let shared = |call: &&Call| matches!(call.request, Request::Share { .. });
                    add("shared grants", of_it().filter(got).filter(shared).count());
                    add("grants to one alone", of_it().filter(got).filter(|c| !shared(c)).count());
                }
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// A thread that gives up is a surprise, and the others go on.
    fn guard(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.tally.surprise("a thread gave up: see its panic".to_owned());
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let random = Random::new(options.seed.number);
    let mut pair = Pair::start();
    println!("seed {}, {} clients, {}", options.seed.number, options.clients, pair.names());
    let mut total = Tally::default();
    let mut violations = Vec::new();
    let mut coverage = Coverage::of(faults::names());
    let (mut rounds, mut memory) = (0, Memory::default());
    loop {
        let (left, enough) =
            (end.saturating_duration_since(Instant::now()), options.suffices(&total, &coverage));
        if !violations.is_empty() || (left.is_zero() && enough) {
            break;
        }
        rounds += 1;
        let time = if enough { ROUND.min(left) } else { ROUND };
        let moments = pair.sum("kvlock_redisson_turns");
        let round = run(pair, rounds, time, &options, &random.part(rounds));
        let moments = round.pair.sum("kvlock_redisson_turns").saturating_sub(moments);
        round.tally.add("moments in which locks were left to scripts", moments);
        let calls = round.recorder.calls();
        round.tally.add("calls", calls.len() as u64);
        round.count(&calls);
        coverage.add(&round.tally.faults(), &calls, &round.tally.cancels());
        violations.extend(round.pair.wrongs(&round.locks));
        violations.extend(check(&calls, &LIMITS).iter().map(ToString::to_string));
        violations.extend(round.tally.surprises());
        if !violations.is_empty() {
            keep(&calls, &round);
        }
        if round.pair.crashes() == 0 {
            memory.add(round.pair.sum("used_memory"));
        }
        total.merge(&round.tally);
        pair = round.pair;
    }
    print!("{coverage}");
    memory.print();
    violations.extend(memory.growth());
    total.print(&options.seed.origin(), rounds, &violations, pair.crashes());
    if violations.is_empty() && pair.crashes() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Leaves the calls and the faults of a round, and what the servers logged, where somebody can
/// read them.
fn keep(calls: &[Call], round: &Round) {
    let path = std::env::temp_dir().join(format!("kvlock-chaos-{}.txt", std::process::id()));
    let calls = calls.iter().map(|call| format!("{call}, in line at {:?}", call.queued));
    let logs = round.pair.servers().iter().map(harness::Server::log);
    let lines: Vec<String> = calls.chain(round.tally.diary()).chain(logs).collect();
    match std::fs::write(&path, lines.join("\n")) {
        Ok(()) => println!("the calls of the round are in {}", path.display()),
        Err(why) => println!("the calls of the round are lost: {why}"),
    }
}

/// One round of that length: all clients and the faults, until all of them are done.
fn run(pair: Pair, number: u64, time: Duration, options: &Options, random: &Random) -> Round {
    let round = Round {
        pair,
        locks: [WILD, CALM]
            .iter()
            .flat_map(|db| {
                SORTS.iter().enumerate().map(move |(n, sort)| Lock {
                    key: format!("r{number}-{db}-{}-{n}", sort.name()),
                    sort: *sort,
                    db: *db,
                })
            })
            .chain([Lock { key: format!("r{number}-quiet"), sort: Sort::Quiet, db: CALM }])
            .collect(),
        recorder: Recorder::new(),
        tally: Tally::default(),
        mailboxes: sessions::mailboxes(),
        over: AtomicBool::new(false),
        done: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        for (number, mailbox) in (1..).zip(&round.mailboxes) {
            let (round, random) = (&round, random.part(options.clients + number));
            scope.spawn(move || round.guard(|| readers::read(round, mailbox, random)));
        }
        for number in 0..scripts::SCRIPTS {
            let (round, random) = (&round, random.part(1_000 + number));
            scope.spawn(move || round.guard(|| scripts::work(round, number, random)));
        }
        let quiet = random.part(2_000);
        let pair = scope.spawn(|| round.guard(|| quiet::work(&round, quiet)));
        let clients = (0..options.clients).map(|client| {
            let (round, random) = (&round, random.part(client + 1));
            scope.spawn(move || round.guard(|| load::work(round, client, random)))
        });
        let clients: Vec<_> = clients.collect();
        round.guard(|| faults::inject(&round, time, random.part(0)));
        round.over.store(true, Ordering::Relaxed);
        clients.into_iter().chain([pair]).for_each(|client| drop(client.join()));
        round.done.store(true, Ordering::Relaxed);
    });
    round.mailboxes.iter().for_each(|mailbox| mailbox.note_absences(&round));
    round
}

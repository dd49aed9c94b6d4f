//! A workload of raw commands on locks, semaphores and latches, on a pair of servers with strangers: clients
//! that interfere (`topology/strangers.rs`). Clients of the workload wait on blocked connections or through
//! sessions, or acquire locks with scripts like Redisson's, without a queue. Most calls are recorded, and a
//! checker judges them.

mod client;
mod crowd;
mod latches;
mod locks;
mod quiet;
mod readers;
mod scripts;
mod sessions;
mod waits;

pub(crate) use sessions::{Mailbox, client_of};

use super::{ClientRoute, Tasks, Work};
use crate::round::Round;
use crate::round_log::RoundLog;
use crate::topology::{GUEST, WirePair};
use harness::coverage::Span;
use harness::history::Recorder;
use harness::random::Random;
use harness::{Connection, Value, cmd};
use std::sync::Arc;
use std::time::Duration;

/// Faults that the clients of this workload make themselves.
pub(crate) const FAULTS: [&str; 7] = [
    locks::RESET_BY_WAITER,
    locks::KILL_IN_HAND_OFF,
    readers::AWAY,
    readers::LATE,
    readers::REPLACED,
    readers::CLOSED,
    readers::CLOSED_AS_READ,
];

pub(crate) const WIRE: Work = Work {
    name: "locks of all kinds on the wire, strangers, scripts",
    tasks: Tasks::Thread(|round, route, number, random| {
        let ClientRoute::Wire(pair) = route else { panic!("it speaks to a pair of servers") };
        work(round, pair, number, random);
    }),
};

/// Number of permits of each semaphore.
pub(crate) const PERMITS: u64 = 4;

/// Number of mailboxes. Each has at most one session at a time. There are several, so that one owner may
/// wait through two sessions.
const MAILBOXES: usize = 4;

/// Number of clients that acquire locks with scripts.
const SCRIPTS: usize = 2;

/// The kinds of the contended keys in each database. There are few of these keys, so that clients contend.
const KINDS: [KeyKind; 5] =
    [KeyKind::Lock, KeyKind::Lock, KeyKind::Shared, KeyKind::Semaphore, KeyKind::Latch];

/// The database whose keys strangers delete, and which they flush and swap.
pub(crate) const WILD: u32 = 0;

/// The database in which strangers end holds only by `FLUSHALL` and evictions, so that a lock that is lost by
/// mistake is noticed.
pub(crate) const CALM: u32 = 2;

/// The use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// A lock that is always requested in exclusive mode.
    Lock,
    /// A lock that is requested in shared or exclusive mode.
    Shared,
    /// A semaphore.
    Semaphore,
    /// A latch.
    Latch,
    /// A lock that only two or three clients request.
    Quiet,
    /// A lock of the crowd (`crowd.rs`), a session with thousands of waits.
    Crowd,
}

impl KeyKind {
    const ALL: [Self; 6] =
        [Self::Lock, Self::Shared, Self::Semaphore, Self::Latch, Self::Quiet, Self::Crowd];

    fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Shared => "shared",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Quiet => "quiet",
            Self::Crowd => "crowd",
        }
    }

    /// Prefix of the commands for a key of this kind.
    fn family(self) -> &'static str {
        match self {
            Self::Lock | Self::Shared | Self::Quiet | Self::Crowd => "LOCK",
            Self::Semaphore => "SEM",
            Self::Latch => "LATCH",
        }
    }
}

/// A key of a round, with its kind and its database.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) key: String,
    pub(crate) kind: KeyKind,
    pub(crate) db: u32,
}

/// The keys of a round. Each name contains the database and the kind of the key.
pub(crate) fn keys(round: u64) -> Vec<String> {
    let of = |db: u32| {
        let kinds = KINDS.iter().enumerate();
        kinds.map(move |(number, kind)| format!("r{round}-{db}-{}-{number}", kind.name()))
    };
    let quiet = (0..quiet::THREADS).map(|number| format!("r{round}-{CALM}-quiet-{number}"));
    let crowd = (0..crowd::RECORDED).map(|number| format!("r{round}-{CALM}-crowd-{number}"));
    [WILD, CALM].into_iter().flat_map(of).chain(quiet).chain(crowd).collect()
}

impl Lock {
    pub(crate) fn of(key: &str) -> Self {
        let words: Vec<&str> = key.split('-').collect();
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.name() == words[2]);
        let kind = kind.expect("one of these");
        Self { key: key.to_owned(), kind, db: words[1].parse().expect("a number") }
    }

    pub(crate) fn is_lock(&self) -> bool {
        matches!(self.kind, KeyKind::Lock | KeyKind::Shared)
    }
}

/// Returns whether clients with scripts listen for the lock of this name, so that the server may leave it free for
/// them.
pub(crate) fn is_heard_by_scripts(key: &str) -> bool {
    let kind = key.split('-').nth(2);
    [KeyKind::Lock, KeyKind::Shared].iter().any(|heard| kind == Some(heard.name()))
}

/// State that the clients of a round share, besides its history.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) mailboxes: [Mailbox; MAILBOXES],
    /// Each thread whose clients may wait holds a clone of this.
    at_work: Arc<()>,
}

/// The data that a thread works with.
pub(crate) struct Scene<'a> {
    round: &'a Round,
    recorder: &'a Recorder,
    log: &'a RoundLog,
    mailboxes: &'a [Mailbox],
    pair: WirePair,
    locks: Vec<Lock>,
}

/// Does the work of the thread with the given number.
fn work(round: &Round, pair: WirePair, number: usize, random: Random) {
    let scene = Scene {
        round,
        recorder: &round.recorder,
        log: &round.log,
        mailboxes: &round.lines.mailboxes,
        pair,
        locks: round.keys.iter().map(|key| Lock::of(key)).collect(),
    };
    if let Some(mailbox) = scene.mailboxes.get(number) {
        return readers::read(&scene, mailbox, random);
    }
    if number < MAILBOXES + SCRIPTS {
        return scripts::work(&scene, number, random);
    }
    let _at_work = round.lines.at_work.clone();
    match number - (MAILBOXES + SCRIPTS) {
        quiet if quiet < quiet::THREADS => quiet::work(&scene, quiet, &random),
        quiet::THREADS => crowd::work(&scene, number, random),
        _ => locks::work(&scene, number, random),
    }
}

impl Scene<'_> {
    fn is_over(&self) -> bool {
        self.round.is_over()
    }

    /// Returns whether the round is over, and all threads whose clients may wait have ended.
    fn is_done(&self) -> bool {
        self.is_over() && Arc::strong_count(&self.round.lines.at_work) == 1
    }

    /// A connection to the primary as the user [`GUEST`]; `None` if there is no primary.
    fn connect(&self) -> Option<Connection> {
        loop {
            let mut connection = self.pair.connect()?;
            if let Ok(Value::Status(_)) = connection.ask(cmd!["AUTH", GUEST, "x"]) {
                return Some(connection);
            }
        }
    }

    /// Records a fault that a client made. The fault began at `begun` and has just ended.
    fn happened(&self, fault: &'static str, begun: Duration) {
        self.log.fault(fault, Span { from: begun, to: self.recorder.now() });
    }

    /// Counts a grant: under the name `what`, and in the total.
    fn granted(&self, what: &str) {
        self.log.add(what, 1);
        self.log.add("grants", 1);
    }
}

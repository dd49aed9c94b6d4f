//! Clients that acquire locks and keep them, wait for other locks and release them, until their server dies.

use harness::history::{Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server, lines, observe, wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Longest wait for enough grants and a first hand-off.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest wait of a client for a lock.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

const CLIENTS: u64 = 16;

/// Number of locks for which all clients compete.
const WANTED: u64 = 4;

/// About the average number of locks that a client acquires and keeps before it requests one of the contended
/// locks.
const KEPT: u64 = 4;

/// The clients of one life of a server: from a start to the next crash.
pub(super) struct Load<'a> {
    pub(super) server: &'a Server,
    pub(super) history: &'a Recorder,
    /// Number of the server's life. The names of locks and owners begin with this number.
    pub(super) life: u64,
    pub(super) lease: Duration,
    pub(super) random: Random,
}

impl Load<'_> {
    fn wanted(&self, number: u64) -> String {
        format!("{}:wanted:{number}", self.life)
    }

    /// Runs the clients. Calls `end`, which ends the server, when they have received `grants` grants and the
    /// server has handed off at least one lock. Returns when all clients have stopped.
    pub(super) fn run(&self, grants: u64, end: impl FnOnce()) {
        let (known, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
        let mut admin = self.server.connect();
        thread::scope(|scope| {
            // Stops the other threads when this one is done, and also if it panics.
            let _over = Raise(over);
            let wanted: Vec<String> = (0..WANTED).map(|number| self.wanted(number)).collect();
            let looking = self.server.connect();
            scope.spawn(move || lines::watch(looking, &wanted, self.history, over));
            for number in 0..CLIENTS {
                let (connection, random) = (self.server.connect(), self.random.part(number));
                let mut client = Client { load: self, connection, known, random };
                let mut turns = (0..).map(move |turn| format!("{}:{number}:{turn}", self.life));
                scope.spawn(move || {
                    turns.find(|owner| over.load(Ordering::Relaxed) || client.turn(owner).is_none())
                });
            }
            wait::until("clients know of enough grants", LIMIT, || {
                let known = known.load(Ordering::Relaxed);
                let handed_off = observe::info_number(&mut admin, "kvlock_handed_off");
                let is_enough = known >= grants && handed_off > 0;
                if is_enough { Ok(()) } else { Err(format!("{known}, {handed_off} handed off")) }
            });
            end();
        });
    }
}

struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Client<'a> {
    load: &'a Load<'a>,
    connection: Connection,
    known: &'a AtomicU64,
    random: Random,
}

impl Client<'_> {
    /// Acquires some locks to keep, then requests a contended one, and releases it if it was granted. `None`
    /// if an outcome is unknown because the server has ended.
    fn turn(&mut self, owner: &str) -> Option<()> {
        for kept in 0..=self.random.below(2 * KEPT) {
            self.acquire(&format!("{owner}:{kept}"), owner, None)?;
        }
        let wanted = self.load.wanted(self.random.below(WANTED));
        if self.acquire(&wanted, owner, Some(TIMEOUT))? {
            self.call(&wanted, owner, &Request::Release)?;
        }
        Some(())
    }

    fn acquire(&mut self, key: &str, owner: &str, timeout: Option<Duration>) -> Option<bool> {
        let request = Request::Acquire { lease: self.load.lease, timeout };
        let granted = matches!(self.call(key, owner, &request)?, Outcome::Granted { .. });
        self.known.fetch_add(granted.into(), Ordering::Relaxed);
        Some(granted)
    }

    fn call(&mut self, key: &str, owner: &str, request: &Request) -> Option<Outcome> {
        let outcome = self.load.history.call(&mut self.connection, key, owner, request);
        assert_ne!(outcome, Outcome::Failed, "{owner} on {key}: {request:?}");
        Some(outcome).filter(|outcome| *outcome != Outcome::Unknown)
    }
}

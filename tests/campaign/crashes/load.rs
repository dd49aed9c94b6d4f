//! Clients that take locks and keep them, wait for others and hand them on, until their server dies.

use harness::history::{Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server, lines, observe, wait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How long anything may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// How long a client waits for a lock.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

const CLIENTS: u64 = 16;

/// Locks that all of them want.
const WANTED: u64 = 4;

/// How many locks each takes and keeps, on average, between two of those.
const KEPT: u64 = 4;

/// The clients of one life of a server.
pub(super) struct Load<'a> {
    pub(super) server: &'a Server,
    pub(super) history: &'a Recorder,
    /// What the names of their locks begin with.
    pub(super) life: &'a str,
    pub(super) lease: Duration,
    /// How many grants they are to know of.
    pub(super) grants: u64,
    pub(super) random: Random,
}

impl Load<'_> {
    fn wanted(&self, number: u64) -> String {
        format!("{}wanted:{number}", self.life)
    }

    /// Has them work, calls `end` in the middle of it, and returns when all have noticed that the
    /// server is gone.
    pub(super) fn run(&self, end: impl FnOnce()) {
        let (known, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut admin = self.server.connect();
        let connections: Vec<_> = (0..CLIENTS).map(|_| self.server.connect()).collect();
        thread::scope(|scope| {
            // Should this panic, they are not to go on for ever.
            let _over = Raise(&over);
            let wanted: Vec<String> = (0..WANTED).map(|number| self.wanted(number)).collect();
            let (looking, over_) = (self.server.connect(), &over);
            scope.spawn(move || lines::watch(looking, &wanted, self.history, over_));
            for (number, connection) in (0..).zip(connections) {
                let (known, over, random) = (&known, &over, self.random.part(number));
                let client = Client { load: self, number, connection, known, random };
                scope.spawn(move || client.work(over));
            }
            wait::until("clients know of enough grants", LIMIT, || {
                let known = known.load(Ordering::Relaxed);
                if known < self.grants {
                    return Err(format!("{known} of {}", self.grants));
                }
                match observe::info_number(&mut admin, "kvlock_handed_off") {
                    0 => Err("no hand-off".to_owned()),
                    _ => Ok(()),
                }
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
    number: u64,
    connection: Connection,
    known: &'a AtomicU64,
    random: Random,
}

impl Client<'_> {
    fn work(mut self, over: &AtomicBool) {
        for turn in 0.. {
            if over.load(Ordering::Relaxed) || self.turn(turn).is_none() {
                return;
            }
        }
    }

    /// `None` when the server is gone.
    fn turn(&mut self, turn: u64) -> Option<()> {
        let life = self.load.life;
        let owner = format!("{life}{}:{turn}", self.number);
        for kept in 0..=self.random.below(2 * KEPT) {
            self.acquire(&format!("{owner}:{kept}"), &owner, None)?;
        }
        let wanted = self.load.wanted(self.random.below(WANTED));
        if self.acquire(&wanted, &owner, Some(TIMEOUT))? {
            self.call(&wanted, &owner, &Request::Release)?;
        }
        Some(())
    }

    fn acquire(&mut self, key: &str, owner: &str, timeout: Option<Duration>) -> Option<bool> {
        let request = Request::Acquire { lease: self.load.lease, timeout };
        let outcome = self.call(key, owner, &request)?;
        let granted = matches!(outcome, Outcome::Granted { .. });
        self.known.fetch_add(u64::from(granted), Ordering::Relaxed);
        Some(granted)
    }

    fn call(&mut self, key: &str, owner: &str, request: &Request) -> Option<Outcome> {
        let outcome = self.load.history.call(&mut self.connection, key, owner, request);
        assert_ne!(outcome, Outcome::Failed, "{owner} on {key}: {request:?}");
        Some(outcome).filter(|outcome| *outcome != Outcome::Unknown)
    }
}

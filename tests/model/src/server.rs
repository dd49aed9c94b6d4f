//! A server: the lock in its keyspace, waiters, sessions and bindings. The core decides the effect
//! of each request.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::client::Asks;
use crate::table::Parked;
use crate::turn::Turn;
use kvlock_core::{
    Holding, KeyRef, Millis, MonoMillis, Now, Observed, Results, Share, Sharing, Situation, Token,
    UnixMillis,
};

pub(crate) const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");
pub(crate) const OWNERS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

/// Longest time for which a reader is blocked, in ticks.
pub(crate) const PARKED: u8 = 1;

/// Number of tokens that are reserved ahead.
const RESERVED: u64 = 60_000;

/// Both clocks of a server at a tick.
pub(crate) fn at(tick: u8) -> Now {
    Now { unix_us: u64::from(tick) * 1000, mono: MonoMillis(tick.into()) }
}

pub(crate) fn millis(ticks: u8) -> Millis {
    Millis(ticks.into())
}

/// The lock in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) owner: usize,
    /// The token of the grant.
    pub(crate) token: u64,
    /// The last tick of the lease.
    pub(crate) until: u8,
    pub(crate) shared: bool,
    /// The session whose end releases the lock, if there is one.
    pub(crate) goes_with: Option<u8>,
}

/// A result, and the grant under which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) token: u64,
    /// The last tick at which it exists.
    pub(crate) until: u8,
}

/// A session that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    pub(crate) number: u8,
    /// Tick at which its reader's call ends or, if it has no reader, at which the session ends.
    pub(crate) due: u8,
    pub(crate) is_read: bool,
}

/// A binding of an owner's grant to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    pub(crate) owner: usize,
    pub(crate) token: u64,
    pub(crate) number: u8,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) lock: Option<Lock>,
    pub(crate) result: Option<Stored>,
    /// The rules for results that the server follows; `None` if clients want no results.
    pub(crate) results: Option<Careful>,
    /// The queued clients, and the lease that each is offered.
    pub(crate) queue: Vec<(usize, u8)>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) bindings: Vec<Binding>,
    /// Ticks after which a session without a reader ends.
    pub(crate) ttl: u8,
    /// The first tick at which the server grants again.
    pub(crate) quarantine: u8,
    /// Tokens up to this one may have been issued.
    pub(crate) floor: u64,
}

/// Rules that a server follows for results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Careful {
    pub(crate) unless: bool,
    pub(crate) fenced: bool,
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    /// The owner has the lock, with this token.
    Has(u64),
    /// The owner does not have the lock.
    Refused,
    /// The result exists.
    Ready,
    /// The result is stored.
    Stored(Stored),
    /// The session is open.
    Lives,
    /// There is no such session.
    NoSession,
    /// A later call has replaced this reader.
    ReadElsewhere,
}

/// A step of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A client's request, and the lease of an immediate grant and of a grant after a wait.
    Request(usize, Asks, [u8; 2]),
    /// The connection of a session's reader is lost.
    LoseReader(u8),
    /// The server does due work, with or without the release of locks bound to ended sessions.
    Work(bool),
}

/// The result of a step: the reply, if there is one yet, and replies to other clients.
pub(crate) type Comes = (Option<Reply>, Vec<(Parked, Reply)>);

/// A cache of steps. Many paths lead to the same step, and building a table is the most expensive part.
type Known = HashMap<(Server, Step, u8), (Server, Comes)>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

impl Server {
    /// Drops the waiters, sessions and bindings, as a restart does. The lock and the result stay.
    pub(crate) fn forgets(&mut self) {
        (self.queue, self.sessions, self.bindings) = (Vec::new(), Vec::new(), Vec::new());
        self.lock = self.lock.map(|lock| Lock { goes_with: None, ..lock });
    }

    /// Takes over as the primary, with its copy of the data. With `reserved`, tokens start above all tokens
    /// that may have been issued.
    pub(crate) fn takes_over(&mut self, reserved: bool) {
        let ahead = if reserved { RESERVED } else { 0 };
        self.floor = self.lock.map_or(0, |lock| lock.token) + ahead;
    }

    /// Runs a step at a tick.
    pub(crate) fn step(&mut self, step: Step, now: u8) -> Comes {
        let key = (self.clone(), step, now);
        let (next, comes) = KNOWN.with_borrow_mut(|known| {
            let anew = || {
                let comes = self.step_anew(step, now);
                (self.clone(), comes)
            };
            known.entry(key).or_insert_with(anew).clone()
        });
        *self = next;
        comes
    }

    fn step_anew(&mut self, step: Step, now: u8) -> Comes {
        let made = self.table(now);
        let mut turn = Turn { server: self, made, told: Vec::new(), now };
        let reply = turn.step(step);
        let Turn { made, told, .. } = turn;
        self.read_back(made.table, now);
        (reply, told)
    }

    /// Returns whether work for sessions is due.
    pub(crate) fn has_work(&self, now: u8) -> bool {
        let due = self.sessions.iter().any(|session| session.due <= now);
        due || self.bindings.iter().any(|binding| self.orphaned(binding.owner))
    }

    /// Returns whether the server still has a lock whose session has ended, and no binding by which to release it.
    pub(crate) fn outlives_its_session(&self, now: u8) -> bool {
        let Some(lock) = self.seen(now) else { return false };
        lock.goes_with.is_some_and(|number| !self.is_open(number)) && !self.orphaned(lock.owner)
    }

    /// The lock in the key at the given time.
    pub(crate) fn seen(&self, now: u8) -> Option<Lock> {
        self.lock.filter(|lock| lock.until >= now)
    }

    /// The result that exists at the time `now`.
    pub(crate) fn result(&self, now: u8) -> Option<Stored> {
        self.result.filter(|result| result.until >= now)
    }

    pub(crate) fn orphaned(&self, owner: usize) -> bool {
        let mut of_it = self.bindings.iter().filter(|binding| binding.owner == owner);
        of_it.any(|binding| !self.is_open(binding.number))
    }

    fn is_open(&self, number: u8) -> bool {
        self.sessions.iter().any(|session| session.number == number)
    }

    /// The input of the core for a request of the given client.
    pub(crate) fn situation(&self, asks: usize, now: u8) -> Situation<'static> {
        let seen = match self.seen(now) {
            None => Observed::Free { stored: None },
            Some(lock) if lock.shared => Observed::Shared(sharing(asks, lock)),
            Some(lock) => Observed::Held(holding(lock)),
        };
        let is_ready = self.results.is_some_and(|careful| careful.unless);
        let results = match self.result(now) {
            Some(_) if is_ready => Results::among(&any_key),
            _ => Results::NONE,
        };
        Situation { key: KEY, seen, now: at(now), floor: Some(self.floor), results }
    }
}

/// Returns whether a key exists: the only key that is asked for is the result, which exists.
fn any_key(_: &[u8]) -> bool {
    true
}

/// An exclusive lock with one hold.
pub(crate) fn holding(lock: Lock) -> Holding<'static> {
    let (token, until) = (Token::from_stored(lock.token), Some(UnixMillis(lock.until.into())));
    Holding { owner: OWNERS[lock.owner], holds: 1, shared: 0, token, until }
}

/// A lock with one sharer, as read for the client `asks`.
fn sharing(asks: usize, lock: Lock) -> Sharing<'static> {
    let until = UnixMillis(lock.until.into());
    Sharing {
        asked: OWNERS[asks],
        own: (lock.owner == asks).then_some(Share { holds: 1, until }),
        token: Token::from_stored(lock.token),
        until: Some(until),
        holders: 1,
        living: Some(until),
    }
}

//! A server that keeps sessions and what is bound to them. What it does is decided by the core.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::server::{KEY, OWNERS, at, holding};
use kvlock_core::{
    Acquire, AcquireReply, Change, Holding, Millis, Observed, Release, Share, Sharing, Situation,
    Token, UnixMillis, Want,
};

/// For how long a reader is blocked.
pub(super) const PARKED: u8 = 1;

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    /// Who has it.
    pub(super) owner: usize,
    /// The token of the grant.
    pub(super) token: u64,
    /// The last tick of the lease.
    pub(super) until: u8,
    /// Whether it is shared.
    pub(super) shared: bool,
    /// The session that it was bound to last, if it goes with it.
    pub(super) goes_with: Option<u8>,
}

/// A session that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    /// Which one.
    pub(super) number: u8,
    /// When its reader's time is over, or its own.
    pub(super) due: u8,
    /// Whether it has a reader, and whether that one is still there.
    pub(super) reader: Option<bool>,
}

/// What is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Binding {
    pub(super) owner: usize,
    pub(super) token: u64,
    pub(super) number: u8,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) lock: Option<Lock>,
    pub(super) sessions: Vec<Session>,
    pub(super) bindings: Vec<Binding>,
    floor: u64,
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// The owner has the lock, with this token.
    Has(u64),
    /// It has not.
    Refused,
    /// The session is open, or lives on.
    Lives,
    /// There is no such session.
    NoSession,
    /// A later call reads.
    ReadElsewhere,
}

/// What happens at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Somebody acquires the lock or has it already, for so long and shared or not, and has it bound
    /// to that session.
    Acquire(usize, (u8, bool), Option<u8>),
    /// The one holder goes on sharing the lock.
    Downgrade(usize),
    /// Somebody reads a session.
    Read(u8),
    /// The connection of a reader is lost.
    LoseReader(u8),
    /// It does what is due, and releases what is bound or not.
    Work(bool),
}

/// What it comes to: the answer, and whose readers are answered by it.
type Comes = (Option<Reply>, Vec<u8>);

/// Many ways lead to the same step at the same server, and a table costs more than all the rest.
type Known = HashMap<(Server, Step, (u8, u8)), (Server, Comes)>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

impl Server {
    /// It starts anew, with nothing but its keyspace.
    pub(super) fn restart(&mut self) {
        (self.sessions, self.bindings) = (Vec::new(), Vec::new());
        if let Some(lock) = &mut self.lock {
            lock.goes_with = None;
        }
    }

    /// Somebody opens a session.
    pub(super) fn open(&mut self, number: u8, ttl: u8, now: u8) {
        self.sessions.push(Session { number, due: now + ttl, reader: None });
    }

    /// That step, with the time to live of sessions and the time.
    pub(super) fn step(&mut self, step: Step, when: (u8, u8)) -> Comes {
        let key = (self.clone(), step, when);
        let known = KNOWN.with_borrow(|known| known.get(&key).cloned());
        let (next, comes) = known.unwrap_or_else(|| {
            let comes = self.step_anew(step, when);
            let made = (self.clone(), comes);
            KNOWN.with_borrow_mut(|known| known.insert(key, made.clone()));
            made
        });
        *self = next;
        comes
    }

    fn step_anew(&mut self, step: Step, when: (u8, u8)) -> Comes {
        match step {
            Step::Acquire(owner, how, to) => (Some(self.acquire(owner, how, to, when)), Vec::new()),
            Step::Downgrade(owner) => (Some(self.downgrade(owner, when)), Vec::new()),
            Step::Read(number) => {
                let (reply, replaced) = self.read(number, when);
                (Some(reply), replaced.then_some(number).into_iter().collect())
            }
            Step::LoseReader(number) => {
                self.lose_reader(number, when);
                (None, Vec::new())
            }
            Step::Work(releases) => (None, self.work(when, releases)),
        }
    }

    fn acquire(
        &mut self,
        owner: usize,
        (lease, shared): (u8, bool),
        to: Option<u8>,
        (ttl, now): (u8, u8),
    ) -> Reply {
        let mut made = self.made(ttl);
        let session = to.and_then(|number| made.named(number));
        if to.is_some() && session.is_none() {
            return Reply::NoSession;
        }
        let want = if shared { Want::Shared } else { Want::Exclusive };
        let owner_name = OWNERS[owner];
        let lease = Millis(lease.into());
        let request = Acquire { owner: owner_name, want, lease, holds: Some(1) };
        let situation = self.situation(owner, now);
        let (reply, change) = made.table.acquire(&situation, &request);
        if let Some((id, _)) = session {
            made.table.bind_granted(&situation, &request, reply, id);
        }
        self.write(owner, &change, now);
        self.read_back(made, ttl, now);
        let AcquireReply::Granted { token, .. } = reply else { return Reply::Refused };
        if let Some(lock) = self.lock.as_mut().filter(|_| to.is_some()) {
            lock.goes_with = to;
        }
        Reply::Has(token.value())
    }

    fn downgrade(&mut self, owner: usize, (ttl, now): (u8, u8)) -> Reply {
        let held = self.seen(now).filter(|lock| lock.owner == owner && !lock.shared);
        let Some(Lock { token, until, .. }) = held else { return Reply::Refused };
        let mut made = self.made(ttl);
        let holding = Holding { shared: 1, ..holding(owner, token, until) };
        let seen = Observed::Held(holding);
        let situation = Situation { seen, ..self.situation(owner, now) };
        let owner_name = OWNERS[owner];
        let (_, change) = made.table.release(&situation, owner_name, Want::Exclusive, Release::All);
        if self.orphaned(owner)
            && let Some(lock) = &mut self.lock
        {
            // It is used without its session: the lease counts.
            lock.goes_with = None;
        }
        self.write(owner, &change, now);
        self.read_back(made, ttl, now);
        self.lock.map_or(Reply::Refused, |lock| Reply::Has(lock.token))
    }

    fn read(&mut self, number: u8, (ttl, now): (u8, u8)) -> (Reply, bool) {
        let mut made = self.made(ttl);
        let Some((id, _)) = made.named(number) else { return (Reply::NoSession, false) };
        let began = made.table.begin_reading(id, None, 0, at(now));
        let Ok((Some(reading), replaced)) = began else { return (Reply::NoSession, false) };
        made.table.block_reader(reading, (), Millis(PARKED.into()), at(now));
        let replaced = replaced.is_some() && self.reader(number) == Some(true);
        self.read_back(made, ttl, now);
        self.set_reader(number, true);
        (Reply::Lives, replaced)
    }

    fn lose_reader(&mut self, number: u8, (ttl, now): (u8, u8)) {
        let mut made = self.made(ttl);
        if let Some((_, Some(reading))) = made.named(number) {
            made.table.reader_gone(reading, at(now));
        }
        self.read_back(made, ttl, now);
    }

    fn work(&mut self, (ttl, now): (u8, u8), releases: bool) -> Vec<u8> {
        let mut made = self.made(ttl);
        while made.table.session_due(at(now)) {}
        let mut told = Vec::new();
        while let Some((reading, ())) = made.table.next_reader(at(now)) {
            let named = made.named.iter().find(|(_, id, _)| *id == reading.session);
            told.extend(named.map(|(number, ..)| *number));
        }
        while let Some(bound) = made.table.next_bound(at(now)) {
            let owner = OWNERS.iter().position(|name| **name == *bound.owner).unwrap_or_default();
            let situation = self.situation(owner, now);
            if !releases || made.table.is_still_bound(&situation, &bound).is_none() {
                made.table.not_bound(&bound);
            } else {
                let change = made.table.release_bound(&situation, &bound);
                self.write(owner, &change, now);
            }
        }
        self.read_back(made, ttl, now);
        told
    }

    /// Whether something is due.
    pub(super) fn has_work(&self, now: u8) -> bool {
        let due = self.sessions.iter().any(|session| session.due <= now);
        due || self.bindings.iter().any(|binding| self.orphaned(binding.owner))
    }

    /// Whether a lock is still there that was bound to a session that is gone.
    pub(super) fn outlives_its_session(&self, now: u8) -> bool {
        let Some(lock) = self.seen(now) else { return false };
        lock.goes_with.is_some_and(|number| !self.is_open(number)) && !self.orphaned(lock.owner)
    }

    /// What the key says at that time.
    pub(super) fn seen(&self, now: u8) -> Option<Lock> {
        self.lock.filter(|lock| lock.until >= now)
    }

    /// Whether what is held is bound to a session.
    pub(super) fn has_bound(&self) -> bool {
        self.lock.is_some_and(|lock| lock.goes_with.is_some())
    }

    fn orphaned(&self, owner: usize) -> bool {
        let mut of_it = self.bindings.iter().filter(|binding| binding.owner == owner);
        of_it.any(|binding| !self.is_open(binding.number))
    }

    pub(super) fn is_open(&self, number: u8) -> bool {
        self.sessions.iter().any(|session| session.number == number)
    }

    fn reader(&self, number: u8) -> Option<bool> {
        let session = self.sessions.iter().find(|session| session.number == number);
        session.and_then(|session| session.reader)
    }

    /// The reader of a session is still there, or not.
    pub(super) fn set_reader(&mut self, number: u8, there: bool) {
        for session in self.sessions.iter_mut().filter(|session| session.number == number) {
            session.reader = session.reader.map(|_| there);
        }
    }

    fn situation(&self, asks: usize, now: u8) -> Situation<'static> {
        let seen = self.seen(now).map_or(Observed::Free { stored: None }, |lock| {
            if lock.shared { shared(asks, lock) } else { Observed::Held(held(lock)) }
        });
        Situation { key: KEY, seen, now: at(now), floor: Some(self.floor) }
    }

    fn write(&mut self, owner: usize, change: &Change<()>, now: u8) {
        self.floor = self.floor.max(change.issued().map_or(0, Token::value));
        match change {
            Change::Take { token, until, .. } => {
                let (token, until) = (token.value(), until.0 as u8);
                let lock = Lock { owner, token, until, shared: false, goes_with: None };
                self.lock = Some(lock);
            }
            Change::Update { until: Some(until), .. } => {
                self.lock = self.lock.map(|lock| Lock { until: until.0 as u8, ..lock });
            }
            Change::Share(sharers) => {
                let token = sharers.token.map(Token::value);
                let until = sharers.until.map(|until| until.0 as u8);
                let new = Lock { owner, token: 0, until: 0, shared: true, goes_with: None };
                let lock = self.seen(now).unwrap_or(new);
                self.lock = Some(Lock {
                    token: token.unwrap_or(lock.token),
                    until: until.unwrap_or(lock.until),
                    shared: true,
                    ..lock
                });
            }
            Change::Free => self.lock = None,
            Change::None
            | Change::Update { .. }
            | Change::GiveWay
            | Change::HandOff(_)
            | Change::Leave
            | Change::Beside { .. } => {}
        }
    }
}

fn held(lock: Lock) -> Holding<'static> {
    holding(lock.owner, lock.token, lock.until)
}

fn shared(asks: usize, lock: Lock) -> Observed<'static> {
    let until = UnixMillis(lock.until.into());
    let share = Share { holds: 1, until };
    Observed::Shared(Sharing {
        asked: OWNERS[asks],
        own: (lock.owner == asks).then_some(share),
        token: Token::from_stored(lock.token),
        until: Some(until),
        holders: 1,
        living: Some(until),
    })
}

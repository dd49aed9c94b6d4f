//! A table with bound locks, the model, and the comparison of both.

use kvlock_core::{
    Acquire, AcquireReply, Change, Join, KeyRef, Limits, Millis, Observed, Reading, Release,
    SessionId, SessionName, Situation, Table, UnsentGrant, Via, WaitReply, Want,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::naive::{Holder, KEYS, Naive, OWNERS, SESSIONS, Session, Wait};
use super::ops::{Op, op};
use crate::Bytes;
use crate::sim::{Asked, Clock, Foreign, Keyspace, Name, key_ref};

/// A lease that never ends in a walk.
const LEASE: Millis = Millis(1_000_000_000);

/// Time for which the table retries no release after the server refused one, in milliseconds.
const REFUSED: u64 = 100;

#[derive(Debug)]
pub struct World {
    pub table: Table<u64>,
    space: Keyspace,
    clock: Clock,
    names: Vec<Name>,
    model: Naive,
    refuses: bool,
    /// Token that the last [`Op::Forge`] wrote.
    forged: u64,
    /// Counts of rare cases: a bound lock bound again, an orphan acquired again by its owner (see
    /// `Holder::is_orphan`), a refused release, and a binding whose grant no longer exists.
    pub seen: [u64; 4],
}

impl crate::World for World {
    type Op = Op;

    fn begin(_sort: u8) -> Self {
        let clock = Clock::new();
        let model = Naive { now: clock.now().mono.0, ..Naive::default() };
        Self {
            table: Table::new(Limits::UNLIMITED),
            space: Keyspace::default(),
            clock,
            names: (0..KEYS).map(|key| (0, format!("k{key}"))).collect(),
            model,
            refuses: false,
            forged: 0,
            seen: [0; 4],
        }
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        op(bytes)
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Open { session, ttl } => self.open(session, ttl),
            Op::Acquire { key, owner, bound } => self.acquire(key, owner, bound)?,
            Op::Wait { key, owner, session, bound } => self.wait(key, owner, session, bound)?,
            Op::Release { key, owner } => {
                if self.model.uses(key, owner).is_some() {
                    self.model.holders[key] = None;
                }
                self.ask(key, owner, |table, at, owner| {
                    table.release(at, owner, Want::Exclusive, Release::All).1
                });
            }
            Op::Renew { key, owner } => {
                self.model.uses(key, owner);
                self.ask(key, owner, |table, at, owner| table.renew(at, owner, LEASE, None).1);
            }
            Op::Delete { key } => {
                self.model.holders[key] = None;
                self.befall(key, &[Foreign::Del]);
            }
            Op::Forge { key, owner } => {
                let holder = Holder { owner, bound: None, is_orphan: false, unsent: None };
                self.model.holders[key] = Some(holder);
                self.forged += 1;
                let owner = Foreign::Hset(OWNERS[owner].to_owned(), "1".to_owned());
                let token = Foreign::Hset("fencing-token".to_owned(), format!("t{}", self.forged));
                self.befall(key, &[Foreign::Del, owner, token]);
            }
            Op::Next { session, timeout } => self.next(session, timeout),
            Op::Close { session, forget } => self.close(session, forget),
            Op::Refuse(refuses) => {
                if !refuses {
                    self.pass(REFUSED);
                }
                self.refuses = refuses;
            }
            Op::Pass(ms) => self.pass(ms),
            Op::Timer => self.timer()?,
        }
        self.look();
        self.model.serve();
        self.compare()
    }
}

impl World {
    fn befall(&mut self, key: usize, all: &[Foreign]) {
        for what in all {
            self.space.befall(&self.names[key], what, self.clock.now(), &mut self.table);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.clock.pass(ms, ms.cast_signed(), &mut self.table);
        self.model.now += ms;
    }

    fn open(&mut self, number: usize, ttl: u64) {
        if self.model.sessions[number].is_none() {
            let opened = self.table.open_session(name(number), b"u", Millis(ttl), self.clock.now());
            assert!(opened.is_ok());
            self.model.generations += 1;
            let (generation, now) = (self.model.generations, self.model.now);
            let (due, believes) = (now + ttl, now + ttl);
            let session = Session { generation, ttl, due, reads: false, sent: now, believes };
            self.model.sessions[number] = Some(session);
        }
    }

    fn session(&self, number: usize) -> Option<SessionId> {
        self.table.session(&name(number), b"u")
    }

    fn acquire(&mut self, key: usize, owner: usize, bound: Option<usize>) -> TestCaseResult {
        let to = bound.and_then(|number| Some((self.session(number)?, number)));
        let generation =
            to.map(|(_, number)| self.model.sessions[number].as_ref().unwrap().generation);
        let was_orphan =
            self.model.holders[key].is_some_and(|it| it.is_orphan && it.owner == owner);
        let is_free = self.model.holders[key].is_none();
        let granted = match self.model.uses(key, owner) {
            Some(holder) => {
                self.seen[0] += u64::from(generation.is_some() && holder.bound.is_some());
                self.seen[1] += u64::from(was_orphan);
                holder.bound = generation.or(holder.bound);
                true
            }
            None if is_free => {
                let holder = Holder { owner, bound: generation, is_orphan: false, unsent: None };
                self.model.holders[key] = Some(holder);
                true
            }
            None => false,
        };
        let mut reply = None;
        self.ask(key, owner, |table, at, owner| {
            let request = Acquire { owner, want: Want::Exclusive, lease: LEASE, holds: None };
            let (outcome, change) = table.acquire(at, &request);
            if let Some((session, _)) = to {
                table.bind_granted(at, &request, outcome, session);
            }
            reply = Some(outcome);
            change
        });
        let was = matches!(reply, Some(AcquireReply::Granted { .. }));
        prop_assert_eq!(was, granted, "acquired by {}", OWNERS[owner]);
        Ok(())
    }

    fn wait(&mut self, key: usize, owner: usize, number: usize, bound: bool) -> TestCaseResult {
        let Some(session) = self.session(number) else { return Ok(()) };
        let generation = self.model.sessions[number].as_ref().unwrap().generation;
        let to = bound.then_some(generation);
        let now = if let Some(holder) = self.model.uses(key, owner) {
            holder.bound = to.or(holder.bound);
            true
        } else if self.model.holders[key].is_none() {
            let holder = Holder { owner, bound: to, is_orphan: false, unsent: None };
            self.model.holders[key] = Some(holder);
            true
        } else {
            let wait = Wait { owner, session: generation, bound };
            let queue = &mut self.model.queues[key];
            match queue.iter_mut().find(|other| other.owner == owner) {
                Some(place) => *place = wait,
                None => queue.push(wait),
            }
            false
        };
        let mut reply = None;
        self.ask(key, owner, |table, at, owner| {
            let (want, lease) = (Want::Exclusive, LEASE);
            let request = Acquire { owner, want, lease, holds: None };
            let (outcome, change) = table.wait(at, &request, Some(session));
            match &outcome {
                WaitReply::Now(outcome) if bound => {
                    table.bind_granted(at, &request, *outcome, session);
                }
                WaitReply::Block => {
                    let join = Join { owner, want, lease, timeout: None };
                    let (waiter, _) = table.enqueue(at, &join, Via::Session(session));
                    if bound {
                        table.bind_when_granted(waiter);
                    }
                }
                WaitReply::Now(_)
                | WaitReply::QueueFull(_)
                | WaitReply::Draining
                | WaitReply::Deadlock(_) => {}
            }
            reply = Some(outcome);
            change
        });
        prop_assert_eq!(matches!(reply, Some(WaitReply::Now(_))), now);
        Ok(())
    }

    /// Calls the table with a lock as an owner sees it, and applies the change to the key.
    fn ask(
        &mut self,
        key: usize,
        owner: usize,
        ask: impl FnOnce(&mut Table<u64>, &Situation<'_>, &[u8]) -> Change<u64>,
    ) {
        let asked = Asked { owner: OWNERS[owner].as_bytes(), living_at: None };
        let now = self.clock.now();
        let at = self.space.situation(&self.names[key], asked, now, Some(0));
        let change = ask(&mut self.table, &at, asked.owner);
        self.space.apply(&self.names[key], OWNERS[owner], now, &change);
    }

    fn next(&mut self, number: usize, timeout: Option<u64>) {
        let (Some(id), now) = (self.session(number), self.clock.now()) else { return };
        let (reading, _) =
            self.table.begin_reading(id, None, 0, now).expect("nothing is acknowledged");
        let session = self.model.sessions[number].as_mut().unwrap();
        (session.sent, session.reads) = (self.model.now, true);
        session.due = self.model.now + session.ttl;
        let reading = reading.unwrap();
        match timeout {
            Some(timeout) if self.table.view_session(id).unwrap().outcomes == 0 => {
                session.due = self.model.now + timeout;
                self.table.block_reader(reading, 1, Millis(timeout), now);
            }
            _ => self.answer(number, reading),
        }
    }

    /// Composes and sends a reply to a reader.
    fn answer(&mut self, number: usize, reading: Reading) {
        let news = self.table.news(reading).and_then(Result::ok).expect("it reads");
        let up_to = news.map(|(n, _)| n).last().unwrap_or(0);
        self.table.sent(reading, up_to, self.clock.now());
        self.model.answer(number);
    }

    fn close(&mut self, number: usize, forget: bool) {
        let Some(id) = self.session(number) else { return };
        if forget {
            self.table.forget_bound(id);
        } else {
            // The client stops relying on its locks before it closes the session.
            self.model.sessions[number].as_mut().unwrap().believes = 0;
        }
        self.table.close_session(id);
        self.model.end(number, forget);
        self.clear();
    }

    fn timer(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        while self.table.handle_due_session(now) {}
        for number in 0..SESSIONS {
            let Some(session) = self.model.sessions[number] else { continue };
            if session.due <= self.model.now && !session.reads {
                prop_assert!(session.believes <= self.model.now, "its client still believes");
                self.model.end(number, false);
            }
        }
        while let Some((reading, _)) = self.table.next_reader(now) {
            let number =
                (0..SESSIONS).find(|number| self.session(*number) == Some(reading.session));
            self.answer(number.expect("it is there"), reading);
        }
        self.clear();
        self.release_orphans()
    }

    /// Releases the locks of ended sessions, if the server accepts writes.
    fn release_orphans(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        while let Some(bound) = self.table.next_bound(now) {
            let key = self.names.iter().position(|it| it.1.as_bytes() == &*bound.key.name).unwrap();
            let owner = OWNERS.iter().position(|it| it.as_bytes() == &*bound.owner).unwrap();
            let asked = Asked { owner: &bound.owner, living_at: None };
            let at = self.space.situation(&self.names[key], asked, now, Some(0));
            let until = self.table.bound_until(&at, &bound);
            match until {
                None => {
                    self.seen[3] += 1;
                    self.table.not_bound(&bound);
                }
                Some(until) if !bound.is_orphan => self.table.stays_bound(&bound, until, now),
                Some(_) if self.refuses => {
                    self.seen[2] += 1;
                    self.table.refused_to_release(&bound, true, now);
                }
                Some(_) => {
                    let to_release = self.model.holders[key]
                        .is_some_and(|holder| holder.owner == owner && holder.is_orphan);
                    prop_assert!(to_release, "what {} has is released", OWNERS[owner]);
                    self.model.holders[key] = None;
                    self.ask(key, owner, |table, at, _| table.release_bound(at, &bound));
                    self.model.serve();
                }
            }
        }
        let left = self.model.holders.iter().flatten().filter(|holder| holder.is_orphan).count();
        prop_assert!(left == 0 || self.refuses, "{left} outlive their sessions");
        Ok(())
    }

    fn clear(&mut self) {
        while self.table.work_on_sessions() {}
        while let Some(UnsentGrant { key, owner, id, token, .. }) = self.table.next_unsent() {
            let key = self.names.iter().position(|it| it.1.as_bytes() == &*key.name).unwrap();
            let owner = OWNERS.iter().position(|it| it.as_bytes() == &*owner).unwrap();
            self.ask(key, owner, |table, at, owner| table.take_back(at, id, owner, token));
        }
    }

    fn look(&mut self) {
        while let Some((lock, cause)) = self.table.next_look(self.clock.now()) {
            let key = self.names.iter().position(|it| it.1.as_bytes() == &*lock.name).unwrap();
            self.ask(key, 0, |table, at, _| table.look(at, cause));
        }
    }

    fn key(&self, key: usize) -> KeyRef<'_> {
        key_ref(&self.names[key])
    }

    fn compare(&self) -> TestCaseResult {
        prop_assert_eq!(self.table.check(), Ok(()));
        for key in 0..KEYS {
            let expected = self.model.holders[key];
            let Observed::Held(seen) = self.space.observe(&self.names[key], Asked::NOBODY) else {
                prop_assert!(expected.is_none(), "{:?} has nothing", expected);
                continue;
            };
            prop_assert_eq!(Some(seen.owner), expected.map(|it| OWNERS[it.owner].as_bytes()));
            let bound = self.table.bound_to(self.key(key), seen.owner, seen.token);
            let expected = expected.unwrap();
            let session = self.model.sessions.iter().position(|session| {
                session.as_ref().is_some_and(|it| Some(it.generation) == expected.bound)
            });
            prop_assert_eq!(bound.copied(), session.map(name));
        }
        Ok(())
    }
}

fn name(number: usize) -> SessionName {
    let mut name = [b'0'; 32];
    name[31] += u8::try_from(number).unwrap();
    name
}

//! A latch and a model of it: a number, the set of participants that have counted, and the list of
//! waiters.

use std::collections::BTreeSet;

use kvlock_core::{
    Cause, CountDownReply, Counters, Full, Join, KeyRef, Latch, LatchAt, LatchChange, Limits,
    Millis, MonoMillis, Now, SetReply, Table, UnixMillis, WaitReply, WaiterId, Want,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::ops::{Op, op};
use crate::Bytes;

pub const KEY: KeyRef<'static> = KeyRef::latch(0, b"latch");

/// Content of the key.
#[derive(Debug)]
enum Key {
    Open,
    Counting { left: u64, counted: BTreeSet<&'static str>, until: Option<u64> },
    Other { until: Option<u64> },
}

impl Key {
    fn until(&self) -> Option<u64> {
        match self {
            Self::Open => None,
            Self::Counting { until, .. } | Self::Other { until } => *until,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }
}

#[derive(Debug, PartialEq)]
struct Wait {
    name: &'static str,
    client: u32,
    id: WaiterId,
    end: Option<u64>,
    /// Number of the latch's opening that released this waiter, counted from 1; 0 until then.
    opening: u64,
}

pub struct World {
    table: Table<u32>,
    key: Key,
    now: u64,
    clients: u32,
    /// The model's waiters, in order of arrival.
    waits: Vec<Wait>,
    /// Waiters whose latch has opened, and which were not answered yet.
    released: Vec<Wait>,
    counters: Counters,
}

impl crate::World for World {
    type Op = Op;

    fn begin(_sort: u8) -> Self {
        let limits = Limits { waiters: 6, waiters_per_key: 3, ..Limits::UNLIMITED };
        Self {
            table: Table::new(limits),
            key: Key::Open,
            now: 1_000,
            clients: 0,
            waits: Vec::new(),
            released: Vec::new(),
            counters: Counters::default(),
        }
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        op(bytes)
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Set { count, replace, lifetime } => self.set(count, replace, lifetime)?,
            Op::CountDown(participant) => self.count_down(participant)?,
            Op::Wait(name, timeout) => self.wait(name, timeout)?,
            Op::Cancel(name) => {
                let place = self.waits.iter().position(|wait| wait.name == name);
                let expected = place.map(|place| self.waits.remove(place).client);
                self.counters.cancelled += u64::from(expected.is_some());
                prop_assert_eq!(self.table.cancel(KEY, name.as_bytes()), expected.map(Some));
            }
            Op::Disconnect(nth) => {
                let gone = if nth < self.released.len() {
                    self.released.remove(nth)
                } else if nth - self.released.len() < self.waits.len() {
                    self.waits.remove(nth - self.released.len())
                } else {
                    return Ok(());
                };
                self.counters.disconnects += 1;
                prop_assert_eq!(self.table.disconnected(gone.id), Some(gone.client));
                prop_assert_eq!(self.table.disconnected(gone.id), None);
            }
            Op::Delete => self.befall(Key::Open),
            Op::Overwrite(ttl) => self.befall(Key::Other { until: ttl.map(|ms| self.now + ms) }),
            Op::Pass(ms) => {
                self.now += ms;
                // The table gets no notice of an expiry here.
                if self.key.until().is_some_and(|until| until < self.now) {
                    self.key = Key::Open;
                }
            }
            Op::Tell(most) => self.tell(most)?,
            Op::Limits(here, all) => {
                self.table.limits.waiters_per_key = here;
                self.table.limits.waiters = all;
            }
            Op::Timer => self.timer()?,
        }
        self.compare()
    }
}

impl World {
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn now(&self) -> Now {
        Now { unix_us: self.now * 1000, mono: MonoMillis(self.now) }
    }

    fn at(&self, participant: Option<&str>) -> LatchAt<'static> {
        let seen = match &self.key {
            Key::Open => Latch::Open,
            Key::Other { until } => Latch::NotALatch { until: until.map(UnixMillis) },
            Key::Counting { left, counted, until } => Latch::Counting {
                left: *left,
                counted: participant.is_some_and(|name| counted.contains(name)),
                until: until.map(UnixMillis),
            },
        };
        LatchAt { key: KEY, seen, now: self.now() }
    }

    /// Releases all waiters, in order.
    fn open(&mut self) {
        self.counters.latches_opened += 1;
        for wait in &mut self.waits {
            wait.opening = self.counters.latches_opened;
        }
        self.released.append(&mut self.waits);
    }

    fn compare(&mut self) -> TestCaseResult {
        let in_line = self.table.queue_of(KEY).filter_map(|waiter| waiter.client.copied());
        let expected = self.waits.iter().map(|wait| wait.client);
        prop_assert_eq!(Vec::from_iter(in_line), Vec::from_iter(expected));
        let all = self.waits.len() + self.released.len();
        prop_assert_eq!(self.table.waiters(), all);
        prop_assert_eq!(self.table.waiters_of(KEY), self.waits.len());
        prop_assert!(self.table.has_opened() || self.released.is_empty());
        self.counters.waiters_peak = self.counters.waiters_peak.max(all);
        prop_assert_eq!(self.table.counters(), &self.counters);
        prop_assert_eq!(self.table.check(), Ok(()));
        Ok(())
    }

    fn befall(&mut self, key: Key) {
        self.key = key;
        self.table.look_soon(KEY, Cause::Outside, self.now());
    }

    fn set(&mut self, count: u64, replace: bool, lifetime: Option<u64>) -> TestCaseResult {
        let until = lifetime.map(|lifetime| self.now + lifetime);
        let at = self.at(None);
        let (reply, change) = self.table.set_latch(&at, count, replace, until.map(UnixMillis));
        let expected = match self.key {
            Key::Other { .. } => SetReply::NotALatch,
            Key::Counting { .. } if !replace => SetReply::Counting,
            Key::Counting { .. } | Key::Open => SetReply::Set,
        };
        prop_assert_eq!(reply, expected);
        if expected != SetReply::Set {
            prop_assert_eq!(change, LatchChange::None);
            return Ok(());
        }
        prop_assert_eq!(change, LatchChange::Begin { count, until: until.map(UnixMillis) });
        if self.key.is_open() && !self.waits.is_empty() {
            // These waiters waited for the previous latch.
            self.open();
        }
        self.key = Key::Counting { left: count, until, counted: BTreeSet::new() };
        Ok(())
    }

    fn count_down(&mut self, participant: Option<&'static str>) -> TestCaseResult {
        let at = self.at(participant);
        let outcome = self.table.count_down(&at);
        let expected = match &mut self.key {
            Key::Open => (CountDownReply::Open, LatchChange::None),
            Key::Other { .. } => (CountDownReply::NotALatch, LatchChange::None),
            Key::Counting { left, counted, .. } => {
                if participant.is_none_or(|name| counted.insert(name)) {
                    *left -= 1;
                    let left = *left;
                    let counts = LatchChange::Count { left };
                    let change = if left == 0 { LatchChange::Open } else { counts };
                    (CountDownReply::Left(left), change)
                } else {
                    self.counters.repeated += 1;
                    (CountDownReply::Left(*left), LatchChange::None)
                }
            }
        };
        prop_assert_eq!(outcome, expected);
        if expected.1 == LatchChange::Open {
            self.key = Key::Open;
            self.open();
        }
        Ok(())
    }

    fn wait(&mut self, name: &'static str, timeout: Option<u64>) -> TestCaseResult {
        let at = self.at(None);
        let reply = self.table.wait_for_latch(&at, name.as_bytes(), None);
        let place = self.waits.iter().position(|wait| wait.name == name);
        let full = self.waits.len() + self.released.len() >= self.table.limits.waiters
            || self.waits.len() >= self.table.limits.waiters_per_key;
        let expected = match (&self.key, place) {
            (Key::Open, _) => WaitReply::Now(true),
            (Key::Other { .. }, _) => WaitReply::Now(false),
            (Key::Counting { .. }, None) if full => WaitReply::QueueFull(Full::Server),
            (Key::Counting { .. }, _) => WaitReply::Block,
        };
        prop_assert_eq!(&reply, &expected);
        if expected != WaitReply::Block {
            return Ok(());
        }
        self.clients += 1;
        let end = timeout.map(|timeout| self.now + timeout);
        let (owner, lease, timeout) = (name.as_bytes(), Millis(0), timeout.map(Millis));
        let join = Join { owner, want: Want::LatchOpen, lease, timeout };
        let (id, replaced) = self.table.enqueue(&at, &join, self.clients);
        let wait = Wait { name, client: self.clients, id, end, opening: 0 };
        let old = match place {
            Some(place) => {
                prop_assert_eq!(self.waits[place].id, id);
                Some(std::mem::replace(&mut self.waits[place], wait).client)
            }
            None => {
                self.waits.push(wait);
                None
            }
        };
        prop_assert_eq!(replaced, old);
        Ok(())
    }

    /// Answers up to `most` released waiters. Waiters that were released together are answered in
    /// order of arrival.
    fn tell(&mut self, most: usize) -> TestCaseResult {
        for _ in 0..most {
            let Some(told) = self.table.next_opened() else {
                prop_assert!(self.released.is_empty(), "somebody is not answered");
                return Ok(());
            };
            let place = self.released.iter().position(|wait| Some(wait.client) == told);
            prop_assert!(place.is_some(), "{told:?} was not released");
            let wait = self.released.remove(place.unwrap());
            let before = self.released.iter().take(place.unwrap());
            prop_assert!(before.into_iter().all(|other| other.opening != wait.opening));
            self.counters.released_by_latches += 1;
        }
        Ok(())
    }

    fn timer(&mut self) -> TestCaseResult {
        self.tell(self.released.len() + 1)?;
        prop_assert!(!self.table.has_opened());
        let now = self.now();
        while let Some(client) = self.table.time_out_one(now) {
            let ends = self.waits.iter().map(|wait| wait.end.unwrap_or(u64::MAX));
            let Some((place, end)) = ends.enumerate().min_by_key(|(_, end)| *end) else {
                return Err(TestCaseError::fail("nobody waits"));
            };
            prop_assert!(end <= self.now, "a wait ended early");
            prop_assert_eq!(Some(self.waits.remove(place).client), client);
            self.counters.timeouts += 1;
        }
        prop_assert!(self.waits.iter().all(|wait| wait.end.is_none_or(|end| end > self.now)));
        let mut looks = 0;
        while let Some((key, _)) = self.table.next_look(now) {
            prop_assert_eq!(key.borrow(), KEY);
            self.table.look_at_latch(&self.at(None));
            if self.key.is_open() {
                self.open();
            }
            looks += 1;
            prop_assert!(looks < 5, "looks have no end");
        }
        prop_assert!(!self.key.is_open() || self.waits.is_empty(), "open, and they wait");
        self.tell(self.released.len() + 1)
    }
}

//! A semaphore and a model of it: the permits and the lease end of each owner, and the list of
//! waiters. Fields of expired owners stay in the hash until a search finds them, as in the module.

use std::collections::BTreeMap;

use kvlock_core::{
    Cause, Counters, GrantId, KeyRef, Limits, Millis, MonoMillis, Now, Permits, PermitsChange,
    Release, Semaphore, SemaphoreAt, Share, Table, UnixMillis, WaiterId, Want,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::ops::{Op, Owner, op};
use crate::Bytes;

pub const KEY: KeyRef<'static> = KeyRef::semaphore(0, b"pool");

/// Content of the key.
#[derive(Debug, PartialEq)]
pub enum Key {
    Unset,
    Other {
        until: Option<u64>,
    },
    Set {
        limit: u64,
        /// Number of permits that are recorded as held, including permits of expired owners that no
        /// search has found.
        used: u64,
        /// Permits and end of the lease of each owner, expired or not.
        fields: BTreeMap<Owner, (u64, u64)>,
    },
}

#[derive(Debug, PartialEq)]
pub struct Wait {
    pub owner: Owner,
    pub permits: u64,
    pub holds: Option<u64>,
    pub lease: u64,
    pub client: u32,
    pub id: WaiterId,
    pub end: Option<u64>,
}

/// A grant to a waiter; the reply was not written yet.
#[derive(Debug)]
pub struct Flight {
    pub id: GrantId,
    pub owner: Owner,
    pub permits: u64,
    /// `true` if its owner has not used the permits since.
    pub untouched: bool,
}

pub struct World {
    pub table: Table<u32>,
    pub key: Key,
    /// Time before which no lease ends, as found by the last search in this operation.
    pub earliest: Option<u64>,
    pub waits: Vec<Wait>,
    pub flights: Vec<Flight>,
    pub now: u64,
    /// End of the quarantine.
    pub quarantine: u64,
    pub clients: u32,
    pub counters: Counters,
}

impl crate::World for World {
    type Op = Op;

    fn begin(_sort: u8) -> Self {
        Self {
            table: Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED }),
            key: Key::Unset,
            earliest: None,
            waits: Vec::new(),
            flights: Vec::new(),
            now: 1_000,
            quarantine: 0,
            clients: 0,
            counters: Counters::default(),
        }
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        op(bytes)
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        self.earliest = None;
        match *op {
            Op::Set(limit, only_new) => self.set(limit, only_new)?,
            Op::Take(request) => self.take(request)?,
            Op::Wait(request, timeout) => self.wait(request, timeout)?,
            Op::Drain(owner, lease, holds) => self.drain(owner, lease, holds)?,
            Op::Release(owner, Some(n)) => self.release(owner, Release::DownTo(n))?,
            Op::Release(owner, None) => self.release(owner, Release::All)?,
            Op::ReleaseOne(owner) => self.release(owner, Release::One)?,
            Op::Renew(owner, lease) => self.renew(owner, lease)?,
            Op::Cancel(owner) => {
                let place = self.waits.iter().position(|wait| wait.owner == owner);
                let expected = place.map(|place| self.waits.remove(place).client);
                self.counters.cancelled += u64::from(expected.is_some());
                prop_assert_eq!(self.table.cancel(KEY, owner.as_bytes()), expected.map(Some));
            }
            Op::Disconnect(nth) if nth < self.waits.len() => {
                let wait = self.waits.remove(nth);
                self.counters.disconnects += 1;
                prop_assert_eq!(self.table.disconnected(wait.id), Some(wait.client));
                prop_assert_eq!(self.table.disconnected(wait.id), None);
            }
            Op::Disconnect(_) => {}
            Op::Delete => self.befall(Key::Unset),
            Op::Overwrite(ttl) => self.befall(Key::Other { until: ttl.map(|ms| self.now + ms) }),
            Op::TakeOut(owner) => {
                if let Key::Set { fields, .. } = &mut self.key {
                    fields.remove(owner);
                    self.table.look_soon(KEY, Cause::Outside, self.now());
                }
            }
            Op::Pass(ms) => {
                self.now += ms;
                // The table gets no notice of an expiry here.
                let gone = matches!(self.key, Key::Other { until: Some(end) } if end < self.now);
                self.key =
                    if gone { Key::Unset } else { std::mem::replace(&mut self.key, Key::Unset) };
            }
            Op::Lost(nth) if nth < self.flights.len() => self.lost(nth)?,
            Op::Delivered(nth) if nth < self.flights.len() => {
                let Flight { id, owner, .. } = self.flights.remove(nth);
                self.table.delivered(KEY, id, owner.as_bytes(), kvlock_core::Token::NONE);
                // The grant was delivered, so it cannot be taken back.
                let change = self.table.take_permits_back(&self.at(owner), id, owner.as_bytes(), 1);
                prop_assert_eq!(change, PermitsChange::None);
            }
            Op::Lost(_) | Op::Delivered(_) => {}
            Op::Quarantine(length) => {
                self.table.set_quarantine(Millis(length));
                self.table.begin_quarantine(self.now());
                self.counters.quarantines += u64::from(length > 0);
                self.quarantine = self.now + length;
            }
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

    pub fn now(&self) -> Now {
        Now { unix_us: self.now * 1000, mono: MonoMillis(self.now) }
    }

    pub fn in_quarantine(&self) -> bool {
        self.now < self.quarantine
    }

    pub fn limit(&self) -> Option<u64> {
        match self.key {
            Key::Set { limit, .. } => Some(limit),
            Key::Unset | Key::Other { .. } => None,
        }
    }

    /// Owners with unexpired permits, with the number of permits and the end of the lease.
    fn living(&self) -> impl Iterator<Item = (Owner, u64, u64)> {
        let fields = if let Key::Set { fields, .. } = &self.key { Some(fields) } else { None };
        let all = fields.into_iter().flatten().map(|(owner, (n, until))| (*owner, *n, *until));
        all.filter(|(.., until)| *until >= self.now)
    }

    /// Permits of an owner and end of its lease, unless the lease has expired.
    pub fn of(&self, owner: &str) -> Option<(u64, u64)> {
        self.living().find(|(of, ..)| *of == owner).map(|(_, permits, until)| (permits, until))
    }

    /// Number of free permits. Permits of expired owners count as free.
    pub fn free(&self) -> u64 {
        let held: u64 = self.living().map(|(_, permits, _)| permits).sum();
        self.limit().unwrap_or(0).saturating_sub(held)
    }

    /// Reads the semaphore as the module does. If the lease of `owner` has expired, it holds
    /// nothing, and its permits are free.
    pub fn at(&self, owner: &str) -> SemaphoreAt<'static> {
        let seen = match &self.key {
            Key::Unset => Semaphore::Unset,
            Key::Other { until } => Semaphore::NotASemaphore { until: until.map(UnixMillis) },
            Key::Set { limit, used, fields } => {
                let live = self.of(owner);
                let had = fields.get(owner).map_or(0, |(permits, _)| *permits);
                let used = if live.is_some() { *used } else { used.saturating_sub(had) };
                let own = live.map(|(holds, until)| Share { holds, until: UnixMillis(until) });
                let earliest = self.earliest.map(UnixMillis);
                Semaphore::Set(Permits { limit: *limit, used, own, earliest })
            }
        };
        SemaphoreAt { key: KEY, seen, now: self.now() }
    }

    /// Reads the semaphore like [`Self::at`]. If the table needs more free permits, removes expired
    /// owners first.
    pub fn at_with(&mut self, owner: &str, permits: u64) -> SemaphoreAt<'static> {
        let at = self.at(owner);
        if !self.table.lacks_permits(&at, permits) {
            return at;
        }
        let now = self.now;
        if let Key::Set { used, fields, .. } = &mut self.key {
            fields.retain(|_, (_, until)| *until >= now);
            *used = fields.values().map(|(permits, _)| permits).sum();
            self.earliest = fields.values().map(|(_, until)| *until).min();
        }
        self.at(owner)
    }

    /// Applies a change of the table. Checks that the change does not grant more permits than the
    /// limit. Returns whether more permits may be free than before.
    pub fn write(&mut self, owner: Owner, change: PermitsChange) -> Result<bool, TestCaseError> {
        let before: u64 = self.living().map(|(_, permits, _)| permits).sum();
        let frees = match (change, &mut self.key) {
            (PermitsChange::None, _) => false,
            (PermitsChange::Limit(limit), Key::Set { limit: old, .. }) => {
                *old = limit;
                true
            }
            (PermitsChange::Limit(limit), key) => {
                *key = Key::Set { limit, used: 0, fields: BTreeMap::new() };
                true
            }
            (PermitsChange::Own { share, used: now_used }, Key::Set { used, fields, .. }) => {
                match share {
                    Some(share) => fields.insert(owner, (share.holds, share.until.0)),
                    None => fields.remove(owner),
                };
                std::mem::replace(used, now_used) > now_used
            }
            (PermitsChange::Own { .. }, key) => {
                return Err(TestCaseError::fail(format!("permits of what is {key:?}")));
            }
        };
        let after: u64 = self.living().map(|(_, permits, _)| permits).sum();
        if let Key::Set { limit, used, .. } = self.key {
            prop_assert!(after <= before || after <= limit, "I12");
            prop_assert!(used >= after, "{used} are said to be held, and {after} are");
        }
        Ok(frees)
    }

    /// Records that an owner used its permits, which settles its grants in flight.
    pub fn touch(&mut self, owner: Owner) {
        self.flights.iter_mut().filter(|flight| flight.owner == owner).for_each(|flight| {
            flight.untouched = false;
        });
    }

    fn compare(&mut self) -> TestCaseResult {
        let in_line =
            self.table.queue_of(KEY).filter_map(|waiter| Some((*waiter.client?, waiter.want)));
        let want = |wait: &Wait| Want::Permits { more: wait.permits, holds: wait.holds };
        let expected = self.waits.iter().map(|wait| (wait.client, want(wait)));
        prop_assert_eq!(Vec::from_iter(in_line), Vec::from_iter(expected));
        let first = self.waits.first().map(|wait| (wait.owner.as_bytes(), wait.permits));
        prop_assert_eq!(self.table.first_for_permits(KEY), first);
        self.counters.waiters_peak = self.counters.waiters_peak.max(self.waits.len());
        prop_assert_eq!(self.table.counters(), &self.counters);
        prop_assert_eq!(self.table.check(), Ok(()));
        Ok(())
    }

    fn befall(&mut self, key: Key) {
        self.key = key;
        self.table.look_soon(KEY, Cause::Outside, self.now());
    }
}

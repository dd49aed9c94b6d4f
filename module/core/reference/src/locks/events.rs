//! Applies an event to the table and to the model, and compares the results.

use kvlock_core::{Cause, Dismissal, GrantId, Millis, Token};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::drive::told;
use super::meddling::Meddling;
use super::naive::What;
use super::names::{KEYS, Key, Owner, RESULTS};
use super::ops::Event;
use super::world::World;
use crate::sim::key_ref;

impl World {
    pub fn happen(&mut self, event: &Event) -> TestCaseResult {
        match *event {
            Event::Disconnect(nth) => {
                if let Some(place) = nth.checked_rem(self.places.len()) {
                    let out = self.table.disconnected(self.places[place]);
                    prop_assert_eq!(told(out), self.model.disconnect(place));
                }
            }
            Event::Delivered(nth) => {
                if let Some(grant) = self.latest_grant(nth) {
                    let (id, owner, token) = self.name_of(grant);
                    let key = key_ref(&self.names[self.model.grants[grant].key]);
                    self.table.delivered(key, id, owner.as_bytes(), token);
                    self.model.delivered(grant);
                }
            }
            Event::TakeBack(nth) => self.take_back(nth)?,
            Event::Meddle(key, meddling) => self.meddle(key, &meddling),
            Event::Flush(db) => self.flush(db),
            Event::Pass(mono, wall) => self.pass(mono, wall),
            Event::Timer => self.timer()?,
            Event::Looks => self.looks()?,
            Event::Serve(key) => {
                if self.with(key, "", |table, at| table.owes_a_grant(at)) {
                    let lapsed = self.model.locks[key].lapsed;
                    self.look(key, if lapsed { Cause::Expiry } else { Cause::Outside })?;
                }
                // Only a look finds out that all sharers of a lock have expired.
                let shared = matches!(self.model.locks[key].what, What::Shared(_));
                let served = !self.model.owes(key) || shared;
                prop_assert!(served, "owed and not served");
            }
            Event::Limits(waiters, waiters_per_key) => {
                self.table.limits.waiters = waiters;
                self.table.limits.waiters_per_key = waiters_per_key;
                self.model.limits = self.table.limits;
            }
            Event::Drain(draining) => self.drain(draining)?,
            Event::Dismiss(key) => {
                let name = key_ref(&self.names[key]);
                let out = || self.table.dismiss_one_of(name, Dismissal::Moving);
                let out = told(std::iter::from_fn(out).flatten());
                prop_assert_eq!(out, self.model.dismiss(Some(key)));
            }
            Event::Begin => self.begin_quarantine(),
            Event::Quarantine(length) => {
                self.table.set_quarantine(Millis(length));
                self.table.end_quarantine(self.clock.now());
                self.model.quarantine.0 = length;
                self.model.end_quarantine();
            }
            Event::Lift => self.lift_quarantine()?,
            Event::Turns(on, listeners) => {
                self.table.share_with_redisson(on);
                self.model.turns = (on, listeners);
            }
            Event::Result(key, result, there) => self.change_result(key, result, there),
            Event::Group => {
                self.look_at_group()?;
            }
            Event::Floor(ahead) => {
                // The floor may be unknown only if there are regular looks.
                if ahead.is_some() || self.table.look_every.is_some() {
                    let us = self.clock.now().unix_us;
                    self.model.floor = ahead.map(|ahead| us + ahead);
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self, db: Option<i32>) {
        self.space.flush(db, self.clock.now(), &mut self.table);
        let flushed = |key: &Key| db.is_none_or(|db| db == KEYS[*key].0);
        for key in (0..KEYS.len()).filter(flushed) {
            for result in 0..RESULTS.len() {
                self.change_result(key, result, false);
            }
            self.model.meddle(key, &Meddling::Delete);
        }
    }

    fn timer(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        self.table.end_quarantine(now);
        self.model.end_quarantine();
        while self.table.end_moment(now) {}
        self.model.end_moments();
        let out = told(std::iter::from_fn(|| self.table.time_out_one(now)).flatten());
        prop_assert_eq!(out, self.model.time_out());
        while self.look_at_group()? {}
        self.looks()
    }

    fn latest_grant(&self, nth: usize) -> Option<usize> {
        let last = self.model.grants.len().checked_sub(1)?;
        Some(last.saturating_sub(nth))
    }

    fn name_of(&self, grant: usize) -> (GrantId, Owner, Token) {
        let grant = &self.model.grants[grant];
        let token = Token::from_stored(grant.token).expect("tokens can be stored");
        (grant.id.expect("it was told"), grant.owner, token)
    }

    fn take_back(&mut self, nth: usize) -> TestCaseResult {
        if let Some(grant) = self.latest_grant(nth) {
            let (id, owner, token) = self.name_of(grant);
            let (key, by) = (self.model.grants[grant].key, owner.as_bytes());
            let change = self.with(key, owner, |table, at| table.take_back(at, id, by, token));
            let told = self.apply(key, owner, change)?;
            prop_assert_eq!(told, self.model.take_back(grant));
        }
        Ok(())
    }

    fn begin_quarantine(&mut self) {
        self.table.begin_quarantine(self.clock.now());
        let begins = self.model.quarantine.0 > 0;
        self.model.quarantine.1 = begins.then_some(self.clock.now().mono.0);
        self.model.counters.quarantines += u64::from(begins);
    }

    fn lift_quarantine(&mut self) -> TestCaseResult {
        // Dismisses all waiters.
        self.drain(true)?;
        self.drain(false)?;
        self.table.lift_quarantine();
        self.model.quarantine.1 = None;
        Ok(())
    }

    fn pass(&mut self, mono: u64, wall: i64) {
        self.clock.pass(mono, wall, &mut self.table);
        self.space.expire(self.clock.now());
        self.model.pass(self.clock.now());
    }

    fn drain(&mut self, draining: bool) -> TestCaseResult {
        self.table.limits.draining = draining;
        self.model.limits = self.table.limits;
        if draining {
            let mut out = told(self.table.dismiss_all());
            let mut expected = self.model.dismiss(None);
            // The order of the clients does not matter.
            out.sort();
            expected.sort();
            prop_assert_eq!(out, expected);
        }
        Ok(())
    }

    /// Takes every look that is due. After that no waiter may be left that can be granted its lock,
    /// unless the grant was put off.
    fn looks(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        let mut looks = 0;
        while let Some((due, cause)) = self.table.next_look(now) {
            let key = self.names.iter().position(|name| key_ref(name) == due.borrow());
            self.look(key.expect("a key of ours"), cause)?;
            looks += 1;
            prop_assert!(looks <= 2 * KEYS.len(), "looks have no end");
        }
        for key in 0..KEYS.len() {
            let put_off = self.model.locks[key].put_off;
            prop_assert!(put_off || !self.model.owes(key), "not looked at");
        }
        Ok(())
    }

    fn look(&mut self, key: Key, cause: Cause) -> TestCaseResult {
        let (lapsed, put_off) = (self.model.locks[key].lapsed, self.model.locks[key].put_off);
        let change = self.look_at(key, cause);
        let told = self.apply(key, "", change)?;
        if !matches!(self.model.locks[key].what, What::Shared(_))
            && !told.is_empty()
            && cause == Cause::Expiry
        {
            prop_assert!(lapsed || put_off, "it was not the lease that ended");
        }
        prop_assert_eq!(told, self.model.look(key, cause));
        Ok(())
    }

    fn meddle(&mut self, key: Key, meddling: &Meddling) {
        let (holder, free) = match self.model.locks[key].what {
            What::Held { owner, .. } => (Some(owner), false),
            What::Free(_) => (None, true),
            What::Shared(_) | What::Other => (None, false),
        };
        let now = self.clock.now();
        for command in meddling.commands(holder, free, now.unix_us) {
            if self.space.befall(&self.names[key], &command, now, &mut self.table) {
                self.model.use_moment(key);
            }
        }
        self.model.meddle(key, meddling);
        // After another client has written a smaller token, new tokens need only be larger than that.
        if let Some(token) = self.model.token(key) {
            self.last_tokens[key] = self.last_tokens[key].min(token);
        }
    }
}

//! Does everything twice, to the table and to the model, and compares what comes of it.

use kvlock_core::{
    Acquire, AcquireReply, Cause, Change, Join, Millis, Release, ReleaseReply, RenewReply, Token,
    WaitReply,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::naive::{Answer, Told, What};
use crate::ops::{HowMany, KEYS, Key, Meddling, Op, Request};
use crate::sim::{Foreign, key_ref};
use crate::world::{Client, World};

impl World {
    /// Does one thing to both, and compares what comes of it.
    pub(crate) fn step(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Acquire(key, request) => {
                let (reply, change) = self.with(key, |table, at| table.acquire(at, &of(&request)));
                let waited_for = !self.model.locks[key].queue.is_empty();
                let taken = matches!(change, Change::Take { .. });
                prop_assert!(!(taken && waited_for), "I8");
                let told = self.apply(key, request.owner, change)?;
                let expected = (self.model.acquire(key, &request), Vec::new());
                prop_assert_eq!((acquired(reply), told), expected);
            }
            Op::Wait(key, request, timeout) => self.wait(key, &request, timeout)?,
            Op::Release(key, owner, how_many) => {
                let release = match how_many {
                    HowMany::One => Release::One,
                    HowMany::All => Release::All,
                    HowMany::DownTo(n) => Release::DownTo(n),
                };
                let (reply, change) =
                    self.with(key, |table, at| table.release(at, owner.as_bytes(), release));
                let told = self.apply(key, owner, change)?;
                let expected = self.model.release(key, owner, how_many);
                prop_assert_eq!((released(reply), told), expected);
            }
            Op::Renew(key, owner, lease) => {
                let lease_ms = Millis(lease);
                let (reply, change) =
                    self.with(key, |table, at| table.renew(at, owner.as_bytes(), lease_ms));
                let told = self.apply(key, owner, change)?;
                let expected = (self.model.renew(key, owner, lease), Vec::new());
                prop_assert_eq!((renewed(reply), told), expected);
            }
            Op::Cancel(key, owner) => {
                let out = self.table.cancel(key_ref(&self.names[key]), owner.as_bytes());
                let answer = if out.is_some() { Answer::Yes } else { Answer::No };
                prop_assert_eq!((answer, told(out)), self.model.cancel(key, owner));
            }
            Op::Force(key) => {
                let (reply, change) = self.with(key, |table, at| table.force_release(at));
                let told = self.apply(key, "", change)?;
                let answer = match reply {
                    None => Answer::NotALock,
                    Some(true) => Answer::Yes,
                    Some(false) => Answer::No,
                };
                prop_assert_eq!((answer, told), self.model.force(key));
            }
            Op::Meddle(key, meddling) => self.meddle(key, &meddling),
            _ => self.step_aside(op)?,
        }
        self.compare()
    }

    /// What happens beside the commands.
    fn step_aside(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Disconnect(nth) if !self.places.is_empty() => {
                let place = nth % self.places.len();
                let out = told(self.table.disconnected(self.places[place]));
                prop_assert_eq!(out, self.model.disconnect(place));
            }
            Op::Delivered(nth) if !self.model.grants.is_empty() => {
                let nth = self.model.grants.len().saturating_sub(nth + 1);
                let token = Token::from_stored(self.model.grants[nth].token);
                self.table.delivered(token.expect("tokens fit"));
                self.model.delivered(nth);
            }
            Op::TakeBack(nth) if !self.model.grants.is_empty() => {
                let nth = self.model.grants.len().saturating_sub(nth + 1);
                let (key, owner) = (self.model.grants[nth].key, self.model.grants[nth].owner);
                let token = Token::from_stored(self.model.grants[nth].token).expect("tokens fit");
                let change =
                    self.with(key, |table, at| table.take_back(at, owner.as_bytes(), token));
                let told = self.apply(key, "", change)?;
                prop_assert_eq!(told, self.model.take_back(nth));
            }
            Op::Flush(db) => {
                self.space.flush(db, self.clock.now(), &mut self.table);
                let flushed = |key: &Key| db.is_none_or(|db| db == KEYS[*key].0);
                for key in (0..KEYS.len()).filter(flushed) {
                    self.model.meddle(key, &Meddling::Delete);
                }
            }
            Op::Pass(mono, wall) => {
                if wall < 0 {
                    // By then the server has found out what had expired before.
                    let lapsed = |key: &Key| self.model.locks[*key].lapsed;
                    for key in (0..KEYS.len()).filter(lapsed) {
                        let (name, now) = (key_ref(&self.names[key]), self.clock.now());
                        self.table.look_soon(name, Cause::Expiry, now);
                    }
                }
                self.clock.pass(mono, wall);
                self.latest = self.latest.max(self.clock.now().unix());
                self.space.expire(self.clock.now());
                self.model.pass(self.clock.now());
            }
            Op::Timer => {
                self.time_outs()?;
                self.looks()?;
            }
            Op::Looks => self.looks()?,
            Op::Serve(key) => {
                if self.with(key, |table, at| table.owes_a_grant(at)) {
                    let lapsed = self.model.locks[key].lapsed;
                    self.look(key, if lapsed { Cause::Expiry } else { Cause::Outside })?;
                }
                let lock = &self.model.locks[key];
                let free = matches!(lock.what, What::Free(_));
                prop_assert!(!free || lock.queue.is_empty(), "owed and not served");
            }
            Op::Limits(waiters, waiters_per_key) => {
                self.table.limits.waiters = waiters;
                self.table.limits.waiters_per_key = waiters_per_key;
                self.model.limits = self.table.limits;
            }
            Op::Drain(draining) => {
                self.table.limits.draining = draining;
                self.model.limits = self.table.limits;
                if draining {
                    let out = std::iter::from_fn(|| self.table.dismiss_one());
                    let mut out: Vec<_> = out.map(|client| Told::Out(client.0)).collect();
                    let mut expected = self.model.dismiss(None);
                    out.sort();
                    expected.sort();
                    prop_assert_eq!(out, expected);
                }
            }
            Op::Dismiss(key) => {
                let name = key_ref(&self.names[key]);
                let out = std::iter::from_fn(|| self.table.dismiss_one_of(name));
                let out: Vec<_> = out.map(|client| Told::Out(client.0)).collect();
                prop_assert_eq!(out, self.model.dismiss(Some(key)));
            }
            Op::Floor(ahead) => self.model.floor = self.clock.now().unix_us + ahead,
            _ => {}
        }
        Ok(())
    }

    fn wait(&mut self, key: Key, request: &Request, timeout: Option<u64>) -> TestCaseResult {
        let client = self.clients;
        self.clients += 1;
        let (reply, change) = self.with(key, |table, at| table.wait(at, &of(request)));
        let mut heard = self.apply(key, request.owner, change)?;
        let answer = match reply {
            WaitReply::Now(reply) => acquired(reply),
            WaitReply::QueueFull => Answer::QueueFull,
            WaitReply::Draining => Answer::Draining,
            WaitReply::Block => {
                let join = Join {
                    owner: request.owner.as_bytes(),
                    lease: Millis(request.lease),
                    timeout: timeout.map(Millis),
                };
                let (id, out) =
                    self.with(key, |table, at| table.enqueue(at, &join, Client(client)));
                if out.is_none() {
                    self.places.push(id);
                    let (waiters, limits) = (self.table.waiters(), self.table.limits);
                    let here = self.table.waiters_of(key_ref(&self.names[key]));
                    prop_assert!(waiters <= limits.waiters, "I7");
                    prop_assert!(here <= limits.waiters_per_key, "I7");
                }
                heard.extend(told(out));
                Answer::Blocked
            }
        };
        let expected = self.model.wait(key, request, timeout, client);
        prop_assert_eq!((answer, heard), expected);
        Ok(())
    }

    fn time_outs(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        let out = std::iter::from_fn(|| self.table.time_out_one(now));
        let out: Vec<_> = out.map(|client| Told::Out(client.0)).collect();
        prop_assert_eq!(out, self.model.time_out());
        Ok(())
    }

    /// Takes every look that is due. No free lock is waited for after that.
    fn looks(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        let mut looks = 0;
        while let Some((due, cause)) = self.table.next_look(now) {
            let key = self.names.iter().position(|name| key_ref(name) == due.borrow());
            self.look(key.expect("a key of ours"), cause)?;
            looks += 1;
            prop_assert!(looks <= 2 * KEYS.len(), "looks have no end");
        }
        for lock in &self.model.locks {
            let free = matches!(lock.what, What::Free(_));
            prop_assert!(!free || lock.queue.is_empty(), "not looked at");
        }
        Ok(())
    }

    fn look(&mut self, key: Key, cause: Cause) -> TestCaseResult {
        let lapsed = self.model.locks[key].lapsed;
        let change = self.with(key, |table, at| table.look(at, cause));
        let told = self.apply(key, "", change)?;
        if !told.is_empty() && cause == Cause::Expiry {
            prop_assert!(lapsed, "it was not the lease that ended");
        }
        prop_assert_eq!(told, self.model.look(key, cause));
        Ok(())
    }

    /// Does to the key, in commands of the server, what the model is told in one word.
    fn meddle(&mut self, key: Key, meddling: &Meddling) {
        let holder = match self.model.locks[key].what {
            What::Held { owner, .. } => Some(owner),
            What::Free(_) | What::Other => None,
        };
        let free = matches!(self.model.locks[key].what, What::Free(_));
        let hset = |field: &str, value: String| Foreign::Hset(field.to_owned(), value);
        let token = |value: String| holder.map(|_| hset("fencing-token", value));
        let us = self.clock.now().unix_us;
        let commands = match *meddling {
            Meddling::Delete => vec![Foreign::Del],
            Meddling::Overwrite => vec![Foreign::Set],
            Meddling::Persist => vec![Foreign::Persist],
            Meddling::Expire(ms) => Vec::from_iter((!free).then_some(Foreign::Pexpire(ms))),
            Meddling::Script(owner, holds, lease) => {
                vec![Foreign::Del, hset(owner, holds.to_string()), Foreign::Pexpire(lease)]
            }
            Meddling::SwapHolder(new) => {
                let new_one = holder.map(|_| hset(new, "1".to_owned()));
                let old = holder.filter(|old| *old != new);
                let old = old.map(|old| Foreign::Hdel(old.to_owned()));
                Vec::from_iter([new_one, old].into_iter().flatten())
            }
            Meddling::DropHolder => {
                Vec::from_iter(holder.map(|owner| Foreign::Hdel(owner.to_owned())))
            }
            Meddling::TokenAhead(by) => Vec::from_iter(token((us + by).to_string())),
            Meddling::TokenSpoilt(value) => Vec::from_iter(token(value.to_owned())),
            Meddling::SecondField(field) => {
                Vec::from_iter(holder.map(|_| hset(field, "1".to_owned())))
            }
            Meddling::CountSpoilt(count) => {
                Vec::from_iter(holder.map(|owner| hset(owner, count.to_owned())))
            }
        };
        for command in &commands {
            let (name, now) = (&self.names[key], self.clock.now());
            self.space.befall(name, command, now, &mut self.table);
        }
        self.model.meddle(key, meddling);
    }
}

fn of(request: &Request) -> Acquire<'_> {
    Acquire { owner: request.owner.as_bytes(), lease: Millis(request.lease), holds: request.holds }
}

fn told(out: Option<Client>) -> Vec<Told> {
    Vec::from_iter(out.map(|client| Told::Out(client.0)))
}

fn acquired(reply: AcquireReply) -> Answer {
    match reply {
        AcquireReply::Granted { token, holds } => Answer::Granted { token: token.value(), holds },
        AcquireReply::Refused => Answer::Nil,
        AcquireReply::Mismatch => Answer::Mismatch,
        AcquireReply::TooManyHolds => Answer::TooManyHolds,
        AcquireReply::NotALock => Answer::NotALock,
    }
}

fn released(reply: ReleaseReply) -> Answer {
    match reply {
        ReleaseReply::Left(holds) => Answer::Left(holds),
        ReleaseReply::NotHeld => Answer::Nil,
        ReleaseReply::Mismatch => Answer::Mismatch,
        ReleaseReply::NotALock => Answer::NotALock,
    }
}

fn renewed(reply: RenewReply) -> Answer {
    match reply {
        RenewReply::Lease(lease) => Answer::Lease(lease.0),
        RenewReply::NotHeld => Answer::Nil,
        RenewReply::NotALock => Answer::NotALock,
    }
}

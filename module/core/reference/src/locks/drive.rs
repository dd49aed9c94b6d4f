//! Sends the same requests to the table and to the model, and compares the replies.

use kvlock_core::{
    Acquire, AcquireReply, Change, Join, Millis, Release, ReleaseReply, RenewReply, Token,
    WaitReply, Want,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::naive::{Answer, Sent};
use super::names::{KEYS, Key, Owner, RESULTS, ResultKey};
use super::ops::{Ask, Op, Request};
use super::world::{Client, World};
use crate::sim::key_ref;

impl World {
    /// Applies one operation to the table and to the model, and compares the results.
    pub fn step(&mut self, op: &Op) -> TestCaseResult {
        match op {
            Op::Ask(key, ask) => self.ask(*key, ask)?,
            Op::Event(event) => self.happen(event)?,
        }
        self.model.put_off();
        self.name_grants();
        self.compare_ready()?;
        self.compare()
    }

    fn ask(&mut self, key: Key, ask: &Ask) -> TestCaseResult {
        if self.is_ready(key, ask)? {
            return Ok(());
        }
        let (answer, expected) = match *ask {
            Ask::Acquire(request) => {
                let answer = self.acquire(key, &request)?;
                (answer, (self.model.acquire(key, &request), Vec::new()))
            }
            Ask::AcquireSet(request, roles, held) => {
                let answer = self.acquire_set(key, &request, roles, held)?;
                let expected = self.model.acquire_set(key, &request, roles, held);
                (answer, (expected, Vec::new()))
            }
            Ask::Wait(request, timeout) => {
                let client = self.clients;
                self.clients += 1;
                let answer = self.wait(key, &request, timeout, client)?;
                (answer, self.model.wait(key, &request, timeout, client))
            }
            Ask::Release(owner, shared, how_many, store) => {
                let answer = self.release(key, owner, shared, how_many, store)?;
                (answer, self.model.release(key, owner, shared, how_many, store))
            }
            Ask::Renew(owner, lease, ahead) => {
                let answer = self.renew(key, owner, lease, ahead)?;
                (answer, (self.model.renew(key, owner, lease, ahead), Vec::new()))
            }
            Ask::Cancel(owner) => {
                let out = self.table.cancel(key_ref(&self.names[key]), owner.as_bytes());
                let answer = if out.is_some() { Answer::Yes } else { Answer::No };
                ((answer, told(out.flatten())), self.model.cancel(key, owner))
            }
            Ask::Force => {
                let (reply, change) = self.with_all(key, "", |table, at| table.force_release(at));
                let answer = match reply {
                    None => Answer::NotALock,
                    Some(true) => Answer::Yes,
                    Some(false) => Answer::No,
                };
                ((answer, self.apply(key, "", change)?), self.model.force(key))
            }
        };
        prop_assert_eq!(answer, expected);
        Ok(())
    }

    fn acquire(
        &mut self,
        key: Key,
        request: &Request,
    ) -> Result<(Answer, Vec<Sent>), TestCaseError> {
        let (reply, change) =
            self.ask_as(key, request, |table, at| table.acquire(at, &of(request)));
        let waited_for = !self.model.locks[key].queue.is_empty();
        let taken = matches!(change, Change::Take { .. })
            || matches!(&change, Change::Share(sharers) if sharers.begins);
        prop_assert!(!(taken && waited_for), "I8");
        Ok((acquired(reply), self.apply(key, request.owner, change)?))
    }

    fn wait(
        &mut self,
        key: Key,
        request: &Request,
        timeout: Option<u64>,
        client: u64,
    ) -> Result<(Answer, Vec<Sent>), TestCaseError> {
        let (reply, change) =
            self.ask_as(key, request, |table, at| table.wait(at, &of(request), None));
        let heard = self.apply(key, request.owner, change)?;
        let answer = match reply {
            WaitReply::Now(reply) => acquired(reply),
            WaitReply::QueueFull(_) => Answer::QueueFull,
            WaitReply::Draining => Answer::Draining,
            // The keyspace of this world reports no holders.
            WaitReply::Deadlock(links) => panic!("{links:?}"),
            WaitReply::Block => {
                let Acquire { owner, want, lease, .. } = of(request);
                let join = Join { owner, want, lease, timeout: timeout.map(Millis) };
                let client = Client(client);
                let (id, out) =
                    self.ask_as(key, request, |table, at| table.enqueue(at, &join, client));
                let unless = request.unless.map(|result| RESULTS[result].as_bytes());
                self.table.set_ready_key(id, unless);
                if out.is_none() {
                    self.places.push(id);
                    let (limits, here) = (self.table.limits, key_ref(&self.names[key]));
                    prop_assert!(self.table.waiters() <= limits.waiters, "I7");
                    prop_assert!(self.table.waiters_of(here) <= limits.waiters_per_key, "I7");
                }
                return Ok((Answer::Blocked, told(out)));
            }
        };
        Ok((answer, heard))
    }

    fn renew(
        &mut self,
        key: Key,
        owner: Owner,
        lease: u64,
        ahead: Option<i64>,
    ) -> Result<(Answer, Vec<Sent>), TestCaseError> {
        let (by, lease) = (owner.as_bytes(), Millis(lease));
        let wanted = ahead.map(|us| self.model.now.unix_us.saturating_add_signed(us));
        let at_least = wanted.and_then(Token::from_stored);
        let (reply, change) =
            self.with(key, owner, |table, at| table.renew(at, by, lease, at_least));
        Ok((renewed(reply), self.apply(key, owner, change)?))
    }

    fn release(
        &mut self,
        key: Key,
        owner: Owner,
        shared: bool,
        release: Release,
        store: Option<ResultKey>,
    ) -> Result<(Answer, Vec<Sent>), TestCaseError> {
        let by = owner.as_bytes();
        let want = if shared { Want::Shared } else { Want::Exclusive };
        let left = self.with(key, owner, |_, at| at.left_after(by, want, release));
        if let Some(result) = store.filter(|_| left.is_some()) {
            self.space.set_result(KEYS[key].0, RESULTS[result], true);
        }
        let (reply, change) =
            self.with(key, owner, |table, at| table.release(at, by, want, release));
        Ok((released(reply), self.apply(key, owner, change)?))
    }
}

pub fn of(request: &Request) -> Acquire<'_> {
    let want = if request.shared { Want::Shared } else { Want::Exclusive };
    let (owner, lease) = (request.owner.as_bytes(), Millis(request.lease));
    Acquire { owner, want, lease, holds: request.holds }
}

/// Returns the replies for waiters that left the table without a grant.
pub fn told(out: impl IntoIterator<Item = Client>) -> Vec<Sent> {
    out.into_iter().map(|client| Sent::Out(client.0)).collect()
}

pub fn acquired(reply: AcquireReply) -> Answer {
    match reply {
        AcquireReply::Granted { token, holds } => Answer::Granted { token: token.value(), holds },
        AcquireReply::Refused => Answer::Nil,
        AcquireReply::Mismatch => Answer::Mismatch,
        AcquireReply::TooManyHolds => Answer::TooManyHolds,
        AcquireReply::Upgrade => Answer::Upgrade,
        AcquireReply::NotALock => Answer::NotALock,
        AcquireReply::TryAgain => Answer::TryAgain,
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
        RenewReply::Shared => Answer::Upgrade,
        RenewReply::TooFarAhead(most) => Answer::TooFarAhead(most),
        RenewReply::NotALock => Answer::NotALock,
        RenewReply::TryAgain => Answer::TryAgain,
    }
}

//! How the lock table is asked about a lock, and how what it decides is carried out.

use kvlock_core::{Cause, Change, HandOff, KeyRef, Now, Observed, Sharers, Situation, Table};

use crate::clock;
use crate::floor::Place;
use crate::keyspace::{self, Seen};
use crate::redis::{Arg, Ctx, Key, Reply, Text};
use crate::server::{Grant, Server, Waiting};
use crate::writer::{Audience, Before, Writer};

/// A lock at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) ctx: &'a Ctx<'a>,
    pub(crate) name: Arg<'a>,
    pub(crate) key: KeyRef<'a>,
    pub(crate) now: Now,
    floor: Option<u64>,
}

/// What the caller of an operation wants to know before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// What the owner itself has of the lock.
    Own,
    /// Also whether those who share it live, if the lock could be had otherwise.
    Living,
}

impl Server {
    /// A lock of the selected database, now.
    pub(crate) fn case<'a>(
        &mut self,
        ctx: &'a Ctx<'a>,
        db: i32,
        name: Arg<'a>,
        now: Now,
    ) -> Case<'a> {
        let key = KeyRef::lock(db, name.bytes());
        let floor = self.floors.of(ctx, Place::of(key.db, key.name, self.in_cluster), now);
        Case { ctx, name, key, now, floor }
    }

    /// Does one operation of a command on a lock: reads it as `asked` sees it, lets `operate`
    /// decide, and carries that out. If the lock can be had although somebody waits, the first
    /// waiter gets it before anything else happens.
    pub(crate) fn on_lock<R>(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        asked: Option<Arg<'_>>,
        need: Need,
        operate: impl FnOnce(&mut Table<Waiting>, &Situation<'_>) -> (R, Change<Waiting>),
    ) -> R {
        let case = self.case(ctx, ctx.db(), name, clock::now());
        let owner = asked.unwrap_or(name);
        let mut open = ctx.open_to_write(name);
        let mut seen = keyspace::read(open.as_ref(), &self.words, name, asked);
        if self.table.owes_a_grant(&case.as_seen(&seen, owner)) {
            drop(open);
            let cause = self.table.cause_of_freedom(case.key);
            self.look_at(&case, cause);
            open = ctx.open_to_write(name);
            seen = keyspace::read(open.as_ref(), &self.words, name, asked);
        }
        if let (Need::Living, Seen::Shared(_), Some(key)) = (need, &seen, &open)
            && self.table.waiters_of(case.key) == 0
        {
            self.find_living(&case, key, &mut seen);
        }
        let (outcome, change) = operate(&mut self.table, &case.as_seen(&seen, owner));
        self.carry_out(&case, open, &seen, owner, change);
        outcome
    }

    fn find_living(&mut self, case: &Case<'_>, key: &Key<'_>, seen: &mut Seen) {
        let now = case.now.unix();
        self.sharers.find_living(case.ctx, &self.words, case.name, key, seen, now);
    }

    /// Looks at a lock that somebody waits for.
    pub(crate) fn look_at(&mut self, case: &Case<'_>, cause: Cause) {
        let open = case.ctx.open_to_read(case.name);
        let mut seen = keyspace::read(open.as_ref(), &self.words, case.name, None);
        drop(open);
        if self.table.must_find_the_living(&case.as_seen(&seen, case.name))
            && let Some(key) = case.ctx.open_to_write(case.name)
        {
            self.find_living(case, &key, &mut seen);
        }
        let change = self.table.look(&case.as_seen(&seen, case.name), cause);
        let open =
            if matches!(change, Change::None) { None } else { case.ctx.open_to_write(case.name) };
        self.carry_out(case, open, &seen, case.name, change);
    }

    /// Writes a change of the lock table to the open key, answers those who got the lock by it,
    /// and sets the timer. `requester` is the owner that a change without a name of its own
    /// speaks of.
    pub(crate) fn carry_out(
        &mut self,
        case: &Case<'_>,
        open: Option<Key<'_>>,
        seen: &Seen,
        requester: Arg<'_>,
        change: Change<Waiting>,
    ) {
        let issued = change.issued();
        let left = matches!(change, Change::Leave);
        let goes_on = matches!(change, Change::Share(Sharers { begins: false, .. }));
        if let Some(key) = open.filter(|_| !matches!(change, Change::None)) {
            self.write(case, key, seen, requester, change);
        }
        if let Some(token) = issued {
            let place = Place::of(case.key.db, case.key.name, self.in_cluster);
            self.floors.reserve(case.ctx, place, token, case.now);
        }
        if left && self.table.waiters_of(case.key) > 0 {
            // Whether those who still share it live is seen by a look.
            self.look_at(case, Cause::Release);
        }
        if let (true, Seen::Shared(shared)) = (goes_on, seen) {
            let now_us = case.now.unix_us;
            self.sharers.sweep(case.ctx, &self.words, case.name, shared, now_us);
        }
        self.plan(case.ctx, case.now);
    }

    fn write(
        &mut self,
        case: &Case<'_>,
        open: Key<'_>,
        seen: &Seen,
        requester: Arg<'_>,
        change: Change<Waiting>,
    ) {
        let writer = Writer { ctx: case.ctx, words: &self.words, key: case.name };
        let before = seen.before(requester);
        match change {
            Change::None => {}
            Change::Take { token, until } => writer.grant(open, before, requester, token, until),
            Change::Update { holds, token, until } => {
                writer.update(open, requester, holds, token, until);
            }
            Change::Beside { holds, token, until } => writer.beside(open, holds, token, until),
            Change::Leave => writer.remove(&open, [requester]),
            Change::Free => {
                writer.free(open, before);
                writer.announce(Audience {
                    how: self.config.redisson_channel,
                    in_cluster: self.in_cluster,
                    has_replicas: self.has_replicas,
                });
            }
            Change::HandOff(hand_off) => {
                let owner = Text::new(&hand_off.owner);
                writer.grant(open, before, owner.lend(), hand_off.token, hand_off.until);
                self.tell(case, hand_off);
            }
            Change::Share(sharers) => {
                writer.share(open, before, requester, &sharers);
                sharers.joined.into_iter().for_each(|hand_off| self.tell(case, hand_off));
            }
        }
    }

    /// Answers a waiter that was granted the lock.
    fn tell(&mut self, case: &Case<'_>, hand_off: HandOff<Waiting>) {
        let HandOff { id, owner, token, client, .. } = hand_off;
        let key = case.key.keep();
        let reply = Reply::Pair(token.value(), 1);
        let client_id = client.client_id;
        self.answer(client, reply, Some(Grant { id, client_id, key, owner, token, permits: 0 }));
    }
}

impl<'a> Case<'a> {
    /// Everything the lock table wants to know, where an owner asks.
    pub(crate) fn as_seen<'s>(&self, seen: &'s Seen, owner: Arg<'s>) -> Situation<'s>
    where
        'a: 's,
    {
        seen.situation(self.key, owner.bytes(), self.now, self.floor)
    }
}

impl Seen {
    /// What is in the way of a grant. `asked` is the owner that was asked for.
    fn before<'a>(&'a self, asked: Arg<'a>) -> Before<'a> {
        match self.observed(asked.bytes()) {
            Observed::Held(holding) if holding.shared == 0 => Before::One(holding.owner),
            Observed::Held(_) | Observed::Shared(_) => Before::Many,
            Observed::Free { .. } if self.is_remnant() => Before::Many,
            Observed::Free { .. } | Observed::NotALock { .. } => Before::Nothing,
        }
    }
}

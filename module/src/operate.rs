//! How the lock table is asked about a lock, and how what it decides is carried out.

use kvlock_core::{
    Bug, Cause, Change, HandOff, KeyRef, Millis, Now, Observed, Sharers, Situation, Table,
    UnixMillis,
};

use crate::clock;
use crate::floor::Place;
use crate::keyspace::{self, Seen, Shared};
use crate::redis::{Arg, Ctx, Key, Reply, Text};
use crate::server::{Grant, Server, Waiting};
use crate::sharers::{self, LastEnd};
use crate::writer::{Audience, Before, Writer};

/// Leases that begin one after the other end so: nobody is told that it is a moment sooner.
const NOT_WORTH_A_MESSAGE: Millis = Millis(100);

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
            && !self.table.is_in_line(case.key)
        {
            self.find_living(&case, key, &mut seen, false);
        }
        let (outcome, change) = operate(&mut self.table, &case.as_seen(&seen, owner));
        self.carry_out(&case, open, &seen, owner, change);
        outcome
    }

    /// Looks at a lock that somebody waits for.
    pub(crate) fn look_at(&mut self, case: &Case<'_>, cause: Cause) {
        self.table.pass_over(case.key);
        // Opened once: what is read and what is written must be the same, and a key may expire
        // between two openings.
        let open = case.ctx.open_to_write(case.name);
        let mut seen = keyspace::read(open.as_ref(), &self.words, case.name, None);
        if let Some(key) = &open
            && self.table.must_find_the_living(&case.as_seen(&seen, case.name))
        {
            self.find_living(case, key, &mut seen, true);
        }
        let change = self.table.look(&case.as_seen(&seen, case.name), cause);
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
        let may_end_sooner = seen.may_end_sooner(&change);
        let ends_sooner = seen.ends_sooner(&change);
        if let Some(key) = open.filter(|_| !matches!(change, Change::None)) {
            self.write(case, key, seen, requester, change);
        }
        if ends_sooner {
            self.writer(case).announce(self.audience());
        }
        if let Some(token) = issued {
            let place = Place::of(case.key.db, case.key.name, self.in_cluster);
            self.floors.reserve(case.ctx, place, token, case.now);
        }
        if may_end_sooner {
            self.end_with_the_last(case);
        }
        if left && self.table.waiters_of(case.key) > 0 {
            // Whether those who still share it live is seen by a look.
            self.look_at(case, Cause::Release);
        }
        if goes_on {
            self.sweep(case);
        }
        self.plan(case.ctx, case.now);
    }

    /// Lets the key of a shared lock end when the last lease in it does, after the longest of them
    /// was given back or made shorter: Redisson knows of no other end. Without a lease it is gone.
    fn end_with_the_last(&mut self, case: &Case<'_>) {
        let Some(key) = case.ctx.open_to_write(case.name) else { return };
        let seen = keyspace::read(Some(&key), &self.words, case.name, None);
        let Seen::Shared(shared) = &seen else { return };
        match sharers::last_end(&key, case.now.unix()) {
            LastEnd::Unknown => return,
            LastEnd::Nobody if self.table.is_in_line(case.key) => return,
            LastEnd::Nobody => self.writer(case).free(key, Before::Many),
            LastEnd::At(last) => {
                let Some(until) = shared.until.filter(|until| last < *until) else { return };
                self.writer(case).set_end(key, last);
                if !is_sooner(last, until) {
                    return;
                }
            }
        }
        self.writer(case).announce(self.audience());
    }

    /// Deletes what earlier grants have left at the key of a free lock, and tells those who take it
    /// for a lock.
    pub(crate) fn delete_remnant(&mut self, ctx: &Ctx<'_>, name: Arg<'_>) {
        let case = self.case(ctx, ctx.db(), name, clock::now());
        let Some(key) = ctx.open_to_write(name) else { return };
        let seen = keyspace::read(Some(&key), &self.words, name, None);
        let Seen::Free { stored, remnant: true } = seen else { return };
        self.writer(&case).free(key, Before::Many);
        self.writer(&case).announce(self.audience());
        if let Some(token) = self.table.go_on_above(stored) {
            let place = Place::of(case.key.db, case.key.name, self.in_cluster);
            self.floors.reserve(ctx, place, token, case.now);
        }
    }

    pub(crate) fn writer<'w>(&'w self, case: &'w Case<'_>) -> Writer<'w> {
        Writer { ctx: case.ctx, words: &self.words, key: case.name }
    }

    fn audience(&self) -> Audience {
        let (how, in_cluster) = (self.config.redisson_channel, self.in_cluster);
        Audience { how, in_cluster, has_replicas: self.has_replicas }
    }

    fn write(
        &mut self,
        case: &Case<'_>,
        open: Key<'_>,
        seen: &Seen,
        requester: Arg<'_>,
        change: Change<Waiting>,
    ) {
        let writer = self.writer(case);
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
                writer.announce(self.audience());
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
        let Some(client) = client else { return };
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

/// Says whether an end is so much sooner than another that those who wait for the other are told.
fn is_sooner(end: UnixMillis, than: UnixMillis) -> bool {
    end.plus(NOT_WORTH_A_MESSAGE) < than
}

impl Seen {
    /// Says whether somebody who waits until the key ends would wait too long after this change.
    fn ends_sooner<P>(&self, change: &Change<P>) -> bool {
        let before = match self {
            Self::Own { until, .. } | Self::Other { until, .. } => *until,
            Self::Shared(shared) => shared.until,
            Self::Free { .. } | Self::NotALock { .. } => return false,
        };
        let sooner = |until: UnixMillis| before.is_none_or(|before| is_sooner(until, before));
        change.until().is_some_and(sooner) && !Bug::SoonerUntold.is_planted()
    }

    /// Says whether the longest of the leases in a shared lock goes by this change, or gets shorter.
    fn may_end_sooner<P>(&self, change: &Change<P>) -> bool {
        let Self::Shared(Shared { own: Some(own), until: Some(until), .. }) = self else {
            return false;
        };
        let gives_way = match change {
            Change::Leave => true,
            Change::Share(sharers) => sharers.own.is_some_and(|now| now.until < own.until),
            Change::None
            | Change::Take { .. }
            | Change::Update { .. }
            | Change::Free
            | Change::HandOff(_)
            | Change::Beside { .. } => false,
        };
        gives_way && own.until >= *until && !Bug::LongestOutlivesItself.is_planted()
    }

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

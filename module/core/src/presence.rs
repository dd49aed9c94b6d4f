//! Sessions that are away: their waiters keep their places, but are passed over. Waiters for a latch
//! and observers are not.
//!
//! A waiter that is passed over is taken out of the line; its number keeps its place. A session may
//! have very many waiters, so they are moved out of the line, moved back, or removed in small
//! steps. While some are not moved yet, a hand-off checks the head of the line: if the session of
//! that waiter is away, the waiter is taken out of the line first.

use std::ops::Bound;
use std::rc::Rc;

use crate::ids::{QueueId, SessionId, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::mode::Want;
use crate::outbox::{Dismissal, Ending, Outcome, UnsentGrant};
use crate::outcome::Cause;
use crate::table::Table;
use crate::token::Token;
use crate::waiter::{Leaver, Via};

/// Largest number of waiters or outcomes that one piece of work handles. Each takes about 1 µs.
const STEPS: usize = 16;

impl<P> Table<P> {
    /// Returns the head of the line, unless its session is away or an earlier wait for a set of
    /// locks holds it up.
    pub(crate) fn front(&self, queue: QueueId) -> Option<(WaiterId, Want)> {
        let head = self.queues.head(queue).filter(|(id, _)| !self.is_passed_over(*id));
        head.filter(|(id, want)| !self.queues.is_held_up_beside(queue, *id, *want))
    }

    /// Returns whether the head of the line must be passed over, because its session is away or has
    /// ended.
    pub(crate) fn front_is_away(&self, queue: QueueId) -> bool {
        self.queues.head(queue).is_some_and(|(id, _)| self.is_passed_over(id))
    }

    /// Returns whether the line of a key has waiters. Waiters that were passed over and places
    /// beside the line do not count.
    #[must_use]
    pub fn is_in_line(&self, key: KeyRef<'_>) -> bool {
        self.queues.find(key).is_some_and(|queue| self.queues.head(queue).is_some())
    }

    pub(crate) fn is_passed_over(&self, id: WaiterId) -> bool {
        match self.queues.waiter(id).map(|waiter| (&waiter.via, waiter.want)) {
            None | Some((Via::Client(_), _)) => false,
            Some((Via::Session(session), want)) => {
                !want.is_for_all() && self.sessions.is_away(*session)
            }
            Some((Via::Place(main), _)) => {
                let session = self.queues.session_of(*main);
                session.is_some_and(|session| self.sessions.is_away(session))
            }
        }
    }

    /// Takes waiters of away sessions out that are first in the line or beside it, up to a limit. If
    /// there are any, plans a look at once.
    pub fn pass_over(&mut self, key: KeyRef<'_>) {
        let Some(queue) = self.queues.find(key) else { return };
        for _ in 0..STEPS {
            let is_away = |id: &WaiterId| self.is_passed_over(*id);
            let head = self.queues.head(queue).map(|(id, _)| id).filter(is_away);
            let beside = || self.queues.first_beside(queue).filter(is_away);
            let Some(id) = head.or_else(beside) else { return };
            self.queues.step_out(id);
            // The next waiter may be able to get what it wants.
            self.plan_look(queue, Some(crate::agenda::AT_ONCE), Cause::Outside);
        }
    }

    /// Moves a waiter in or out of line, depending on whether its session is away.
    pub(crate) fn settle_one(&mut self, id: WaiterId) {
        let Some(waiter) = self.queues.waiter(id) else { return };
        let (queue, want) = (waiter.queue, waiter.want);
        if self.queues.is_of_set(id) {
            return self.settle_set(id, self.is_passed_over(id));
        }
        let before = self.queues.head(queue);
        if self.is_passed_over(id) {
            self.queues.step_out(id);
        } else {
            self.queues.step_in(id);
        }
        let after = self.queues.head(queue);
        // The new head may be served now. So may waiters for sets that have places beside the line.
        let may_be_served = after.filter(|_| before != after);
        let may_be_served =
            may_be_served.is_some_and(|(front, wants)| front == id || !wants.is_served_like(want));
        if may_be_served || before != after && self.queues.has_beside(queue) {
            self.plan_look(queue, Some(crate::agenda::AT_ONCE), Cause::Outside);
        }
    }

    /// Marks the session away.
    pub(crate) fn go_away(&mut self, id: SessionId) {
        self.set_away(id, true);
    }

    /// Marks the session present again. Its waiters get back their places.
    pub(crate) fn come_back(&mut self, id: SessionId) {
        self.set_away(id, false);
    }

    fn set_away(&mut self, id: SessionId, away: bool) {
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.away != away) else {
            return;
        };
        session.away = away;
        session.settling = Some(None);
        let all_away = self.sessions.away;
        self.sessions.away =
            if away { all_away.saturating_add(1) } else { all_away.saturating_sub(1) };
        if self.move_waiters(id) {
            self.sessions.list(id);
        }
    }

    /// Moves some waiters of a session in or out of line. Returns whether there are more.
    fn move_waiters(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let Some(so_far) = session.settling else { return false };
        let rest = (so_far.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let some: Vec<_> = session.waits.range(rest).take(STEPS).copied().collect();
        let is_last = some.len() < STEPS;
        session.settling = if is_last { None } else { Some(some.last().copied()) };
        some.into_iter().for_each(|waiter| self.settle_one(waiter));
        !is_last
    }

    /// Moves some waiters of a session in or out of line, and drops some outcomes that it has
    /// acknowledged. Sessions take turns. Returns false if there is no such work.
    pub(crate) fn settle_on(&mut self) -> bool {
        let Some(id) = self.sessions.next_listed() else { return false };
        if self.move_waiters(id) {
            self.sessions.list(id);
        }
        self.sessions.prune(id, STEPS);
        true
    }

    /// Does one piece of each kind of work that [`Self::sessions_have_work`] reports, except the drain
    /// (see [`Self::drain_one`]). Returns whether there is more to do.
    pub fn work_on_sessions(&mut self) -> bool {
        self.settle_on();
        self.clear_remains();
        self.forget_some(STEPS);
        self.inform_next();
        self.sessions_have_work()
    }

    /// Returns whether there is session work to do.
    #[must_use]
    pub fn sessions_have_work(&self) -> bool {
        let sessions = &self.sessions;
        let drains = self.limits.draining && sessions.waits > 0;
        let left = !sessions.unsettled.is_empty() || !sessions.remains.is_empty();
        drains || left || self.watches.is_telling() || self.has_forgotten()
    }

    /// Removes some waiters and outcomes of a session that has ended. Sessions take turns. Returns
    /// false if there are none.
    pub(crate) fn clear_remains(&mut self) -> bool {
        let Some((mut waits, mut outbox)) = self.sessions.remains.pop_front() else {
            return false;
        };
        for _ in 0..STEPS {
            if let Some(id) = waits.pop_first() {
                drop(self.withdraw(id));
            } else if let Some(unsent) = outbox.take_first() {
                if let Some(unsent) = unsent {
                    self.queue_take_back(unsent);
                }
                self.sessions.outcomes = self.sessions.outcomes.saturating_sub(1);
            } else {
                return true;
            }
        }
        self.sessions.remains.push_back((waits, outbox));
        true
    }

    /// Removes and returns the next grant to take back.
    pub fn next_unsent(&mut self) -> Option<UnsentGrant> {
        self.unsent.pop_front()
    }

    /// Marks a grant, with all its locks, as never sent. It is taken back as soon as writing is allowed.
    pub fn queue_take_back(&mut self, grant: UnsentGrant) {
        let Some(locks) = self.in_flight.locks_of(grant.id) else {
            return self.unsent.push_back(grant);
        };
        let of_one = |(key, token): &(LockKey, Token)| {
            let (key, owner) = (key.clone(), Rc::clone(&grant.owner));
            UnsentGrant { key, owner, id: grant.id, token: *token, permits: 0 }
        };
        self.unsent.extend(locks.iter().map(of_one));
    }

    /// Puts a grant back on the list because it could not be taken back yet.
    pub fn not_taken_back(&mut self, grant: UnsentGrant) {
        self.unsent.push_back(grant);
    }

    /// Returns the grants to take back.
    pub fn unsent(&self) -> impl Iterator<Item = &UnsentGrant> {
        self.unsent.iter()
    }

    /// Removes one waiter if the module is being drained. Returns `None` if there is none,
    /// otherwise the client to answer, if any. Waiters of latches that have opened are answered first,
    /// by [`Self::next_opened`].
    pub fn drain_one(&mut self) -> Option<Option<P>> {
        if !self.limits.draining || self.has_opened() {
            return None;
        }
        let id = self.queues.first()?;
        let leaver = self.take_out(id)?;
        Some(self.deliver(leaver, Ending::Dismissed(Dismissal::Draining)))
    }

    /// Delivers the outcome of a waiter that has left. Returns the client to answer; for a session,
    /// keeps the outcome.
    pub(crate) fn deliver(&mut self, leaver: Leaver<P>, ending: Ending) -> Option<P> {
        match leaver.waiter.via {
            Via::Client(client) => Some(client),
            Via::Place(_) => None,
            Via::Session(session) => {
                let (key, owner) = (leaver.key, leaver.waiter.owner);
                self.sessions.post(session, Outcome { key, owner, ending });
                None
            }
        }
    }
}

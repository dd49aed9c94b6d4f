//! Redisson's share of a lock, in a fleet where some services have moved here and others have not.
//!
//! Redisson's waiters are in no queue. A message tells each of their processes that a lock is free,
//! and the first one that tries gets it. A lock that always has a waiter here would leave them
//! nothing. So a process that listens for that message counts as one place in the queue:
//!
//! ```text
//!   release, release, …, release      free   process   free   process      release, …
//!   ── a round: one for each waiter, ──┴──────── a turn: one moment ────────┴──
//!      and one for the last holder              for each process
//! ```
//!
//! A moment is over as soon as the key is changed, and after 5 ms at the latest. If it passes
//! unused although a client waits here, the turn ends, and the number of rounds until the next one
//! doubles. Locks without a listener have no turns; whether a process listens is asked again
//! after 50 ms.
//!
//! The state is kept for a limited number of locks, apart from the queues: with two clients that
//! wait for each other, a queue ends with each hand-off.

use crate::change::Change;
use crate::key::KeyRef;
use crate::mode::Sharing;
use crate::observed::{Holding, Observed};
use crate::outcome::{Cause, count};
use crate::situation::Situation;
use crate::table::Table;
use crate::types::{Millis, Now};

impl<P> Table<P> {
    /// Whether locks are left free for Redisson.
    #[must_use]
    pub fn shares_with_redisson(&self) -> bool {
        self.turns.on
    }

    /// Sets whether locks are left free for Redisson. A moment that has begun is not cut short.
    pub fn share_with_redisson(&mut self, on: bool) {
        self.turns.on = on;
    }

    /// Whether any lock was left free for Redisson just now, so that events of keys matter.
    #[must_use]
    pub fn has_moments(&self) -> bool {
        !self.turns.moments.is_empty()
    }

    /// Whether this lock is left free for Redisson at this moment, and may not be granted here.
    #[must_use]
    pub fn gives_way(&self, key: KeyRef<'_>, now: Now) -> bool {
        self.turns.moment_of(key).is_some_and(|until| now.mono < until)
    }

    /// Whether a turn is due at the release of a lock that would go to the first waiter.
    pub(crate) fn is_redissons_turn(&mut self, at: &Situation<'_>) -> bool {
        let queue = self.queues.find(at.key).filter(|id| self.front(*id).is_some());
        let waiters = queue.and_then(|id| self.queues.queue(id)).map(|queue| queue.len);
        waiters.is_some_and(|waiters| {
            self.turns.on
                && !self.quarantine.is_on(at.now)
                && self.turns.count_release(at.key, waiters, at.now.mono)
        })
    }

    /// Hands the lock to the first waiter after all: after [`Change::GiveWay`], if the message
    /// reached no process.
    pub fn gives_way_to_nobody(&mut self, at: &Situation<'_>) -> Change<P> {
        self.turns.begin(at.key, 0, at.now.mono);
        let stored = match &at.seen {
            Observed::Held(Holding { token, .. }) | Observed::Shared(Sharing { token, .. }) => {
                *token
            }
            Observed::Free { stored } => *stored,
            Observed::NotALock { .. } => return Change::None,
        };
        self.hand_to_head(at, stored, Cause::Release).unwrap_or(Change::Free)
    }

    /// Begins a turn after [`Change::GiveWay`]: the message reached this number of processes.
    pub fn has_given_way(&mut self, key: KeyRef<'_>, listeners: u64, now: Now) {
        self.turns.begin(key, listeners, now.mono);
        self.leave_free(key, now);
    }

    /// Begins a turn, if one is due, at a lock that became free without a client in the queue. The
    /// message reached this number of processes.
    pub fn was_left_free(&mut self, key: KeyRef<'_>, listeners: u64, now: Now) {
        let may_be = listeners > 0 && self.turns.on && !self.quarantine.is_on(now);
        if may_be && !self.is_in_line(key) && self.turns.count_release(key, 0, now.mono) {
            self.has_given_way(key, listeners, now);
        }
    }

    /// Begins the next moment of the turn at a lock that is free again, unless a lease ended.
    pub(crate) fn begin_next_moment(&mut self, at: &Situation<'_>, cause: Cause) {
        let may_be = cause != Cause::Expiry && self.turns.on && !self.quarantine.is_on(at.now);
        if may_be && self.turns.moment_of(at.key).is_none() {
            self.leave_free(at.key, at.now);
        }
    }

    fn leave_free(&mut self, key: KeyRef<'_>, now: Now) {
        if self.turns.leave_free(key, now.mono) {
            count(&mut self.counters.redisson_turns);
        }
    }

    /// The key of a lock was changed from outside. If the lock was left free, the moment was used.
    pub(crate) fn use_moment(&mut self, key: KeyRef<'_>) {
        if self.turns.moment_of(key).is_some()
            && let Some(turn) = self.turns.lock_mut(key)
        {
            (turn.until, turn.rounds) = (None, 1);
        }
    }

    /// Ends a moment that is over, and with it the turn. Plans a look at the lock. Returns false if
    /// there is none.
    pub fn end_moment(&mut self, now: Now) -> bool {
        let Some((until, _)) = self.turns.moments.front() else { return false };
        if *until > now.mono {
            return false;
        }
        let Some((until, key)) = self.turns.moments.pop_front() else { return false };
        let is_waited_for = self.queues.find(key.borrow()).is_some();
        let current = self.turns.lock_mut(key.borrow());
        if let Some(turn) = current.filter(|turn| turn.until == Some(until)) {
            turn.end(is_waited_for);
            self.look_soon(key.borrow(), Cause::Release, now);
        }
        true
    }

    /// Time until the next moment is over.
    pub(crate) fn moment_due(&self, now: Now) -> Option<Millis> {
        self.turns.moments.front().map(|(until, _)| until.since(now.mono))
    }
}

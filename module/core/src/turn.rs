//! Turns of Redisson: shares a lock between waiters here and processes that still use Redisson.
//!
//! Redisson's waiters are in no queue. When a lock becomes free, a message wakes each of their
//! processes, and the first one that tries gets the lock. If a lock always had a waiter here,
//! Redisson's waiters would never get the lock. So a process that listens for that message counts
//! as one place in the queue:
//!
//! ```text
//!   release, release, …, release      free   process   free   process      release, …
//!   ── a round: one for each waiter, ──┴──────── a turn: one moment ────────┴──
//!      and one for the last holder              for each process
//! ```
//!
//! In a turn, the lock is left free once for each process. Such a *moment* ends as soon as the key
//! is changed, and after 5 ms at the latest. If a moment ends unused, the turn ends. If a client
//! waits here at that time, the number of rounds until the next turn doubles, up to a limit. A used
//! moment resets it to one. Locks without a listener have no turns. The first release at least
//! 50 ms after the last check checks again whether a process listens.
//!
//! The state is kept for a limited number of locks, and apart from the queues: if two clients use a
//! lock alternately, each hand-off removes the last waiter, and with it the queue.

use crate::change::Change;
use crate::key::KeyRef;
use crate::mode::Sharing;
use crate::observed::{Holding, Observed};
use crate::outcome::{Cause, count};
use crate::situation::Situation;
use crate::table::Table;
use crate::types::{Millis, Now};

impl<P> Table<P> {
    /// Returns whether locks are left free for Redisson.
    #[must_use]
    pub fn shares_with_redisson(&self) -> bool {
        self.turns.on
    }

    /// Sets whether locks are left free for Redisson. A moment that has begun is not cut short.
    pub fn share_with_redisson(&mut self, on: bool) {
        self.turns.on = on;
    }

    /// Returns whether any lock may be left free for Redisson, so that key events matter. Moments
    /// that were used stay on the list until their end.
    #[must_use]
    pub fn has_moments(&self) -> bool {
        !self.turns.moments.is_empty()
    }

    /// Returns whether this lock is left free for Redisson now, so that it may not be granted here.
    #[must_use]
    pub fn gives_way(&self, key: KeyRef<'_>, now: Now) -> bool {
        self.turns.moment_of(key).is_some_and(|until| now.mono < until)
    }

    /// Counts the release of a lock that would go to the first waiter. Returns whether a turn of
    /// Redisson is due instead.
    pub(crate) fn is_redissons_turn(&mut self, at: &Situation<'_>) -> bool {
        let queue = self.queues.find(at.key).filter(|id| self.front(*id).is_some());
        let waiters = queue.and_then(|id| self.queues.queue(id)).map(|queue| queue.len);
        waiters.is_some_and(|waiters| {
            self.turns.on
                && !self.quarantine.is_on(at.now)
                && self.turns.count_release(at.key, waiters, at.now.mono)
        })
    }

    /// Hands the lock to the first waiter after [`Change::GiveWay`], because the message reached no
    /// process.
    pub fn hand_off_instead_of_turn(&mut self, at: &Situation<'_>) -> Change<P> {
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

    /// Begins a turn after [`Change::GiveWay`]. `listeners` is the number of processes that the
    /// message reached.
    pub fn begin_turn(&mut self, key: KeyRef<'_>, listeners: u64, now: Now) {
        self.turns.begin(key, listeners, now.mono);
        self.leave_free(key, now);
    }

    /// Begins a turn, if one is due, at a lock that became free without a waiter in line.
    /// `listeners` is the number of processes that the message reached.
    pub fn begin_turn_if_due(&mut self, key: KeyRef<'_>, listeners: u64, now: Now) {
        let may_be = listeners > 0 && self.turns.on && !self.quarantine.is_on(now);
        if may_be && !self.is_in_line(key) && self.turns.count_release(key, 0, now.mono) {
            self.begin_turn(key, listeners, now);
        }
    }

    /// Begins the next moment of the turn if the lock is free again for another reason than the end
    /// of a lease.
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

    /// Records that another client changed the key of a lock. If the lock was left free for a
    /// moment, that client has used the moment.
    pub(crate) fn use_moment(&mut self, key: KeyRef<'_>) {
        if self.turns.moment_of(key).is_some()
            && let Some(turn) = self.turns.lock_mut(key)
        {
            (turn.until, turn.rounds) = (None, 1);
        }
    }

    /// Ends the oldest moment if its time has passed. If the moment was not used, also ends the turn
    /// and plans a look at the lock. Returns false if no moment has passed.
    pub fn end_moment(&mut self, now: Now) -> bool {
        let Some((until, _)) = self.turns.moments.front() else { return false };
        if *until > now.mono {
            return false;
        }
        let Some((until, key)) = self.turns.moments.pop_front() else { return false };
        let is_waited_for = self.queues.find(key.borrow()).is_some();
        match self.turns.lock_mut(key.borrow()) {
            Some(turn) if turn.until == Some(until) => turn.end(is_waited_for),
            // The moment was used, the lock was granted, or a later moment is on the list.
            Some(_) => return true,
            // The turn was forgotten, and nothing else serves the lock.
            None => {}
        }
        self.look_soon(key.borrow(), Cause::Release, now);
        true
    }

    /// Time until the oldest moment is over; `None` if there is none.
    pub(crate) fn moment_due(&self, now: Now) -> Option<Millis> {
        self.turns.moments.front().map(|(until, _)| until.since(now.mono))
    }
}

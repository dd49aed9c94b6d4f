//! The model of Redisson's turns. In a turn the lock is left free for a moment, up to once for each
//! process that listens.

use kvlock_core::{Cause, MOMENT};

use super::naive::{Naive, Sent, Turn, What};
use super::names::Key;

/// Highest number of moments in a turn, and of rounds between two turns.
const MOST: u64 = 64;

/// Time since the last turn after which one round of releases is enough for the next turn.
const RETRY_MS: u64 = 1_000;

/// Time after which a lock without a listener is announced again.
const ASK_AGAIN_MS: u64 = 50;

impl Naive {
    /// Returns whether the lock is left free for Redisson now, so that it may not be granted.
    pub fn is_left_to_redisson(&self, key: Key) -> bool {
        let lock = &self.locks[key];
        lock.moment.is_some_and(|until| until > self.now.mono.0)
    }

    /// Releases a lock. Begins a turn if the lock has waiters and a turn is due. Then passes the lock on.
    pub fn released(&mut self, key: Key, stored: Option<u64>) -> Vec<Sent> {
        let is_waited_for = !self.locks[key].queue.is_empty() && !self.lacks_token_bound(stored);
        if is_waited_for && self.is_turn_due(key) {
            self.begin_turn(key);
        }
        self.pass_on(key, stored)
    }

    /// Begins a turn after a lock became free, if one is due, the lock has no waiters, and processes of
    /// Redisson listen.
    pub fn begin_turn_if_due(&mut self, key: Key) {
        if self.turns.1 > 0 && self.locks[key].queue.is_empty() && self.is_turn_due(key) {
            self.begin_turn(key);
        }
    }

    fn is_turn_due(&mut self, key: Key) -> bool {
        if !self.turns.0 || self.in_quarantine() {
            return false;
        }
        let (now, lock) = (self.now.mono.0, &mut self.locks[key]);
        let Some(turn) = &mut lock.turn else { return true };
        turn.released += 1;
        let since = now - turn.since;
        let rounds = if since >= RETRY_MS { 1 } else { turn.rounds };
        let places = lock.queue.len() as u64 + 1;
        if turn.is_heard { turn.released >= rounds * places } else { since >= ASK_AGAIN_MS }
    }

    fn begin_turn(&mut self, key: Key) {
        let (now, listeners) = (self.now.mono.0, self.turns.1);
        let is_heard = listeners > 0;
        let before = self.locks[key].turn.filter(|turn| is_heard && turn.is_heard);
        let rounds = before.map_or(1, |turn| turn.rounds);
        let left = listeners.min(MOST);
        self.locks[key].turn = Some(Turn { released: 0, rounds, since: now, is_heard, left });
        self.locks[key].moment = None;
        self.begin_moment(key);
    }

    fn begin_moment(&mut self, key: Key) {
        let until = self.now.mono.0 + MOMENT.0;
        let lock = &mut self.locks[key];
        if let Some(turn) = lock.turn.as_mut().filter(|turn| turn.left > 0) {
            turn.left -= 1;
            lock.moment = Some(until);
            self.moments.push(until);
            self.counters.redisson_turns += 1;
        }
    }

    /// Begins the next moment of a turn if a look finds the lock free again.
    pub fn begin_next_moment(&mut self, key: Key, cause: Cause) {
        let lock = &self.locks[key];
        let is_free = match lock.what {
            What::Free(_) => true,
            // If the next waiter wants to share the lock, the table does not check whether all sharers
            // have expired.
            What::Shared(_) => {
                let shares = lock.queue.first().is_some_and(|head| head.shared);
                !shares && self.last_end(key).is_none()
            }
            What::Held { .. } | What::Other => false,
        };
        let may_be = self.turns.0 && !self.in_quarantine() && !lock.queue.is_empty();
        if is_free && cause != Cause::Expiry && may_be && lock.moment.is_none() {
            self.begin_moment(key);
        }
    }

    /// Records that another client changed the key. If the lock was left free, this used the moment.
    pub fn use_moment(&mut self, key: Key) {
        let lock = &mut self.locks[key];
        if let (Some(_), Some(turn)) = (lock.moment.take(), &mut lock.turn) {
            turn.rounds = 1;
        }
    }

    /// Ends the turn of a lock because a waiter is granted it, or because a moment has passed.
    pub fn end_turn(&mut self, key: Key) {
        let lock = &mut self.locks[key];
        let Some(turn) = &mut lock.turn else { return };
        turn.left = 0;
        if lock.moment.take().is_some() && !lock.queue.is_empty() {
            turn.rounds = MOST.min(turn.rounds * 2);
        }
    }

    /// Ends the moments whose time has passed. From then on the waiters must be served.
    pub fn end_moments(&mut self) {
        let now = self.now.mono.0;
        self.moments.retain(|until| *until > now);
        for key in 0..self.locks.len() {
            if self.locks[key].moment.is_some_and(|until| until <= now) {
                self.locks[key].put_off = false;
                self.end_turn(key);
            }
        }
    }
}

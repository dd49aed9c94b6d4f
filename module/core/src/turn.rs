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

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use crate::key::{KeyRef, LockKey};
use crate::mode::Sharing;
use crate::observed::{Holding, Observed};
use crate::outcome::{Cause, Change, count};
use crate::table::{Situation, Table};
use crate::types::{Millis, MonoMillis, Now};

/// Longest time for which a lock is left free. Enough for a message, the client that it wakes, and
/// the command that this client sends.
pub const MOMENT: Millis = Millis(5);

/// Highest number of moments in a turn.
const MOMENTS_MAX: u64 = 64;

/// Highest number of rounds between two turns.
const ROUNDS_MAX: u64 = 64;

/// Time after which a turn is due at the next full round, however many rounds are to pass. An
/// unused moment is less than a hundredth of it.
const RETRY: Millis = Millis(1_000);

/// Time until a lock without a listener is announced again in the hope of one.
const ASK_AGAIN: Millis = Millis(50);

/// Number of locks whose turns are remembered. With more of them, a forgotten lock begins anew.
const LOCKS_MAX: usize = 1_024;

/// State of one lock.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Releases since the last turn.
    released: u64,
    /// Rounds until the next turn.
    rounds: u64,
    /// Start of the last turn, or the time at which no process listened.
    asked: MonoMillis,
    /// Whether a process listened then.
    is_heard: bool,
    /// Moments that are still to come in this turn.
    left: u64,
    /// End of the current moment.
    until: Option<MonoMillis>,
}

impl Turn {
    /// Whether the next turn is due at a release, with this number of clients in the queue.
    fn is_due(&self, waiters: usize, now: MonoMillis) -> bool {
        let since = now.since(self.asked);
        if !self.is_heard {
            return since >= ASK_AGAIN;
        }
        // The releasing client waits, too.
        let round = u64::try_from(waiters).unwrap_or(u64::MAX).saturating_add(1);
        let rounds = if since >= RETRY { 1 } else { self.rounds };
        self.released >= round.saturating_mul(rounds)
    }

    /// Ends the turn. If its current moment kept a waiter from the lock, the next turn comes later.
    fn end(&mut self, is_waited_for: bool) {
        self.left = 0;
        let was_unused = self.until.take().is_some() && is_waited_for;
        if was_unused {
            self.rounds = self.rounds.saturating_mul(2).min(ROUNDS_MAX);
        }
    }
}

/// The turns of all locks. Counts time on the clock that only goes forward.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Whether there are any.
    on: bool,
    /// By the hash of the lock's key.
    locks: BTreeMap<u64, Turn>,
    /// The same hashes, the oldest first.
    order: VecDeque<u64>,
    hashes: RandomState,
    /// Locks that are left free, and until when; the next to end first. A moment that was used
    /// stays until then.
    pub(crate) moments: VecDeque<(MonoMillis, LockKey)>,
}

impl Turns {
    /// Begins anew; the setting stays.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { on: self.on, ..Self::default() };
    }

    fn lock_mut(&mut self, key: KeyRef<'_>) -> Option<&mut Turn> {
        if self.locks.is_empty() {
            return None;
        }
        self.locks.get_mut(&self.hashes.hash_one(key))
    }

    /// End of the current moment of a lock.
    pub(crate) fn moment_of(&self, key: KeyRef<'_>) -> Option<MonoMillis> {
        if self.moments.is_empty() {
            return None;
        }
        self.locks.get(&self.hashes.hash_one(key))?.until
    }

    /// Counts a release, and says whether the next turn is due. It is at a lock that is not known.
    fn count_release(&mut self, key: KeyRef<'_>, waiters: usize, now: MonoMillis) -> bool {
        self.lock_mut(key).is_none_or(|turn| {
            turn.released = turn.released.saturating_add(1);
            turn.is_due(waiters, now)
        })
    }

    /// Begins a turn for Redisson, in which the lock is left free this number of times. None if no process listens.
    fn begin(&mut self, key: KeyRef<'_>, moments: u64, now: MonoMillis) {
        let hash = self.hashes.hash_one(key);
        if !self.locks.contains_key(&hash) {
            if self.order.len() >= LOCKS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.locks.remove(&oldest);
            }
            self.order.push_back(hash);
        }
        let before = self.locks.get(&hash).filter(|before| before.is_heard && moments > 0);
        let rounds = before.map_or(1, |before| before.rounds);
        let is_heard = moments > 0;
        let left = moments.min(MOMENTS_MAX);
        let turn = Turn { released: 0, rounds, asked: now, is_heard, left, until: None };
        self.locks.insert(hash, turn);
    }

    /// Leaves the lock free for the next moment of its turn, if there is one.
    fn leave_free(&mut self, key: KeyRef<'_>, now: MonoMillis) -> bool {
        let until = now.plus(MOMENT);
        let Some(turn) = self.lock_mut(key).filter(|turn| turn.left > 0) else { return false };
        turn.left = turn.left.saturating_sub(1);
        turn.until = Some(until);
        self.moments.push_back((until, key.keep()));
        true
    }

    /// Ends the turn of a lock that a waiter gets.
    pub(crate) fn end(&mut self, key: KeyRef<'_>) {
        if let Some(turn) = self.lock_mut(key) {
            turn.end(true);
        }
    }

    /// Says which lock has a current moment that no entry of the list ends, for checks.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ends: Vec<_> = self.moments.iter().collect();
        let is_listed = |hash: u64, until| {
            ends.iter()
                .any(|(end, key)| *end == until && self.hashes.hash_one(key.borrow()) == hash)
        };
        for (hash, turn) in &self.locks {
            if turn.until.is_some_and(|until| !is_listed(*hash, until)) {
                return Err(format!("I18: nothing ends the moment of {turn:?}"));
            }
        }
        if self.order.len() != self.locks.len() || self.locks.len() > LOCKS_MAX {
            return Err(format!("I18: turns of {} locks", self.locks.len()));
        }
        Ok(())
    }
}

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

//! The turn of those who wait with Redisson, in a fleet where some services have moved here and
//! others have not.
//!
//! They stand in no queue: a message tells them that a lock is free, and the first that tries has
//! it. A queue in which somebody always stands would leave them nothing. So from time to time a
//! lock that is released is left free for a moment if somebody listens for that message. Whoever
//! takes it then, the head of the queue is next.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use crate::key::{KeyRef, LockKey};
use crate::mode::Sharing;
use crate::observed::{Holding, Observed};
use crate::outcome::{Cause, Change, count};
use crate::planted::Bug;
use crate::table::{Situation, Table};
use crate::types::{Millis, MonoMillis, Now};

/// How long a lock is left free. Enough for a message, the client that it wakes and what that sends;
/// when nobody comes, so much is lost each turn.
pub const MOMENT: Millis = Millis(5);

/// For how many locks it is remembered that Redisson had its turn. If there are more, the oldest get
/// their next turn early.
const TURNS_KEPT: usize = 10_000;

/// How often Redisson has its turn at a lock, and which locks are free for it just now. Counts on
/// the clock that only goes forward.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Zero is never.
    every: Millis,
    /// Locks, by the hash of their keys, at which it was its turn less than `every` ago, and when; the
    /// oldest first.
    recent: VecDeque<(MonoMillis, u64)>,
    had: BTreeMap<u64, MonoMillis>,
    hashes: RandomState,
    /// Locks that are free for a moment, and until when; the next to end first.
    pub(crate) moments: VecDeque<(MonoMillis, LockKey)>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            every: Millis(0),
            recent: VecDeque::new(),
            had: BTreeMap::new(),
            hashes: RandomState::default(),
            moments: VecDeque::new(),
        }
    }
}

impl Turns {
    /// Begins anew; the setting stays.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { every: self.every, ..Self::default() };
    }

    /// Says whether it is the turn at this lock; if so, it is not again before long.
    fn take(&mut self, key: KeyRef<'_>, now: MonoMillis) -> bool {
        // Two for one that is added, so that no release pays for many.
        for _ in 0..2 {
            let is_old = |at: MonoMillis, len| now.since(at) >= self.every || len >= TURNS_KEPT;
            if let Some((at, _)) = self.recent.front()
                && is_old(*at, self.recent.len())
                && let Some((at, old)) = self.recent.pop_front()
                && self.had.get(&old) == Some(&at)
            {
                self.had.remove(&old);
            }
        }
        let key = self.hashes.hash_one(key);
        let had = self.had.get(&key).copied();
        let is_due = self.every.0 > 0 && had.is_none_or(|at| now.since(at) >= self.every);
        if is_due {
            self.had.insert(key, now);
            self.recent.push_back((now, key));
        }
        is_due
    }
}

impl<P> Table<P> {
    /// How often a lock that is handed on is left free for Redisson; zero is never.
    #[must_use]
    pub fn redisson_turn(&self) -> Millis {
        self.turns.every
    }

    /// Sets how often a lock that is handed on is left free for Redisson. Zero is never, and ends
    /// no moment that has begun.
    pub fn set_redisson_turn(&mut self, every: Millis) {
        self.turns.every = every;
    }

    /// Says whether this lock is free for Redisson just now, and nobody here may have it.
    #[must_use]
    pub fn gives_way(&self, key: KeyRef<'_>, now: Now) -> bool {
        let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
        let until = queue.and_then(|queue| queue.gives_way);
        until.is_some_and(|until| now.mono < until)
    }

    /// Whether it is Redisson's turn at a lock that would go to the first waiter.
    pub(crate) fn is_redissons_turn(&mut self, at: &Situation<'_>) -> bool {
        let queue = self.queues.find(at.key);
        queue.and_then(|id| self.front(id)).is_some()
            && !self.quarantine.is_on(at.now)
            && self.turns.take(at.key, at.now.mono)
    }

    /// Nobody listens after all: after [`Change::GiveWay`], the lock goes to the first waiter.
    pub fn gives_way_to_nobody(&mut self, at: &Situation<'_>) -> Change<P> {
        let stored = match &at.seen {
            Observed::Held(Holding { token, .. }) | Observed::Shared(Sharing { token, .. }) => {
                *token
            }
            Observed::Free { stored } => *stored,
            Observed::NotALock { .. } => return Change::None,
        };
        self.hand_to_head(at, stored, Cause::Release).unwrap_or(Change::Free)
    }

    /// Somebody listens: after [`Change::GiveWay`], the lock is left free for a moment.
    pub fn has_given_way(&mut self, key: KeyRef<'_>, now: Now) {
        let until = now.mono.plus(MOMENT);
        if let Some(id) = self.queues.find(key)
            && let Some(queue) = self.queues.queue_mut(id)
        {
            queue.gives_way = Some(until);
            self.turns.moments.push_back((until, key.keep()));
            count(&mut self.counters.redisson_turns);
        }
    }

    /// Plans a look at a lock whose moment is over. Returns false if there is none.
    pub fn end_moment(&mut self, now: Now) -> bool {
        let Some((until, _)) = self.turns.moments.front() else { return false };
        if *until > now.mono {
            return false;
        }
        if let Some((until, key)) = self.turns.moments.pop_front()
            && let Some(id) = self.queues.find(key.borrow())
            && let Some(queue) = self.queues.queue_mut(id)
            && queue.gives_way.take_if(|end| *end == until).is_some()
            && !Bug::MomentNeverEnds.is_planted()
        {
            self.look_soon(key.borrow(), Cause::Release, now);
        }
        true
    }

    /// How long it is until the next moment is over.
    pub(crate) fn moment_due(&self, now: Now) -> Option<Millis> {
        self.turns.moments.front().map(|(until, _)| until.since(now.mono))
    }
}

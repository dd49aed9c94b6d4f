//! The turns of Redisson: see `turn.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use crate::key::{KeyRef, LockKey};
use crate::types::{Millis, MonoMillis};

/// Longest time for which a lock is left free. Long enough for a message, for the client that it
/// wakes, and for the command of that client.
pub const MOMENT: Millis = Millis(5);

/// Highest number of moments in a turn.
const MOMENTS_MAX: u64 = 64;

/// Highest number of rounds between two turns.
const ROUNDS_MAX: u64 = 64;

/// Time after which a turn is due at the next full round, even if [`Turn::rounds`] is more than 1.
/// An unused moment takes less than a hundredth of this time.
const RETRY: Millis = Millis(1_000);

/// Time after which a release of a lock without a listener checks again whether a process listens.
const ASK_AGAIN: Millis = Millis(50);

/// Number of locks whose turns are remembered. If there are more, the oldest is forgotten and
/// starts again.
const LOCKS_MAX: usize = 1_024;

/// State of one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Releases since the last turn began, or since a release last found no listener.
    released: u64,
    /// Rounds until the next turn.
    pub(crate) rounds: u64,
    /// Start of the last turn, or the last time at which no process listened.
    asked: MonoMillis,
    /// `true` if a process listened at that time.
    is_heard: bool,
    /// Number of moments left in this turn.
    left: u64,
    /// End of the current moment.
    pub(crate) until: Option<MonoMillis>,
}

impl Turn {
    /// Returns whether the next turn is due at a release. `waiters` is the number of clients in the
    /// queue.
    fn is_due(&self, waiters: usize, now: MonoMillis) -> bool {
        let since = now.since(self.asked);
        if !self.is_heard {
            return since >= ASK_AGAIN;
        }
        // The releasing client counts as one more place of the round.
        let round = u64::try_from(waiters).unwrap_or(u64::MAX).saturating_add(1);
        let rounds = if since >= RETRY { 1 } else { self.rounds };
        self.released >= round.saturating_mul(rounds)
    }

    /// Ends the turn. If its current moment was unused although a client waited, the number of
    /// rounds until the next turn doubles.
    pub(crate) fn end(&mut self, is_waited_for: bool) {
        self.left = 0;
        let was_unused = self.until.take().is_some() && is_waited_for;
        if was_unused {
            self.rounds = self.rounds.saturating_mul(2).min(ROUNDS_MAX);
        }
    }
}

/// The turns of all locks. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// `true` if turns are enabled.
    pub(crate) on: bool,
    /// State of each lock, by the hash of its key.
    locks: BTreeMap<u64, Turn>,
    /// The same hashes, oldest first.
    order: VecDeque<u64>,
    hashes: RandomState,
    /// Locks that are left free, and the end of each moment, in order. A moment that was used stays
    /// on the list until its end.
    pub(crate) moments: VecDeque<(MonoMillis, LockKey)>,
}

impl Turns {
    /// Removes all turns. Keeps the setting.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { on: self.on, ..Self::default() };
    }

    pub(crate) fn lock_mut(&mut self, key: KeyRef<'_>) -> Option<&mut Turn> {
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

    /// Counts a release. Returns whether the next turn is due. For a lock without a record, a turn
    /// is due at once.
    pub(crate) fn count_release(
        &mut self,
        key: KeyRef<'_>,
        waiters: usize,
        now: MonoMillis,
    ) -> bool {
        self.lock_mut(key).is_none_or(|turn| {
            turn.released = turn.released.saturating_add(1);
            turn.is_due(waiters, now)
        })
    }

    /// Begins a turn for Redisson, in which the lock is left free up to `moments` times. If `moments`
    /// is 0, only records that no process listens.
    pub(crate) fn begin(&mut self, key: KeyRef<'_>, moments: u64, now: MonoMillis) {
        let hash = self.hashes.hash_one(key);
        if !self.locks.contains_key(&hash) {
            if self.order.len() >= LOCKS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.locks.remove(&oldest);
            }
            self.order.push_back(hash);
        }
        let before = self.locks.get(&hash).filter(|before| before.is_heard);
        let rounds = before.map_or(1, |before| before.rounds);
        let is_heard = moments > 0;
        let left = moments.min(MOMENTS_MAX);
        let turn = Turn { released: 0, rounds, asked: now, is_heard, left, until: None };
        self.locks.insert(hash, turn);
    }

    /// Leaves the lock free for the next moment of its turn. Returns false if the turn has no
    /// moments left.
    pub(crate) fn leave_free(&mut self, key: KeyRef<'_>, now: MonoMillis) -> bool {
        let until = now.plus(MOMENT);
        let Some(turn) = self.lock_mut(key).filter(|turn| turn.left > 0) else { return false };
        turn.left = turn.left.saturating_sub(1);
        turn.until = Some(until);
        self.moments.push_back((until, key.to_lock_key()));
        true
    }

    /// Ends the turn of a lock that a waiter is granted.
    pub(crate) fn end(&mut self, key: KeyRef<'_>) {
        if let Some(turn) = self.lock_mut(key) {
            turn.end(true);
        }
    }

    /// Checks the records of turns (I18).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Limits;
    use crate::table::Table;
    use crate::types::Now;

    const NOW: MonoMillis = MonoMillis(5);
    const LOCK: KeyRef<'static> = KeyRef::lock(0, b"k");
    const OTHER: KeyRef<'static> = KeyRef::lock(0, b"other");

    /// Two locks; the first is left free.
    fn turns() -> Turns {
        let mut turns = Turns::default();
        turns.begin(LOCK, 1, NOW);
        turns.begin(OTHER, 1, NOW);
        assert!(turns.leave_free(LOCK, NOW));
        turns
    }

    fn is_wrong(change: impl FnOnce(&mut Turns)) -> bool {
        let mut turns = turns();
        change(&mut turns);
        turns.check().is_err()
    }

    #[test]
    fn records_that_contradict_each_other_are_found() {
        assert_eq!(turns().check(), Ok(()));
        assert!(is_wrong(|turns| turns.moments.clear()));
        assert!(is_wrong(|turns| turns.moments = [(NOW, LOCK.to_lock_key())].into()));
        let until = NOW.plus(MOMENT);
        assert!(is_wrong(|turns| turns.moments = [(until, OTHER.to_lock_key())].into()));
        assert!(is_wrong(|turns| turns.order.truncate(1)));
        let fill = |turns: &mut Turns, number: usize| {
            let turn = Turn { until: None, ..turns.locks.values().next().copied().unwrap() };
            for hash in (0..).take(number - turns.locks.len()) {
                turns.locks.insert(hash, turn);
                turns.order.push_back(hash);
            }
        };
        assert!(!is_wrong(|turns| fill(turns, LOCKS_MAX)));
        assert!(is_wrong(|turns| fill(turns, LOCKS_MAX + 1)));
    }

    #[test]
    fn a_release_without_a_listener_begins_no_turn() {
        let mut table = Table::<u32>::new(Limits::UNLIMITED);
        table.turns.on = true;
        let now = Now { unix_us: 1_000_000, mono: NOW };
        table.begin_turn_if_due(LOCK, 0, now);
        assert_eq!(table.turns.locks.len(), 0);
        table.begin_turn_if_due(LOCK, 1, now);
        assert_eq!(table.turns.locks.len(), 1);
    }
}

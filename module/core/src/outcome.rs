//! Causes of hand-offs, replies to waits, limits and counters.

use std::rc::Rc;

use crate::ids::WaiterId;
use crate::key::LockKey;
use crate::types::MonoMillis;

/// Reason for which an owner no longer holds a lock, or for which a lock is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The owner released it.
    Release,
    /// A forced release.
    Forced,
    /// The lease ended.
    Expiry,
    /// Another client changed or deleted the key, or no more exact cause is known.
    Outside,
    /// No change was reported: the look is a regular check.
    Check,
    /// The database of the key was flushed.
    Flush,
    /// The previous grant was taken back, because it was never sent to its client.
    TakenBack,
    /// The lock was bound to a session that has ended.
    SessionGone,
}

/// Reply to a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReply<R> {
    /// Answer at once, as for a command that does not wait.
    Now(R),
    /// Let the caller wait: block the client, if it is one, and call [`crate::Table::enqueue`] or,
    /// for a set of locks, [`crate::Table::enqueue_set`].
    Block,
    /// A limit of waiters is reached.
    QueueFull(Full),
    /// No new waits are accepted: the module is being drained.
    Draining,
    /// The wait would complete a circle of owners, in which each owner keeps the previous one from
    /// a lock. The last link names the owner that wanted to wait.
    Deadlock(Vec<Link>),
}

/// A lock of a circle, and the owner that keeps the previous owner of the circle from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The lock.
    pub key: LockKey,
    /// The owner. In the last link, this is the owner that wanted to wait.
    pub owner: Rc<[u8]>,
    /// `true` if the owner holds the lock. Otherwise it waits for several locks and has an earlier
    /// place in the queue of this lock.
    pub holds: bool,
}

/// Limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// A limit of the server, or of a key.
    Server,
    /// One user's share of a limit of the server.
    User,
}

/// Limits of waiters, sessions and bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of waiters over all keys, plus outcomes that are kept for sessions.
    pub waiters: usize,
    /// Largest number of waiters of one key.
    pub waiters_per_key: usize,
    /// Largest number of blocked clients: waiters, and readers of sessions.
    pub blocked: usize,
    /// Largest number of sessions.
    pub sessions: usize,
    /// Largest number of bindings of locks and permits to sessions.
    pub bound: usize,
    /// Share of one user in each of these limits, except the limit of one key, in percent.
    pub user_share: usize,
    /// `true` while the module is being drained: new waits and sessions are refused, and waiters are
    /// dismissed.
    pub draining: bool,
}

impl Limits {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        waiters: usize::MAX,
        waiters_per_key: usize::MAX,
        blocked: usize::MAX,
        sessions: usize::MAX,
        bound: usize::MAX,
        user_share: 100,
        draining: false,
    };

    /// Returns the share of one user in a limit of the server: at least one.
    pub(crate) fn of_user(&self, limit: usize) -> usize {
        let (whole, rest) = (limit.div_euclid(100), limit.rem_euclid(100));
        let share = |of: usize| of.saturating_mul(self.user_share);
        share(whole).saturating_add(share(rest).div_euclid(100)).clamp(1, limit.max(1))
    }
}

/// Counts of events since the module was loaded, and the largest number of waiters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// New grants of locks and permits, at once or by hand-off. Each lock of a set counts.
    pub granted: u64,
    /// Shared grants among these.
    pub granted_shared: u64,
    /// Releases of an exclusive lock that left its owner with shared holds.
    pub downgraded: u64,
    /// Holds added by an owner that held the lock.
    pub reentered: u64,
    /// Requests that repeat one that was already carried out.
    pub repeated: u64,
    /// Number of times that a lock was left free for a process of Redisson.
    pub redisson_turns: u64,
    /// Acquires that were refused with the reply nil. Acquires of a set with `HELD` are not counted.
    pub refused: u64,
    /// Releases after which the owner holds nothing more of the lock or the semaphore.
    pub released: u64,
    /// Grants to a waiter. A set counts once.
    pub handed_off: u64,
    /// Grants to a waiter because a lease ended.
    pub handed_off_by_expiry: u64,
    /// Waits that were refused because they would have caused a deadlock.
    pub deadlocks: u64,
    /// Acquires and waits that were answered `ready` instead of being granted a lock.
    pub told_ready: u64,
    /// Waits that ended because their timeout passed.
    pub timeouts: u64,
    /// Waits that were cancelled.
    pub cancelled: u64,
    /// Waits that ended because the client disconnected.
    pub disconnects: u64,
    /// Forced releases of a held lock.
    pub forced_releases: u64,
    /// Grants that were taken back because they had not reached their client.
    pub grants_taken_back: u64,
    /// Latches that reached zero, or whose keys were found to have expired or been deleted.
    pub latches_opened: u64,
    /// Waits that ended because a latch opened.
    pub released_by_latches: u64,
    /// Quarantines that have begun.
    pub quarantines: u64,
    /// Readers of sessions that were still blocked when a later one took over.
    pub readers_replaced: u64,
    /// Changes of observed locks.
    pub changes: u64,
    /// Reports of these changes to observers.
    pub changes_told: u64,
    /// Sessions that ended because no reader came in time.
    pub sessions_gone: u64,
    /// Locks and permits that were released because their session had ended.
    pub bound_released: u64,
    /// Largest number of waiters at one time.
    pub waiters_peak: usize,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

/// A lock with waiters.
#[derive(Clone, Copy, Debug)]
pub struct KeySummary<'a> {
    /// The lock.
    pub key: &'a LockKey,
    /// Number of waiters.
    pub waiters: usize,
    /// Arrival time of the first waiter that is not passed over; `None` if there is none.
    pub since: Option<MonoMillis>,
    /// That waiter, if it waits for a set.
    pub set: Option<WaiterId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_share_of_a_limit_is_at_least_one() {
        let of = |user_share, limit| Limits { user_share, ..Limits::UNLIMITED }.of_user(limit);
        assert_eq!([of(50, 1_000_000), of(50, 3), of(50, 2), of(50, 1)], [500_000, 1, 1, 1]);
        assert_eq!([of(1, 250), of(99, 101), of(100, 7)], [2, 99, 7]);
        assert_eq!(of(100, usize::MAX), usize::MAX);
        assert_eq!(of(50, usize::MAX), usize::MAX / 100 * 50 + 7);
    }
}

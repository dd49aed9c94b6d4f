//! What an operation comes to, as values.

use std::rc::Rc;

use crate::ids::WaiterId;
use crate::key::LockKey;
use crate::types::MonoMillis;

/// Why a lock went from one owner to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The owner released it.
    Release,
    /// A forced release.
    Forced,
    /// The lease ended.
    Expiry,
    /// Another client changed or deleted the key.
    Outside,
    /// Nothing was reported: the look only checks.
    Check,
    /// Its database was emptied.
    Flush,
    /// The grant before went to a client that was gone.
    TakenBack,
    /// It was bound to a session that is gone.
    SessionGone,
}

/// What a wait answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReply<R> {
    /// At once, as for a command that does not wait.
    Now(R),
    /// Later: block the client and [`crate::Table::enqueue`] it.
    Block,
    /// A limit of waiters is reached.
    QueueFull(Full),
    /// No new waits are accepted: the module is being drained.
    Draining,
    /// The owner holds a lock for which others wait that keep it from this one. The last link is the owner itself.
    Deadlock(Vec<Link>),
}

/// A lock on a circle, and the owner that keeps the one before from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The lock.
    pub key: LockKey,
    /// The owner. The last one of a circle is the one that wanted to wait.
    pub owner: Rc<[u8]>,
    /// Whether the owner holds the lock. Else it is in front of its queue, and waits for several locks.
    pub holds: bool,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// One of the server, or of a key.
    Server,
    /// One user's share of a limit of the server.
    User,
}

/// Largest number of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Over all locks.
    pub waiters: usize,
    /// For one lock.
    pub waiters_per_key: usize,
    /// As blocked clients, over all locks.
    pub blocked: usize,
    /// Largest number of sessions.
    pub sessions: usize,
    /// Most locks and permits that are bound to sessions.
    pub bound: usize,
    /// Share of one user in each of these limits except the limit of a lock, in percent.
    pub user_share: usize,
    /// Whether new waits are refused.
    pub draining: bool,
}

impl Limits {
    /// None.
    pub const UNLIMITED: Self = Self {
        waiters: usize::MAX,
        waiters_per_key: usize::MAX,
        blocked: usize::MAX,
        sessions: usize::MAX,
        bound: usize::MAX,
        user_share: 100,
        draining: false,
    };

    /// Number of things that one user may have where this limit is the server's: at least one.
    pub(crate) fn of_user(&self, limit: usize) -> usize {
        let (whole, rest) = (limit.div_euclid(100), limit.rem_euclid(100));
        let share = |of: usize| of.saturating_mul(self.user_share);
        share(whole).saturating_add(share(rest).div_euclid(100)).clamp(1, limit.max(1))
    }
}

/// What happened since the module was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// New grants, of free locks and by hand-off.
    pub granted: u64,
    /// Shared ones among these.
    pub granted_shared: u64,
    /// Exclusive holds that became shared ones at their release.
    pub downgraded: u64,
    /// Holds added by an owner that held the lock.
    pub reentered: u64,
    /// Acquires and releases with `HOLDS` that had been carried out before.
    pub repeated: u64,
    /// Moments in which a lock was left free for a process of Redisson.
    pub redisson_turns: u64,
    /// Acquires that answered nil.
    pub refused: u64,
    /// Full releases by owners.
    pub released: u64,
    /// Grants to a waiter.
    pub handed_off: u64,
    /// Grants to a waiter because a lease ended.
    pub handed_off_by_expiry: u64,
    /// Waits that were refused because they would have closed a circle.
    pub deadlocks: u64,
    /// Acquires and waits that were answered `ready` instead of being granted a lock.
    pub told_ready: u64,
    /// Waits that ended because their time was over.
    pub timeouts: u64,
    /// Waits that were cancelled.
    pub cancelled: u64,
    /// Waits that ended because the client disconnected.
    pub disconnects: u64,
    /// Forced releases of a held lock.
    pub forced_releases: u64,
    /// Grants that were taken back because the client was gone before it was answered.
    pub grants_taken_back: u64,
    /// Latches that reached zero or expired.
    pub latches_opened: u64,
    /// Waits that ended because a latch opened.
    pub released_by_latches: u64,
    /// Quarantines that have begun.
    pub quarantines: u64,
    /// Readers of sessions that were still blocked when a later one took over.
    pub readers_replaced: u64,
    /// Changes of observed locks, and the number of reports of such changes to observers.
    pub changes: u64,
    /// See [`Self::changes`].
    pub changes_told: u64,
    /// Sessions that ended because they were not read for too long.
    pub sessions_gone: u64,
    /// Locks and permits that were released because their session had ended.
    pub bound_released: u64,
    /// Largest number of waiters at one time.
    pub waiters_peak: usize,
}

/// Counts once more.
pub(crate) fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}

/// A lock that is waited for.
#[derive(Clone, Copy, Debug)]
pub struct KeySummary<'a> {
    /// Its name.
    pub key: &'a LockKey,
    /// Number of waiters.
    pub waiters: usize,
    /// Arrival time of the first waiter; none if all are away.
    pub since: Option<MonoMillis>,
    /// The first waiter, if it waits for a set.
    pub set: Option<WaiterId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_share_of_a_limit_and_one_at_least() {
        let of = |user_share, limit| Limits { user_share, ..Limits::UNLIMITED }.of_user(limit);
        assert_eq!([of(50, 1_000_000), of(50, 3), of(50, 2), of(50, 1)], [500_000, 1, 1, 1]);
        assert_eq!([of(1, 250), of(99, 101), of(100, 7)], [2, 99, 7]);
        assert_eq!(of(100, usize::MAX), usize::MAX);
        assert_eq!(of(50, usize::MAX), usize::MAX / 100 * 50 + 7);
    }
}

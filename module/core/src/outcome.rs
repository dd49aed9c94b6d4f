//! What an operation comes to, as values.

use std::rc::Rc;

use crate::circle::Link;
use crate::grant::GrantId;
use crate::ids::WaiterId;
use crate::key::LockKey;
use crate::mode::Share;
use crate::token::Token;
use crate::types::{MonoMillis, UnixMillis};
use crate::value::Value;

/// What to write to the key, and which waiter gets the lock by it.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<P> {
    /// Nothing at all.
    None,
    /// The lock was free: the caller holds it once.
    Take {
        /// The token of the grant.
        token: Token,
        /// When the lease ends.
        until: UnixMillis,
        /// Value of the holder.
        value: Value,
    },
    /// The holder stays. A field that is `None` does not change.
    Update {
        /// The new number of its holds.
        holds: Option<u64>,
        /// A token, for a lock that had none.
        token: Option<Token>,
        /// When the lease ends now.
        until: Option<UnixMillis>,
        /// New value of the holder; empty removes it.
        value: Value,
    },
    /// The lock is free, and no client is in the queue here: delete the key, announce that to Redisson, and
    /// report with [`Table::was_left_free`](crate::Table::was_left_free) how many processes it reached.
    Free,
    /// A turn of Redisson is due: announce that the lock is free. If that reaches a process, delete the
    /// key and report [`Table::has_given_way`](crate::Table::has_given_way), else ask
    /// [`Table::gives_way_to_nobody`](crate::Table::gives_way_to_nobody) what to do instead.
    GiveWay,
    /// The first waiter holds the lock now, whatever the key held before.
    HandOff(HandOff<P>),
    /// The lock is shared, by its earlier sharers and these.
    Share(Sharers<P>),
    /// The caller stops sharing the lock. Others share it, or did.
    Leave,
    /// Sets the number of shared holds that the exclusive holder has too.
    Beside {
        /// Number of them; 0 is none.
        holds: u64,
        /// A token, for a lock that had none.
        token: Option<Token>,
        /// When the lease ends now; if `None`, it stays as it is.
        until: Option<UnixMillis>,
    },
}

impl<P> Change<P> {
    /// The token that was issued for it.
    #[must_use]
    pub fn issued(&self) -> Option<Token> {
        match self {
            Self::Take { token, .. } | Self::HandOff(HandOff { token, .. }) => Some(*token),
            Self::Update { token, .. }
            | Self::Share(Sharers { token, .. })
            | Self::Beside { token, .. } => *token,
            Self::None | Self::Free | Self::GiveWay | Self::Leave => None,
        }
    }

    /// When the key ends after it; none if it does not say.
    #[must_use]
    pub fn until(&self) -> Option<UnixMillis> {
        match self {
            Self::Take { until, .. } | Self::HandOff(HandOff { until, .. }) => Some(*until),
            Self::Update { until, .. }
            | Self::Share(Sharers { until, .. })
            | Self::Beside { until, .. } => *until,
            Self::None | Self::Free | Self::GiveWay | Self::Leave => None,
        }
    }

    /// The same change, or [`Change::None`] if it would change nothing.
    pub(crate) fn or_none(self) -> Self {
        let nothing =
            matches!(self, Self::Update { holds: None, token: None, until: None, value: None });
        if nothing { Self::None } else { self }
    }
}

/// Owners that begin to share a lock.
#[derive(Debug, PartialEq, Eq)]
pub struct Sharers<P> {
    /// Whether a shared period begins: the earlier content of the key is deleted.
    pub begins: bool,
    /// The token of the period; if `None`, the key has it already.
    pub token: Option<Token>,
    /// The share that the caller has now; if `None`, nothing changes for it.
    pub own: Option<Share>,
    /// Waiters that join, each with one hold.
    pub joined: Vec<HandOff<P>>,
    /// New expiry time of the key. `None` leaves it unchanged; a new key then never expires.
    pub until: Option<UnixMillis>,
}

/// A lock given to the waiter at the head of the queue.
#[derive(Debug, PartialEq, Eq)]
pub struct HandOff<P> {
    /// Which grant this is.
    pub id: GrantId,
    /// The new owner.
    pub owner: Rc<[u8]>,
    /// The token of the grant.
    pub token: Token,
    /// When the lease ends.
    pub until: UnixMillis,
    /// Its value.
    pub value: Value,
    /// The client to answer; none if a session was told.
    pub client: Option<P>,
}

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

    #[test]
    fn a_change_tells_the_token_that_was_issued_for_it() {
        let (token, until) = (Token::from_stored(7), UnixMillis(9));
        let take = Change::<()>::Take { token: token.expect("it is one"), until, value: None };
        assert_eq!(take.issued(), token);
        let update = Change::<()>::Update { holds: None, token, until: None, value: None };
        assert_eq!(update.issued(), token);
        assert_eq!(Change::<()>::Beside { holds: 1, token: None, until: None }.issued(), None);
        assert_eq!(Change::<()>::Free.issued(), None);
    }
}

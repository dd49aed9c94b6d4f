//! Requests for a lock, their replies, and their effect on the holder. Nothing here depends on queues.

use crate::ids::SessionId;
use crate::mode::Want;
use crate::observed::Holding;
use crate::token::Token;
use crate::types::{HOLDS_MAX, Millis, UnixMillis};

/// The message for waiters of Redisson when a lock becomes free.
pub const RELEASE_MESSAGE: &[u8] = b"0";

/// A request to acquire.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The owner.
    pub owner: &'a [u8],
    /// Exclusive, shared, or permits of a semaphore.
    pub want: Want,
    /// The lease.
    pub lease: Millis,
    /// `HOLDS n`: number of holds or permits that the owner expects to have afterwards; 1 or more.
    pub holds: Option<u64>,
}

impl Acquire<'_> {
    /// Returns the request, with `holds` set if it is a repetition through a session. A request
    /// through a session without `HOLDS` is a repetition if the owner already holds the lock or has
    /// permits. A repetition adds none.
    pub(crate) fn through(self, session: Option<SessionId>, held: Option<u64>) -> Self {
        let repeats = held.filter(|held| session.is_some() && *held > 0);
        Self { holds: self.holds.or(repeats), ..self }
    }
}

/// Reply to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireReply {
    /// The owner holds the lock.
    Granted {
        /// The token of the grant.
        token: Token,
        /// Number of holds that the owner has now.
        holds: u64,
    },
    /// Another owner holds the lock, an earlier waiter is in line, or the lock may not be granted
    /// now. With `HELD`, the owner does not hold the lock in the requested mode.
    Refused,
    /// `HOLDS n` does not match what the owner holds.
    Mismatch,
    /// The owner has the largest possible number of holds.
    TooManyHolds,
    /// The owner shares the lock, so it cannot hold it exclusively.
    Upgrade,
    /// The key is not a lock.
    NotALock,
    /// Not now: the tokens that this lock has had are not known yet.
    TryAgain,
}

/// Number of holds or permits that a release gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// One hold or permit.
    One,
    /// All holds or permits.
    All,
    /// `HOLDS n`: reduces the holds or permits of the owner to n.
    DownTo(u64),
}

/// Reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// Released, by this request or an earlier one. Contains the number of holds or permits left.
    Left(u64),
    /// The owner does not hold the lock in the requested mode, or holds no permits.
    NotHeld,
    /// `HOLDS n` does not match what the owner holds.
    Mismatch,
    /// The key is not a lock or, if the request is for permits, not a semaphore.
    NotALock,
}

/// Reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewReply {
    /// Renewed, with this lease.
    Lease(Millis),
    /// This owner does not hold the lock, or holds no permits.
    NotHeld,
    /// The request would raise the token or set the value, but the owner only shares the lock. The
    /// token belongs to all sharers, and a sharer has no value.
    Shared,
    /// The requested token is too large. Contains the largest possible one.
    TooFarAhead(u64),
    /// The key is not a lock or, if the request is for permits, not a semaphore.
    NotALock,
    /// Not now: the tokens that this lock has had are not known yet.
    TryAgain,
}

impl Holding<'_> {
    /// Counts one more hold, or recognises a request that was already carried out. Returns the new
    /// number of holds, and the new end of the lease if it changes. A lease is never shortened, and
    /// a lease without an end gets none.
    pub(crate) fn reenter(
        &self,
        request: &Acquire<'_>,
        now: UnixMillis,
    ) -> Result<(u64, Option<UnixMillis>), AcquireReply> {
        let more = self.holds.saturating_add(1);
        let holds = match request.holds {
            None => more,
            Some(n) if n == self.holds || n == more => n,
            Some(_) => return Err(AcquireReply::Mismatch),
        };
        if holds > self.holds && holds > HOLDS_MAX {
            return Err(AcquireReply::TooManyHolds);
        }
        let end = now.plus(request.lease);
        let until = self.until.filter(|until| *until < end).map(|_| end);
        Ok((holds, until))
    }
}

/// Returns the number of holds that are left after a release; `None` if `HOLDS n` does not match.
pub(crate) fn left_after(release: Release, of: u64) -> Option<u64> {
    match release {
        Release::One => Some(of.saturating_sub(1)),
        Release::All => Some(0),
        Release::DownTo(n) if n == of => Some(n),
        Release::DownTo(n) => (n.checked_add(1) == Some(of)).then_some(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holds: u64, until: Option<u64>) -> Holding<'static> {
        Holding { owner: b"a", holds, shared: 0, token: None, until: until.map(UnixMillis) }
    }

    fn again(lease: u64, holds: Option<u64>) -> Acquire<'static> {
        Acquire { owner: b"a", want: Want::Exclusive, lease: Millis(lease), holds }
    }

    #[test]
    fn a_reentry_never_shortens() {
        let now = UnixMillis(1_000);
        let longer = held(1, Some(1_500)).reenter(&again(900, None), now);
        assert_eq!(longer, Ok((2, Some(UnixMillis(1_900)))));
        let shorter = held(1, Some(1_500)).reenter(&again(100, None), now);
        assert_eq!(shorter, Ok((2, None)));
        let endless = held(1, None).reenter(&again(100, None), now);
        assert_eq!(endless, Ok((2, None)));
    }

    #[test]
    fn holds_makes_a_repeated_acquire_harmless() {
        let now = UnixMillis(1_000);
        let two = held(2, Some(9_000));
        let with = |n| two.reenter(&again(1, Some(n)), now);
        assert_eq!(with(1), Err(AcquireReply::Mismatch));
        assert_eq!(with(2), Ok((2, None)));
        assert_eq!(with(3), Ok((3, None)));
        assert_eq!(with(4), Err(AcquireReply::Mismatch));
    }

    #[test]
    fn holds_are_limited_but_a_repeat_at_the_limit_succeeds() {
        let now = UnixMillis(0);
        let last = held(HOLDS_MAX - 1, Some(9)).reenter(&again(1, None), now);
        assert_eq!(last, Ok((HOLDS_MAX, None)));
        let full = held(HOLDS_MAX, Some(9));
        assert_eq!(full.reenter(&again(1, None), now), Err(AcquireReply::TooManyHolds));
        let repeat = full.reenter(&again(1, Some(HOLDS_MAX)), now);
        assert_eq!(repeat, Ok((HOLDS_MAX, None)));
        // A script of another library may count beyond the limit.
        let fuller = held(HOLDS_MAX + 1, Some(9)).reenter(&again(1, Some(HOLDS_MAX + 1)), now);
        assert_eq!(fuller, Ok((HOLDS_MAX + 1, None)));
    }

    #[test]
    fn holds_makes_a_repeated_release_harmless() {
        assert_eq!(left_after(Release::One, 2), Some(1));
        assert_eq!(left_after(Release::All, 2), Some(0));
        assert_eq!(left_after(Release::DownTo(0), 2), None);
        assert_eq!(left_after(Release::DownTo(1), 2), Some(1));
        assert_eq!(left_after(Release::DownTo(2), 2), Some(2));
        assert_eq!(left_after(Release::DownTo(3), 2), None);
    }
}

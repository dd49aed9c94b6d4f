//! State of a lock, a semaphore or a latch at one moment, as the caller passes it to a decision.

use crate::key::KeyRef;
use crate::lock::{Acquire, Release, left_after};
use crate::mode::Want;
use crate::observed::Observed;
use crate::results::Results;
use crate::token::Token;
use crate::types::{Now, UnixMillis};

/// Everything known about one lock at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The lock.
    pub key: KeyRef<'a>,
    /// Content of its key.
    pub seen: Observed<'a>,
    /// The time.
    pub now: Now,
    /// Largest token that another server, or this one before a restart, may have issued; 0 if none.
    /// `None` while this is unknown: then no grant is made whose token would be a guess.
    pub floor: Option<u64>,
    /// Access to other keys: the ready-keys that exist, and the holders of other locks.
    pub results: Results<'a>,
}

impl Situation<'_> {
    /// Number of holds that the owner of a request has, of the requested kind: see [`Self::holds_of`].
    pub(crate) fn held_by(&self, request: &Acquire<'_>) -> Option<u64> {
        self.holds_of(request.owner, request.want)
    }

    /// Number of holds of a kind, exclusive or shared, that an owner has. `None` if the owner has
    /// no holds of this kind. Exception: 0 if it has no shared holds but holds the lock exclusively.
    #[must_use]
    pub fn holds_of(&self, owner: &[u8], want: Want) -> Option<u64> {
        match (&self.seen, want) {
            (Observed::Held(holding), _) if holding.owner != owner => None,
            (Observed::Held(holding), Want::Shared) => Some(holding.shared),
            (Observed::Held(holding), _) => Some(holding.holds),
            (Observed::Shared(sharing), Want::Shared) => {
                sharing.share_of(owner, self.now.unix()).map(|share| share.holds)
            }
            (Observed::Shared(_) | Observed::Free { .. } | Observed::NotALock { .. }, _) => None,
        }
    }

    /// Number of holds of a kind that an owner has left after a release. `None` if it has none
    /// before the release, or if `HOLDS n` does not match.
    #[must_use]
    pub fn left_after(&self, owner: &[u8], want: Want, release: Release) -> Option<u64> {
        let holds = self.holds_of(owner, want).filter(|holds| *holds > 0)?;
        left_after(release, holds)
    }

    /// Returns whether an owner holds the lock, but `HOLDS n` of a release does not match what the
    /// owner holds.
    #[must_use]
    pub fn mismatches(&self, owner: &[u8], want: Want, release: Release) -> bool {
        let holds = self.holds_of(owner, want).filter(|holds| *holds > 0);
        holds.is_some_and(|holds| left_after(release, holds).is_none())
    }

    /// Returns whether nothing is known that a new token for this lock must exceed: the floor is
    /// unknown, and the hash has no valid token. `stored` is the token in the hash, if it is valid.
    pub(crate) fn lacks_token_bound(&self, stored: Option<Token>) -> bool {
        self.floor.is_none() && stored.is_none()
    }
}

/// Everything known about a latch or a semaphore at one moment.
#[derive(Clone, Copy, Debug)]
pub struct At<'a, S> {
    /// The key.
    pub key: KeyRef<'a>,
    /// Content of the key.
    pub seen: S,
    /// The time.
    pub now: Now,
}

/// State of a lock, semaphore or latch for which a waiter can be queued.
pub trait WaitedFor {
    /// Returns the key, the time, and the time at which the state of the key may change without an
    /// event, if there is one.
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>);
}

impl WaitedFor for Situation<'_> {
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>) {
        (self.key, self.now, self.seen.until())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::observed::Holding;
    use crate::types::MonoMillis;

    #[test]
    fn an_owner_without_shared_holds_does_not_mismatch() {
        let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
        let seen = |shared| {
            Observed::Held(Holding { owner: b"ann", holds: 2, shared, token: None, until: None })
        };
        let at = |shared| {
            let (key, seen) = (KeyRef::lock(0, b"k"), seen(shared));
            Situation { key, seen, now, floor: Some(0), results: Results::NONE }
        };
        let mismatches = |shared, want| at(shared).mismatches(b"ann", want, Release::DownTo(5));
        assert!(mismatches(0, Want::Exclusive) && mismatches(1, Want::Shared));
        assert!(!mismatches(0, Want::Shared));
        assert!(!at(1).mismatches(b"bob", Want::Exclusive, Release::DownTo(5)));
    }
}

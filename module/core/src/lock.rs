//! What a hash says about a lock, and what a request does to its holder. Nothing here knows of
//! queues.

use crate::parse::strict_decimal;
use crate::planted::Bug;
use crate::token::Token;
use crate::types::{HOLDS_MAX, Millis, UnixMillis};

/// The field of the hash that keeps the fencing token.
pub const TOKEN_FIELD: &[u8] = b"fencing-token";

/// Fields that a lock keeps for itself, and that therefore cannot be owners.
pub const RESERVED_FIELDS: [&[u8]; 2] = [TOKEN_FIELD, b"lock-mode"];

/// What is published when a lock becomes free, for those who wait with Redisson.
pub const RELEASE_MESSAGE: &[u8] = b"0";

/// What the keyspace says about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    /// Nobody holds it: the key is absent, or only the token of an earlier grant is left.
    Free {
        /// The token that was left behind.
        stored: Option<Token>,
    },
    /// Somebody holds it.
    Held(Holding<'a>),
    /// The key holds something else, which is not ours to change.
    NotALock {
        /// When that will go away by itself.
        until: Option<UnixMillis>,
    },
}

/// Who holds a lock, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding<'a> {
    /// Who holds it.
    pub owner: &'a [u8],
    /// How many times it has been acquired and not released; at least 1.
    pub holds: u64,
    /// The token of this grant; none if somebody else's script took the lock.
    pub token: Option<Token>,
    /// When the lease ends; none if somebody took the TTL away.
    pub until: Option<UnixMillis>,
}

impl<'a> Observed<'a> {
    /// Reads a hash, given as its fields and values, whose key expires at `until`.
    ///
    /// Give no more than four fields of a larger hash: three are too many for a lock.
    pub fn from_fields(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        until: Option<UnixMillis>,
    ) -> Self {
        let mut token = None;
        let mut holder = None;
        for (field, value) in fields {
            if field == TOKEN_FIELD {
                token = Self::read_token(value);
            } else if holder.is_some() || RESERVED_FIELDS.contains(&field) {
                if Bug::TakesOverHashes.is_planted() {
                    return Self::Free { stored: None };
                }
                return Self::NotALock { until };
            } else {
                holder = Some((field, value));
            }
        }
        match holder {
            None => Self::Free { stored: token },
            Some((owner, count)) => match Self::read_holds(count) {
                None => Self::NotALock { until },
                Some(holds) => Self::Held(Holding { owner, holds, token, until }),
            },
        }
    }

    /// Reads the value of the token field; `None` where it cannot be believed.
    #[must_use]
    pub fn read_token(value: &[u8]) -> Option<Token> {
        strict_decimal(value).and_then(Token::from_stored)
    }

    /// Reads the value of an owner's field; `None` unless it is a positive integer.
    #[must_use]
    pub fn read_holds(value: &[u8]) -> Option<u64> {
        strict_decimal(value).filter(|holds| (1..=i64::MAX.cast_unsigned()).contains(holds))
    }

    /// When a look at this lock is due next, if nobody says otherwise.
    #[must_use]
    pub fn until(&self) -> Option<UnixMillis> {
        match self {
            Self::Free { .. } => None,
            Self::Held(holding) => holding.until,
            Self::NotALock { until } => *until,
        }
    }
}

/// A request to acquire.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// For whom.
    pub owner: &'a [u8],
    /// How long the grant lasts unless it is renewed.
    pub lease: Millis,
    /// `HOLDS n`: how many times the owner means to hold the lock after this; 1 or more.
    pub holds: Option<u64>,
}

/// What an acquire answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireReply {
    /// The owner holds the lock.
    Granted {
        /// The token of the grant.
        token: Token,
        /// How many times the owner holds it now.
        holds: u64,
    },
    /// Somebody else holds it or is before the owner in the queue.
    Refused,
    /// `HOLDS n` does not fit what the owner holds.
    Mismatch,
    /// The owner holds it as often as anybody may.
    TooManyHolds,
    /// The key is not a lock.
    NotALock,
    /// Not now: what tokens this lock has had is not known yet.
    TryAgain,
}

/// How much a release gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// One hold.
    One,
    /// All holds.
    All,
    /// `HOLDS n`: as many as leave the owner with n.
    DownTo(u64),
}

/// What a release answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// Done, or done before: how many holds are left.
    Left(u64),
    /// This owner does not hold the lock.
    NotHeld,
    /// `HOLDS n` does not fit what the owner holds.
    Mismatch,
    /// The key is not a lock.
    NotALock,
}

/// What a renewal answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewReply {
    /// The lease that runs now.
    Lease(Millis),
    /// This owner does not hold the lock.
    NotHeld,
    /// The key is not a lock.
    NotALock,
}

/// What a holder's repeated acquire comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reentry {
    /// It holds this many times now; the new end of the lease, if it moves.
    Holds { holds: u64, until: Option<UnixMillis> },
    /// See [`AcquireReply::Mismatch`].
    Mismatch,
    /// See [`AcquireReply::TooManyHolds`].
    TooManyHolds,
}

impl Holding<'_> {
    /// Counts one more hold, or recognises a request that was already carried out. A lease is
    /// never shortened, and one without an end stays so.
    pub(crate) fn reenter(&self, request: &Acquire<'_>, now: UnixMillis) -> Reentry {
        let more = self.holds.saturating_add(1);
        let holds = match request.holds {
            None => more,
            Some(n) if n == self.holds && Bug::RepeatCounts.is_planted() => more,
            Some(n) if n == self.holds || n == more => n,
            Some(_) => return Reentry::Mismatch,
        };
        if holds > self.holds && holds > HOLDS_MAX {
            return Reentry::TooManyHolds;
        }
        let end = now.plus(request.lease);
        let until = self
            .until
            .filter(|until| *until < end || Bug::ReentryShortens.is_planted())
            .map(|_| end);
        Reentry::Holds { holds, until }
    }

    /// How many holds a release leaves; `None` if `HOLDS n` does not fit.
    pub(crate) fn left_after(&self, release: Release) -> Option<u64> {
        match release {
            Release::One => Some(self.holds - 1),
            Release::All => Some(0),
            Release::DownTo(n) if n == self.holds => Some(n),
            Release::DownTo(n) => (n.checked_add(1) == Some(self.holds)).then_some(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields<'a>(of: &[(&'a str, &'a str)]) -> Observed<'a> {
        Observed::from_fields(of.iter().map(|(f, v)| (f.as_bytes(), v.as_bytes())), None)
    }

    #[test]
    fn a_lock_of_ours_is_read() {
        let Observed::Held(holding) = fields(&[("alice", "2"), ("fencing-token", "17")]) else {
            panic!("held");
        };
        assert_eq!((holding.owner, holding.holds), (&b"alice"[..], 2));
        assert_eq!(holding.token.map(Token::value), Some(17));
    }

    #[test]
    fn a_lock_of_redisson_has_no_token() {
        let Observed::Held(holding) = fields(&[("uuid:52", "1")]) else { panic!("held") };
        assert_eq!(holding.token, None);
    }

    #[test]
    fn a_remnant_is_free() {
        assert_eq!(fields(&[]), Observed::Free { stored: None });
        let seen = fields(&[("fencing-token", "9")]);
        assert_eq!(seen, Observed::Free { stored: Token::from_stored(9) });
    }

    #[test]
    fn what_cannot_be_a_lock_is_not_one() {
        for other in [
            &[("a", "1"), ("b", "1")][..],
            &[("a", "0")],
            &[("a", "-1")],
            &[("a", "x")],
            &[("a", "01")],
            &[("a", "9223372036854775808")],
            &[("mode", "read"), ("a", "1")],
            &[("lock-mode", "x"), ("a", "1")],
        ] {
            assert_eq!(fields(other), Observed::NotALock { until: None }, "{other:?}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_ours_is_ignored() {
        for token in ["", "x", "-5", "9007199254740993", "0"] {
            let Observed::Held(holding) = fields(&[("a", "1"), ("fencing-token", token)]) else {
                panic!("held");
            };
            assert_eq!(holding.token, None, "{token:?}");
        }
    }

    fn held(holds: u64, until: Option<u64>) -> Holding<'static> {
        Holding { owner: b"a", holds, token: None, until: until.map(UnixMillis) }
    }

    fn again(lease: u64, holds: Option<u64>) -> Acquire<'static> {
        Acquire { owner: b"a", lease: Millis(lease), holds }
    }

    #[test]
    fn a_reentry_never_shortens() {
        let now = UnixMillis(1_000);
        let longer = held(1, Some(1_500)).reenter(&again(900, None), now);
        assert_eq!(longer, Reentry::Holds { holds: 2, until: Some(UnixMillis(1_900)) });
        let shorter = held(1, Some(1_500)).reenter(&again(100, None), now);
        assert_eq!(shorter, Reentry::Holds { holds: 2, until: None });
        let endless = held(1, None).reenter(&again(100, None), now);
        assert_eq!(endless, Reentry::Holds { holds: 2, until: None });
    }

    #[test]
    fn holds_makes_a_repeated_acquire_harmless() {
        let now = UnixMillis(1_000);
        let two = held(2, Some(9_000));
        let with = |n| two.reenter(&again(1, Some(n)), now);
        assert_eq!(with(1), Reentry::Mismatch);
        assert_eq!(with(2), Reentry::Holds { holds: 2, until: None });
        assert_eq!(with(3), Reentry::Holds { holds: 3, until: None });
        assert_eq!(with(4), Reentry::Mismatch);
    }

    #[test]
    fn holds_are_limited_but_a_repeat_at_the_limit_is_fine() {
        let now = UnixMillis(0);
        let full = held(HOLDS_MAX, Some(9));
        assert_eq!(full.reenter(&again(1, None), now), Reentry::TooManyHolds);
        let repeat = full.reenter(&again(1, Some(HOLDS_MAX)), now);
        assert_eq!(repeat, Reentry::Holds { holds: HOLDS_MAX, until: None });
    }

    #[test]
    fn holds_makes_a_repeated_release_harmless() {
        let two = held(2, None);
        assert_eq!(two.left_after(Release::One), Some(1));
        assert_eq!(two.left_after(Release::All), Some(0));
        assert_eq!(two.left_after(Release::DownTo(0)), None);
        assert_eq!(two.left_after(Release::DownTo(1)), Some(1));
        assert_eq!(two.left_after(Release::DownTo(2)), Some(2));
        assert_eq!(two.left_after(Release::DownTo(3)), None);
    }
}

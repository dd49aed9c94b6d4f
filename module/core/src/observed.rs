//! State of a lock, as read from its hash.

use crate::fields::{MODE_FIELD, TOKEN_FIELD, VALUE_FIELD};
use crate::mode::{Mode, Share, Sharing};
use crate::parse::{OWNER_BYTES_MAX, strict_decimal};
use crate::token::Token;
use crate::types::UnixMillis;

/// State of a lock, as read from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    /// Not held: the key is absent, or its hash has no field of an owner.
    Free {
        /// The token of an earlier grant, if it is still in the hash.
        stored: Option<Token>,
    },
    /// Held exclusively.
    Held(Holding<'a>),
    /// Shared. All leases may have ended, unless a search has found a live sharer: see
    /// [`Sharing::living`].
    Shared(Sharing<'a>),
    /// The key holds something else, which must not be changed.
    NotALock {
        /// Expiry time of that key; `None` without a TTL.
        until: Option<UnixMillis>,
    },
}

/// The exclusive holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding<'a> {
    /// The owner.
    pub owner: &'a [u8],
    /// Number of exclusive holds; at least 1.
    pub holds: u64,
    /// Number of shared holds that the owner has too; usually 0.
    pub shared: u64,
    /// The token of this grant. `None` if it was not read or the hash has no valid one, for example
    /// because a script of another library took the lock.
    pub token: Option<Token>,
    /// End of the lease; `None` if the TTL was removed or not read.
    pub until: Option<UnixMillis>,
}

impl<'a> Observed<'a> {
    /// Reads a hash with at most one owner, given as its fields and values, whose key expires at
    /// `until`. A lock with several sharers would be read as [`Self::NotALock`].
    ///
    /// Five fields of a larger hash are enough: at least two of them are not reserved, so the hash
    /// is read as [`Self::NotALock`] in any case.
    pub fn from_fields(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        until: Option<UnixMillis>,
    ) -> Self {
        let (mut token, mut mode, mut holder) = (None, None, None);
        for (field, value) in fields {
            if field.len() > OWNER_BYTES_MAX {
                return Self::NotALock { until };
            }
            if field == TOKEN_FIELD {
                token = Token::read(value);
                continue;
            }
            if field == VALUE_FIELD {
                continue;
            }
            let read = (field == MODE_FIELD).then(|| Mode::read(value)).flatten();
            if read.is_some() {
                mode = read;
            } else if holder.is_some() || field == MODE_FIELD {
                return Self::NotALock { until };
            } else {
                holder = Some((field, value));
            }
        }
        let Some((owner, value)) = holder else {
            return Self::Free { stored: token };
        };
        let shared = match mode {
            None => 0,
            Some(Mode::Exclusive(holds)) => holds,
            Some(Mode::Shared) => {
                return match Share::read(value) {
                    None => Self::NotALock { until },
                    Some(share) => Self::Shared(Sharing {
                        asked: owner,
                        own: Some(share),
                        token,
                        until,
                        holders: 1,
                        living: None,
                    }),
                };
            }
        };
        match Self::read_holds(value) {
            None => Self::NotALock { until },
            Some(holds) => Self::Held(Holding { owner, holds, shared, token, until }),
        }
    }

    /// Reads the value of an owner's field; `None` unless it is a positive integer.
    #[must_use]
    pub fn read_holds(value: &[u8]) -> Option<u64> {
        strict_decimal(value).filter(|holds| (1..=i64::MAX.cast_unsigned()).contains(holds))
    }

    /// Returns the time at which this state may end without an event.
    #[must_use]
    pub fn until(&self) -> Option<UnixMillis> {
        match self {
            Self::Free { .. } => None,
            Self::Held(holding) => holding.until,
            Self::Shared(sharing) => {
                let ends = [sharing.living, sharing.until].into_iter().flatten();
                ends.min().filter(|until| *until < Share::ENDLESS)
            }
            Self::NotALock { until } => *until,
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
    fn a_kvlock_lock_is_read() {
        let Observed::Held(holding) = fields(&[("alice", "2"), ("fencing-token", "t17")]) else {
            panic!("held");
        };
        assert_eq!((holding.owner, holding.holds), (&b"alice"[..], 2));
        assert_eq!(holding.token.map(Token::value), Some(17));
    }

    #[test]
    fn a_redisson_lock_has_no_token() {
        let Observed::Held(holding) = fields(&[("uuid:52", "1")]) else { panic!("held") };
        assert_eq!(holding.token, None);
    }

    #[test]
    fn a_hash_without_a_holder_is_free() {
        assert_eq!(fields(&[]), Observed::Free { stored: None });
        let seen = fields(&[("fencing-token", "t9")]);
        assert_eq!(seen, Observed::Free { stored: Token::from_stored(9) });
    }

    #[test]
    fn a_lock_that_its_one_holder_also_shares_is_read() {
        let seen = fields(&[("alice", "2"), ("lock-mode", "exclusive 3"), ("fencing-token", "t7")]);
        let Observed::Held(holding) = seen else { panic!("{seen:?}") };
        assert_eq!((holding.owner, holding.holds, holding.shared), (&b"alice"[..], 2, 3));
    }

    #[test]
    fn a_shared_lock_is_read_and_without_holders_it_is_free() {
        let seen = fields(&[("lock-mode", "shared"), ("alice", "2 50"), ("fencing-token", "t7")]);
        let Observed::Shared(sharing) = seen else { panic!("{seen:?}") };
        assert_eq!(sharing.own, Some(Share { holds: 2, until: UnixMillis(50) }));
        let left = fields(&[("lock-mode", "shared"), ("fencing-token", "t7")]);
        assert_eq!(left, Observed::Free { stored: Token::from_stored(7) });
    }

    #[test]
    fn an_invalid_hash_is_not_a_lock() {
        for other in [
            &[("a", "1"), ("b", "1")][..],
            &[("a", "0")],
            &[("a", "-1")],
            &[("a", "x")],
            &[("a", "01")],
            &[("a", "9223372036854775808")],
            &[("mode", "read"), ("a", "1")],
            &[("lock-mode", "x"), ("a", "1")],
            &[(&"a".repeat(1_025), "1")],
            &[("lock-mode", "shared"), ("a", "1")],
            &[("lock-mode", "exclusive 1"), ("a", "1 5")],
        ] {
            assert_eq!(fields(other), Observed::NotALock { until: None }, "{other:?}");
        }
    }

    #[test]
    fn the_longest_owner_is_read() {
        let owner = "a".repeat(OWNER_BYTES_MAX);
        let seen = fields(&[(&owner, "1")]);
        assert!(matches!(seen, Observed::Held(Holding { holds: 1, .. })), "{seen:?}");
    }

    #[test]
    fn an_invalid_token_is_ignored() {
        for token in ["", "x", "t", "tt5", "T5", "17", "t-5", "t9007199254740993", "t0", "t05"] {
            let Observed::Held(holding) = fields(&[("a", "1"), ("fencing-token", token)]) else {
                panic!("held");
            };
            assert_eq!(holding.token, None, "{token:?}");
        }
    }

    #[test]
    fn a_share_without_expiry_is_never_due() {
        let due = |living: Option<u64>, until: Option<u64>| {
            let [living, until] = [living, until].map(|end| end.map(UnixMillis));
            let (own, token) = (None, None);
            Observed::Shared(Sharing { asked: b"", own, token, until, holders: 1, living }).until()
        };
        assert_eq!(due(Some(Share::ENDLESS.0), None), None);
        assert_eq!(due(Some(7), Some(9)), Some(UnixMillis(7)));
        assert_eq!(due(Some(Share::ENDLESS.0), Some(9)), Some(UnixMillis(9)));
    }
}

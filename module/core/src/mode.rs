//! The modes of a lock, exclusive and shared, and their layout in a hash.
//!
//! ```text
//! exclusive             alice → 2                         fencing-token → t17
//! … and also shared     alice → 2   lock-mode → exclusive 1   fencing-token → t17
//! shared by two         lock-mode → shared                fencing-token → t18
//!                       bob → 1 1795202270794   carol → 2 1795202275000
//! ```
//!
//! Each sharer has its own lease, in its field. Unless another client shortens the key's TTL, the
//! key does not expire before the last of these leases ends. It may expire later. After the longest
//! share is released or shortened, the module shortens the TTL, unless there are too many sharers
//! to read all of them.

use crate::fields::RESERVED_FIELDS;
use crate::parse::{OWNER_BYTES_MAX, in_two, strict_decimal};
use crate::types::{HOLDS_MAX, UnixMillis};

/// What a request asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Hold the lock exclusively.
    Exclusive,
    /// Share the lock.
    Shared,
    /// Wait until a latch opens.
    LatchOpen,
    /// Acquire permits of a semaphore.
    Permits {
        /// Number of permits to acquire.
        more: u64,
        /// Number of permits that the owner must hold afterwards, if the request has `HOLDS`.
        holds: Option<u64>,
    },
    /// Observe changes after the given version: see [`VersionedState`](crate::VersionedState).
    Changes(u64),
}

impl Want {
    /// Returns whether waiters with this request are never passed over: they are served even if
    /// their sessions are away.
    pub(crate) fn is_for_all(self) -> bool {
        matches!(self, Self::LatchOpen | Self::Changes(_))
    }

    /// Returns whether a waiter with this request can be served, or its request fails, whenever that is so for
    /// another owner with the `other` request. Whether a request for permits fails depends on the permits that
    /// its owner has already.
    pub(crate) fn is_served_like(self, other: Self) -> bool {
        self == other && !matches!(self, Self::Permits { .. })
    }
}

/// Value of the `lock-mode` field of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The owners in the other fields share the lock.
    Shared,
    /// One owner holds the lock exclusively, and has this number of shared holds too.
    Exclusive(u64),
}

impl Mode {
    /// Reads the value of the field; `None` if it is not a mode.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        if value == b"shared" {
            return Some(Self::Shared);
        }
        let holds = strict_decimal(value.strip_prefix(b"exclusive ")?)?;
        (1..=HOLDS_MAX).contains(&holds).then_some(Self::Exclusive(holds))
    }

    /// The value of the field.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Shared => "shared".to_owned(),
            Self::Exclusive(holds) => format!("exclusive {holds}"),
        }
    }
}

/// The share of one owner in a lock, or its permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of holds or permits; at least 1.
    pub holds: u64,
    /// End of the lease.
    pub until: UnixMillis,
}

impl Share {
    /// End of a lease that never ends, because another client removed the TTL of the lock.
    pub const ENDLESS: UnixMillis = UnixMillis(i64::MAX.cast_unsigned());

    /// Reads the value of an owner's field; `None` if it is not a share.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (holds, until) = in_two(value)?;
        let holds = strict_decimal(holds).filter(|holds| (1..=HOLDS_MAX).contains(holds))?;
        let until = strict_decimal(until).map(UnixMillis)?;
        (until <= Self::ENDLESS).then_some(Self { holds, until })
    }

    /// Reads a field of a shared lock or a semaphore. Returns `None` for a reserved field, and
    /// `Some(None)` if the field is not a valid share.
    #[must_use]
    pub fn of_field(field: &[u8], value: &[u8]) -> Option<Option<Self>> {
        let is_owners = !RESERVED_FIELDS.contains(&field);
        is_owners.then(|| Self::read(value).filter(|_| field.len() <= OWNER_BYTES_MAX))
    }

    /// The value of the field.
    #[must_use]
    pub fn text(self) -> String {
        format!("{} {}", self.holds, self.until.0)
    }

    /// Returns whether the lease has not ended. A lease ends when the server would expire a key
    /// with the same deadline.
    #[must_use]
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.until >= now
    }
}

/// State of a shared lock, read for one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing<'a> {
    /// Owner whose share was read.
    pub asked: &'a [u8],
    /// Share of that owner, even if its lease has ended.
    pub own: Option<Share>,
    /// The common token of the sharers; `None` if another client removed it.
    pub token: Option<crate::token::Token>,
    /// Expiry time of the key; `None` if its TTL was removed.
    pub until: Option<UnixMillis>,
    /// Number of sharers, including expired ones that were not removed yet.
    pub holders: usize,
    /// End of the lease of a live sharer, or the time at which an unfinished search continues.
    /// `None` if no search was made.
    pub living: Option<UnixMillis>,
}

impl Sharing<'_> {
    /// Returns the share of this owner. `None` if the owner has none, if the share of another owner
    /// was read, or if the lease has ended. The returned lease ends with the key at the latest.
    pub(crate) fn share_of(&self, owner: &[u8], now: UnixMillis) -> Option<Share> {
        let share = self.own.filter(|share| self.asked == owner && share.is_live(now))?;
        let until = self.until.map_or(share.until, |until| until.min(share.until));
        Some(Share { until, ..share })
    }

    /// Returns the new expiry time of the key for a share that ends at `until`. `None` if the key
    /// lasts that long already.
    pub(crate) fn extended_to(&self, until: UnixMillis) -> Option<UnixMillis> {
        self.until.filter(|end| *end < until).map(|_| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_as_it_is_written() {
        for mode in [Mode::Shared, Mode::Exclusive(1), Mode::Exclusive(HOLDS_MAX)] {
            assert_eq!(Mode::read(mode.text().as_bytes()), Some(mode));
        }
        for other in ["", "Shared", "shared ", "exclusive", "exclusive 0", "exclusive 01", "read"] {
            assert_eq!(Mode::read(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for share in [
            Share { holds: 1, until: UnixMillis(0) },
            Share { holds: HOLDS_MAX, until: Share::ENDLESS },
        ] {
            assert_eq!(Share::read(share.text().as_bytes()), Some(share));
        }
        for other in ["", "1", "1 ", " 1", "0 5", "1 05", "1 5 ", "1  5", "x 5", "4294967296 5"] {
            assert_eq!(Share::read(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(Share::read(b"1 9223372036854775808"), None);
    }

    #[test]
    fn a_share_lives_as_long_as_a_key_would() {
        let share = Share { holds: 1, until: UnixMillis(5) };
        assert!(share.is_live(UnixMillis(5)));
        assert!(!share.is_live(UnixMillis(6)));
    }

    #[test]
    fn a_share_ends_with_the_key_at_the_latest() {
        let own = Some(Share { holds: 1, until: UnixMillis(50) });
        let ends = |owner, until: Option<u64>, now| {
            let until = until.map(UnixMillis);
            let sharing =
                Sharing { asked: b"a", own, token: None, until, holders: 1, living: None };
            sharing.share_of(owner, UnixMillis(now)).map(|share| share.until.0)
        };
        assert_eq!(ends(b"a", Some(20), 5), Some(20));
        assert_eq!(ends(b"a", Some(90), 5), Some(50));
        assert_eq!(ends(b"a", None, 5), Some(50));
        assert_eq!(ends(b"a", None, 51), None);
        assert_eq!(ends(b"b", None, 5), None);
    }

    #[test]
    fn latches_and_changes_are_for_all_and_everything_else_is_not() {
        let permits = Want::Permits { more: 1, holds: None };
        let all = [Want::LatchOpen, Want::Changes(0), Want::Exclusive, Want::Shared, permits];
        assert_eq!(all.map(Want::is_for_all), [true, true, false, false, false]);
    }
}

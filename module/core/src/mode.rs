//! The modes of a lock, exclusive and shared, and their layout in a hash.
//!
//! ```text
//! exclusive             alice → 2                         fencing-token → t17
//! … and also shared     alice → 2   lock-mode → exclusive 1   fencing-token → t17
//! shared by two         lock-mode → shared                fencing-token → t18
//!                       bob → 1 1795202270794   carol → 2 1795202275000
//! ```
//!
//! Each sharer has its own lease, in its field. The key expires when the last of these leases ends.

use crate::fields::RESERVED_FIELDS;
use crate::parse::{OWNER_BYTES_MAX, in_two, strict_decimal};
use crate::types::{HOLDS_MAX, UnixMillis};

/// What an owner requests of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To hold the lock alone.
    Exclusive,
    /// To share it.
    Shared,
    /// Not a lock: that a latch opens.
    Zero,
    /// Permits of a semaphore.
    Permits {
        /// Number of permits to add.
        more: u64,
        /// Number that the owner must hold then, if the request has `HOLDS`.
        holds: Option<u64>,
    },
    /// To observe changes after the given version: see [`News`](crate::News).
    Changes(u64),
}

impl Want {
    /// Whether all waiters are served at once, also those of sessions that are away.
    pub(crate) fn is_for_all(self) -> bool {
        matches!(self, Self::Zero | Self::Changes(_))
    }
}

/// What the field of the mode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those in the other fields share the lock.
    Shared,
    /// One holds it, and has this many shared holds beside.
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

/// The share of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of holds; at least 1.
    pub holds: u64,
    /// When the lease ends.
    pub until: UnixMillis,
}

impl Share {
    /// The end of a lease without an end, because another client removed the TTL of the lock.
    pub const ENDLESS: UnixMillis = UnixMillis(i64::MAX.cast_unsigned());

    /// Reads the value of an owner's field; `None` if it is not a share.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (holds, until) = in_two(value)?;
        let holds = strict_decimal(holds).filter(|holds| (1..=HOLDS_MAX).contains(holds))?;
        let until = strict_decimal(until).map(UnixMillis)?;
        (until <= Self::ENDLESS).then_some(Self { holds, until })
    }

    /// Reads a field of a key that many may hold: what its owner has, if it can be that. `None` if the
    /// key keeps the field for itself.
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

    /// Returns whether the lease still runs. It ends when the server would take a key for expired.
    #[must_use]
    pub fn is_live(&self, now: UnixMillis) -> bool {
        self.until >= now
    }
}

/// A lock that is shared, as one owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing<'a> {
    /// The owner that was asked for.
    pub asked: &'a [u8],
    /// What that owner has of it, even if its lease has ended.
    pub own: Option<Share>,
    /// The common token of the sharers; `None` if another client removed it.
    pub token: Option<crate::token::Token>,
    /// When the key expires; `None` if its TTL was removed.
    pub until: Option<UnixMillis>,
    /// Number of sharers, including expired ones that were not removed yet.
    pub holders: usize,
    /// End of the lease of a live sharer; `None` if no search was made.
    pub living: Option<UnixMillis>,
}

impl Sharing<'_> {
    /// What this owner has of it, if it is the one that was asked for and its lease runs. The
    /// lease ends with the key at the latest.
    pub(crate) fn share_of(&self, owner: &[u8], now: UnixMillis) -> Option<Share> {
        let share = self.own.filter(|share| self.asked == owner && share.is_live(now))?;
        let until = self.until.map_or(share.until, |until| until.min(share.until));
        Some(Share { until, ..share })
    }

    /// When the key must expire if a share ends at `until`; none if it need not move.
    pub(crate) fn extended_to(&self, until: UnixMillis) -> Option<UnixMillis> {
        self.until.filter(|end| *end < until).map(|_| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in [Mode::Shared, Mode::Exclusive(1), Mode::Exclusive(HOLDS_MAX)] {
            assert_eq!(Mode::read(mode.text().as_bytes()), Some(mode));
        }
        for other in ["", "Shared", "shared ", "exclusive", "exclusive 0", "exclusive 01", "read"] {
            assert_eq!(Mode::read(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn shares_are_read_as_they_are_written() {
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
}

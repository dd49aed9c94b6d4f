//! Semaphores: a number of permits. Each owner has one lease for all permits that it holds.
//!
//! ```text
//! lock-mode → semaphore 5 3   alice → 2 1795202270794   bob → 1 1795202275000
//! ```
//!
//! The `lock-mode` field has the number of permits and the number of held ones. The latter includes
//! permits of expired owners that were not removed yet. Each other field has the permits of one
//! owner and the end of its lease, as in a shared lock.

use crate::change::HandOff;
use crate::key::KeyRef;
use crate::mode::Share;
use crate::outbox::Dismissal;
use crate::parse::{in_two, strict_decimal};
use crate::situation::{At, WaitedFor};
use crate::types::{Now, UnixMillis};

/// State of a semaphore, as read from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semaphore {
    /// There is no key: the semaphore was never set, or its key was deleted.
    Unset,
    /// The semaphore exists.
    Set(Permits),
    /// The key holds something else.
    NotASemaphore {
        /// Expiry time of that key; `None` without a TTL.
        until: Option<UnixMillis>,
    },
}

/// The permits of a semaphore, as one owner sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// Number of permits.
    pub limit: u64,
    /// Number of held permits. Can exceed `limit` after the limit was lowered.
    pub used: u64,
    /// Permits of this owner; `None` if it holds none or its lease has ended.
    pub own: Option<Share>,
    /// Time before which no lease ends; `None` if unknown.
    pub earliest: Option<UnixMillis>,
}

impl Permits {
    /// Largest number of permits of a semaphore.
    pub const MAX: u64 = u32::MAX as u64;

    /// Reads the `lock-mode` field: the number of permits, and the number of held ones.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<(u64, u64)> {
        let (limit, used) = in_two(value.strip_prefix(b"semaphore ")?)?;
        let (limit, used) = (strict_decimal(limit)?, strict_decimal(used)?);
        (limit <= Self::MAX && used <= Self::MAX).then_some((limit, used))
    }

    /// Returns the value of the `lock-mode` field.
    #[must_use]
    pub fn text(limit: u64, used: u64) -> String {
        format!("semaphore {limit} {used}")
    }

    pub(crate) fn held(&self) -> u64 {
        self.own.map_or(0, |own| own.holds)
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// A semaphore at one moment, as one owner sees it.
pub type SemaphoreAt<'a> = At<'a, Semaphore>;

/// Change to write to the key of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitsChange {
    /// No change.
    None,
    /// Sets the number of permits.
    Limit(u64),
    /// Sets the permits of the owner and the number of held permits.
    Own {
        /// Permits of the owner; `None` if it holds none.
        share: Option<Share>,
        /// Number of held permits.
        used: u64,
    },
}

/// Reply to a request for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeReply {
    /// Number of permits that the owner holds now.
    Holds(u64),
    /// Too few permits are free, an earlier waiter is in line, or a quarantine is on. With `HELD`, the
    /// owner holds no permits.
    Refused,
    /// `HOLDS n` does not match what the owner holds.
    Mismatch,
    /// The owner would hold more permits than the semaphore has.
    TooMany,
    /// The semaphore does not exist.
    Unset,
    /// The key is not a semaphore.
    NotASemaphore,
}

/// Result of an attempt to serve the first waiter for permits.
#[derive(Debug, PartialEq, Eq)]
pub enum Served<P> {
    /// Granted. Contains the new permits of the owner and the new number of held permits.
    Granted(HandOff<P>, Share, u64),
    /// Dismissed for this reason. Contains the client to answer, if any.
    Dismissed(Option<P>, Dismissal),
    /// The first waiter has to wait, or there is none.
    NotYet,
}

impl WaitedFor for SemaphoreAt<'_> {
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>) {
        let until = match self.seen {
            Semaphore::Set(seen) => Some(seen.earliest.unwrap_or_else(|| self.now.unix())),
            Semaphore::NotASemaphore { until } => until,
            Semaphore::Unset => None,
        };
        (self.key, self.now, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_read_as_written() {
        for (limit, used) in [(0, 0), (5, 3), (Permits::MAX, Permits::MAX)] {
            assert_eq!(Permits::read(Permits::text(limit, used).as_bytes()), Some((limit, used)));
        }
        for other in [
            "",
            "semaphore",
            "semaphore 5",
            "semaphore 5 ",
            "semaphore 05 1",
            "latch 5",
            "semaphore 5 -1",
            "semaphore 4294967296 0",
        ] {
            assert_eq!(Permits::read(other.as_bytes()), None, "{other:?}");
        }
    }
}

//! Semaphores: a number of permits that owners hold, each for a lease.
//!
//! ```text
//! lock-mode → semaphore 5 3   alice → 2 1795202270794   bob → 1 1795202275000
//! ```
//!
//! The `lock-mode` field has the number of permits and the number of held ones. The latter includes permits of
//! expired holders that were not found yet. The other fields have the permits and the end of the lease of each
//! owner, as in a shared lock.

use crate::change::HandOff;
use crate::key::KeyRef;
use crate::mode::Share;
use crate::outbox::Dismissal;
use crate::parse::{in_two, strict_decimal};
use crate::situation::{At, WaitedFor};
use crate::types::{Now, UnixMillis};

/// What a key says of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semaphore {
    /// It was never set.
    Unset,
    /// It has permits.
    Set(Permits),
    /// The key holds something else.
    NotASemaphore {
        /// When that will go away by itself.
        until: Option<UnixMillis>,
    },
}

/// The permits of a semaphore, as one owner sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// Number of permits.
    pub limit: u64,
    /// Number of held permits. Exceeds `limit` after the limit was lowered.
    pub used: u64,
    /// Permits of the requested owner, if its lease runs.
    pub own: Option<Share>,
    /// No lease ends before this. `None` if that is not known.
    pub earliest: Option<UnixMillis>,
}

impl Permits {
    /// The most permits that a semaphore can have.
    pub const MAX: u64 = u32::MAX as u64;

    /// Reads the field of the mode: the number of permits, and the number that is held.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<(u64, u64)> {
        let (limit, used) = in_two(value.strip_prefix(b"semaphore ")?)?;
        let (limit, used) = (strict_decimal(limit)?, strict_decimal(used)?);
        (limit <= Self::MAX && used <= Self::MAX).then_some((limit, used))
    }

    /// What the field of the mode is to say.
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

/// A semaphore at one moment, as it is for the owner that asks or for the first waiter.
pub type SemaphoreAt<'a> = At<'a, Semaphore>;

/// What to write to the key of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitsChange {
    /// Nothing.
    None,
    /// Sets the number of permits.
    Limit(u64),
    /// Sets the permits of the owner and the number of held permits.
    Own {
        /// Permits of the owner; `None` if it holds none any more.
        share: Option<Share>,
        /// Number of held permits.
        used: u64,
    },
}

/// What taking permits answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeReply {
    /// The number that the owner now holds.
    Holds(u64),
    /// Too few are free, or there are earlier waiters.
    Refused,
    /// `HOLDS n` does not fit what the owner holds.
    Mismatch,
    /// The semaphore has fewer permits.
    TooMany,
    /// The semaphore was never set.
    Unset,
    /// The key is not a semaphore.
    NotASemaphore,
}

/// What becomes of the first waiter for permits.
#[derive(Debug, PartialEq, Eq)]
pub enum Served<P> {
    /// Granted: the permits of the owner, and the number of held permits.
    Granted(HandOff<P>, Share, u64),
    /// Sent away, for this reason.
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
    fn permits_are_read_as_they_are_written() {
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

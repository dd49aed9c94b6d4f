//! Semaphores: a number of permits that owners hold, each for a lease.
//!
//! ```text
//! lock-mode → semaphore 5 3   alice → 2 1795202270794   bob → 1 1795202275000
//! ```
//!
//! The field that says what a key is says how many permits there are and how many of them are
//! held, by the living and by those who died and were not found yet. The others say what each
//! owner holds and until when, as in a shared lock.

use crate::key::KeyRef;
use crate::mode::Share;
use crate::outcome::HandOff;
use crate::parse::{in_two, strict_decimal};
use crate::types::{Now, UnixMillis};
use crate::waiting::{At, WaitedFor};

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
    /// How many there are.
    pub limit: u64,
    /// How many of them are held. More than there are, if their number was lowered meanwhile.
    pub used: u64,
    /// What the owner that was asked for holds, if its lease runs.
    pub own: Option<Share>,
    /// No lease ends before this; none if nobody knows.
    pub earliest: Option<UnixMillis>,
}

impl Permits {
    /// The most permits that a semaphore can have.
    pub const MAX: u64 = u32::MAX as u64;

    /// Reads what the field of the mode says: how many there are, and how many are held.
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
    /// There are so many permits.
    Limit(u64),
    /// The owner holds this, and so many are held in all.
    Own {
        /// What the owner holds; none if nothing any more.
        share: Option<Share>,
        /// How many are held.
        used: u64,
    },
}

/// What taking permits answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeReply {
    /// So many does the owner hold now.
    Holds(u64),
    /// Not enough are free, or others are before the owner.
    Refused,
    /// `HOLDS n` does not fit what the owner holds.
    Mismatch,
    /// There are not so many permits at all.
    TooMany,
    /// The semaphore was never set.
    Unset,
    /// The key is not a semaphore.
    NotASemaphore,
}

/// What becomes of the first waiter for permits.
#[derive(Debug, PartialEq, Eq)]
pub enum Served<P> {
    /// It was granted them: the owner holds this now, and so many are held in all.
    Granted(HandOff<P>, Share, u64),
    /// It can never have them: there are fewer.
    TooMany(Option<P>),
    /// It has to wait, or there is none.
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

//! Count-down latches: a number that participants count down. Waiters wait until it reaches zero.
//!
//! ```text
//! lock-mode → latch 2   alice → counted   bob → counted
//! ```
//!
//! The `lock-mode` field has the remaining count. The other fields are the named participants that
//! have counted, so that each counts once. A latch at zero has no key: an absent key is an open latch.

use crate::key::KeyRef;
use crate::parse::strict_decimal;
use crate::situation::{At, WaitedFor};
use crate::types::{Now, UnixMillis};

/// Value of the field of a participant that has counted. It is not a number: for each number in a
/// hash, a script of Redisson runs a loop with that many steps.
pub const COUNTED: &[u8] = b"counted";

/// State of a latch, as read from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latch {
    /// The latch is open: there is no key.
    Open,
    /// The latch is set and not open yet.
    Counting {
        /// Remaining count; at least 1.
        left: u64,
        /// `true` if the participant of the request has counted.
        counted: bool,
        /// Expiry time of the key; `None` without a TTL.
        until: Option<UnixMillis>,
    },
    /// The key holds something else.
    NotALatch {
        /// Expiry time of that key; `None` without a TTL.
        until: Option<UnixMillis>,
    },
}

impl Latch {
    /// Largest count of a latch.
    pub const COUNT_MAX: u64 = u32::MAX as u64;

    /// Reads the remaining count from the `lock-mode` field. `None` if the field is not a latch's.
    #[must_use]
    pub fn read_left(value: &[u8]) -> Option<u64> {
        let left = strict_decimal(value.strip_prefix(b"latch ")?)?;
        (1..=Self::COUNT_MAX).contains(&left).then_some(left)
    }

    /// Returns the value of the `lock-mode` field.
    #[must_use]
    pub fn text(left: u64) -> String {
        format!("latch {left}")
    }

    pub(crate) fn until(self) -> Option<UnixMillis> {
        match self {
            Self::Open => None,
            Self::Counting { until, .. } | Self::NotALatch { until } => until,
        }
    }
}

/// A latch at one moment.
pub type LatchAt<'a> = At<'a, Latch>;

/// Change to write to the key of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchChange {
    /// No change.
    None,
    /// A new latch. It replaces the latch that the key may contain.
    Begin {
        /// Initial count.
        count: u64,
        /// Expiry time of the key; `None` for no TTL.
        until: Option<UnixMillis>,
    },
    /// Stores the remaining count, and records the participant if the request names one.
    Count {
        /// Remaining count.
        left: u64,
    },
    /// Zero: delete the key, and answer the waiters.
    Open,
}

/// Reply to setting a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetReply {
    /// The latch was set.
    Set,
    /// The latch was set before and is not open yet.
    Counting,
    /// The key is not a latch.
    NotALatch,
}

/// Reply to counting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountDownReply {
    /// Remaining count; 0 if this request opened the latch.
    Left(u64),
    /// The latch was open already.
    Open,
    /// The key is not a latch.
    NotALatch,
}

impl WaitedFor for LatchAt<'_> {
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>) {
        (self.key, self.now, self.seen.until())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_existing_key_expires() {
        let until = Some(UnixMillis(7));
        let counting = Latch::Counting { left: 1, counted: false, until };
        let untils = [Latch::Open, counting, Latch::NotALatch { until }].map(Latch::until);
        assert_eq!(untils, [None, until, until]);
    }
}

//! Count-down latches: a number that only falls, and waiters until it is zero.
//!
//! ```text
//! lock-mode → latch 2   alice → 1   bob → 1
//! ```
//!
//! The `lock-mode` field has the number that is left. The other fields are the participants that have counted,
//! so that each counts once. A latch at zero has no key: an absent key is an open latch.

use crate::key::KeyRef;
use crate::parse::strict_decimal;
use crate::situation::{At, WaitedFor};
use crate::types::{Now, UnixMillis};

/// The value of the field of each participant that has counted. Not a number, as nothing here but the
/// holds of an owner: see [`crate::Token::text`].
pub const COUNTED: &[u8] = b"counted";

/// What a key says of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latch {
    /// It is open: there is no key.
    Open,
    /// It counts.
    Counting {
        /// How much is left; at least 1.
        left: u64,
        /// Whether the participant that was asked for has counted.
        counted: bool,
        /// When the key expires.
        until: Option<UnixMillis>,
    },
    /// The key holds something else.
    NotALatch {
        /// When that will go away by itself.
        until: Option<UnixMillis>,
    },
}

impl Latch {
    /// The most that a latch can count.
    pub const COUNT_MAX: u64 = u32::MAX as u64;

    /// Reads what the field of the mode says; `None` if it is not a latch's.
    #[must_use]
    pub fn read_left(value: &[u8]) -> Option<u64> {
        let left = strict_decimal(value.strip_prefix(b"latch ")?)?;
        (1..=Self::COUNT_MAX).contains(&left).then_some(left)
    }

    /// What the field of the mode is to say.
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

/// What to write to the key of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchChange {
    /// Nothing.
    None,
    /// A new latch, which replaces any value of the key.
    Begin {
        /// How much it counts.
        count: u64,
        /// When it expires.
        until: Option<UnixMillis>,
    },
    /// So much is left, and the participant has counted.
    Count {
        /// How much is left.
        left: u64,
    },
    /// Zero: delete the key, and answer the waiters.
    Open,
}

/// Reply to setting a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetReply {
    /// It counts now.
    Set,
    /// It counts already.
    Counting,
    /// The key is not a latch.
    NotALatch,
}

/// What counting down answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountDownReply {
    /// So much is left.
    Left(u64),
    /// There is nothing to count.
    Open,
    /// The key is not a latch.
    NotALatch,
}

impl WaitedFor for LatchAt<'_> {
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>) {
        (self.key, self.now, self.seen.until())
    }
}

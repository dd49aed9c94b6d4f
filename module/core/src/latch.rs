//! Count-down latches: a number that only falls, and waiters until it is zero.
//!
//! ```text
//! lock-mode → latch 2   alice → 1   bob → 1
//! ```
//!
//! The `lock-mode` field has the number that is left. The other fields are the participants that have counted,
//! so that each counts once. A latch at zero has no key: an absent key is an open latch.

use crate::key::KeyRef;
use crate::outbox::Ending;
use crate::outcome::{Cause, WaitReply, count};
use crate::parse::strict_decimal;
use crate::situation::{At, WaitedFor};
use crate::table::Table;
use crate::types::{Now, UnixMillis};
use crate::waiter::Caller;

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

    fn until(self) -> Option<UnixMillis> {
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
    /// A new latch, whatever was there before.
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

impl<P> Table<P> {
    /// Sets a latch, unless one counts and is not to be replaced.
    pub fn set_latch(
        &mut self,
        at: &LatchAt<'_>,
        count: u64,
        replace: bool,
        until: Option<UnixMillis>,
    ) -> (SetReply, LatchChange) {
        match at.seen {
            Latch::NotALatch { .. } => (SetReply::NotALatch, LatchChange::None),
            Latch::Counting { .. } if !replace => (SetReply::Counting, LatchChange::None),
            Latch::Counting { .. } | Latch::Open => {
                if at.seen == Latch::Open && self.queues.find(at.key).is_some() {
                    // These waited for the previous latch, whose end was not noticed yet.
                    self.open(at.key);
                }
                if let Some(until) = until {
                    let due = crate::types::after(until);
                    self.look_no_later_than(at.key, due, Cause::Expiry);
                }
                (SetReply::Set, LatchChange::Begin { count, until })
            }
        }
    }

    /// Counts down by one, unless the participant has counted already. At zero all waiters are
    /// released.
    pub fn count_down(&mut self, at: &LatchAt<'_>) -> (CountDownReply, LatchChange) {
        match at.seen {
            Latch::NotALatch { .. } => (CountDownReply::NotALatch, LatchChange::None),
            Latch::Open => (CountDownReply::Open, LatchChange::None),
            Latch::Counting { left, counted: true, .. } => {
                count(&mut self.counters.repeated);
                (CountDownReply::Left(left), LatchChange::None)
            }
            Latch::Counting { left: 1, .. } => {
                self.open(at.key);
                (CountDownReply::Left(0), LatchChange::Open)
            }
            Latch::Counting { left, .. } => {
                let left = left.saturating_sub(1);
                (CountDownReply::Left(left), LatchChange::Count { left })
            }
        }
    }

    /// Returns whether a latch is open, or is none; `None` while it counts.
    #[must_use]
    pub fn ask_for_latch(&self, at: &LatchAt<'_>) -> Option<bool> {
        match at.seen {
            Latch::Open => Some(true),
            Latch::NotALatch { .. } => Some(false),
            Latch::Counting { .. } => None,
        }
    }

    /// Returns whether a caller may wait for a latch; at once if it is open, or no latch.
    pub fn wait_for_latch(
        &self,
        at: &LatchAt<'_>,
        waiter: &[u8],
        caller: impl Into<Caller>,
    ) -> WaitReply<bool> {
        match self.ask_for_latch(at) {
            Some(is_open) => WaitReply::Now(is_open),
            None => self.room_for(at.key, waiter, &caller.into()),
        }
    }

    /// Looks at a latch outside any command: releases the waiters if it is open, else plans the
    /// next look.
    pub fn look_at_latch(&mut self, at: &LatchAt<'_>) {
        match at.seen {
            Latch::Open => self.open(at.key),
            Latch::Counting { .. } | Latch::NotALatch { .. } => {
                if let Some(id) = self.queues.find(at.key) {
                    self.plan_next_look(id, at.seen.until(), at.now);
                }
            }
        }
    }

    /// Releases all waiters of a latch. They are answered one after the other:
    /// [`Self::next_released`].
    fn open(&mut self, key: KeyRef<'_>) {
        count(&mut self.counters.latches_opened);
        if let Some(id) = self.queues.find(key) {
            let planned = self.queues.release(id);
            self.agenda.move_look(id, planned, None);
        }
    }

    /// Takes out one waiter of a latch that has opened; gives it back if it is a client to answer.
    pub fn next_released(&mut self) -> Option<Option<P>> {
        let id = self.queues.first_released()?;
        let leaver = self.take_out(id)?;
        count(&mut self.counters.released_by_latches);
        Some(self.tell(leaver, Ending::Open))
    }

    /// Returns whether a latch has opened whose waiters are not all answered yet.
    #[must_use]
    pub fn has_released(&self) -> bool {
        self.queues.has_released()
    }
}

impl WaitedFor for LatchAt<'_> {
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>) {
        (self.key, self.now, self.seen.until())
    }
}

//! The numbers of waiters and queues.

use std::ops::RangeInclusive;

/// Identifies a waiter; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub(crate) u64);

/// Identifies a queue; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(pub(crate) u64);

impl WaiterId {
    pub(crate) const ALL: RangeInclusive<Self> = Self(0)..=Self(u64::MAX);

    /// The number after this one.
    pub(crate) fn after(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

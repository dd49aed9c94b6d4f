//! The numbers of waiters, queues, sessions and grants.

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

/// Identifies a session within this server; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) u64);

/// Name of a session in commands: 32 hex digits that cannot be guessed.
pub type SessionName = [u8; 32];

/// Identifies a grant to a waiter; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub(crate) u64);

//! The quarantine: a time after a start or a promotion in which no lock and no permits are granted.
//!
//! A server that was just started, or just promoted, may lack grants that were answered: they were
//! lost with its memory or with the previous primary. A client with such a grant believes that it
//! holds a lock of which this server has no record. If no lock is granted until the longest
//! lease has ended, no lock has a second holder. Known locks can be renewed, re-entered and
//! released during the quarantine, and clients can wait in the queue.

use crate::types::{Millis, MonoMillis, Now};

/// Length of quarantines, and start of the current one. Uses the monotonic clock, so that changes
/// of the date have no effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quarantine {
    /// Zero disables quarantines.
    pub(crate) length: Millis,
    pub(crate) since: Option<MonoMillis>,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { length: Millis(0), since: None }
    }
}

impl Quarantine {
    pub(crate) fn end(self) -> Option<MonoMillis> {
        self.since.map(|since| since.plus(self.length))
    }

    pub(crate) fn is_over(self, now: MonoMillis) -> bool {
        self.end().is_some_and(|end| end <= now)
    }

    /// Returns whether new grants are forbidden now.
    pub(crate) fn is_on(self, now: Now) -> bool {
        self.since.is_some() && !self.is_over(now.mono)
    }
}

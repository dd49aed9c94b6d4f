//! The observed locks, and the rounds in which their observers are informed.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::ids::{QueueId, WaiterId};
use crate::key::Kind;
use crate::news::{LossReason, VersionedState};
use crate::types::UnixMillis;
use crate::waiter::Leaver;

/// A lock with observers.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) news: Rc<VersionedState>,
    /// Expiry time of its key, as last seen.
    pub(crate) until: Option<UnixMillis>,
    /// Reason for which a holder last lost the lock, and the version of that change.
    pub(crate) gone: Option<(u64, LossReason)>,
    pub(crate) round: Option<Round>,
}

/// A round of reports to the observers of a lock. Observers up to `after` were informed in this
/// round. With `again`, the state has changed during the round, so another round follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) after: Option<WaiterId>,
    pub(crate) again: bool,
}

/// All locks with observers.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    pub(crate) all: BTreeMap<QueueId, Watched>,
    /// Locks whose observers are being informed.
    pub(crate) telling: VecDeque<QueueId>,
    pub(crate) observers: usize,
    pub(crate) last_version: u64,
}

impl Watches {
    /// Removes all observers. Versions continue. Returns the locks that were observed.
    pub(crate) fn begin_anew(&mut self) -> BTreeMap<QueueId, Watched> {
        let new = Self { last_version: self.last_version, ..Self::default() };
        std::mem::replace(self, new).all
    }

    pub(crate) fn next_version(&mut self) -> u64 {
        self.last_version = self.last_version.saturating_add(1);
        self.last_version
    }

    /// Updates the counts after a waiter has left. `is_last` is `true` if its queue was removed.
    pub(crate) fn left<P>(&mut self, leaver: &Leaver<P>, is_last: bool) {
        if leaver.key.kind == Kind::Changes {
            self.observers = self.observers.saturating_sub(1);
            if is_last {
                self.all.remove(&leaver.waiter.queue);
            }
        }
    }

    pub(crate) fn is_telling(&self) -> bool {
        !self.telling.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_never_used_twice() {
        let mut watches = Watches { observers: 3, ..Watches::default() };
        assert_eq!((watches.next_version(), watches.next_version()), (1, 2));
        watches.telling.push_back(QueueId::default());
        assert!(watches.is_telling());
        assert!(watches.begin_anew().is_empty());
        assert_eq!((watches.observers, watches.is_telling()), (0, false));
        assert_eq!(watches.next_version(), 3);
    }
}

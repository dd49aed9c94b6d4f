//! The records of waits for sets of locks: see `places.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::free::{Free, free_one_of};
use crate::ids::{QueueId, WaiterId};

/// The places of a waiter for a set of locks, except the place for the first key. The flag is
/// `true` for a key of `UNDER`.
pub(crate) type Further = Box<[(WaiterId, bool)]>;

/// A wait for a set.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) further: Further,
    /// Number of holds of the first lock that the owner expects after the grant: see `Acquire::holds`.
    pub(crate) holds: Option<u64>,
}

/// All waits for sets.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) waits: BTreeMap<WaiterId, Wait>,
    /// Places that want to share, in order of arrival, if their waits are not passed over. They are
    /// beside the line, not in it.
    pub(crate) beside: BTreeSet<(QueueId, WaiterId)>,
    /// Places that want the lock exclusively, if their waits are not passed over. They are in line.
    pub(crate) in_line: BTreeSet<(QueueId, WaiterId)>,
    /// The place at which each set is held up.
    pub(crate) held_up: BTreeSet<(QueueId, WaiterId)>,
    /// Waiters that may be granted their sets now.
    pub(crate) due: BTreeSet<WaiterId>,
    /// Queues whose held-up sets may be granted now, each with the place to continue from.
    pub(crate) walks: BTreeMap<QueueId, WaiterId>,
}

impl Free for Sets {
    fn free_one(&mut self) -> bool {
        let Self { waits, beside, in_line, held_up, due, walks } = self;
        free_one_of(&mut [waits, beside, in_line, held_up, due, walks])
    }
}

impl Sets {
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    pub(crate) fn entries(&self) -> usize {
        let places = self.beside.len().saturating_add(self.in_line.len());
        let places = places.saturating_add(self.held_up.len());
        self.waits.len().saturating_add(places).saturating_add(self.walks.len())
    }

    /// Removes the record of a wait for a set. Returns its further places.
    pub(crate) fn dissolve(&mut self, main: WaiterId) -> Further {
        self.due.remove(&main);
        self.waits.remove(&main).map(|wait| wait.further).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_counted_and_freed_in_a_step_of_its_own() {
        let mut sets = Sets::default();
        let (queue, places) = (QueueId::default(), [1, 2, 3].map(WaiterId));
        for place in places {
            sets.waits.insert(place, Wait { further: Box::default(), holds: None });
            sets.beside.insert((queue, place));
            sets.in_line.insert((queue, place));
            sets.held_up.insert((queue, place));
        }
        sets.walks.insert(queue, places[0]);
        assert_eq!((sets.entries(), sets.is_empty()), (13, false));
        for step in 1..=13 {
            assert!(sets.free_one());
            assert_eq!(sets.entries(), 13 - step);
        }
        assert!(!sets.free_one() && sets.is_empty());
    }
}

//! Freeing large collections in small steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A collection that can be freed one entry at a time.
pub(crate) trait Free {
    /// Frees one entry. Returns false if there was none.
    fn free_one(&mut self) -> bool;
}

impl<K: Ord, V> Free for BTreeMap<K, V> {
    fn free_one(&mut self) -> bool {
        self.pop_first().is_some()
    }
}

impl<T: Ord> Free for BTreeSet<T> {
    fn free_one(&mut self) -> bool {
        self.pop_first().is_some()
    }
}

impl<T> Free for VecDeque<T> {
    fn free_one(&mut self) -> bool {
        self.pop_front().is_some()
    }
}

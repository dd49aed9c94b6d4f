//! Freeing large collections in small steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A collection that can be freed one entry at a time.
pub(crate) trait Free {
    /// Frees one entry. Returns false if there was none.
    fn free_one(&mut self) -> bool;
}

/// Frees one entry of the first of these collections that has one. Returns false if all are empty.
pub(crate) fn free_one_of(collections: &mut [&mut dyn Free]) -> bool {
    collections.iter_mut().any(|collection| collection.free_one())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_every_collection_is_freed() {
        let mut set = BTreeSet::from([1, 2]);
        let mut map = BTreeMap::from([(1, "a")]);
        let mut list = VecDeque::from([1, 2, 3]);
        let mut steps = 0;
        while free_one_of(&mut [&mut set, &mut map, &mut list]) {
            steps += 1;
            assert_eq!(set.len() + map.len() + list.len() + steps, 6, "one entry at a time");
        }
        assert_eq!(steps, 6);
    }
}

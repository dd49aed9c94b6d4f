//! The locks with the longest total waiting time, in memory that does not grow with the number of locks.
//!
//! A sketch of heavy hitters (space-saving: Metwally, Agrawal, El Abbadi 2005). When all places are
//! used, a lock without a place replaces the lock with the smallest weight. The new lock inherits
//! this weight, because it may have had at most this weight before. Every lock with a weight above
//! the total divided by the number of places is found, and no recorded waiting time misses more
//! than that. Locks with very long names are left out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;

use crate::key::{KeyRef, LockKey};
use crate::types::Millis;

/// Largest number of locks in the profile.
pub(crate) const PLACES: usize = 128;

/// Longest name of a lock in the profile, in bytes. This limit bounds the memory.
pub(crate) const NAME_MAX: usize = 1024;

/// Waiting times and hold times of a lock or a semaphore, since it last got a place in the profile.
/// A wait for a set of locks counts for its first lock only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Sum of the waiting times of all waiters that were granted the lock or permits.
    pub waited: Millis,
    /// Longest of these waiting times.
    pub longest: Millis,
    /// Number of waiters that were granted the lock or permits.
    pub hand_offs: u64,
    /// Sum of the times for which the lock was held exclusively, in microseconds. Counts only holds
    /// that the owner released while the lock had waiters.
    pub held_us: u64,
    /// Largest possible waiting time that is missing in `waited`.
    pub missed: Millis,
}

#[derive(Debug)]
struct Place {
    hash: u64,
    key: LockKey,
    cost: Cost,
}

/// The locks with the longest total waiting time. The weight of a place is the time waited in
/// milliseconds, plus one for each hand-off, so that short waits count too.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    places: Vec<Place>,
    weights: Vec<u64>,
    by_hash: BTreeMap<u64, usize>,
    hashes: RandomState,
    /// The place that was used last. The next call usually needs it again.
    recent: usize,
}

impl Profile {
    /// Records a grant after a wait.
    pub(crate) fn handed_off(&mut self, key: KeyRef<'_>, waited: Millis) {
        if key.name.len() > NAME_MAX {
            return;
        }
        let Some(at) = self.find(key).or_else(|| self.make(key)) else { return };
        if let (Some(place), Some(weight)) = (self.places.get_mut(at), self.weights.get_mut(at)) {
            *weight = weight.saturating_add(waited.0).saturating_add(1);
            let cost = &mut place.cost;
            cost.waited = Millis(cost.waited.0.saturating_add(waited.0));
            cost.longest = cost.longest.max(waited);
            cost.hand_offs = cost.hand_offs.saturating_add(1);
        }
    }

    /// Records the time that a lock was held before a release, if the lock has a place.
    pub(crate) fn held(&mut self, key: KeyRef<'_>, micros: u64) {
        if let Some(place) = self.find(key).and_then(|at| self.places.get_mut(at)) {
            place.cost.held_us = place.cost.held_us.saturating_add(micros);
        }
    }

    fn find(&mut self, key: KeyRef<'_>) -> Option<usize> {
        let is_it = |at: &usize| self.places.get(*at).is_some_and(|it| it.key.borrow() == key);
        if is_it(&self.recent) {
            return Some(self.recent);
        }
        let found = self.by_hash.get(&self.hashes.hash_one(key)).copied().filter(is_it)?;
        self.recent = found;
        Some(found)
    }

    /// Makes a place for a key that has none. Returns `None` if another key has the same hash.
    fn make(&mut self, key: KeyRef<'_>) -> Option<usize> {
        let hash = self.hashes.hash_one(key);
        if self.by_hash.contains_key(&hash) {
            return None;
        }
        let mut place = Place { hash, key: key.to_lock_key(), cost: Cost::default() };
        if self.places.len() < PLACES {
            self.by_hash.insert(hash, self.places.len());
            self.recent = self.places.len();
            self.places.push(place);
            self.weights.push(0);
            return Some(self.recent);
        }
        let (at, least) = self.weights.iter().enumerate().min_by_key(|(_, weight)| **weight)?;
        place.cost.missed = Millis(*least);
        let before = std::mem::replace(self.places.get_mut(at)?, place);
        self.by_hash.remove(&before.hash);
        self.by_hash.insert(hash, at);
        self.recent = at;
        Some(at)
    }

    /// Returns the locks of a database with the longest total waiting time, longest first.
    pub(crate) fn top(&self, db: i32, count: usize) -> Vec<(&LockKey, Cost)> {
        let of_db = self.places.iter().filter(|place| place.key.db == db);
        let mut found: Vec<_> = of_db.map(|place| (&place.key, place.cost)).collect();
        found.sort_by_key(|(_, cost)| Reverse((cost.waited, cost.hand_offs)));
        found.truncate(count);
        found
    }

    /// Removes all records.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn record(profile: &mut Profile, name: u64, waited: u64) {
        profile.handed_off(KeyRef::lock(0, &name.to_be_bytes()), Millis(waited));
    }

    fn found(profile: &Profile) -> HashMap<u64, Cost> {
        let number = |key: &LockKey| u64::from_be_bytes((*key.name).try_into().expect("8 bytes"));
        profile.top(0, usize::MAX).into_iter().map(|(key, cost)| (number(key), cost)).collect()
    }

    #[test]
    fn with_few_locks_the_profile_is_exact_and_sorted() {
        let mut profile = Profile::default();
        for (name, waited) in [(1, 5), (2, 9), (1, 2), (3, 0)] {
            record(&mut profile, name, waited);
        }
        profile.held(KeyRef::lock(0, &1_u64.to_be_bytes()), 1500);
        profile.held(KeyRef::lock(0, b"unknown"), 1);
        let one = Cost {
            waited: Millis(7),
            longest: Millis(5),
            hand_offs: 2,
            held_us: 1500,
            missed: Millis(0),
        };
        assert_eq!(found(&profile)[&1], one);
        let names: Vec<_> = profile.top(0, 2).iter().map(|(key, _)| key.name[7]).collect();
        assert_eq!(names, [2, 1]);
        assert!(profile.top(1, 9).is_empty());
        profile.reset();
        assert!(profile.top(0, 9).is_empty());
    }

    #[test]
    fn a_long_name_takes_no_memory() {
        let mut profile = Profile::default();
        profile.handed_off(KeyRef::lock(0, &[7; NAME_MAX + 1]), Millis(1));
        assert!(profile.top(0, 9).is_empty());
        profile.handed_off(KeyRef::lock(0, &[7; NAME_MAX]), Millis(1));
        assert_eq!(profile.top(0, 9).len(), 1);
    }

    #[test]
    fn a_further_lock_takes_the_place_of_the_one_with_the_least_wait() {
        let mut profile = Profile::default();
        for name in 0..PLACES as u64 {
            record(&mut profile, name, 10 + name);
        }
        assert_eq!(found(&profile).len(), PLACES);
        record(&mut profile, 1_000, 5);
        let found = found(&profile);
        assert_eq!((found.len(), found.get(&0)), (PLACES, None));
        assert_eq!((found[&1_000].waited, found[&1_000].missed), (Millis(5), Millis(11)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_costly_lock_is_missing_and_the_error_is_reported(
            // Many rare names, and some frequent ones.
            events in prop::collection::vec((prop_oneof![0..400_u64, 0..10_u64], 0..50_u64), 0..2000)
        ) {
            let (mut profile, mut truth) = (Profile::default(), HashMap::<u64, (u64, u64)>::new());
            for (name, waited) in &events {
                record(&mut profile, *name, *waited);
                let (all, hand_offs) = truth.entry(*name).or_default();
                *all += waited;
                *hand_offs += 1;
            }
            let found = found(&profile);
            prop_assert!(found.len() <= PLACES && profile.by_hash.len() == found.len());
            let total: u64 = truth.values().map(|(waited, hand_offs)| waited + hand_offs).sum();
            for (name, (waited, hand_offs)) in &truth {
                match found.get(name) {
                    None => prop_assert!((waited + hand_offs) * PLACES as u64 <= total),
                    Some(cost) => {
                        prop_assert!(cost.waited.0 <= *waited);
                        prop_assert!(*waited <= cost.waited.0 + cost.missed.0);
                        prop_assert!(cost.missed.0 * PLACES as u64 <= total);
                    }
                }
            }
        }
    }
}

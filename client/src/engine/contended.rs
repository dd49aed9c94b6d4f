//! Locks that an earlier acquire found taken. The next acquire that may wait sends the wait at once. A wrong
//! guess costs one command or one renewal.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, Ordering};

const PLACES: usize = 4096;

/// A set of lock names, by hash. Each process uses the same hash, so that the same names collide and a
/// simulation can be repeated.
#[derive(Debug)]
pub(crate) struct Contended(Box<[AtomicBool]>);

impl Default for Contended {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicBool::new(false)).collect())
    }
}

impl Contended {
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.place(key).is_some_and(|place| place.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, key: &[u8], contended: bool) {
        if let Some(place) = self.place(key) {
            place.store(contended, Ordering::Relaxed);
        }
    }

    fn place(&self, key: &[u8]) -> Option<&AtomicBool> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        self.0.get(usize::try_from(hash % PLACES as u64).ok()?)
    }
}

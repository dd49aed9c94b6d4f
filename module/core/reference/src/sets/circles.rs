//! The model of deadlocks. It follows every path from a waiter to the owners that it waits for, and
//! from these to the owners that they wait for.

use std::collections::BTreeSet;

use super::naive::{Held, Naive, Wait};
use super::ops::{Key, Owner};

impl Naive {
    /// Returns whether a new wait would in the end wait for its own owner.
    pub fn closes_circle(&self, new: &Wait) -> bool {
        let (mut met, mut todo) = (BTreeSet::new(), Vec::new());
        for (key, shared) in new.set.wants() {
            for (owner, _) in self.in_the_way(new.owner, key, shared, self.waits.len()) {
                if owner != new.owner && met.insert(owner) {
                    todo.push(owner);
                }
            }
        }
        while let Some(of) = todo.pop() {
            let waits = self.waits.iter().enumerate();
            for (at, wait) in waits.filter(|(_, wait)| wait.owner == of && self.counts(wait)) {
                for (key, shared) in wait.set.wants() {
                    for (owner, holds) in self.in_the_way(of, key, shared, at) {
                        if owner == new.owner && holds {
                            return true;
                        }
                        if owner != new.owner && met.insert(owner) {
                            todo.push(owner);
                        }
                    }
                }
            }
        }
        false
    }

    /// Returns the owners that keep a waiter from a lock that it does not hold, and whether each of
    /// them holds the lock. Those that do not hold it wait for a set of locks, and are earlier in
    /// the queue of this lock.
    fn in_the_way(&self, of: Owner, key: Key, shared: bool, before: usize) -> Vec<(Owner, bool)> {
        let mut owners: Vec<_> = match &self.locks[key].held {
            Held::Free => Vec::new(),
            Held::Alone { owner, .. } => vec![(*owner, true)],
            Held::Shared(shares) => {
                let living = shares.iter().filter(|(_, (_, until))| *until >= self.now);
                living.map(|(owner, _)| (*owner, true)).collect()
            }
        };
        if owners.iter().any(|(owner, _)| *owner == of) {
            return Vec::new();
        }
        let waits = || {
            let waits = self.waits[..before].iter().enumerate();
            waits.filter(|(_, wait)| self.counts(wait)).filter_map(|(at, wait)| {
                let (_, its) = wait.set.wants().find(|(it, _)| *it == key)?;
                Some((at, wait, its))
            })
        };
        // A request to share waits for the last earlier exclusive request, and for everything that
        // the exclusive request waits for.
        let alone = waits().filter(|(.., its)| !its).map(|(at, ..)| at).next_back();
        let alone = if shared { alone } else { Some(before) };
        if matches!(self.locks[key].held, Held::Shared(_)) && alone.is_none() {
            owners.clear();
        }
        let sets = waits().filter(|(_, wait, _)| wait.set.keys.len() > 1);
        let sets = sets.filter(|(at, _, its)| !its || alone.is_some_and(|alone| *at < alone));
        owners.extend(sets.map(|(_, wait, _)| (wait.owner, false)));
        owners
    }
}

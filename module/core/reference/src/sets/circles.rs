//! The model of deadlocks: every way from the wanted locks over holders and what they wait for is tried.

use std::collections::BTreeSet;

use super::naive::{Held, Naive, Wait};
use super::ops::{Key, Owner};

impl Naive {
    /// Whether a new wait would wait for its own owner.
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

    /// Owners that keep a waiter from a lock that it does not hold, and whether they hold the lock. The others are in front
    /// of it, with a set.
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
            let waits = self.waits.iter().enumerate().filter(|(_, wait)| self.counts(wait));
            waits.filter_map(|(at, wait)| {
                let (_, its) = wait.set.wants().find(|(it, _)| *it == key)?;
                Some((at, wait, wait.set.keys.len() > 1, its))
            })
        };
        let in_line = waits().find(|(.., is_set, its)| !(*is_set && *its));
        let in_line = in_line.filter(|(_, _, is_set, _)| *is_set);
        let beside = waits().find(|(.., is_set, its)| *is_set && *its && !shared);
        let first = [in_line, beside].into_iter().flatten().find(|(at, ..)| *at < before);
        owners.extend(first.map(|(_, wait, ..)| (wait.owner, false)));
        owners
    }
}

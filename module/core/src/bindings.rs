//! The records of locks and permits that are bound to sessions: see `bound.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;
use std::rc::Rc;

// A simulation must be repeatable, so its hashes must not be random.
#[cfg(feature = "deterministic")]
use foldhash::quality::FixedState as RandomState;
#[cfg(not(feature = "deterministic"))]
use foldhash::quality::RandomState;

use crate::account::Charge;
use crate::free::{Free, free_one_of};
use crate::ids::SessionId;
use crate::key::{KeyRef, LockKey};
use crate::token::Token;
use crate::types::MonoMillis;

/// Identifies a binding: the hash of its key and owner, and a number that is never used twice.
pub(crate) type Place = (u64, u64);

#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) key: LockKey,
    pub(crate) owner: Rc<[u8]>,
    pub(crate) token: Token,
    pub(crate) session: SessionId,
    pub(crate) look: MonoMillis,
    pub(crate) _charge: Charge,
}

#[derive(Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) all: BTreeMap<Place, Binding>,
    /// Time of the next check of each binding: usually the end of its lease, as last seen.
    pub(crate) looks: BTreeSet<(MonoMillis, Place)>,
    /// Places of bindings whose sessions have ended, one set for each session. A place whose
    /// binding was removed needs no release.
    pub(crate) orphans: VecDeque<BTreeSet<Place>>,
    /// Bindings whose release was refused by the server. Their next check tries again.
    pub(crate) refused: BTreeSet<Place>,
    /// Bindings to drop without a release; the grants last as long as their leases.
    pub(crate) forgotten: VecDeque<BTreeSet<Place>>,
    /// No binding is released or checked before this time, because the server refuses writes.
    pub(crate) refused_until: Option<MonoMillis>,
    pub(crate) last_number: u64,
    pub(crate) hashes: RandomState,
}

impl Free for Bindings {
    fn free_one(&mut self) -> bool {
        for places in [&mut self.orphans, &mut self.forgotten] {
            if let Some(first) = places.front_mut() {
                if !first.free_one() {
                    places.pop_front();
                }
                return true;
            }
        }
        free_one_of(&mut [&mut self.all, &mut self.looks, &mut self.refused])
    }
}

impl Bindings {
    pub(crate) fn find(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<Place> {
        if self.all.is_empty() {
            return None;
        }
        let hash = self.hashes.hash_one((key, owner));
        let found = self.all.range((hash, 0)..=(hash, u64::MAX));
        let is_it = |it: &Binding| it.key.borrow() == key && *it.owner == *owner;
        found.filter(|(_, binding)| is_it(binding)).map(|(place, _)| *place).next()
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<Binding> {
        let binding = self.all.remove(&place)?;
        self.looks.remove(&(binding.look, place));
        self.refused.remove(&place);
        Some(binding)
    }

    pub(crate) fn look_at(&mut self, place: Place, due: MonoMillis) {
        if let Some(binding) = self.all.get_mut(&place) {
            let before = std::mem::replace(&mut binding.look, due);
            self.looks.remove(&(before, place));
            self.looks.insert((due, place));
        }
    }

    /// Removes all bindings and returns them. Numbering continues.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let anew = Self { last_number: self.last_number, ..Self::default() };
        std::mem::replace(self, anew)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Drops these bindings later, in small steps.
    pub(crate) fn forget(&mut self, places: BTreeSet<Place>) {
        self.forgotten.push_back(places);
    }

    /// Adds these places to the pending releases.
    pub(crate) fn orphan(&mut self, places: BTreeSet<Place>) {
        if !places.is_empty() {
            self.orphans.push_back(places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, Quota};

    fn binding(key: &[u8], owner: &[u8], look: u64) -> Binding {
        Binding {
            key: KeyRef::lock(0, key).to_lock_key(),
            owner: owner.into(),
            token: Token::NONE,
            session: SessionId(1),
            look: MonoMillis(look),
            _charge: Account::default().charge(Quota::Bound, 0),
        }
    }

    #[test]
    fn a_binding_with_the_same_hash_is_not_mistaken_for_another() {
        let mut bindings = Bindings::default();
        let key = KeyRef::lock(0, b"k");
        let hash = bindings.hashes.hash_one((key, b"ann".as_slice()));
        bindings.all.insert((hash, 1), binding(b"k", b"bob", 5));
        bindings.all.insert((hash, 2), binding(b"other", b"ann", 5));
        assert_eq!(bindings.find(key, b"ann"), None);
        bindings.all.insert((hash, 3), binding(b"k", b"ann", 5));
        assert_eq!(bindings.find(key, b"ann"), Some((hash, 3)));
    }

    #[test]
    fn numbers_of_bindings_are_never_used_twice() {
        let mut bindings = Bindings { last_number: 7, ..Bindings::default() };
        bindings.all.insert((1, 7), binding(b"k", b"ann", 5));
        let before = bindings.begin_anew();
        assert_eq!((before.len(), bindings.len(), bindings.last_number), (1, 0, 7));
    }

    #[test]
    fn each_entry_is_freed_in_a_step_of_its_own() {
        let mut bindings = Bindings::default();
        bindings.orphan(BTreeSet::from([(1, 1), (2, 2)]));
        bindings.forget(BTreeSet::from([(3, 3)]));
        bindings.all.insert((4, 4), binding(b"k", b"ann", 5));
        bindings.looks.insert((MonoMillis(5), (4, 4)));
        bindings.refused.insert((4, 4));
        let left = |it: &Bindings| {
            let lists = it.orphans.iter().chain(&it.forgotten).map(|places| places.len() + 1);
            lists.sum::<usize>() + it.all.len() + it.looks.len() + it.refused.len()
        };
        let all = left(&bindings);
        for step in 1..=all {
            assert!(bindings.free_one());
            assert_eq!(left(&bindings), all - step);
        }
        assert!(!bindings.free_one());
    }
}

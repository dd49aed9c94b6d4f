//! The records of what is bound to sessions. `bound.rs` says what they are for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;
use std::rc::Rc;

// What simulates many clients must do the same again, so nothing may depend on chance.
#[cfg(feature = "deterministic")]
use foldhash::quality::FixedState as RandomState;
#[cfg(not(feature = "deterministic"))]
use foldhash::quality::RandomState;

use crate::account::Charge;
use crate::free::Free as _;
use crate::ids::SessionId;
use crate::key::{KeyRef, LockKey};
use crate::token::Token;
use crate::types::MonoMillis;

/// Names a binding: the hash of its key and owner, and a number that is never used twice.
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

/// All bindings.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) all: BTreeMap<Place, Binding>,
    /// When each is looked at, because its lease will have ended unless it was renewed.
    pub(crate) looks: BTreeSet<(MonoMillis, Place)>,
    /// Bindings of ended sessions, a set for each session. A place without a binding was bound anew.
    pub(crate) orphans: VecDeque<BTreeSet<Place>>,
    /// Bindings of ended sessions whose release was refused. The next check tries again.
    pub(crate) refused: BTreeSet<Place>,
    /// Bindings to drop: the grants last as long as their leases.
    pub(crate) forgotten: VecDeque<BTreeSet<Place>>,
    /// No work before this time.
    pub(crate) refused_until: Option<MonoMillis>,
    pub(crate) last_number: u64,
    pub(crate) hashes: RandomState,
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

    /// Begins anew without bindings; returns what there was. Numbers continue.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let anew = Self { last_number: self.last_number, ..Self::default() };
        std::mem::replace(self, anew)
    }

    /// Frees an entry. Returns false if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        for places in [&mut self.orphans, &mut self.forgotten] {
            if let Some(first) = places.front_mut() {
                if !first.free_one() {
                    places.pop_front();
                }
                return true;
            }
        }
        self.all.free_one() || self.looks.free_one() || self.refused.free_one()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Cancels the pending release of these places.
    pub(crate) fn forget(&mut self, places: BTreeSet<Place>) {
        self.forgotten.push_back(places);
    }

    /// They are released from now on.
    pub(crate) fn orphan(&mut self, places: BTreeSet<Place>) {
        if !places.is_empty() {
            self.orphans.push_back(places);
        }
    }
}

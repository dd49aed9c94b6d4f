//! Grants in flight: granted to waiters, but not sent to their clients yet.
//!
//! A session may have a million of them, so they are kept in a tree, which grows by one node at a
//! time.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use foldhash::quality::RandomState;

use crate::forget::Free as _;
use crate::grant::GrantId;
use crate::key::{KeyRef, LockKey};
use crate::token::Token;

/// A grant of a key to an owner. The sharers of a lock have the same token, and so have all grants
/// of semaphores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) token: Token,
    pub(crate) owner: &'a [u8],
}

#[derive(Debug)]
struct Kept {
    key: LockKey,
    token: Token,
    owner: Rc<[u8]>,
}

/// Hand-offs that were not sent yet, and whose owner has not used them either.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// Each grant under the hash of its [`Flight`].
    all: BTreeMap<(u64, GrantId), Kept>,
    hashes: RandomState,
}

impl Flights {
    /// Frees one entry. Returns false if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        self.all.free_one()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The grant in flight with this key, token and owner.
    pub(crate) fn find(&self, flight: Flight<'_>) -> Option<GrantId> {
        self.place(flight).map(|(_, id)| id)
    }

    fn place(&self, flight: Flight<'_>) -> Option<(u64, GrantId)> {
        if self.all.is_empty() {
            return None;
        }
        let hash = self.hashes.hash_one(flight);
        let is_it = |kept: &Kept| {
            kept.key.borrow() == flight.key
                && kept.token == flight.token
                && *kept.owner == *flight.owner
        };
        let found = self.all.range((hash, GrantId(0))..=(hash, GrantId(u64::MAX)));
        found.filter(|(_, kept)| is_it(kept)).map(|(place, _)| *place).next()
    }

    /// Adds a grant. It replaces an earlier one with the same key, token and owner.
    pub(crate) fn insert(&mut self, key: LockKey, token: Token, owner: Rc<[u8]>, id: GrantId) {
        let flight = Flight { key: key.borrow(), token, owner: &owner };
        self.remove(flight);
        let hash = self.hashes.hash_one(flight);
        self.all.insert((hash, id), Kept { key, token, owner });
    }

    /// Removes a grant. Returns whether it was in flight.
    pub(crate) fn remove(&mut self, flight: Flight<'_>) -> bool {
        self.place(flight).is_some_and(|place| self.all.remove(&place).is_some())
    }
}

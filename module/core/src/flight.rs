//! Grants in flight: grants to waiters that were not sent to their clients yet.
//!
//! A session may have a million of them. They are kept in trees, which grow by one node at a time,
//! so no grant pays for copying a large table.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use foldhash::quality::RandomState;

use crate::free::{Free, free_one_of};
use crate::ids::GrantId;
use crate::key::{KeyRef, LockKey};
use crate::token::Token;

/// A grant of a lock or of permits to an owner. The owner is needed to identify the grant: all
/// sharers of a lock have the same token, and all grants of permits have [`Token::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) token: Token,
    pub(crate) owner: &'a [u8],
}

#[derive(Debug)]
struct StoredFlight {
    key: LockKey,
    token: Token,
    owner: Rc<[u8]>,
}

/// All grants in flight. A grant is removed when it is sent, used by its owner, or taken back.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// Each grant under the hash of its [`Flight`].
    all: BTreeMap<(u64, GrantId), StoredFlight>,
    /// For each granted set of locks: the locks that are still in flight, each with its token.
    sets: BTreeMap<GrantId, Vec<(LockKey, Token)>>,
    hashes: RandomState,
}

impl Free for Flights {
    fn free_one(&mut self) -> bool {
        free_one_of(&mut [&mut self.all, &mut self.sets])
    }
}

impl Flights {
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
        let is_it = |kept: &StoredFlight| {
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
        self.all.insert((hash, id), StoredFlight { key, token, owner });
    }

    /// Adds a grant of several locks, if there are any.
    pub(crate) fn insert_set(
        &mut self,
        locks: Vec<(LockKey, Token)>,
        owner: Rc<[u8]>,
        id: GrantId,
    ) {
        for (key, token) in &locks {
            self.insert(key.clone(), *token, Rc::clone(&owner), id);
        }
        if !locks.is_empty() {
            self.sets.insert(id, locks);
        }
    }

    /// The locks of a granted set that are in flight, each with its token. `None` if there are none,
    /// or if the grant is not of a set.
    pub(crate) fn locks_of(&self, id: GrantId) -> Option<&[(LockKey, Token)]> {
        if self.sets.is_empty() { None } else { self.sets.get(&id).map(Vec::as_slice) }
    }

    /// Removes all locks of a granted set. Returns false if no such set is in flight.
    pub(crate) fn remove_set(&mut self, id: GrantId, owner: &[u8]) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let Some(locks) = self.sets.remove(&id) else { return false };
        for (key, token) in locks {
            let place = self.place(Flight { key: key.borrow(), token, owner });
            if let Some(place) = place {
                self.all.remove(&place);
            }
        }
        true
    }

    /// Removes the grant of one key. If it is a lock of a set, the other locks of the set stay.
    /// Returns whether the grant was in flight.
    pub(crate) fn remove_one(&mut self, flight: Flight<'_>) -> bool {
        let Some(place) = self.place(flight) else { return false };
        let id = place.1;
        if let Some(locks) = self.sets.get_mut(&id) {
            locks.retain(|(key, _)| key.borrow() != flight.key);
            if locks.is_empty() {
                self.sets.remove(&id);
            }
        }
        self.all.remove(&place).is_some()
    }

    /// Removes a grant; if it is of a set, with all its locks. Returns whether it was in flight.
    pub(crate) fn remove(&mut self, flight: Flight<'_>) -> bool {
        let Some(place) = self.place(flight) else { return false };
        self.remove_set(place.1, flight.owner) || self.all.remove(&place).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: u8) -> LockKey {
        KeyRef::lock(0, &[name]).to_lock_key()
    }

    fn flight(key: &LockKey, token: u64) -> Flight<'_> {
        let token = Token::from_stored(token).unwrap_or(Token::NONE);
        Flight { key: key.borrow(), token, owner: b"ann" }
    }

    /// A set of the locks `1` and `2`, as grant 1, and a single lock `3`, as grant 2.
    fn flights() -> Flights {
        let mut flights = Flights::default();
        let [one, two, three] = [1, 2, 3].map(key);
        let token = |token| flight(&one, token).token;
        let locks = vec![(one.clone(), token(5)), (two, token(6))];
        flights.insert_set(locks, b"ann".as_slice().into(), GrantId(1));
        flights.insert(three, token(7), b"ann".as_slice().into(), GrantId(2));
        flights
    }

    #[test]
    fn a_grant_of_a_set_without_a_new_lock_is_not_kept() {
        let mut flights = flights();
        flights.insert_set(Vec::new(), b"ann".as_slice().into(), GrantId(3));
        assert_eq!(flights.locks_of(GrantId(3)), None);
    }

    #[test]
    fn a_grant_is_found_by_its_key_token_and_owner() {
        let flights = flights();
        assert_eq!((flights.len(), flights.is_empty()), (3, false));
        let ids = [(1, 5), (2, 6), (3, 7), (1, 6), (3, 6), (4, 7)]
            .map(|(name, token)| flights.find(flight(&key(name), token)).map(|id| id.0));
        assert_eq!(ids, [Some(1), Some(1), Some(2), None, None, None]);
        let three = key(3);
        assert_eq!(flights.find(Flight { owner: b"bob", ..flight(&three, 7) }), None);
    }

    #[test]
    fn a_grant_with_the_same_hash_is_not_mistaken_for_another() {
        let mut flights = Flights::default();
        let wanted = key(1);
        let wanted = flight(&wanted, 5);
        let hash = flights.hashes.hash_one(wanted);
        let others = [(key(2), 5, b"ann"), (key(1), 6, b"ann"), (key(1), 5, b"bob")];
        for (id, (key, token, owner)) in (1..).zip(others) {
            let token = flight(&key, token).token;
            let stored = StoredFlight { key, token, owner: owner.as_slice().into() };
            flights.all.insert((hash, GrantId(id)), stored);
        }
        assert_eq!(flights.find(wanted), None);
        flights.insert(key(1), wanted.token, b"ann".as_slice().into(), GrantId(9));
        assert_eq!(flights.find(wanted), Some(GrantId(9)));
    }

    #[test]
    fn a_set_is_removed_with_all_its_locks() {
        let mut flights = flights();
        assert_eq!(flights.locks_of(GrantId(1)).map(<[_]>::len), Some(2));
        assert_eq!(flights.locks_of(GrantId(2)), None);
        assert!(flights.remove(flight(&key(1), 5)));
        assert_eq!((flights.len(), flights.locks_of(GrantId(1))), (1, None));
        assert!(!flights.remove_set(GrantId(1), b"ann"));
        assert!(!flights.remove_set(GrantId(2), b"ann"), "this grant is not of a set");
        assert!(flights.remove(flight(&key(3), 7)));
        assert!(flights.is_empty() && !flights.remove(flight(&key(3), 7)));
    }

    #[test]
    fn one_lock_of_a_set_is_removed_alone() {
        let mut flights = flights();
        assert!(flights.remove_one(flight(&key(1), 5)));
        let left = |it: &Flights| it.locks_of(GrantId(1)).map(|locks| locks[0].0.name.to_vec());
        assert_eq!((left(&flights), flights.len()), (Some(vec![2]), 2));
        assert!(!flights.remove_one(flight(&key(1), 5)));
        assert!(flights.remove_one(flight(&key(2), 6)));
        assert_eq!((left(&flights), flights.len()), (None, 1));
        assert!(!flights.remove_set(GrantId(1), b"ann"));
    }
}

//! Counts of what is kept for each ACL user: waits and outcomes, blocked clients, sessions, bindings.
//!
//! ```text
//! Accounts ─user─► Account: 3 waits, 1 session … ◄── Charge: one wait, 380 bytes ── Waiter
//! ```
//!
//! Everything kept for a user holds a [`Charge`] and is counted until the charge is dropped. So no
//! code path can forget to end a count, or end it twice.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A thing that is counted for each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// A wait, blocked or through a session; a place of a wait for a set of locks in a further
    /// queue; an observer; or an outcome that is kept.
    Waits,
    /// A client that is blocked: a waiter or the reader of a session.
    Blocked,
    /// A session.
    Sessions,
    /// A lock, or permits, bound to a session.
    Bound,
}

const KINDS: usize = 4;

/// Estimated memory of a wait through a session, or of an outcome, in bytes, without its
/// names.
pub(crate) const WAIT_BYTES: usize = 350;

/// With fewer accounts than this, unused accounts are not removed.
const ROOM: usize = 64;

#[derive(Debug, Default)]
struct Counts([Cell<usize>; KINDS], Cell<usize>);

impl Counts {
    fn of(&self, kept: Quota) -> Option<&Cell<usize>> {
        self.0.get(kept as usize)
    }

    fn change(&self, kept: Quota, by: isize) {
        if let Some(count) = self.of(kept) {
            count.set(count.get().saturating_add_signed(by));
        }
    }

    fn change_bytes(&self, by: isize) {
        self.1.set(self.1.get().saturating_add_signed(by));
    }
}

#[derive(Debug, Default)]
struct Entry {
    user: Rc<[u8]>,
    own: Counts,
    all: Rc<Counts>,
}

/// A user's account. A default account belongs to no user, is empty, and does not count towards the
/// total of all users.
#[derive(Clone, Debug, Default)]
pub struct Account(Rc<Entry>);

impl Account {
    /// Name of the user.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.0.user
    }

    /// Counts one thing of this kind, with its estimated memory, until the returned charge is
    /// dropped.
    #[must_use]
    pub fn charge(&self, kept: Quota, bytes: usize) -> Charge {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        for counts in [&self.0.own, &*self.0.all] {
            counts.change(kept, 1);
            counts.change_bytes(signed(bytes));
        }
        Charge { account: self.clone(), kept, bytes }
    }

    /// Number of things of this kind that are kept for the user.
    #[must_use]
    pub fn count(&self, kept: Quota) -> usize {
        self.0.own.of(kept).map_or(0, Cell::get)
    }
}

/// Charge for one thing, which is counted until the charge is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Account,
    kept: Quota,
    bytes: u32,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Entry { own, all, .. } = &*self.account.0;
        for counts in [own, &**all] {
            counts.change(self.kept, -1);
            counts.change_bytes(signed(self.bytes).saturating_neg());
        }
    }
}

impl Charge {
    /// Changes the estimated memory of the thing.
    pub(crate) fn resize(&mut self, bytes: usize) {
        *self = self.account.clone().charge(self.kept, bytes);
    }
}

#[derive(Debug)]
pub(crate) struct Charged<T> {
    it: T,
    _charge: Charge,
}

impl<T> Charged<T> {
    pub(crate) fn new(it: T, charge: Charge) -> Self {
        Self { it, _charge: charge }
    }

    pub(crate) fn into_inner(self) -> T {
        self.it
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T> DerefMut for Charged<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.it
    }
}

#[derive(Debug, Default)]
pub(crate) struct Accounts {
    by_user: BTreeMap<Rc<[u8]>, Account>,
    all: Rc<Counts>,
    /// Number of accounts at which unused ones are removed, unless [`ROOM`] is larger.
    full_at: usize,
}

impl Accounts {
    /// Returns the account of a user. Creates it if there is none.
    pub(crate) fn of(&mut self, user: &[u8]) -> Account {
        if let Some(account) = self.by_user.get(user) {
            return account.clone();
        }
        if self.by_user.len() >= self.full_at.max(ROOM) {
            self.by_user.retain(|_, account| Rc::strong_count(&account.0) > 1);
            self.full_at = self.by_user.len().saturating_mul(2);
        }
        let user: Rc<[u8]> = user.into();
        let (own, all) = (Counts::default(), Rc::clone(&self.all));
        let account = Account(Rc::new(Entry { user: Rc::clone(&user), own, all }));
        self.by_user.insert(user, account.clone());
        account
    }

    /// Number of things of this kind that are kept for all users.
    pub(crate) fn count(&self, kept: Quota) -> usize {
        self.all.of(kept).map_or(0, Cell::get)
    }

    /// Estimated memory of everything that is charged, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.all.1.get()
    }
}

fn signed(bytes: u32) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_for_its_user_and_in_total_until_it_is_dropped() {
        let mut accounts = Accounts::default();
        let (alice, bob) = (accounts.of(b"alice"), accounts.of(b"bob"));
        let first = alice.charge(Quota::Waits, 100);
        let second = accounts.of(b"alice").charge(Quota::Waits, 10);
        let third = bob.charge(Quota::Blocked, 1);
        assert_eq!((alice.count(Quota::Waits), bob.count(Quota::Waits)), (2, 0));
        assert_eq!((accounts.count(Quota::Waits), accounts.bytes()), (2, 111));
        drop(first);
        assert_eq!((alice.count(Quota::Waits), accounts.bytes()), (1, 11));
        drop((second, third));
        assert_eq!((accounts.count(Quota::Waits), accounts.count(Quota::Blocked)), (0, 0));
        assert_eq!(accounts.bytes(), 0);
    }

    #[test]
    fn accounts_of_users_without_entries_are_removed() {
        let mut accounts = Accounts::default();
        let kept = accounts.of(b"kept").charge(Quota::Sessions, 0);
        for number in 0..10 * ROOM {
            drop(accounts.of(&number.to_be_bytes()));
            assert!(accounts.by_user.len() <= ROOM + 1, "{}", accounts.by_user.len());
        }
        assert_eq!(accounts.of(b"kept").count(Quota::Sessions), 1);
        drop(kept);
    }

    #[test]
    fn a_resized_charge_counts_once_with_its_new_memory() {
        let mut accounts = Accounts::default();
        let mut charge = accounts.of(b"alice").charge(Quota::Bound, 100);
        charge.resize(30);
        assert_eq!((accounts.count(Quota::Bound), accounts.bytes()), (1, 30));
        drop(charge);
        assert_eq!((accounts.count(Quota::Bound), accounts.bytes()), (0, 0));
    }

    #[test]
    fn few_accounts_are_not_searched_for_unused_ones() {
        let mut accounts = Accounts::default();
        for number in 0..ROOM {
            drop(accounts.of(&number.to_be_bytes()));
            assert_eq!(accounts.by_user.len(), number + 1);
        }
    }
}

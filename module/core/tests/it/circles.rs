//! The limits of the search for deadlocks: it looks as far as they allow and no further.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use std::cell::Cell;

use kvlock_core::{
    Acquire, HeldBy, Holding, Join, KeyRef, Keys, Latch, LatchAt, Limits, Link, Observed, Results,
    STEPS, Situation, Table, Token, UnixMillis, Via, WaitReply, Want,
};

use super::common::{LEASE, NOW};

/// A keyspace in which owner `o<n>` holds lock `k<n>`.
#[derive(Debug, Default)]
struct Held {
    looks: Cell<usize>,
}

impl Keys for Held {
    fn exists(&self, _: &[u8]) -> bool {
        false
    }

    fn holders(&self, name: &[u8], _: &[u8], most: usize) -> HeldBy {
        self.looks.set(self.looks.get() + 1);
        let number = name.strip_prefix(b"k").unwrap_or_default();
        let owner = [b"o", number].concat();
        let owners = [owner.into_boxed_slice()].into_iter().take(most).collect();
        HeldBy { owners, is_shared: false }
    }
}

struct World {
    table: Table<usize>,
    keys: Held,
}

impl World {
    fn new() -> Self {
        let limits = Limits { waiters: 9_999, waiters_per_key: 9_999, ..Limits::UNLIMITED };
        Self { table: Table::new(limits), keys: Held::default() }
    }

    /// Lets an owner wait for a lock. Returns the circle of waits if the wait is refused.
    fn wait(
        &mut self,
        owner: usize,
        lock: usize,
        through: impl Into<Via<usize>>,
    ) -> Option<Vec<Link>> {
        let (owner, key) = (format!("o{owner}"), format!("k{lock}"));
        let (key, seen) = (KeyRef::lock(0, key.as_bytes()), held_by_another());
        let results = Results::among(&self.keys);
        let held = Situation { key, seen, now: NOW, floor: Some(0), results };
        let (owner, want) = (owner.as_bytes(), Want::Exclusive);
        let request = Acquire { owner, want, lease: LEASE, holds: None };
        match self.table.wait(&held, &request, None).0 {
            WaitReply::Deadlock(links) => return Some(links),
            WaitReply::Block => {}
            other @ (WaitReply::Now(_) | WaitReply::QueueFull(_) | WaitReply::Draining) => {
                panic!("{other:?}")
            }
        }
        let join = Join { owner, want, lease: LEASE, timeout: None };
        self.table.enqueue(&held, &join, through);
        None
    }

    /// Closes a circle. Owners 0 to `last` each hold the lock with their number. Each waits for the
    /// lock of the next owner, and owner `last` for the lock of owner 0.
    fn close_circle(&mut self, last: usize) -> Option<Vec<Link>> {
        for owner in 0..last {
            assert_eq!(self.wait(owner, owner + 1, owner), None);
        }
        self.keys.looks.set(0);
        self.wait(last, 0, last)
    }
}

fn held_by_another() -> Observed<'static> {
    let (token, until) = (Token::from_stored(7), Some(UnixMillis(1_050)));
    Observed::Held(Holding { owner: b"", holds: 1, shared: 0, token, until })
}

#[test]
fn a_long_circle_is_reported_link_by_link() {
    let links = World::new().close_circle(60).unwrap_or_else(|| panic!("it is not too long"));
    let named: Vec<_> = links.iter().map(|link| (&*link.key.name, &*link.owner)).collect();
    let expected: Vec<_> = (0..=60).map(|n| (format!("k{n}"), format!("o{n}"))).collect();
    let expected: Vec<_> = expected.iter().map(|(k, o)| (k.as_bytes(), o.as_bytes())).collect();
    assert_eq!(named, expected);
    assert!(links.iter().all(|link| link.holds));
}

#[test]
fn a_circle_that_is_too_long_is_allowed_after_a_limited_search() {
    let mut world = World::new();
    assert_eq!(world.close_circle(1_000), None);
    assert!(world.keys.looks.get() <= STEPS);
}

#[test]
fn only_some_waits_of_one_owner_are_searched() {
    let mut world = World::new();
    for lock in 2..2_000 {
        assert_eq!(world.wait(1, lock, lock), None);
    }
    world.keys.looks.set(0);
    // Owner 1 holds this lock and has all these waits.
    assert_eq!(world.wait(3_000, 1, 3_000_usize), None);
    assert!(world.keys.looks.get() <= STEPS);
}

#[test]
fn without_other_waits_nothing_is_searched() {
    let mut world = World::new();
    assert_eq!(world.wait(5, 1, 5_usize), None);
    assert_eq!(world.wait(6, 1, 6_usize), None);
    assert_eq!(world.keys.looks.get(), 0);
}

#[test]
fn a_circle_is_found_among_any_number_of_waiters() {
    let mut world = World::new();
    for waiter in 1_000..3_000 {
        assert_eq!(world.wait(waiter, 1, waiter), None);
    }
    assert_eq!(world.wait(1, 2, 1_usize), None);
    let links = world.wait(2, 1, 2_usize).unwrap_or_else(|| panic!("it is a circle"));
    let owners: Vec<_> = links.iter().map(|link| &*link.owner).collect();
    assert_eq!(owners, [b"o1", b"o2"]);
}

#[test]
fn only_waits_for_locks_of_the_same_database_close_a_circle() {
    let join = Join { owner: b"o1", want: Want::Exclusive, lease: LEASE, timeout: None };
    for db in [0, 1] {
        let mut world = World::new();
        let (key, seen) = (KeyRef::lock(db, b"k2"), held_by_another());
        let at = Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE };
        world.table.enqueue(&at, &join, 1);
        assert_eq!(world.wait(2, 1, 2_usize).is_some(), db == 0, "{db}");
    }
    let mut world = World::new();
    let seen = Latch::Counting { left: 1, counted: false, until: None };
    let latch = LatchAt { key: KeyRef::latch(0, b"k2"), seen, now: NOW };
    world.table.enqueue(&latch, &Join { want: Want::LatchOpen, ..join }, 1);
    assert_eq!(world.wait(2, 1, 2_usize), None);
}

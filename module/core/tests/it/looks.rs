//! Times and causes of looks: in a look, the table checks whether it can serve the waiters of a lock,
//! a latch or a semaphore.

use std::collections::BTreeSet;

use kvlock_core::{
    Acquire, Cause, Holding, Join, KeyRef, Latch, LatchAt, Limits, Millis, Observed, Permits,
    Semaphore, SemaphoreAt, Situation, Table, Token, UnixMillis, WaitReply, Want,
};

use super::common::{LEASE, NOW, at, later};

fn table() -> Table<u32> {
    Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED })
}

/// Returns a lock that is held for 50 ms more.
fn held(name: &[u8]) -> Situation<'_> {
    let (token, until) = (Token::from_stored(7), Some(UnixMillis(1_050)));
    let holding = Holding { owner: b"holder", holds: 1, shared: 0, token, until };
    at(name, Observed::Held(holding))
}

fn join(owner: &[u8], want: Want) -> Join<'_> {
    Join { owner, want, lease: LEASE, timeout: None }
}

fn wait(table: &mut Table<u32>, name: &[u8], owner: &[u8]) {
    let want = Want::Exclusive;
    let request = Acquire { owner, want, lease: LEASE, holds: None };
    assert_eq!(table.wait(&held(name), &request, None).0, WaitReply::Block);
    table.enqueue(&held(name), &join(owner, want), 0);
}

#[test]
fn a_regular_look_at_the_very_end_of_a_lease_counts_as_its_end() {
    // The server expires a key one millisecond after its deadline.
    for (every, cause) in [(50, Cause::Check), (51, Cause::Expiry), (52, Cause::Expiry)] {
        let mut table = table();
        table.look_every = Some(Millis(every));
        wait(&mut table, b"k", b"next");
        assert_eq!(table.next_due(NOW), Some(Millis(every.min(51))));
        let look = table.next_look(later(51));
        assert!(look.is_some_and(|(_, why)| why == cause), "looked at every {every} ms");
    }
}

#[test]
fn every_kind_of_waiter_is_looked_at_when_its_key_changes() {
    let mut table = table();
    wait(&mut table, b"k", b"a");
    wait(&mut table, b"other", b"a");
    let until = Some(UnixMillis(2_000));
    let seen = Latch::Counting { left: 1, counted: false, until };
    let latch = LatchAt { key: KeyRef::latch(0, b"k"), seen, now: NOW };
    table.enqueue(&latch, &join(b"a", Want::LatchOpen), 1);
    let seen = Semaphore::Set(Permits { limit: 1, used: 1, own: None, earliest: until });
    let pool = SemaphoreAt { key: KeyRef::semaphore(0, b"k"), seen, now: NOW };
    table.enqueue(&pool, &join(b"a", Want::Permits { more: 1, holds: None }), 2);
    assert_eq!(table.next_look(NOW), None, "nothing is due");
    let is_waited_for =
        [(0, &b"k"[..]), (1, b"k"), (0, b"l")].map(|(db, name)| table.is_waited_for(db, name));
    assert_eq!(is_waited_for, [true, false, false]);

    table.look_soon_at_all_of(1, b"k", Cause::Outside, NOW);
    assert_eq!(table.next_look(NOW), None, "it was in another database");
    table.look_soon_at_all_of(0, b"k", Cause::Outside, NOW);
    let looks = std::iter::from_fn(|| table.next_look(NOW));
    let looks = looks.map(|(key, cause)| (format!("{:?}", key.borrow()), format!("{cause:?}")));
    let expected = [KeyRef::lock(0, b"k"), latch.key, pool.key];
    let expected = expected.map(|key| (format!("{key:?}"), "Outside".to_owned()));
    assert_eq!(BTreeSet::from_iter(looks), BTreeSet::from(expected));
}

#[test]
fn a_look_at_an_unsearched_semaphore_is_due_at_once() {
    let mut table = table();
    let seen = Semaphore::Set(Permits { limit: 1, used: 1, own: None, earliest: None });
    let pool = SemaphoreAt { key: KeyRef::semaphore(0, b"k"), seen, now: NOW };
    table.enqueue(&pool, &join(b"a", Want::Permits { more: 1, holds: None }), 2);
    assert_eq!(table.next_due(NOW), Some(Millis(1)));
}

#[test]
fn repeated_new_waits_do_not_overtake_ended_leases() {
    let mut table = table();
    let shared = Situation { key: KeyRef::lock(0, b"busy"), ..held(b"k") };
    table.enqueue(&shared, &join(b"a", Want::Shared), 0);
    for name in [b"k", b"l", b"m"] {
        wait(&mut table, name, b"a");
    }
    let mut looked_at = Vec::new();
    for _ in 0..4 {
        let (key, _) = table.next_look(later(60)).expect("a look is due");
        looked_at.push(key.name.to_vec());
        let other = if looked_at.len() % 2 == 0 { Want::Shared } else { Want::Exclusive };
        table.enqueue(&shared, &join(b"a", other), 0);
    }
    looked_at.sort();
    assert_eq!(looked_at, [&b"busy"[..], b"k", b"l", b"m"]);
}

#[test]
fn waiters_beyond_one_batch_are_served_in_the_next() {
    let mut table = table();
    let earliest = Some(UnixMillis(2_000));
    let seen = Semaphore::Set(Permits { limit: 1, used: 1, own: None, earliest });
    let pool = SemaphoreAt { key: KeyRef::semaphore(0, b"k"), seen, now: NOW };
    table.enqueue(&pool, &join(b"a", Want::Permits { more: 1, holds: None }), 2);
    assert_eq!(table.next_look(NOW), None);
    table.serve_soon(pool.key, Cause::Release, NOW);
    let look = table.next_look(NOW);
    assert!(look.is_some_and(|(key, why)| key.borrow() == pool.key && why == Cause::Release));
}

#[test]
fn waiters_in_a_quarantine_are_looked_at_when_it_ends() {
    let mut table = table();
    table.set_quarantine(Millis(100));
    table.begin_quarantine(NOW);
    assert_eq!(table.next_due(later(40)), None, "nobody waits for its end");
    let free = Situation { seen: Observed::Free { stored: None }, ..held(b"k") };
    table.enqueue(&free, &join(b"a", Want::Exclusive), 0);
    assert_eq!(table.next_due(later(40)), Some(Millis(60)));
    table.end_quarantine(later(99));
    assert_eq!(table.next_look(later(99)), None);
    table.end_quarantine(later(100));
    assert!(table.next_look(later(100)).is_some());
}

#[test]
fn a_quarantine_without_length_that_replaces_another_ends_it() {
    let mut table = table();
    table.set_quarantine(Millis(100));
    table.begin_quarantine(NOW);
    let free = Situation { seen: Observed::Free { stored: None }, ..held(b"k") };
    table.enqueue(&free, &join(b"a", Want::Exclusive), 0);
    table.set_quarantine(Millis(0));
    table.begin_quarantine(later(40));
    assert!(table.next_look(later(40)).is_some());
}

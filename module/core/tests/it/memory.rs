//! Waiters that have left leave almost no memory behind, and the cost of one operation hardly grows with
//! the length of the queue.
//!
//! These tests measure no time. If each of 100,000 operations walked along the queue, a test would take
//! billions of steps, and far too long.

use kvlock_core::{
    Acquire, Caller, Cause, Change, HandOff, Holding, Join, KeyRef, Limits, Member, Millis,
    MonoMillis, Now, Observed, Release, Results, Situation, Table, Token, UnixMillis, Via,
    WaitReply, WaiterId, Want,
};

/// Largest number of entries that may be left in the maps of an empty table.
const SMALL: usize = 500;
const MANY: usize = 100_000;

const NOW: Now = Now { unix_us: 1_000_000_000, mono: MonoMillis(1_000_000) };

const ORDERS: KeyRef<'static> = KeyRef::lock(0, b"orders");

fn seen<'a>(key: KeyRef<'a>, seen: Observed<'a>) -> Situation<'a> {
    Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE }
}

/// Returns a lock that is held for ten seconds more.
fn held<'a>(key: KeyRef<'a>, owner: &'a [u8], token: Option<Token>) -> Situation<'a> {
    let holding = Holding { owner, holds: 1, shared: 0, token, until: Some(UnixMillis(1_010_000)) };
    seen(key, Observed::Held(holding))
}

fn owner(number: usize) -> Vec<u8> {
    format!("owner:{number}").into_bytes()
}

/// Queues a client. The owner has the same number as the client.
fn enqueue(table: &mut Table<usize>, key: KeyRef<'_>, number: usize) -> WaiterId {
    let join = Join {
        owner: &owner(number),
        want: Want::Exclusive,
        lease: Millis(1_000),
        timeout: Some(Millis(5_000 + number as u64)),
    };
    let (id, replaced) = table.enqueue(&held(key, b"holder", None), &join, number);
    assert_eq!(replaced, None);
    id
}

#[expect(clippy::panic, reason = "a panic is how a test fails")]
fn handed_off(change: Change<usize>) -> HandOff<usize> {
    let Change::HandOff(hand_off) = change else {
        panic!("nobody is served: {change:?}");
    };
    hand_off
}

fn full_queue() -> (Table<usize>, Vec<WaiterId>) {
    let mut table = Table::new(Limits::UNLIMITED);
    let ids = (0..MANY).map(|number| enqueue(&mut table, ORDERS, number));
    let ids = ids.collect();
    (table, ids)
}

/// Returns all numbers below [`MANY`], in an order that jumps across the queue.
fn all_over() -> impl Iterator<Item = usize> {
    (0..MANY).map(|step| step * 61_803 % MANY)
}

fn assert_empty(table: &Table<usize>) {
    assert_eq!(table.check(), Ok(()));
    assert_eq!((table.waiters(), table.waiting_keys()), (0, 0));
    assert_eq!(table.next_due(NOW), None);
    assert!(table.capacity() <= SMALL, "{} kept", table.capacity());
}

#[test]
fn a_million_consecutive_waits_leave_nothing_behind() {
    let mut table = Table::new(Limits::UNLIMITED);
    for number in 0..1_000_000 {
        enqueue(&mut table, ORDERS, number);
        assert_eq!(table.cancel(ORDERS, &owner(number)), Some(Some(number)));
        assert!(table.capacity() <= SMALL);
    }
    assert_empty(&table);
}

#[test]
fn concurrent_waits_leave_nothing_behind() {
    let (mut table, _) = full_queue();
    let most = table.capacity();
    assert!(most >= MANY);
    for number in all_over() {
        assert_eq!(table.cancel(ORDERS, &owner(number)), Some(Some(number)));
    }
    assert_empty(&table);
}

#[test]
fn a_few_remaining_waiters_use_little_memory() {
    let (mut table, _) = full_queue();
    for number in all_over().filter(|number| number % 1_000 != 0) {
        table.cancel(ORDERS, &owner(number));
    }
    assert_eq!(table.waiters(), MANY / 1_000);
    assert!(
        table.capacity() <= SMALL + 16 * table.waiters(),
        "{} kept for {}",
        table.capacity(),
        table.waiters()
    );
    let left: Vec<_> = table.queue_of(ORDERS).filter_map(|w| w.client.copied()).collect();
    assert!(left.is_sorted());
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn many_locks_with_a_waiter_each_leave_nothing_behind() {
    let mut table = Table::new(Limits::UNLIMITED);
    let names: Vec<_> = (0..MANY).map(|n| format!("lock:{n}").into_bytes()).collect();
    let keys = || names.iter().map(|name| KeyRef::lock(0, name));
    for (number, key) in keys().enumerate() {
        enqueue(&mut table, key, number);
    }
    for (number, key) in keys().enumerate() {
        assert_eq!(table.cancel(key, &owner(number)), Some(Some(number)));
    }
    assert_empty(&table);
}

#[test]
fn hand_offs_are_forgotten_when_they_are_answered() {
    let mut table = Table::new(Limits::UNLIMITED);
    let names: Vec<_> = (0..MANY).map(|n| format!("lock:{n}").into_bytes()).collect();
    let keys = || names.iter().map(|name| KeyRef::lock(0, name));
    for (number, key) in keys().enumerate() {
        enqueue(&mut table, key, number);
    }
    // One command empties all databases: 100,000 grants before the first reply is written.
    let free = Observed::Free { stored: None };
    let granted: Vec<_> =
        keys().map(|key| table.look(&seen(key, free), Cause::Outside)).map(handed_off).collect();
    for (key, hand_off) in keys().zip(granted) {
        table.delivered(key, hand_off.id, &hand_off.owner, hand_off.token);
    }
    assert_empty(&table);
}

#[test]
fn leaving_the_middle_of_a_long_queue_visits_no_other_waiter() {
    let (mut table, ids) = full_queue();
    for (step, number) in all_over().enumerate() {
        assert_eq!(table.disconnected(ids[number]), Some(number));
        assert_eq!(table.disconnected(ids[number]), None);
        if step % 20_000 == 0 {
            assert_eq!(table.check(), Ok(()));
        }
    }
    assert_empty(&table);
}

#[test]
fn waiting_again_in_a_long_queue_visits_no_other_waiter() {
    let (mut table, ids) = full_queue();
    for number in all_over() {
        let (owner, want) = (&owner(number)[..], Want::Exclusive);
        let join = Join { owner, want, lease: Millis(1_000), timeout: None };
        let (id, replaced) = table.enqueue(&held(ORDERS, b"holder", None), &join, MANY + number);
        assert_eq!((id, replaced), (ids[number], Some(number)));
    }
    assert_eq!(table.check(), Ok(()));
    let clients = table.queue_of(ORDERS).filter_map(|waiter| waiter.client.copied());
    assert!(clients.eq(MANY..2 * MANY));
}

#[test]
fn a_release_to_a_long_queue_visits_only_the_first_waiter() {
    let (mut table, _) = full_queue();
    let (mut holder, mut token) = (b"holder".to_vec(), None);
    for number in 0..MANY {
        let at = held(ORDERS, &holder, token);
        let (_, change) = table.release(&at, &holder, Want::Exclusive, Release::One);
        let hand_off = handed_off(change);
        assert_eq!(hand_off.client, Some(number));
        table.delivered(ORDERS, hand_off.id, &hand_off.owner, hand_off.token);
        (holder, token) = (hand_off.owner.to_vec(), Some(hand_off.token));
        if number % 20_000 == 0 {
            assert_eq!(table.check(), Ok(()));
        }
    }
    assert_empty(&table);
}

#[test]
fn a_long_queue_times_out_one_by_one() {
    let (mut table, _) = full_queue();
    for number in 0..MANY {
        let later = Now { mono: MonoMillis(1_005_000 + number as u64), ..NOW };
        assert_eq!(table.time_out_one(later), Some(Some(number)));
        assert_eq!(table.time_out_one(later), None);
    }
    assert_empty(&table);
}

#[test]
fn a_long_queue_is_dismissed_to_the_last() {
    let mut table = Table::new(Limits::UNLIMITED);
    let some = 0..MANY / 10;
    for number in some.clone() {
        enqueue(&mut table, ORDERS, number);
    }
    let mut dismissed = table.dismiss_all();
    dismissed.sort_unstable();
    assert!(dismissed.into_iter().eq(some));
    assert_empty(&table);
}

/// Returns a set of an exclusive lock and a shared one, which are held.
fn set(name: &[u8]) -> [Member<'_>; 2] {
    let locks = [(KeyRef::lock(0, name), false), (ORDERS, true)];
    locks.map(|(key, under)| Member { at: held(key, b"holder", None), under })
}

/// A place in shared mode holds up nobody who wants to share, so the search for deadlocks skips it.
#[test]
fn a_wait_visits_no_waiting_set_that_shares_the_lock() {
    let mut table = Table::<usize>::new(Limits::UNLIMITED);
    let caller = Caller::from(None);
    for number in 0..MANY / 2 {
        let (name, owner) = (format!("lock:{number}").into_bytes(), owner(number));
        let (want, lease) = (Want::Exclusive, Millis(1_000));
        let request = Acquire { owner: &owner, want, lease, holds: None };
        assert_eq!(table.wait_set(&set(&name), &request, &caller, None).0, WaitReply::Block);
        let join = Join { owner: &owner, want, lease, timeout: None };
        assert!(
            table.enqueue_set(&set(&name), &join, None, Via::Client(number), &caller).is_some()
        );
    }
    assert_eq!(table.waiters(), MANY);
}

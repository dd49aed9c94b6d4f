use super::*;
use crate::outcome::Limits;
use crate::table::Table;
use crate::types::{Millis, MonoMillis, Now};
use crate::waiter::Join;

const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");

fn table() -> Table<u32> {
    Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED })
}

fn wait(table: &mut Table<u32>, owner: &[u8]) -> WaiterId {
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
    let join = Join { owner, want: Want::Exclusive, lease: Millis(9), timeout: None };
    table.enqueue_at(KEY, now, None, &join, 0.into()).0
}

#[test]
fn a_waiter_that_leaves_for_a_while_keeps_its_place() {
    let mut table = table();
    let [first, second, third] = [b"a", b"b", b"c"].map(|owner| wait(&mut table, owner));
    let queue = table.queues.find(KEY).expect("somebody waits");
    let line =
        |table: &Table<u32>| Vec::from_iter(table.queues.walk(queue).map(|(waiter, _)| waiter));
    assert!(table.queues.step_out(second) && !table.queues.step_out(second));
    assert!(table.queues.step_out(first));
    assert_eq!(line(&table), [third]);
    assert_eq!(table.queues.head(queue), Some((third, Want::Exclusive)));
    assert!(table.queues.step_in(second) && !table.queues.step_in(second));
    assert_eq!(line(&table), [second, third]);
    assert!(table.queues.step_in(first));
    assert_eq!(line(&table), [first, second, third]);
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn hundreds_of_locks_and_places_are_distinguished() {
    let mut table = Table::new(Limits { waiters: 999, waiters_per_key: 9, ..Limits::UNLIMITED });
    let names: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
    let mut ids = Vec::new();
    for (client, name) in names.iter().enumerate() {
        let (owner, key) = (name.as_bytes(), KeyRef::lock(0, name.as_bytes()));
        let join = Join { owner, want: Want::Shared, lease: Millis(9), timeout: None };
        ids.push(table.enqueue_at(key, now, None, &join, client.into()).0);
    }
    for (name, id) in names.iter().zip(&ids) {
        let queue = table.queues.find(KeyRef::lock(0, name.as_bytes())).expect("it is there");
        assert_eq!(table.queues.place(queue, name.as_bytes()), Some(*id));
        assert_eq!(table.queues.place(queue, b"k"), None);
        assert_eq!(table.queues.find(KeyRef::latch(0, name.as_bytes())), None);
    }
    for (client, name) in names.iter().enumerate() {
        let key = KeyRef::lock(0, name.as_bytes());
        assert_eq!(table.cancel(key, b"k"), None);
        assert_eq!(table.cancel(key, name.as_bytes()), Some(Some(client)));
    }
    assert_eq!((table.waiters(), table.waiting_keys()), (0, 0));
}

#[test]
fn the_id_of_a_removed_waiter_finds_nothing() {
    let mut table = table();
    let (first, second) = (wait(&mut table, b"a"), wait(&mut table, b"b"));
    assert_eq!(table.dismiss_all().len(), 2);
    let again = wait(&mut table, b"a");
    assert!(again > second && second > first);
    assert_eq!(table.disconnected(first), None);
    assert_eq!(table.disconnected(again), Some(0));
}

#[test]
fn waiters_after_a_release_are_in_a_queue_of_their_own() {
    let mut table = table();
    let first = wait(&mut table, b"a");
    let old = table.queues.find(KEY).expect("somebody waits");
    table.queues.release(old);
    assert_eq!(table.queues.find(KEY), None);
    let second = wait(&mut table, b"a");
    let new = table.queues.find(KEY).expect("somebody waits");
    assert_eq!(table.queues.head(new), Some((second, Want::Exclusive)));
    // Removing the last released waiter does not affect the new queue.
    assert_eq!(table.queues.first_opened(), Some(first));
    assert!(table.queues.remove(first).is_some());
    assert_eq!(table.queues.find(KEY), Some(new));
    assert_eq!((table.queues.first_opened(), table.queues.has_opened()), (None, false));
}

#[test]
fn numbers_of_waiters_are_never_used_twice() {
    let mut table = table();
    let first = wait(&mut table, b"a");
    drop(table.queues.begin_anew());
    assert!(wait(&mut table, b"b") > first);
}

#[test]
fn each_entry_is_freed_in_a_step_of_its_own() {
    let mut table = table();
    for owner in [b"a", b"b", b"c"] {
        wait(&mut table, owner);
    }
    let mut queues = table.queues.begin_anew();
    // A queue in two maps, and three waiters in four each.
    assert_eq!((queues.entries(), table.queues.entries()), (2 + 12, 0));
    let mut steps = 0;
    while queues.free_one() {
        steps += 1;
        assert_eq!(queues.entries(), 14 - steps);
    }
    assert_eq!(steps, 14);
}

#[test]
fn a_key_with_the_same_hash_is_not_mistaken_for_another() {
    let mut table = table();
    wait(&mut table, b"a");
    let queues = &mut table.queues;
    let queue = queues.find(KEY).expect("somebody waits");
    let found = |queues: &Queues<u32>, db, name| queues.of_name(db, name).collect::<Vec<_>>();
    assert_eq!(found(queues, 0, b"k"), [queue]);
    for (db, name) in [(0, b"other".as_slice()), (1, b"k")] {
        let hash = queues.hash_of(db, name);
        queues.by_key.insert((hash, queue));
        assert_eq!(found(queues, db, name), [], "{db}");
    }
}

#[test]
fn the_nearest_earlier_waiter_that_does_not_share_is_found() {
    let mut table = table();
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
    let wants = [Want::Exclusive, Want::Exclusive, Want::Shared, Want::Shared, Want::Exclusive];
    let ids = [0_u8, 1, 2, 3, 4].map(|owner| {
        let want = wants[usize::from(owner)];
        let join = Join { owner: &[owner], want, lease: Millis(9), timeout: None };
        table.enqueue_at(KEY, now, None, &join, 0.into()).0
    });
    let queue = table.queues.find(KEY).expect("somebody waits");
    let found = |at: usize, most| table.queues.last_alone_before(queue, ids[at], most);
    assert_eq!((found(4, 9), found(4, 3)), (Some(ids[1]), Some(ids[1])));
    assert_eq!((found(4, 2), found(0, 9)), (None, None), "at most two are checked");
}

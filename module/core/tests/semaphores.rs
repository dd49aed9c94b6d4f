//! Semaphores against a model: whatever happens to one, both must answer the same, write the same
//! and have the same people in line.

#![expect(clippy::indexing_slicing, reason = "a panic is how a test fails")]

#[path = "permits/asking.rs"]
mod asking;
#[path = "permits/ops.rs"]
mod ops;
mod prove;
#[path = "permits/serving.rs"]
mod serving;
mod source;
#[path = "permits/world.rs"]
mod world;

use kvlock_core::{KeyRef, Limits, MonoMillis, Now, Permits, Semaphore, SemaphoreAt, Table};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::world::World;

fn at(seen: Semaphore) -> SemaphoreAt<'static> {
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
    SemaphoreAt { key: KeyRef::semaphore(0, b"pool"), seen, now }
}

#[test]
fn a_semaphore_does_what_the_contract_says() {
    prove::for_all(&ops::walk(), |ops| {
        let mut world = World::new();
        ops.iter().try_for_each(|op| world.step(op))
    });
}

/// The fuzzer of `scripts/fuzz` finds its way through bytes.
#[test]
fn a_semaphore_does_what_the_contract_says_whatever_bytes_say() {
    prove::for_all_bytes(|bytes| {
        let mut world = World::new();
        ops::walk_of(bytes, 80).iter().try_for_each(|op| world.step(op))
    });
}

#[test]
fn the_dead_are_looked_for_only_where_permits_are_missing() {
    let table = Table::<()>::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED });
    let lacks = |limit, used, permits| {
        let seen = Semaphore::Set(Permits { limit, used, own: None, earliest: None });
        table.lacks_permits(&at(seen), permits)
    };
    assert!(!lacks(5, 3, 2), "two are free");
    assert!(lacks(5, 3, 3));
    assert!(lacks(3, 5, 1), "their number was lowered");
    assert!(!table.lacks_permits(&at(Semaphore::Unset), 1), "nobody can hold any");
    assert!(!table.lacks_permits(&at(Semaphore::NotASemaphore { until: None }), 1));
}

/// A test that finds nothing must have looked everywhere.
#[test]
fn five_hundred_walks_see_everything_happen_often() {
    let mut runner = TestRunner::deterministic();
    let mut counted = [0; 12];
    for _ in 0..500 {
        let ops = ops::walk().new_tree(&mut runner).expect("a walk").current();
        let mut world = World::new();
        for op in &ops {
            world.step(op).expect("as the contract says");
        }
        let counters = world.counters();
        let of_this_walk = [
            counters.granted,
            counters.repeated,
            counters.refused,
            counters.released,
            counters.handed_off,
            counters.handed_off_by_expiry,
            counters.timeouts,
            counters.cancelled,
            counters.disconnects,
            counters.grants_taken_back,
            counters.quarantines,
            counters.waiters_peak as u64,
        ];
        for (all, one) in counted.iter_mut().zip(of_this_walk) {
            *all += one;
        }
    }
    assert!(counted.iter().all(|count| *count > 10), "{counted:?}");
}

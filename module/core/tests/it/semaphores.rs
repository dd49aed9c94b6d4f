//! Semaphores against a model. After any operations, both must give the same replies, the same writes and the
//! same queue.

use kvlock_core::{KeyRef, Limits, MonoMillis, Now, Permits, Semaphore, SemaphoreAt, Table};
use kvlock_core_reference::permits::World;
use kvlock_core_reference::{check, counted};

fn at(seen: Semaphore) -> SemaphoreAt<'static> {
    let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
    SemaphoreAt { key: KeyRef::semaphore(0, b"pool"), seen, now }
}

#[test]
fn semaphores_follow_the_contract() {
    check::<World>();
}

#[test]
fn dead_holders_are_searched_only_when_permits_are_missing() {
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

#[test]
fn five_hundred_walks_meet_every_case_often() {
    let counted = counted(500, |world: &World| {
        let counters = world.counters();
        [
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
        ]
    });
    assert!(counted.iter().all(|count| *count > 10), "{counted:?}");
}

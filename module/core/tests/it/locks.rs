//! The table against a model of locks. After any operations in any order, both must give the same
//! replies, the same writes and the same queues.

use kvlock_core_reference::locks::World;
use kvlock_core_reference::{check, counted};

#[test]
fn locks_follow_the_contract() {
    check::<World>();
}

#[test]
fn a_thousand_walks_meet_every_case_often() {
    let counted = counted(1_000, |world: &World| {
        let counters = world.table.counters();
        [
            counters.granted,
            counters.granted_shared,
            counters.downgraded,
            counters.reentered,
            counters.repeated,
            counters.refused,
            counters.released,
            counters.handed_off,
            counters.handed_off_by_expiry,
            counters.timeouts,
            counters.cancelled,
            counters.disconnects,
            counters.forced_releases,
            counters.grants_taken_back,
            counters.quarantines,
            counters.redisson_turns,
            counters.told_ready,
        ]
    });
    assert!(counted.iter().all(|count| *count > 30), "{counted:?}");
}

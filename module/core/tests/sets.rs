//! Sets of locks against a model, with random walks and with all short walks.

use kvlock_core_reference::sets::{ALL, Op, Set, World, do_late, exhaust};
use kvlock_core_reference::{check, counted};

#[test]
fn waits_for_sets_follow_the_contract() {
    check::<World>();
}

#[test]
fn every_short_walk_follows_the_contract() {
    // In optimised builds the walks are longer.
    let steps = if cfg!(debug_assertions) { 4 } else { 5 };
    let walks = exhaust(steps);
    assert!(walks > 30_000, "{walks}");
}

#[test]
fn a_thousand_walks_of_sets_meet_every_case_often() {
    let counted = counted(1_000, |world: &World| {
        let counters = world.table.counters();
        [
            counters.granted,
            counters.granted_shared,
            counters.reentered,
            counters.handed_off,
            counters.timeouts,
            counters.cancelled,
            counters.disconnects,
            counters.grants_taken_back,
            counters.deadlocks,
        ]
    });
    assert!(counted.iter().all(|count| *count > 30), "{counted:?}");
}

#[test]
fn a_sharer_that_arrives_after_a_lease_ended_and_before_the_look_delays_no_set() {
    const LONG: u64 = 100_000;
    let [a, top] = [0, 2];
    let of = |keys: &[(usize, bool)], shared| Set { keys: keys.to_vec(), shared };
    let walk = [
        Op::Acquire("bob", of(&[(top, false)], false), 50),
        Op::Acquire("dave", of(&[(a, false)], false), LONG),
        Op::Wait("ann", of(&[(a, false), (top, true)], false), LONG, None, false),
        Op::Work(ALL),
        Op::Release("dave", of(&[(a, false)], false)),
        Op::Work(ALL),
        Op::Pass(60),
        Op::Acquire("carol", of(&[(top, false)], true), LONG),
        Op::Work(ALL),
    ];
    let done = do_late(&walk);
    assert!(done.is_ok(), "{done:?}");
}

//! Waits for several locks against a model, at random and exhaustively.

use kvlock_core_reference::sets::{World, exhaust};
use kvlock_core_reference::{check, counted};

#[test]
fn waits_for_sets_do_what_the_contract_says() {
    check::<World>();
}

#[test]
fn every_short_walk_does_what_the_contract_says() {
    // With optimisation, a longer one.
    let steps = if cfg!(debug_assertions) { 4 } else { 5 };
    let walks = exhaust(steps);
    assert!(walks > 30_000, "{walks}");
}

#[test]
fn a_thousand_walks_of_sets_see_everything_happen_often() {
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

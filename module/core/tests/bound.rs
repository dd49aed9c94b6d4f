//! What is bound to sessions, against a model: it is released when its session is gone, never before
//! the client's belief can have ended, and nothing else is ever released by it.

use kvlock_core_reference::bound::World;
use kvlock_core_reference::{check, counted};

#[test]
fn what_is_bound_does_what_the_contract_says() {
    check::<World>();
}

#[test]
fn a_thousand_walks_see_everything_happen_often() {
    let seen = counted(1_000, |world: &World| {
        let counters = world.table.counters();
        let [one, two, three, four] = world.seen;
        [counters.bound_released, counters.sessions_gone, one, two, three, four]
    });
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

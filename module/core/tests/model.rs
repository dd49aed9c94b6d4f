//! The table against a model: whatever happens to a few locks, in whatever order, both must
//! answer the same, write the same and have the same people in line.
//!
//! The model in `model/naive.rs` says the contract once more with lists and loops. `PROPTEST_CASES`
//! raises the number of cases. A failing case is shrunk and printed; make a transcript of it.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

#[path = "model/beside.rs"]
mod beside;
#[path = "model/bytes.rs"]
mod bytes;
#[path = "model/drive.rs"]
mod drive;
#[path = "model/events.rs"]
mod events;
#[path = "model/leaving.rs"]
mod leaving;
#[path = "model/meddling.rs"]
mod meddling;
#[path = "model/naive.rs"]
mod naive;
#[path = "model/ops.rs"]
mod ops;
mod prove;
#[path = "model/sharing.rs"]
mod sharing;
mod sim;
mod source;
#[path = "model/turns.rs"]
mod turns;
#[path = "model/world.rs"]
mod world;

use proptest::collection::vec;
use proptest::option;
use proptest::strategy::{Just, Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::ops::Op;
use crate::world::World;

/// How often each lock is looked at anyway, and what happens.
fn walk() -> impl Strategy<Value = (Option<u64>, Vec<Op>)> {
    (option::of(Just(25)), vec(ops::op(), 1..120))
}

#[test]
fn whatever_happens_the_table_does_what_the_contract_says() {
    prove::for_all(&walk(), |(look_every, ops)| {
        let mut world = World::new(look_every);
        ops.iter().try_for_each(|op| world.step(op))
    });
}

/// The fuzzer of `scripts/fuzz` finds its way through bytes.
#[test]
fn whatever_bytes_say_the_table_does_what_the_contract_says() {
    prove::for_all_bytes(|bytes| {
        let (look_every, ops) = bytes::walk(bytes, 100);
        let mut world = World::new(look_every);
        ops.iter().try_for_each(|op| world.step(op))
    });
}

/// A test that finds nothing must have looked everywhere.
#[test]
fn a_thousand_walks_see_everything_happen_often() {
    let mut runner = TestRunner::deterministic();
    let mut counted = [0; 16];
    for _ in 0..1_000 {
        let (look_every, ops) = walk().new_tree(&mut runner).expect("a walk").current();
        let mut world = World::new(look_every);
        for op in &ops {
            world.step(op).expect("as the contract says");
        }
        let counters = world.table.counters();
        let of_this_walk = [
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
        ];
        for (all, one) in counted.iter_mut().zip(of_this_walk) {
            *all += one;
        }
    }
    assert!(counted.iter().all(|count| *count > 30), "{counted:?}");
}

//! Sessions against a model: whatever their clients do, each place in line has one outcome, which
//! is there until it is acknowledged; who is away is passed over and keeps its place; and grants of
//! which nobody was told are taken back.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test fails"
)]

#[path = "sessions/crowd.rs"]
mod crowd;
#[path = "sessions/drive.rs"]
mod drive;
#[path = "sessions/naive.rs"]
mod naive;
#[path = "sessions/ops.rs"]
mod ops;
mod prove;
#[expect(dead_code, reason = "other tests need more of it")]
mod sim;
mod source;
#[path = "sessions/world.rs"]
mod world;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::world::World;

#[test]
fn sessions_do_what_the_contract_says() {
    prove::for_all(&ops::walk(), |ops| {
        let mut world = World::new();
        ops.iter().try_for_each(|op| world.step(op))
    });
}

/// The fuzzer of `scripts/fuzz` finds its way through bytes.
#[test]
fn sessions_do_what_the_contract_says_whatever_bytes_say() {
    prove::for_all_bytes(|bytes| {
        let mut world = World::new();
        ops::walk_of(bytes, 100).iter().try_for_each(|op| world.step(op))
    });
}

/// A test that finds nothing must have looked everywhere.
#[test]
fn a_thousand_walks_see_everything_happen_often() {
    let mut runner = TestRunner::deterministic();
    let mut seen = [0; 12];
    for _ in 0..1_000 {
        let ops = ops::walk().new_tree(&mut runner).expect("a walk").current();
        let mut world = World::new();
        for op in &ops {
            world.step(op).expect("as the contract says");
        }
        let counters = world.table.counters();
        let of_this_walk = [
            counters.handed_off,
            counters.timeouts,
            counters.cancelled,
            counters.grants_taken_back,
            counters.readers_replaced,
            counters.sessions_gone,
        ];
        for (all, one) in seen.iter_mut().zip(of_this_walk.into_iter().chain(world.seen)) {
            *all += one;
        }
    }
    assert!(seen.iter().all(|count| *count > 15), "{seen:?}");
}

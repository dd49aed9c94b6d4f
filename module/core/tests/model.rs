//! The table against a model: whatever happens to a few locks, in whatever order, both must
//! answer the same, write the same and have the same people in line.
//!
//! The model in `model/naive.rs` says the contract once more with lists and loops. `PROPTEST_CASES`
//! raises the number of cases. A failing case is shrunk and printed; make a transcript of it.

#[path = "model/drive.rs"]
mod drive;
#[path = "model/naive.rs"]
mod naive;
#[path = "model/ops.rs"]
mod ops;
mod sim;
#[path = "model/world.rs"]
mod world;

use proptest::collection::vec;
use proptest::option;
use proptest::strategy::Just;
use proptest::test_runner::{Config, TestRunner};

use crate::world::World;

const CASES: u32 = 2_000;

#[test]
fn whatever_happens_the_table_does_what_the_contract_says() {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let walk = (option::of(Just(25)), vec(ops::op(), 1..120));
    let run = TestRunner::new(config).run(&walk, |(look_every, ops)| {
        let mut world = World::new(look_every);
        ops.iter().try_for_each(|op| world.step(op))
    });
    if let Err(failure) = run {
        panic!("{failure}");
    }
}

//! Locks: whatever happens to a few of them, in whatever order. How often each is looked at anyway is how a
//! walk starts.

mod beside;
mod bytes;
mod drive;
mod events;
mod leaving;
mod meddling;
mod naive;
mod ops;
mod sharing;
mod turns;
mod world;

pub use self::world::World;

use self::ops::Op;
use proptest::collection::vec;
use proptest::option;
use proptest::strategy::{BoxedStrategy, Just, Strategy as _};
use proptest::test_runner::TestCaseResult;

impl crate::World for World {
    type Start = Option<u64>;
    type Op = Op;

    fn begin(look_every: Option<u64>) -> Self {
        Self::new(look_every)
    }

    fn walks() -> BoxedStrategy<(Option<u64>, Vec<Op>)> {
        (option::of(Just(25)), vec(ops::op(), 1..120)).boxed()
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        self.step(op)
    }
}

impl crate::FromBytes for World {
    fn walk_of(bytes: &[u8], most: usize) -> (Option<u64>, Vec<Op>) {
        bytes::walk(bytes, most)
    }
}

//! Sessions: each place in line has one outcome, which is there until it is acknowledged; who is away is
//! passed over and keeps its place; and grants of which nobody was told are taken back.

mod drive;
mod naive;
pub mod ops;
mod world;

pub use self::world::World;

use self::ops::Op;
use proptest::strategy::{BoxedStrategy, Strategy as _};
use proptest::test_runner::TestCaseResult;

impl crate::World for World {
    type Start = ();
    type Op = Op;

    fn begin((): ()) -> Self {
        Self::new()
    }

    fn walks() -> BoxedStrategy<((), Vec<Op>)> {
        ops::walk().prop_map(|ops| ((), ops)).boxed()
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        self.step(op)
    }
}

impl crate::FromBytes for World {
    fn walk_of(bytes: &[u8], most: usize) -> ((), Vec<Op>) {
        ((), ops::walk_of(bytes, most))
    }
}

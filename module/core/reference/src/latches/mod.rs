//! Latches: whatever happens to one, both release the same people.

mod ops;
pub mod world;

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

//! What is bound to sessions: it is released when its session is gone, never before the client's belief can
//! have ended, and nothing else is ever released by it.

mod naive;
mod ops;
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

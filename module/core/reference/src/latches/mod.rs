//! Latches: whatever happens to one, both release the same people.

mod ops;
pub mod world;

pub use self::world::World;

use self::ops::Op;
use crate::Bytes;
use proptest::test_runner::TestCaseResult;

impl crate::World for World {
    type Op = Op;

    fn begin(_sort: u8) -> Self {
        Self::new()
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        ops::op(bytes)
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        self.step(op)
    }
}

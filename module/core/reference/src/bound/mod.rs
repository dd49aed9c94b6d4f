//! What is bound to sessions: it is released when its session is gone, never before the client's belief can
//! have ended, and nothing else is ever released by it.

mod naive;
mod ops;
mod world;

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

//! Sessions. Each place of a session in a queue has one outcome, kept until it is acknowledged.
//! While the reader of a session is disconnected (the session is *away*), its waiters are passed
//! over and keep their places. When a session ends, its grants that were never sent are taken back.

mod drive;
mod naive;
pub mod ops;
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

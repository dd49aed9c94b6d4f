//! Waits for sets of locks and for single locks. After each step all due work is done. Then the
//! table and the model must have the same holders, queues and replies.
//!
//! In a world of an odd sort, work is done late, as on a busy server: see `late.rs`.

mod circles;
mod late;
mod naive;
mod ops;
mod world;

pub use self::ops::{ALL, Op, Set, alphabet};
pub use self::world::World;

use crate::Bytes;
use proptest::test_runner::TestCaseResult;

impl crate::World for World {
    type Op = Op;

    fn begin(sort: u8) -> Self {
        if sort.is_multiple_of(2) { Self::new() } else { Self::late() }
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        ops::op(bytes)
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        if self.is_late { self.step_late(op) } else { self.step(op) }
    }

    fn ends(&mut self) -> TestCaseResult {
        if self.is_late { self.step_late(&Op::Work(ALL)) } else { Ok(()) }
    }
}

/// Runs operations in a world in which work is done late.
pub fn do_late(ops: &[Op]) -> TestCaseResult {
    let mut world = World::late();
    ops.iter().try_for_each(|op| world.step_late(op))
}

/// Runs every walk of this number of operations of [`alphabet`]. Returns the number of walks.
pub fn exhaust(steps: usize) -> usize {
    let alphabet = alphabet();
    let (mut walk, mut count) = (vec![0; steps], 0);
    loop {
        let mut world = World::new();
        for (at, step) in walk.iter().enumerate() {
            if let Err(why) = world.step(&alphabet[*step]) {
                let ops: Vec<_> = walk[..=at].iter().map(|step| &alphabet[*step]).collect();
                panic!("{why}, after {ops:#?}");
            }
        }
        count += 1;
        let Some(at) = walk.iter().rposition(|step| step + 1 < alphabet.len()) else {
            return count;
        };
        walk[at] += 1;
        walk[at + 1..].fill(0);
    }
}

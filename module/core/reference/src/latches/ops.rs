//! What can happen to a latch.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::source::Bytes;

pub const NAMES: [&str; 4] = ["ann", "anna", "bob", "bobby"];

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Set {
        count: u64,
        replace: bool,
        lifetime: Option<u64>,
    },
    CountDown(Option<&'static str>),
    Wait(&'static str, Option<u64>),
    Cancel(&'static str),
    /// The client of somebody in line, or of somebody who was released, goes away.
    Disconnect(usize),
    /// Somebody deletes the key.
    Delete,
    /// Somebody writes something else there, perhaps with a TTL.
    Overwrite(Option<u64>),
    Pass(u64),
    /// Some of the released are answered.
    Tell(usize),
    /// So many may wait, for this latch and in all.
    Limits(usize, usize),
    /// The timer runs: the released are answered, then waits end, then looks are taken.
    Timer,
}

pub fn walk() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..80)
}

fn op() -> impl Strategy<Value = Op> {
    let name = || proptest::sample::select(&NAMES[..]);
    prop_oneof![
        6 => (1..5_u64, any::<bool>(), option::of(5..50_u64))
            .prop_map(|(count, replace, lifetime)| Op::Set { count, replace, lifetime }),
        12 => option::of(name()).prop_map(Op::CountDown),
        15 => (name(), option::of(1..60_u64)).prop_map(|(name, ms)| Op::Wait(name, ms)),
        2 => name().prop_map(Op::Cancel),
        2 => (0..4_usize).prop_map(Op::Disconnect),
        2 => Just(Op::Delete),
        1 => option::weighted(0.8, 1..30_u64).prop_map(Op::Overwrite),
        8 => (1..30_u64).prop_map(Op::Pass),
        2 => (1..4_usize).prop_map(Op::Tell),
        1 => (0..5_usize, 0..7_usize).prop_map(|(here, all)| Op::Limits(here, all)),
        8 => Just(Op::Timer),
    ]
}

/// The same, read from bytes.
pub fn walk_of(bytes: &[u8], most: usize) -> Vec<Op> {
    Bytes(bytes).all(most, Bytes::latch_op)
}

impl Bytes<'_> {
    fn latch_name(&mut self) -> &'static str {
        self.pick(&NAMES)
    }

    fn within(&mut self, least: u64, end: u8) -> u64 {
        least + u64::from(self.next() % end)
    }

    fn perhaps_within(&mut self, least: u64, end: u8) -> Option<u64> {
        self.flag().then(|| self.within(least, end))
    }

    fn latch_op(&mut self) -> Op {
        match self.below(20) {
            0..=2 => Op::Set {
                count: self.within(1, 4),
                replace: self.flag(),
                lifetime: self.perhaps_within(5, 45),
            },
            3..=5 => Op::CountDown(self.flag().then(|| self.latch_name())),
            6..=9 => Op::Wait(self.latch_name(), self.perhaps_within(1, 60)),
            10 => Op::Cancel(self.latch_name()),
            11 => Op::Disconnect(self.below(4)),
            12 => Op::Delete,
            13 => Op::Overwrite(self.perhaps_within(1, 30)),
            14 | 15 => Op::Pass(self.within(1, 30)),
            16 => Op::Tell(1 + self.below(3)),
            17 => Op::Limits(self.below(5), self.below(7)),
            _ => Op::Timer,
        }
    }
}

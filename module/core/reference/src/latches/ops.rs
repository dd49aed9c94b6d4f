//! Operations on a latch, and their frequencies.

use crate::Bytes;

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
    /// Disconnects the client of a waiter or of a released waiter.
    Disconnect(usize),
    /// Deletes the key with another client's command.
    Delete,
    /// Overwrites the key with another type, perhaps with a TTL.
    Overwrite(Option<u64>),
    Pass(u64),
    /// Answers up to this number of released waiters.
    Tell(usize),
    /// Sets the largest number of waiters, for this latch and in total.
    Limits(usize, usize),
    /// Runs the timer: answers released waiters, ends the waits whose timeout has passed, takes the
    /// due looks, and answers the waiters that these looks released.
    Timer,
}

pub fn op(bytes: &mut Bytes<'_>) -> Op {
    match bytes.below(20) {
        0..=2 => Op::Set {
            count: bytes.number(1, 4),
            replace: bytes.flag(),
            lifetime: bytes.perhaps(5, 45),
        },
        3..=5 => Op::CountDown(bytes.flag().then(|| bytes.pick(&NAMES))),
        6..=9 => Op::Wait(bytes.pick(&NAMES), bytes.perhaps(1, 60)),
        10 => Op::Cancel(bytes.pick(&NAMES)),
        11 => Op::Disconnect(bytes.below(4)),
        12 => Op::Delete,
        13 => Op::Overwrite(bytes.perhaps(1, 30)),
        14 | 15 => Op::Pass(bytes.number(1, 30)),
        16 => Op::Tell(1 + bytes.below(3)),
        17 => Op::Limits(bytes.below(5), bytes.below(7)),
        _ => Op::Timer,
    }
}

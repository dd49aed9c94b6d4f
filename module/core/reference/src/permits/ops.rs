//! Operations on a semaphore, and their frequencies.

use crate::Bytes;

pub const NAMES: [&str; 3] = ["ann", "anna", "bob"];

pub type Owner = &'static str;

/// A request for permits.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub owner: Owner,
    pub permits: u64,
    pub lease: u64,
    pub holds: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Sets the number of permits; with `true`, only if the semaphore does not exist.
    Set(u64, bool),
    Take(Request),
    /// Waits, with a timeout or without.
    Wait(Request, Option<u64>),
    /// Takes all free permits.
    Drain(Owner, u64, Option<u64>),
    Release(Owner, Option<u64>),
    ReleaseOne(Owner),
    Renew(Owner, u64),
    Cancel(Owner),
    /// Disconnects the client of a waiter.
    Disconnect(usize),
    /// Deletes the key with another client's command.
    Delete,
    /// Overwrites the key with another type, perhaps with a TTL.
    Overwrite(Option<u64>),
    /// Deletes a holder's field with another client's command.
    TakeOut(Owner),
    Pass(u64),
    /// The client of a grant has disconnected before the reply was written.
    Lost(usize),
    Delivered(usize),
    /// Begins a quarantine of this length.
    Quarantine(u64),
    /// Sets the largest number of waiters, for this semaphore and in total.
    Limits(usize, usize),
    Timer,
}

fn request(bytes: &mut Bytes<'_>) -> Request {
    let (owner, permits) = (bytes.pick(&NAMES), bytes.number(1, 4));
    let (lease, holds) = (bytes.number(1, 59), bytes.below(10) < 3);
    Request { owner, permits, lease, holds: holds.then(|| bytes.number(1, 5)) }
}

pub fn op(bytes: &mut Bytes<'_>) -> Op {
    match bytes.below(138) {
        0..=11 => Op::Set(bytes.number(0, 7), bytes.flag()),
        12..=26 => Op::Take(request(bytes)),
        27..=46 => Op::Wait(request(bytes), bytes.perhaps(1, 59)),
        47..=52 => Op::Drain(bytes.pick(&NAMES), bytes.number(1, 59), bytes.perhaps(1, 4)),
        53..=64 => Op::Release(bytes.pick(&NAMES), bytes.perhaps(0, 4)),
        65..=70 => Op::ReleaseOne(bytes.pick(&NAMES)),
        71..=74 => Op::Renew(bytes.pick(&NAMES), bytes.number(1, 59)),
        75 | 76 => Op::Cancel(bytes.pick(&NAMES)),
        77..=79 => Op::Disconnect(bytes.below(3)),
        80 | 81 => Op::Delete,
        82 => Op::Overwrite(bytes.perhaps(1, 29)),
        83 | 84 => Op::TakeOut(bytes.pick(&NAMES)),
        85..=99 => Op::Pass(bytes.number(1, 29)),
        100..=111 => Op::Lost(bytes.below(2)),
        112..=115 => Op::Delivered(bytes.below(2)),
        116 => Op::Quarantine(bytes.number(0, 60)),
        117 => Op::Limits(bytes.below(4), bytes.below(6)),
        _ => Op::Timer,
    }
}

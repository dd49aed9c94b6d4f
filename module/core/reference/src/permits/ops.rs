//! What can happen to a semaphore.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::source::Bytes;

pub const NAMES: [&str; 3] = ["ann", "anna", "bob"];

pub type Owner = &'static str;

/// Somebody asks for permits.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub owner: Owner,
    pub permits: u64,
    pub lease: u64,
    pub holds: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// So many permits; perhaps only if there are none yet.
    Set(u64, bool),
    Take(Request),
    /// With a timeout, or for as long as it takes.
    Wait(Request, Option<u64>),
    /// All that are free.
    Drain(Owner, u64, Option<u64>),
    Release(Owner, Option<u64>),
    ReleaseOne(Owner),
    Renew(Owner, u64),
    Cancel(Owner),
    /// The client of somebody in line goes away.
    Disconnect(usize),
    /// Somebody deletes the key.
    Delete,
    /// Somebody writes something else there, perhaps with a TTL.
    Overwrite(Option<u64>),
    /// Somebody takes a holder out of the hash.
    TakeOut(Owner),
    Pass(u64),
    /// One of the grants under way was to a client that is gone, or its reply is written.
    Lost(usize),
    Delivered(usize),
    /// A quarantine begins, of that length.
    Quarantine(u64),
    /// So many may wait, here and in all.
    Limits(usize, usize),
    /// The timer runs.
    Timer,
}

pub fn walk() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..120)
}

fn op() -> impl Strategy<Value = Op> {
    let name = || proptest::sample::select(&NAMES[..]);
    let lease = || 1..60_u64;
    let request = move || {
        let request = (name(), 1..5_u64, lease(), option::weighted(0.3, 1..6_u64));
        request.prop_map(|(owner, permits, lease, holds)| Request { owner, permits, lease, holds })
    };
    prop_oneof![
        12 => (0..7_u64, any::<bool>()).prop_map(|(n, only_new)| Op::Set(n, only_new)),
        15 => request().prop_map(Op::Take),
        20 => (request(), option::of(1..60_u64)).prop_map(|(request, ms)| Op::Wait(request, ms)),
        6 => (name(), lease(), option::weighted(0.5, 1..5_u64))
            .prop_map(|(owner, lease, holds)| Op::Drain(owner, lease, holds)),
        12 => (name(), option::of(0..4_u64)).prop_map(|(owner, to)| Op::Release(owner, to)),
        6 => name().prop_map(Op::ReleaseOne),
        4 => (name(), lease()).prop_map(|(owner, lease)| Op::Renew(owner, lease)),
        2 => name().prop_map(Op::Cancel),
        3 => (0..3_usize).prop_map(Op::Disconnect),
        2 => Just(Op::Delete),
        1 => option::weighted(0.8, 1..30_u64).prop_map(Op::Overwrite),
        2 => name().prop_map(Op::TakeOut),
        15 => (1..30_u64).prop_map(Op::Pass),
        12 => (0..2_usize).prop_map(Op::Lost),
        4 => (0..2_usize).prop_map(Op::Delivered),
        1 => (0..60_u64).prop_map(Op::Quarantine),
        1 => (0..4_usize, 0..6_usize).prop_map(|(here, all)| Op::Limits(here, all)),
        20 => Just(Op::Timer),
    ]
}

/// The same, read from bytes.
pub fn walk_of(bytes: &[u8], most: usize) -> Vec<Op> {
    Bytes(bytes).all(most, Bytes::semaphore_op)
}

impl Bytes<'_> {
    fn name(&mut self) -> Owner {
        self.pick(&NAMES)
    }

    fn number(&mut self, end: u8) -> u64 {
        u64::from(self.next() % end)
    }

    fn perhaps(&mut self, least: u64, end: u8) -> Option<u64> {
        self.flag().then(|| least + self.number(end))
    }

    fn semaphore_request(&mut self) -> Request {
        let (owner, permits) = (self.name(), 1 + self.number(4));
        Request { owner, permits, lease: 1 + self.number(60), holds: self.perhaps(1, 5) }
    }

    fn semaphore_op(&mut self) -> Op {
        match self.below(24) {
            0 | 1 => Op::Set(self.number(7), self.flag()),
            2 | 3 => Op::Take(self.semaphore_request()),
            4..=6 => Op::Wait(self.semaphore_request(), self.perhaps(1, 60)),
            7 => Op::Drain(self.name(), 1 + self.number(60), self.perhaps(1, 4)),
            8 | 9 => Op::Release(self.name(), self.perhaps(0, 4)),
            10 => Op::ReleaseOne(self.name()),
            11 => Op::Renew(self.name(), 1 + self.number(60)),
            12 => Op::Cancel(self.name()),
            13 => Op::Disconnect(self.below(4)),
            14 => Op::Delete,
            15 => Op::Overwrite(self.perhaps(1, 30)),
            16 => Op::TakeOut(self.name()),
            17 | 18 => Op::Pass(1 + self.number(30)),
            19 => Op::Lost(self.below(3)),
            20 => Op::Delivered(self.below(3)),
            21 => Op::Quarantine(self.number(60)),
            22 => Op::Limits(self.below(4), self.below(4)),
            _ => Op::Timer,
        }
    }
}

//! Whatever happens to a few locks, read from bytes: for a fuzzer, which knows nothing else.

use kvlock_core::HOLDS_MAX;

use super::meddling::Meddling;
use super::ops::{Ask, DAY, Event, HowMany, KEYS, OWNERS, Op, Owner, Request};
use crate::source::Bytes;

/// What the bytes say: whether locks are looked at regularly, and what happens.
pub fn walk(bytes: &[u8], most: usize) -> (Option<u64>, Vec<Op>) {
    let mut bytes = Bytes(bytes);
    let look_every = bytes.flag().then_some(25);
    (look_every, bytes.all(most, Bytes::op))
}

impl Bytes<'_> {
    fn owner(&mut self) -> Owner {
        self.pick(&OWNERS)
    }

    fn lease(&mut self) -> u64 {
        self.pick(&[1, 30, 200, 1_000, 5_000])
    }

    fn request(&mut self) -> Request {
        let (owner, lease) = (self.owner(), self.lease());
        let (shared, holds) = (self.flag(), self.pick(&[None, None, Some(1), Some(2), Some(3)]));
        Request { owner, shared, lease, holds }
    }

    fn op(&mut self) -> Op {
        let key = self.pick(&[0, 0, 1, 2]);
        if self.flag() { Op::Ask(key, self.ask()) } else { Op::Event(self.event(key)) }
    }

    fn ask(&mut self) -> Ask {
        match self.below(12) {
            0..=2 => Ask::Acquire(self.request()),
            3..=6 => {
                let request = self.request();
                Ask::Wait(request, self.pick(&[None, None, Some(5), Some(30), Some(400)]))
            }
            7 | 8 => {
                let (owner, shared) = (self.owner(), self.flag());
                let how_many = match self.below(6) {
                    0 | 1 => HowMany::One,
                    2 => HowMany::All,
                    n => HowMany::DownTo(n as u64 - 3),
                };
                Ask::Release(owner, shared, how_many)
            }
            9 => {
                let ahead = [None, None, Some(-5_000), Some(5_000), Some(DAY), Some(DAY + 1)];
                Ask::Renew(self.owner(), self.lease(), self.pick(&ahead))
            }
            10 => Ask::Cancel(self.owner()),
            _ => Ask::Force,
        }
    }

    fn event(&mut self, key: usize) -> Event {
        match self.below(20) {
            16 => Event::Begin,
            17 => Event::Quarantine(self.pick(&[0, 50, 1_000])),
            18 => Event::Lift,
            19 => Event::Turn(self.pick(&[0, 1, 40, 250]), self.flag()),
            0 => Event::Disconnect(self.below(256)),
            1 => Event::Delivered(self.below(3)),
            2 | 3 => Event::TakeBack(self.below(3)),
            4 | 5 => Event::Meddle(key, self.meddling()),
            6 => Event::Flush(self.pick(&[Some(0), Some(1), None])),
            7..=9 => {
                let ms = 1 + u64::from(self.next()) % 40;
                self.pick(&[
                    Event::Pass(ms, ms.cast_signed()),
                    Event::Pass(ms, ms.cast_signed()),
                    Event::Pass(1_001, 1_001),
                    Event::Pass(1, -60_000),
                    Event::Pass(1, 60_000),
                ])
            }
            10 | 11 => Event::Timer,
            12 => Event::Looks,
            13 => Event::Serve(key),
            14 => match self.below(4) {
                0 => Event::Limits(self.below(14), self.below(6)),
                1 => Event::Drain(self.flag()),
                2 => Event::Drain(false),
                _ => Event::Dismiss(self.below(KEYS.len())),
            },
            _ => Event::Floor(self.pick(&[None, Some(0), Some(5_000), Some(60_000_000)])),
        }
    }

    fn meddling(&mut self) -> Meddling {
        match self.below(14) {
            0..=2 => Meddling::Delete,
            3 => Meddling::Overwrite,
            4 => Meddling::Persist,
            5 => Meddling::Expire(self.pick(&[1, 5, 30, 2_000])),
            6 | 7 => {
                let holds = self.pick(&[1, 2, HOLDS_MAX, HOLDS_MAX + 1]);
                Meddling::Script(self.owner(), holds, self.lease())
            }
            8 => Meddling::DropHolder,
            9 => Meddling::SwapHolder(self.owner()),
            10 => Meddling::TokenAhead(self.pick(&[0, 1_000_777, 90_000_777])),
            11 => Meddling::TokenSpoilt(self.pick(&["", "x", "-7", "9007199254740993"])),
            12 => Meddling::SecondField(self.pick(&["eve", "lock-mode"])),
            _ => Meddling::CountSpoilt(self.pick(&["0", "-1", "x", "01"])),
        }
    }
}

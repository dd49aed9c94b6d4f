//! Operations on a few locks, in any order. In a world of an odd sort, the table looks regularly at
//! each lock that has waiters.

mod beside;
mod drive;
mod events;
mod leaving;
mod meddling;
mod naive;
mod names;
mod ops;
mod results;
mod sets;
mod sharing;
mod turns;
mod world;

pub use self::world::World;

use self::ops::Op;
use crate::Bytes;
use proptest::test_runner::TestCaseResult;

impl crate::World for World {
    type Op = Op;

    fn begin(sort: u8) -> Self {
        Self::new((sort & 1 == 1).then_some(25))
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        ops::op(bytes)
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        self.step(op)
    }
}

#[cfg(test)]
mod tests {
    use super::World;
    use super::meddling::Meddling;
    use super::ops::{Ask, Event, Op, Request};

    fn request(owner: &'static str) -> Request {
        Request { owner, shared: false, lease: 1, holds: None, unless: None }
    }

    #[test]
    fn a_waiter_behind_a_ready_one_gets_the_lock_when_its_sharers_have_died() {
        let shares = |owner, unless| Request { shared: true, unless, ..request(owner) };
        let walk = [
            Op::Ask(0, Ask::Acquire(shares("bobby", None))),
            // The key outlives the only share in it.
            Op::Event(Event::Meddle(0, Meddling::Expire(2_000))),
            Op::Ask(0, Ask::Wait(request("bob"), None)),
            Op::Ask(0, Ask::Wait(request("anna"), None)),
            Op::Ask(0, Ask::Wait(shares("bob", Some(0)), None)),
            Op::Event(Event::Result(0, 0, true)),
            Op::Event(Event::Timer),
            Op::Event(Event::Pass(2, 2)),
            Op::Event(Event::Timer),
        ];
        let mut world = World::new(None);
        walk.iter().for_each(|op| world.step(op).expect("as the contract says"));
        assert_eq!(world.table.counters().told_ready, 1);
        assert_eq!(world.table.counters().handed_off, 1);
    }

    #[test]
    fn a_grant_is_not_confirmed_by_another_lock_with_the_same_token() {
        let walk = [
            Op::Ask(2, Ask::Acquire(request("ann"))),
            Op::Ask(2, Ask::Wait(request("bob"), None)),
            Op::Event(Event::Pass(2, 2)),
            Op::Event(Event::Timer),
            // The same owner holds another lock, into which another client writes the token of the grant.
            Op::Event(Event::Meddle(0, Meddling::Script("bob", 1, 1))),
            Op::Event(Event::Meddle(0, Meddling::TokenAhead(0))),
            Op::Ask(0, Ask::Acquire(request("bob"))),
            Op::Event(Event::TakeBack(0)),
        ];
        let mut world = World::new(None);
        walk.iter().for_each(|op| world.step(op).expect("as the contract says"));
        assert_eq!(world.table.counters().grants_taken_back, 1);
    }
}

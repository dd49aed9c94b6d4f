//! Locks: whatever happens to a few of them, in whatever order. How often each is looked at anyway is how a
//! walk starts.

mod beside;
mod bytes;
mod drive;
mod events;
mod leaving;
mod meddling;
mod naive;
mod ops;
mod sharing;
mod turns;
mod world;

pub use self::world::World;

use self::ops::Op;
use proptest::collection::vec;
use proptest::option;
use proptest::strategy::{BoxedStrategy, Just, Strategy as _};
use proptest::test_runner::TestCaseResult;

impl crate::World for World {
    type Start = Option<u64>;
    type Op = Op;

    fn begin(look_every: Option<u64>) -> Self {
        Self::new(look_every)
    }

    fn walks() -> BoxedStrategy<(Option<u64>, Vec<Op>)> {
        (option::of(Just(25)), vec(ops::op(), 1..120)).boxed()
    }

    fn does(&mut self, op: &Op) -> TestCaseResult {
        self.step(op)
    }
}

impl crate::FromBytes for World {
    fn walk_of(bytes: &[u8], most: usize) -> (Option<u64>, Vec<Op>) {
        bytes::walk(bytes, most)
    }
}

#[cfg(test)]
mod tests {
    use super::World;
    use super::meddling::Meddling;
    use super::ops::{Ask, Event, Op, Request};

    #[test]
    fn a_grant_is_not_used_by_who_holds_another_lock_with_its_token() {
        let request = |owner| Request { owner, shared: false, lease: 1, holds: None };
        let walk = [
            Op::Ask(2, Ask::Acquire(request("ann"))),
            Op::Ask(2, Ask::Wait(request("bob"), None)),
            Op::Event(Event::Pass(2, 2)),
            Op::Event(Event::Timer),
            // The same owner holds another lock, into which somebody writes the token of the grant.
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

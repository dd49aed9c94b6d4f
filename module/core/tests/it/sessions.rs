//! Sessions against a model. Each place of a session in a queue has one outcome, kept until it is
//! acknowledged. The waiters of a session that is away are passed over and keep their places.
//! Grants that were never sent are taken back.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

mod crowd;

use kvlock_core_reference::sessions::World;
use kvlock_core_reference::sessions::ops::Op;
use kvlock_core_reference::{check, counted};

/// Number of steps in each sequence, after the common ones at its beginning.
const DEPTH: u32 = 4;

#[test]
fn sessions_follow_the_contract() {
    check::<World>();
}

#[test]
fn a_thousand_walks_meet_every_case_often() {
    let of = |world: &World| {
        let counters = world.table.counters();
        let of_table = [
            counters.handed_off,
            counters.timeouts,
            counters.cancelled,
            counters.grants_taken_back,
            counters.readers_replaced,
            counters.sessions_gone,
        ];
        let mut all = [0; 12];
        let both = of_table.into_iter().chain(world.seen);
        all.iter_mut().zip(both).for_each(|(all, one)| *all = one);
        all
    };
    let seen = counted(1_000, of);
    assert!(seen.iter().all(|count| *count > 15), "{seen:?}");
}

/// Runs every sequence of a few steps on a session with two waits for a lock. Replies arrive late,
/// are lost or are requested twice, on the same connection or another.
#[test]
fn every_order_of_late_and_lost_replies_follows_the_contract() {
    let wait = |owner, through| Op::Wait { key: 0, owner, through, timeout: None };
    let next = |connection, ack| Op::Next { session: 0, user: 0, connection, ack, timeout: None };
    let begin = [
        wait(0, None),
        Op::Open { session: 0, user: 0, ttl: 100 },
        wait(1, Some(0)),
        wait(2, Some(0)),
        next(0, 0),
    ];
    let release = |owner| Op::Release { key: 0, owner };
    let steps = [
        release(0),
        release(1),
        wait(1, Some(0)),
        // The reader acknowledges the last outcome that was sent, or none.
        next(0, 0),
        next(0, -9),
        next(1, 0),
        next(1, -9),
        Op::Answer { lost: false },
        Op::Answer { lost: true },
        Op::Close { session: 0, user: 0, then: None },
        Op::Hangup { connection: 0 },
        Op::Hangup { connection: 1 },
        Op::Pass(101),
        Op::Timer,
    ];
    for walk in 0..steps.len().pow(DEPTH) {
        let mut world = World::new();
        let of_walk = (0..DEPTH).map(|place| steps[walk / steps.len().pow(place) % steps.len()]);
        let ops: Vec<_> = begin.into_iter().chain(of_walk).collect();
        for op in &ops {
            world.step(op).unwrap_or_else(|why| panic!("{why}, in {ops:#?}"));
        }
    }
}

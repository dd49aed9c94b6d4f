//! The date of the server is set while clients wait. Leases are counted in it, as all TTLs are;
//! waits are not, and tokens never go back.

use super::stage::{LONG, SOON, Stage};
use harness::clock::Clock;
use harness::{Kind, Value, on_each_server};
use std::time::Instant;

const HOUR_MS: i64 = 3_600_000;

/// A stage whose two servers have that clock: a replica hears of moments, not of lengths.
fn stage_with(kind: &Kind, clock: &Clock) -> Stage {
    Stage::with_both(kind, |options| options.clock(clock))
}

fn a_clock_set_back_makes_no_wait_longer(kind: Kind) {
    let clock = Clock::new();
    let mut stage = stage_with(&kind, &clock);
    let alices = stage.hold("k", "alice", LONG);
    let begin = Instant::now();
    let mut bob = stage.wait_with("k", "bob", LONG, 700);
    let mut carol = stage.wait("k", "carol");
    clock.set(-HOUR_MS);
    // One that begins afterwards, and one that ends with the cron of the server only.
    let mut dave = stage.wait_with("k", "dave", LONG, 300);
    assert_eq!(dave.connection.receive(SOON).unwrap(), Value::Nil);
    assert_eq!(bob.connection.receive(SOON).unwrap(), Value::Nil);
    assert!(begin.elapsed().as_millis() >= 690);
    assert_eq!(stage.counted("timeouts"), 2);
    stage.expect_in_line(&mut [&mut carol]);
    stage.release("k", "alice");
    assert!(stage.granted(&mut carol) > alices, "a token went back with the clock");
    stage.check();
}

fn a_clock_set_forward_makes_no_wait_shorter_and_ends_leases(kind: Kind) {
    let clock = Clock::new();
    let mut stage = stage_with(&kind, &clock);
    let alices = stage.hold("k", "alice", 600_000);
    let daves = stage.hold("l", "dave", 2 * 3_600_000);
    // Bob's wait would be over by the date; the lease that he gets begins with the new one.
    let mut bob = stage.wait_with("k", "bob", 600_000, 300_000);
    let mut erin = stage.wait_with("l", "erin", 600_000, 300_000);
    clock.set(HOUR_MS);
    let bobs = stage.granted(&mut bob);
    assert!(bobs >= alices + HOUR_MS * 1000);
    stage.expect_in_line(&mut [&mut erin]);

    clock.set(0);
    stage.release("l", "dave");
    let erins = stage.granted(&mut erin);
    assert!(erins > bobs && erins > daves, "{erins} after {bobs}");
    stage.expect_holder("k", "bob", 1, Some(bobs));
    stage.release("k", "bob");
    assert!(stage.hold("k", "frank", 600_000) > erins);
    assert_eq!(stage.counted("timeouts"), 0);
    stage.check();
}

fn a_clock_that_jumps_all_the_time_harms_nobody(kind: Kind) {
    let clock = Clock::new();
    let mut stage = stage_with(&kind, &clock);
    let mut last = 0;
    for (round, ahead_ms) in
        [1000, -1000, 60_000, -60_000, HOUR_MS, 0, -HOUR_MS, 1, -1, 0].into_iter().enumerate()
    {
        let owner = format!("alice{round}");
        let alices = stage.hold("k", &owner, 10 * 3_600_000);
        let mut bob = stage.wait_with("k", "bob", 10 * 3_600_000, 0);
        let mut carol = stage.wait_with("k", "carol", LONG, 200);
        clock.set(ahead_ms);
        assert_eq!(carol.connection.receive(SOON).unwrap(), Value::Nil, "at {ahead_ms}");
        stage.expect_in_line(&mut [&mut bob]);
        stage.release("k", &owner);
        let bobs = stage.granted(&mut bob);
        assert!(alices > last && bobs > alices, "{last} {alices} {bobs} at {ahead_ms}");
        last = bobs;
        stage.release("k", "bob");
    }
    stage.check();
}

fn a_lease_that_was_set_after_the_clock_went_back_ends_in_time(kind: Kind) {
    let clock = Clock::new();
    let mut stage = stage_with(&kind, &clock);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    clock.set(-HOUR_MS);
    // By the old date this end has passed long ago, or the look at it is an hour away.
    stage.run("LOCK.RENEW k alice 200");
    assert!(stage.granted(&mut bob) > alices);
    stage.check();
}

on_each_server!(
    a_clock_set_back_makes_no_wait_longer,
    a_clock_set_forward_makes_no_wait_shorter_and_ends_leases,
    a_clock_that_jumps_all_the_time_harms_nobody,
    a_lease_that_was_set_after_the_clock_went_back_ends_in_time,
);

//! The date of the server is set while clients wait. Leases are counted in it, as all TTLs are;
//! waits are not, and tokens never go back.

use crate::asking::token;
use crate::stage::{LONG, SOON, Stage};
use harness::clock::Clock;
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};
use std::time::{Duration, Instant};

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

/// The server may not have seen yet that the date went back; the lease has to run all the same.
fn a_lease_that_is_set_while_the_clock_goes_back_is_not_over(kind: Kind) {
    let clock = Clock::new();
    let mut stage = stage_with(&kind, &clock);
    for hours in 1..=20 {
        clock.begin_to_set(-hours * HOUR_MS);
        let alices = stage.hold("k", "alice", LONG);
        assert_eq!(stage.run("LOCK.ACQUIRE k bob 1000"), Value::Nil, "{hours} hours back");
        stage.expect_holder("k", "alice", 1, Some(alices));
        stage.release("k", "alice");
    }
    stage.check();
}

/// A machine that is busy may be late with one of two waits; the figures are printed.
#[expect(clippy::print_stdout, reason = "the figure, for whoever asks with --nocapture")]
fn waits_end_soon_after_their_time_whatever_the_date_does(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let mut eye = server.connect();
    let mut worst = Vec::new();
    for step in [1_000, 60_000, HOUR_MS].into_iter().flat_map(|step| [step, -step]) {
        let lease = 10 * HOUR_MS;
        token(&eye.call(cmd!["LOCK.ACQUIRE", "k", "alice", lease]));
        let waits: Vec<_> = [800_u64, 1200]
            .into_iter()
            .map(|timeout_ms| {
                let mut connection = server.connect();
                let (id, begun) = (connection.client_id(), Instant::now());
                let owner = format!("waits{timeout_ms}");
                connection.send(cmd!["LOCK.WAIT", "k", owner, lease, timeout_ms]);
                wait::until("it waits, or no more", SOON, || {
                    let over = connection.has_unread() || observe::is_blocked(&mut eye, id);
                    if over { Ok(()) } else { Err(String::new()) }
                });
                (connection, begun + Duration::from_millis(timeout_ms))
            })
            .collect();
        clock.set(step);
        let late = waits.into_iter().map(|(mut connection, due)| {
            assert_eq!(connection.receive(SOON).unwrap(), Value::Nil, "at {step}");
            Instant::now().saturating_duration_since(due).as_millis()
        });
        let late: Vec<_> = late.collect();
        assert!(late.iter().any(|late| *late < 1000), "{late:?} ms late at {step}");
        worst.push((step, late.into_iter().max()));
        // And back, which is a step as well.
        clock.set(0);
        eye.run("LOCK.FORCERELEASE k");
    }
    println!("{kind}: step of the date and how late a wait ended, in ms: {worst:?}");
}

on_each_server!(
    a_clock_set_back_makes_no_wait_longer,
    a_clock_set_forward_makes_no_wait_shorter_and_ends_leases,
    a_lease_that_was_set_after_the_clock_went_back_ends_in_time,
    a_lease_that_is_set_while_the_clock_goes_back_is_not_over,
    waits_end_soon_after_their_time_whatever_the_date_does,
);

//! Leases end and waits time out at the right time.
//!
//! A busy machine may delay any try. So no try may be early, but only one of several tries must be in time.

use crate::asking::{LONG, acquire, arrival, release, token, wait_in_queue};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};
use std::time::{Duration, Instant};

const TRIES: usize = 12;

/// Repeats a measurement until one is at most `limit`. Fails after [`TRIES`] tries.
fn in_time(limit: Duration, mut lateness: impl FnMut() -> Duration) {
    let tries = (0..TRIES).map(|_| lateness());
    let late: Vec<_> = tries.take_while(|late| *late > limit).collect();
    assert!(late.len() < TRIES, "{late:?} late");
}

/// Returns the delay of one hand-off after the end of the lease. A token is the server's time of the grant in
/// microseconds.
fn lateness(server: &Server, control: &mut Connection, end_it: &str) -> Duration {
    let mut waiter = server.connect();
    control.run("DEL k");
    acquire(control, "k", "alice");
    wait_in_queue(&mut waiter, control, "k", "bob");
    control.run(end_it);
    let end = control.run("PEXPIRETIME k").integer();
    let granted = token(&arrival(&mut waiter));
    assert!(granted / 1000 >= end, "granted at {granted}, before the end at {end}");
    Duration::from_micros((granted - end * 1000).unsigned_abs())
}

fn a_lease_is_handed_off_when_it_ends(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    // Turn the server's own sampling of expired keys off, so that only the module ends leases.
    control.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for end_it in ["LOCK.RENEW k alice 60", "PEXPIRE k 60"] {
        in_time(Duration::from_millis(20), || lateness(&server, &mut control, end_it));
    }
}

fn a_wait_ends_at_its_timeout(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    acquire(&mut control, "k", "alice");
    for timeout in [1, 10, 100] {
        in_time(Duration::from_millis(10), || {
            let start = Instant::now();
            assert_eq!(waiter.call(cmd!["LOCK.WAIT", "k", "bob", LONG, timeout]), Value::Nil);
            let waited = start.elapsed();
            // The server counts whole milliseconds.
            assert!(waited.as_millis() as u64 + 1 >= timeout, "too early: {waited:?}");
            waited.saturating_sub(Duration::from_millis(timeout))
        });
    }
}

/// The number behind a name in the text of a histogram.
fn counted(histogram: &str, name: &str) -> u64 {
    let mut pairs = histogram.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(it, _)| *it == name).map_or(0, |(_, number)| number.parse().unwrap())
}

fn wait_and_hold_times_are_counted(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    let field = |control: &mut Connection, name: &str| observe::info_field(control, name).unwrap();
    let (waits, holds) = ("kvlock_wait_time_ms", "kvlock_hold_time_ms");
    assert_eq!(field(&mut control, waits), "count=0,sum_us=0");
    assert_eq!(field(&mut control, holds), "count=0,sum_us=0");

    let whole = Instant::now();
    acquire(&mut control, "k", "alice");
    let held = Instant::now();
    wait_in_queue(&mut waiter, &mut control, "k", "bob");
    let waited = Instant::now();
    std::thread::sleep(Duration::from_millis(30));
    let (held, waited) = (held.elapsed(), waited.elapsed());
    assert_eq!(release(&mut control, "k", "alice"), Value::Integer(0));
    token(&arrival(&mut waiter));
    let whole = whole.elapsed() + Duration::from_millis(2);

    for (name, least) in [(waits, waited - Duration::from_millis(1)), (holds, held)] {
        let text = field(&mut control, name);
        let sum = Duration::from_micros(counted(&text, "sum_us"));
        assert!(counted(&text, "count") == 1 && least <= sum && sum <= whole, "{name}: {text}");
        let bucket = sum.as_micros().div_ceil(1000).next_power_of_two().to_string();
        assert_eq!(counted(&text, &bucket), 1, "{name}: {text}");
    }
}

on_each_server!(
    wait_and_hold_times_are_counted,
    a_lease_is_handed_off_when_it_ends,
    a_wait_ends_at_its_timeout,
);

//! The date of the server jumps. Leases follow the date, as all expiry times do. Waits do not, and tokens
//! never go back.

use crate::asking::{SOON, acquire, release, token};
use harness::agree::{expect_unharmed, hash};
use harness::clock::Clock;
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};
use std::time::{Duration, Instant};

const HOUR_MS: i64 = 3_600_000;

/// When the lease is set, the server may not have read the new date yet. The lease must not count as ended.
fn a_lease_set_while_the_clock_goes_back_has_not_ended(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let mut eye = server.connect();
    for hours in 1..=20 {
        clock.begin_to_set(-hours * HOUR_MS);
        let alices = token(&acquire(&mut eye, "k", "alice"));
        assert_eq!(acquire(&mut eye, "k", "bob"), Value::Nil, "{hours} hours back");
        let held = hash(&mut eye, "k");
        assert_eq!((&*held["alice"], &*held["fencing-token"]), ("1", &*format!("t{alices}")));
        assert!(eye.run("PTTL k").integer() > 0);
        assert_eq!(release(&mut eye, "k", "alice"), Value::Integer(0));
    }
    expect_unharmed(&server);
}

/// A busy machine may end one of the two waits late, so only one must be in time.
#[expect(clippy::print_stdout, reason = "the figure, for whoever asks with --nocapture")]
fn waits_end_soon_after_their_timeout_when_the_date_jumps(kind: Kind) {
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
        // The return to the right date is a jump too.
        clock.set(0);
        eye.run("LOCK.FORCERELEASE k");
    }
    println!("{kind}: step of the date and how late a wait ended, in ms: {worst:?}");
}

on_each_server!(
    a_lease_set_while_the_clock_goes_back_has_not_ended,
    waits_end_soon_after_their_timeout_when_the_date_jumps,
);

//! A server that sleeps for longer than a lease, because a command keeps it busy or because its
//! process is stopped. What lay in its sockets meanwhile is carried out when it wakes, at the date
//! that it is then: a renewal does not count from when it arrived.

use crate::asking::{LONG, acquire, arrival, release, token, wait_in_line};
use harness::clock::Clock;
use harness::{Kind, Server, Value, cmd, on_each_server, wait};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

fn pass(until: Instant) {
    wait::until("so long has passed", LIMIT, || {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go")) }
    });
}

fn what_arrived_while_the_server_slept_past_the_lease_comes_too_late(kind: Kind) {
    let lease = Duration::from_secs(1);
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    for stopped in [true, false] {
        let (mut alice, mut bob) = (server.connect(), server.connect());
        let first = token(&alice.call(cmd!["LOCK.ACQUIRE", "k", "alice", 1000]));
        // The server counts whole milliseconds, and the last one to its end.
        let over = Instant::now() + lease + Duration::from_millis(10);
        wait_in_line(&mut bob, &mut control, "k", "bob");
        if stopped {
            server.stand_still();
        } else {
            alice.send(cmd!["DEBUG", "SLEEP", "1.2"]);
        }
        let late = [
            cmd!["LOCK.RENEW", "k", "alice", LONG],
            cmd!["LOCK.ACQUIRE", "k", "alice", LONG],
            cmd!["LOCK.RELEASE", "k", "alice"],
        ];
        late.iter().for_each(|command| alice.send(command));
        pass(over);
        if stopped {
            server.signal(Signal::SIGCONT);
        } else {
            assert_eq!(alice.receive(LIMIT).unwrap(), Value::Status("OK".into()));
        }
        for command in late {
            let name = String::from_utf8_lossy(&command[0]).into_owned();
            assert_eq!(alice.receive(LIMIT).unwrap(), Value::Nil, "{name}, stopped: {stopped}");
        }
        assert!(token(&bob.receive(LIMIT).unwrap()) > first);
        assert_eq!(release(&mut bob, "k", "bob"), Value::Integer(0));
    }
    server.assert_alive();
}

/// Here a jump of the date while the server is stopped stands for a long sleep.
fn a_renewal_counts_if_the_lease_still_runs_when_it_is_carried_out(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let (mut control, mut alice, mut bob) = (server.connect(), server.connect(), server.connect());
    let first = token(&acquire(&mut alice, "k", "alice"));
    wait_in_line(&mut bob, &mut control, "k", "bob");
    let long = LONG as i64;
    let mut sleep_until = |ahead_ms: i64| {
        server.stand_still();
        alice.send(cmd!["LOCK.RENEW", "k", "alice", LONG]);
        clock.set(ahead_ms);
        server.signal(Signal::SIGCONT);
        alice.receive(LIMIT).unwrap()
    };
    assert_eq!(sleep_until(long - 60_000), Value::Integer(long));
    assert_eq!(control.run("LOCK.INFO k").field("waiters").integer(), 1);
    assert!(!bob.has_unread());
    // It is renewed until then at the latest, give or take what this test takes.
    assert_eq!(sleep_until(2 * long), Value::Nil);
    assert!(token(&arrival(&mut bob)) > first);
    server.assert_alive();
}

on_each_server!(
    what_arrived_while_the_server_slept_past_the_lease_comes_too_late,
    a_renewal_counts_if_the_lease_still_runs_when_it_is_carried_out,
);

//! A server that sleeps for longer than a lease, because a command keeps it busy or because its
//! process is stopped. What lay in its sockets meanwhile is carried out when it wakes, at the date
//! that it is then: a renewal does not count from when it arrived.

use crate::asking::{LONG, acquire, arrival, release, token, wait_in_line};
use harness::checker::{Limits, assert_correct};
use harness::clock::Clock;
use harness::history::{Outcome, Recorder, Request};
use harness::{Connection, Kind, Server, Value, cmd, lines, on_each_server, wait};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
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

const SHORT: Duration = Duration::from_millis(200);

/// Waits, renews for a while what it is given, and believes in it as the documents say.
fn work(mut connection: Connection, book: &Recorder, number: usize, over: &AtomicBool) {
    let mut ask = |owner: &str, request: Request| {
        let begun = book.now();
        let call = book.sent("k", owner, request.clone());
        connection.send(request.command("k", owner));
        let outcome = Outcome::of(&request, &connection.receive(LIMIT).unwrap());
        book.answered(call, outcome);
        let valid_until = begun + SHORT * 99 / 100 - Duration::from_millis(2);
        if outcome == Outcome::Done {
            book.believed(call, valid_until);
        }
        (outcome != Outcome::Refused).then_some(valid_until)
    };
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let owner = format!("{number}:{turn}");
        ask(&owner, Request::Acquire { lease: SHORT, timeout: Some(LIMIT) });
        let mut renew = || {
            let renewed = ask(&owner, Request::Renew { lease: SHORT });
            // Not in a hurry: most of these are under way when the server falls asleep.
            pass(Instant::now() + SHORT / 10);
            renewed.is_some()
        };
        if (0..8).all(|_| renew()) {
            ask(&owner, Request::Release);
        }
    }
}

#[test]
fn nobody_overlaps_however_often_the_server_sleeps() {
    let server = Server::start();
    let (book, over) = (Recorder::new(), AtomicBool::new(false));
    let mut control = server.connect();
    let renewed = |outcome: Outcome| {
        let calls = book.calls();
        let is = |call: &&harness::history::Call| {
            call.request == Request::Renew { lease: SHORT }
                && call.answer.is_some_and(|(_, answer)| answer == outcome)
        };
        calls.iter().filter(is).count()
    };
    thread::scope(|scope| {
        for number in 0..4 {
            let (connection, book, over) = (server.connect(), &book, &over);
            scope.spawn(move || work(connection, book, number, over));
        }
        let (eye, book_, over_) = (server.connect(), &book, &over);
        scope.spawn(move || lines::watch(eye, &["k"], book_, over_));
        for sleep in 0..6 {
            let before = renewed(Outcome::Done);
            wait::until("somebody renews", LIMIT, || match renewed(Outcome::Done) - before {
                0..5 => Err("not yet".to_owned()),
                _ => Ok(()),
            });
            if sleep % 2 == 0 {
                server.stand_still();
                pass(Instant::now() + 2 * SHORT);
                server.signal(Signal::SIGCONT);
            } else {
                control.call(cmd!["DEBUG", "SLEEP", "0.4"]);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let (late, calls) = (renewed(Outcome::Refused), book.calls());
    assert!(late > 0, "no renewal came too late");
    assert!(calls.iter().any(|call| call.queued.is_some()), "nobody was seen in line");
    // The server sleeps for 0.4 s.
    assert_correct(&calls, &Limits { prompt: Duration::from_secs(3), ..Limits::default() });
    println!("{} calls, {late} renewals came too late", calls.len());
}

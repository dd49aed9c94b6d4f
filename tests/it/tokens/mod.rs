//! Tokens grow over restarts and promotions, whatever the clock does. What else ends a grant is in
//! `transcripts/floor.txt`.

mod floor;

use crate::asking::{LONG, acquire, release, token};
use harness::clock::Clock;
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

/// The clock goes back by an hour.
const BACK_MS: i64 = -3_600_000;

/// The token of a grant that is given back at once.
fn next_token(connection: &mut Connection) -> i64 {
    let granted = token(&acquire(connection, "k", "alice"));
    assert_eq!(release(connection, "k", "alice"), Value::Integer(0));
    granted
}

/// Starts again with the same files and the clock set back.
fn grows_over_restarts(server: &Server, clock: &Clock, before_the_end: &str) {
    let mut last = next_token(&mut server.connect());
    for restart in 1..=3 {
        server.connect().run(before_the_end);
        server.kill9();
        clock.set(BACK_MS * restart);
        server.restart();
        let next = next_token(&mut server.connect());
        assert!(next > last, "{next} after {last}, restart {restart}");
        last = next;
    }
}

fn tokens_grow_over_a_restart_with_an_append_only_file(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).append_only("always").start();
    grows_over_restarts(&server, &clock, "PING");
}

fn tokens_grow_over_a_restart_with_a_snapshot(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    grows_over_restarts(&server, &clock, "SAVE");
}

/// Whoever starts again is ahead of its clock, and reserves from there on. That, too, may be lost:
/// the next one to start has only its clock to be above the one before.
fn tokens_grow_over_restarts_in_a_row_of_which_the_last_has_lost_something(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let mut last = next_token(&mut server.connect());
    for (restart, saves) in [(1, true), (2, true), (3, false), (4, false)] {
        if saves {
            server.connect().run("SAVE");
        }
        server.kill9();
        clock.set(restart * 1_000);
        server.restart();
        let next = next_token(&mut server.connect());
        assert!(next > last, "{next} after {last}, restart {restart}");
        last = next;
    }
}

fn tokens_grow_when_a_replica_with_a_slow_clock_is_promoted(kind: Kind) {
    let clock = Clock::new();
    clock.set(BACK_MS);
    let primary = Server::options().kind(&kind).start();
    let replica = Server::options().kind(&kind).clock(&clock).replica_of(&primary).start();
    let (mut p, mut r) = (primary.connect(), replica.connect());
    let last = token(&p.call(cmd!["LOCK.ACQUIRE", "k", "alice", LONG]));
    observe::wait_for_replica(&mut p, &mut r);
    primary.kill9();
    r.run("REPLICAOF NO ONE");
    assert_eq!(r.run("LOCK.INFO k").field("token"), &Value::Integer(last));
    assert_eq!(release(&mut r, "k", "alice"), Value::Integer(0));
    assert!(next_token(&mut r) > last);
}

/// Raises the token of `k`, which alice holds, by an hour.
fn raise(connection: &mut Connection) -> i64 {
    let held = token(&acquire(connection, "k", "alice"));
    let raised = held - BACK_MS * 1000;
    let reply = connection.call(cmd!["LOCK.RENEW", "k", "alice", LONG, "TOKEN", raised]);
    assert_eq!(reply, Value::Integer(LONG.cast_signed()));
    assert_eq!(connection.run("LOCK.INFO k").field("token"), &Value::Integer(raised));
    raised
}

fn a_raised_token_outlives_a_restart_with_its_lock_and_without(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).append_only("always").start();
    let raised = raise(&mut server.connect());
    server.restart();
    let mut a = server.connect();
    assert_eq!(a.run("LOCK.INFO k").field("token"), &Value::Integer(raised));
    assert_eq!(token(&acquire(&mut a, "k", "alice")), raised, "a reentry keeps it");
    a.run("LOCK.RELEASE k alice ALL");
    assert!(next_token(&mut a) > raised);

    let raised = raise(&mut a);
    a.run("LOCK.RELEASE k alice ALL");
    server.kill9();
    clock.set(BACK_MS);
    server.restart();
    assert!(next_token(&mut server.connect()) > raised);
}

on_each_server!(
    a_raised_token_outlives_a_restart_with_its_lock_and_without,
    tokens_grow_over_a_restart_with_an_append_only_file,
    tokens_grow_over_a_restart_with_a_snapshot,
    tokens_grow_over_restarts_in_a_row_of_which_the_last_has_lost_something,
    tokens_grow_when_a_replica_with_a_slow_clock_is_promoted,
);

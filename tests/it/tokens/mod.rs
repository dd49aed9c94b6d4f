//! Tokens grow, whatever happens to the server, its data and its clock.

mod floor;

use crate::asking::{LONG, acquire, arrival, release, token, wait_in_line};
use harness::clock::Clock;
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

/// The clock goes back by an hour.
const BACK_MS: i64 = -3_600_000;

/// A token far above the clock, and below the limit of 2^52.
const AHEAD: i64 = 4_400_000_000_000_000;

/// The token of a grant that is given back at once.
fn next_token(connection: &mut Connection) -> i64 {
    let granted = token(&acquire(connection, "k", "alice"));
    assert_eq!(release(connection, "k", "alice"), Value::Integer(0));
    granted
}

fn reentry_repetition_and_renewal_keep_the_token(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let mut a = server.connect();
    let first = token(&acquire(&mut a, "k", "alice"));
    for (ahead_ms, line) in [
        (0, "LOCK.ACQUIRE k alice 600000"),
        (0, "LOCK.ACQUIRE k alice 600000 HOLDS 2"),
        (1000, "LOCK.WAIT k alice 600000 0"),
        (-1000, "LOCK.ACQUIRE k alice 600000 HOLDS 3"),
    ] {
        clock.set(ahead_ms);
        assert_eq!(token(&a.run(line)), first, "{line}");
    }
    assert_eq!(a.run("LOCK.RENEW k alice 600000"), Value::Integer(600_000));
    assert_eq!(release(&mut a, "k", "alice"), Value::Integer(2));
    assert_eq!(a.run("LOCK.INFO k").field("token"), &Value::Integer(first));
}

fn tokens_grow_over_all_that_ends_a_grant(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    let mut last = 0;
    for ahead_ms in [0, BACK_MS] {
        for end_it in [
            "LOCK.RELEASE k alice",
            "LOCK.FORCERELEASE k",
            "LOCK.RENEW k alice 1",
            "DEL k",
            "HDEL k alice",
            "FLUSHDB",
            "FLUSHALL",
        ] {
            clock.set(ahead_ms);
            let mut grows = |next: i64, how: &str| {
                assert!(next > last, "{next} after {last} by {how}, clock at {ahead_ms}");
                last = next;
            };
            grows(token(&acquire(&mut control, "k", "alice")), "an acquire");
            wait_in_line(&mut waiter, &mut control, "k", "bob");
            control.run(end_it);
            grows(token(&arrival(&mut waiter)), end_it);
            control.run("SWAPDB 0 1");
            grows(next_token(&mut control), "SWAPDB");
            control.run("FLUSHALL");
        }
    }
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

/// The stored token counts too: the hash may have come here alone.
fn tokens_grow_above_the_one_in_the_hash(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    control.call(cmd!["HSET", "k", "alice", 1, "fencing-token", format!("t{AHEAD}")]);
    control.run("PEXPIRE k 60000");
    assert_eq!(token(&acquire(&mut control, "k", "alice")), AHEAD, "a reentry keeps it");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    assert_eq!(control.run("LOCK.RELEASE k alice ALL"), Value::Integer(0));
    assert!(token(&arrival(&mut waiter)) > AHEAD);
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

fn a_raised_token_is_known_to_a_replica_without_the_module(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = Server::options().kind(&kind).without_module().replica_of(&primary).start();
    let (mut p, mut r) = (primary.connect(), replica.connect());
    observe::wait_for_replica(&mut p, &mut r);
    let raised = raise(&mut p);
    observe::wait_for_replica(&mut p, &mut r);
    assert_eq!(r.run("HGET k fencing-token").text(), format!("t{raised}"));
    let floor = r.run("GET kvlock:floor").text().parse::<i64>().unwrap();
    assert!(floor >= raised + 10_000, "{floor}, {raised}");
}

on_each_server!(
    a_raised_token_outlives_a_restart_with_its_lock_and_without,
    a_raised_token_is_known_to_a_replica_without_the_module,
    reentry_repetition_and_renewal_keep_the_token,
    tokens_grow_over_all_that_ends_a_grant,
    tokens_grow_over_a_restart_with_an_append_only_file,
    tokens_grow_over_a_restart_with_a_snapshot,
    tokens_grow_over_restarts_in_a_row_of_which_the_last_has_lost_something,
    tokens_grow_when_a_replica_with_a_slow_clock_is_promoted,
    tokens_grow_above_the_one_in_the_hash,
);

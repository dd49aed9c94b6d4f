//! Tokens grow, whatever happens to the data, and whoever else has written a floor.

use crate::asking::{acquire, arrival, release, token, wait_in_line};
use harness::{Connection, Kind, Server, cmd, observe, on_each_server};

/// Far above the clock, and below the limit of 2^52.
const AHEAD: i64 = 4_400_000_000_000_000;

fn floor(connection: &mut Connection) -> i64 {
    connection.run("GET kvlock:floor").text().parse().expect("a floor")
}

/// A grant that is given back at once.
fn next_token(connection: &mut Connection) -> i64 {
    let granted = token(&acquire(connection, "k", "alice"));
    assert_eq!(release(connection, "k", "alice").integer(), 0);
    granted
}

fn tokens_grow_in_every_way_of_granting(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    let mut last = 0;
    let mut grows = |next: i64| {
        assert!(next > last, "{next} after {last}");
        last = next;
    };
    for end_it in [
        "LOCK.RELEASE k alice",
        "LOCK.FORCERELEASE k",
        "LOCK.RENEW k alice 1",
        "DEL k",
        "FLUSHALL",
        "FLUSHDB",
    ] {
        grows(next_token(&mut control));
        grows(token(&acquire(&mut control, "k", "alice")));
        wait_in_line(&mut waiter, &mut control, "k", "bob");
        control.run(end_it);
        grows(token(&arrival(&mut waiter)));
        control.run("SWAPDB 0 1");
        grows(next_token(&mut control));
        control.run("FLUSHALL");
    }
}

fn every_grant_is_below_the_floor_that_is_written(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("always").start();
    let mut connection = server.connect();
    for _ in 0..100 {
        let granted = next_token(&mut connection);
        assert!(granted < floor(&mut connection));
    }
    let file = |server: &Server| {
        let mut names: Vec<_> = std::fs::read_dir(server.dir().join("appendonlydir"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        names.sort();
        names
            .iter()
            .map(|name| String::from_utf8_lossy(&std::fs::read(name).unwrap()).into_owned())
            .collect::<String>()
    };
    // One write for half a minute of grants.
    assert_eq!(file(&server).matches("kvlock:floor").count(), 1);
}

fn tokens_start_above_a_floor_that_somebody_else_has_written(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut connection = server.connect();
    assert!(next_token(&mut connection) < AHEAD);
    connection.call(cmd!["SET", "kvlock:floor", AHEAD]);
    let first = next_token(&mut connection);
    assert!(first >= AHEAD, "{first}");
    // And stay there when the key is lost.
    connection.run("DEL kvlock:floor");
    assert!(next_token(&mut connection) > first);
}

fn tokens_start_above_the_floor_after_a_restart(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("always").start();
    let mut connection = server.connect();
    connection.call(cmd!["SET", "kvlock:floor", AHEAD]);
    let mut last = next_token(&mut connection);
    for _ in 0..3 {
        server.kill9();
        server.restart();
        let next = next_token(&mut server.connect());
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

fn tokens_grow_from_a_promoted_replica(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let (mut p, mut r) = (primary.connect(), replica.connect());
    p.call(cmd!["SET", "kvlock:floor", AHEAD]);
    let last = next_token(&mut p);
    observe::wait_for_replica(&mut p, &mut r);
    primary.kill9();
    r.run("REPLICAOF NO ONE");
    assert!(next_token(&mut r) > last);
}

/// The stored token counts where the floor is gone, as after a restart without any file.
fn tokens_grow_above_the_one_in_the_hash(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut connection = server.connect();
    connection.call(cmd!["HSET", "k", "alice", 1, "fencing-token", AHEAD]);
    connection.run("PEXPIRE k 60000");
    assert_eq!(token(&acquire(&mut connection, "k", "alice")), AHEAD, "a reentry keeps it");
    let mut waiter = server.connect();
    wait_in_line(&mut waiter, &mut connection, "k", "bob");
    assert_eq!(connection.run("LOCK.RELEASE k alice ALL").integer(), 0);
    assert!(token(&arrival(&mut waiter)) > AHEAD);
}

fn a_floor_that_is_none_is_replaced(kind: Kind) {
    // 2^52 + 1, 2^63, no number, and no string.
    for line in [
        "SET kvlock:floor 4503599627370497",
        "SET kvlock:floor 9223372036854775808",
        "SET kvlock:floor x",
        "SET kvlock:floor ''",
        "RPUSH kvlock:floor 1",
    ] {
        let server = Server::options().kind(&kind).start();
        let mut connection = server.connect();
        connection.run(line);
        let granted = next_token(&mut connection);
        assert!(granted < AHEAD, "{granted} after {line}");
        assert!(floor(&mut connection) > granted && floor(&mut connection) < AHEAD, "after {line}");
    }
}

on_each_server!(
    tokens_grow_in_every_way_of_granting,
    every_grant_is_below_the_floor_that_is_written,
    tokens_start_above_a_floor_that_somebody_else_has_written,
    tokens_start_above_the_floor_after_a_restart,
    tokens_grow_from_a_promoted_replica,
    tokens_grow_above_the_one_in_the_hash,
    a_floor_that_is_none_is_replaced,
);

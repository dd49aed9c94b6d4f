//! Tokens of servers whose clocks are apart, and of one that loses what it had reserved. What else they grow over is
//! in `transcripts/tokens.txt` and `transcripts/floor.txt`.

use crate::asking::{LONG, acquire, release, token};
use harness::clock::Clock;
use harness::disk::append_only_file;
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};
use std::fs::{self, File};

/// The clock goes back by an hour.
const BACK_MS: i64 = -3_600_000;

/// The token of a grant that is given back at once.
fn next_token(connection: &mut Connection) -> i64 {
    let granted = token(&acquire(connection, "k", "alice"));
    assert_eq!(release(connection, "k", "alice"), Value::Integer(0));
    granted
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

/// Starts within a minute, of which each finds a reservation that is further ahead than the one
/// before; and one of them dies with the power before it could save its own.
fn who_starts_without_what_the_start_before_had_reserved_is_above_it(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("always").start();
    let mut last = 0;
    for saved in [true, true, true, false, false, true] {
        let file = append_only_file(server.dir());
        let size = fs::metadata(&file).unwrap().len();
        let mut a = server.connect();
        for _ in 0..20 {
            let next = next_token(&mut a);
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        server.kill9();
        if !saved {
            File::options().write(true).open(&file).unwrap().set_len(size).unwrap();
        }
        server.restart();
    }
    assert!(token(&acquire(&mut server.connect(), "k", "alice")) > last);
}

on_each_server!(
    tokens_grow_when_a_replica_with_a_slow_clock_is_promoted,
    who_starts_without_what_the_start_before_had_reserved_is_above_it,
);

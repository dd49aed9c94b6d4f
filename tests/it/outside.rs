//! Others change the key: waiters are served, and replicas see the same in the same order.

use crate::asking::{SOON, acquire, arrival, release, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, observe, on_each_server, wait};
use std::time::Duration;

/// What takes a lock away from its holder, one line or several.
const REMOVALS: [&[&str]; 15] = [
    &["DEL k"],
    &["UNLINK k"],
    &["HDEL k alice"],
    &["HDEL k alice fencing-token"],
    &["RENAME k elsewhere"],
    &["PEXPIRE k 1"],
    &["PEXPIRE k -1"],
    &["PEXPIREAT k 1"],
    &["SET k v", "DEL k"],
    &["SET k v PX 1"],
    &["MULTI", "SET k v", "DEL k", "EXEC"],
    &["EVAL \"redis.call('hincrby', KEYS[1], 'alice', -1) return redis.call('del', KEYS[1])\" 1 k"],
    &["FLUSHDB"],
    &["FLUSHALL ASYNC"],
    &[
        "RESTORE k 1 \"\\x00\\x01v\\n\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\" REPLACE",
        "DEL k",
    ],
];

fn lock(connection: &mut Connection) -> String {
    format!("{} {}", connection.run("HGETALL k"), connection.run("PEXPIRETIME k"))
}

fn whatever_takes_a_lock_away_serves_the_next_also_on_the_replica(kind: Kind) {
    let primary = Server::options().kind(&kind).append_only("always").start();
    let replica = Server::options().kind(&kind).without_module().replica_of(&primary).start();
    let (mut p, mut r) = (primary.connect(), replica.connect());
    let mut last = 0;
    for removal in REMOVALS {
        acquire(&mut p, "k", "alice");
        let mut waiter = primary.connect();
        wait_in_line(&mut waiter, &mut p, "k", "bob");
        for line in removal {
            p.run(line);
        }
        let next =
            token(&waiter.receive(SOON).unwrap_or_else(|why| panic!("after {removal:?}: {why}")));
        assert!(next > last, "token {next} after {last}, by {removal:?}");
        last = next;
        observe::wait_for_replica(&mut p, &mut r);
        assert_eq!(lock(&mut r), lock(&mut p), "after {removal:?}");
        assert_eq!(release(&mut p, "k", "bob"), Value::Integer(0));
        p.run("DEL elsewhere");
    }
    // And all of it once more from the file.
    acquire(&mut p, "k", "alice");
    let mut waiter = primary.connect();
    wait_in_line(&mut waiter, &mut p, "k", "bob");
    p.run("DEL k");
    token(&arrival(&mut waiter));
    let before = lock(&mut p);
    primary.restart();
    assert_eq!(lock(&mut primary.connect()), before);
}

/// Not among the others, because Valkey before pull request 4024 leaves a client that moves a key in
/// the other database, in its replication stream too, once any module listens to key events.
fn a_lock_that_is_moved_to_another_database_is_released_here(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    let before = token(&acquire(&mut control, "k", "alice"));
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    assert_eq!(server.connect().run("MOVE k 1"), Value::Integer(1));
    assert!(token(&arrival(&mut waiter)) > before);
    assert_eq!(control.run("LOCK.INFO k").field("owner").text(), "bob");
    control.run("SELECT 1");
    assert_eq!(control.run("LOCK.INFO k").field("token"), &Value::Integer(before));
    assert_eq!(release(&mut control, "k", "alice"), Value::Integer(0));
}

/// What leaves no lock there, and no free one either.
fn who_waits_where_there_is_no_lock_any_more_waits_on(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    for line in ["SET k v", "HSET k zoe 1", "HSET k alice 0", "HINCRBY k alice -5"] {
        acquire(&mut control, "k", "alice");
        let mut waiter = server.connect();
        wait_in_line(&mut waiter, &mut control, "k", "bob");
        control.run(line);
        observe::wait_for_next_cron(&mut control);
        assert!(!waiter.has_unread(), "granted after {line}");
        control.run("DEL k");
        token(&arrival(&mut waiter));
        assert_eq!(release(&mut control, "k", "bob"), Value::Integer(0));
    }
}

fn a_lease_that_others_change_is_obeyed(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    control.run("LOCK.ACQUIRE k alice 200");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    // Without an end, the lock is held until somebody says so.
    control.run("PERSIST k");
    assert_eq!(control.run("LOCK.INFO k").field("lease-left"), &Value::Nil);
    observe::let_pass(&mut control, Duration::from_millis(300));
    assert!(!waiter.has_unread(), "granted though the lease was taken away");
    control.run("PEXPIRE k 30");
    token(&arrival(&mut waiter));
}

fn a_rename_onto_a_waited_key_is_seen(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    acquire(&mut control, "k", "alice");
    control.run("HSET other zoe 1");
    control.run("PEXPIRE other 50");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    control.run("RENAME other k");
    token(&arrival(&mut waiter));
}

/// The two servers that evict do it to whatever has a TTL: that is a release, and is seen.
fn an_evicted_lock_is_a_released_one(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    let before = token(&acquire(&mut control, "k", "alice"));
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    control.run("CONFIG SET maxmemory-policy volatile-ttl");
    control.run("CONFIG SET maxmemory 1");
    // Any command that may use memory makes room first.
    control.run("SET x y");
    control.run("CONFIG SET maxmemory 0");
    assert!(token(&arrival(&mut waiter)) > before);
    server.assert_alive();
}

fn saving_and_reloading_keeps_locks_and_waiters(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("everysec").start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    let before = token(&acquire(&mut control, "k", "alice"));
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    for line in ["BGREWRITEAOF", "SAVE", "DEBUG RELOAD", "DEBUG LOADAOF"] {
        assert!(!control.run(line).is_error(), "{line}");
        let info = control.run("LOCK.INFO k");
        assert_eq!(
            (info.field("owner").text(), info.field("token").integer()),
            ("alice".to_owned(), before),
            "{line}"
        );
        wait::until("no child works", SOON, || {
            match observe::info_number(&mut control, "aof_rewrite_in_progress") {
                0 => Ok(()),
                _ => Err("rewriting".to_owned()),
            }
        });
    }
    assert_eq!(release(&mut control, "k", "alice"), Value::Integer(0));
    assert!(token(&arrival(&mut waiter)) > before);
}

on_each_server!(
    a_lock_that_is_moved_to_another_database_is_released_here,
    whatever_takes_a_lock_away_serves_the_next_also_on_the_replica,
    who_waits_where_there_is_no_lock_any_more_waits_on,
    a_lease_that_others_change_is_obeyed,
    a_rename_onto_a_waited_key_is_seen,
    an_evicted_lock_is_a_released_one,
    saving_and_reloading_keeps_locks_and_waiters,
);

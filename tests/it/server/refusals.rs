//! Keys that a module temporarily cannot open for writing, as on Valkey 9.2 while it saves without a fork.
//! The module must repeat its writes outside commands until they succeed. No grant is lost, and none is made
//! twice.
//!
//! The build for tests refuses keys at random: most keys in each run of a timer, and most token floors
//! (which commands do not declare) in each command. See `module/src/redis/refusal.rs`.

use crate::asking::{LONG, SOON, acquire, arrival, token, wait_in_queue};
use harness::agree::expect_unharmed;
use harness::{Kind, Server, Value, cmd, observe, on_each_server};

/// Share of keys that are refused, in percent.
const REFUSED: &str = "80";

/// Number of keys, and number of waiters for each key.
const KEYS: usize = 8;
const WAITERS: usize = 12;

const LEASE_MS: i64 = 40;

fn start(kind: &Kind) -> Server {
    Server::options().kind(kind).provoke().env("KVLOCK_REFUSE_OPEN", REFUSED).start()
}

fn expect_refusals(server: &Server) {
    assert!(observe::info_number(&mut server.connect(), "kvlock_refused_opens") > 0);
    expect_unharmed(server);
}

/// No owner releases its lock, so each next grant comes after the previous lease. A token is at least the time
/// of its grant in microseconds. If the module answered a waiter although the grant was not written, it would
/// grant the lock again at once, and the two tokens would be too close.
fn each_lease_ends_before_the_next_grant(kind: Kind) {
    let server = start(&kind);
    let mut eye = server.connect();
    let mut waiters = Vec::new();
    for key in 0..KEYS {
        eye.call(cmd!["LOCK.ACQUIRE", format!("k{key}"), "first", LEASE_MS]);
        for waiter in 0..WAITERS {
            let mut client = server.connect();
            let (key, owner) = (format!("k{key}"), format!("o{waiter}"));
            client.send(cmd!["LOCK.WAIT", key, owner, LEASE_MS, LONG]);
            waiters.push(client);
        }
    }
    for key in waiters.chunks_mut(WAITERS) {
        let mut tokens: Vec<_> = key.iter_mut().map(|client| token(&arrival(client))).collect();
        tokens.sort_unstable();
        for pair in tokens.windows(2) {
            let [before, after] = pair else { unreachable!() };
            assert!(after - before >= (LEASE_MS - 1) * 1_000, "granted twice: {tokens:?}");
        }
    }
    expect_refusals(&server);
}

fn a_deleted_lock_is_handed_on_and_replicated(kind: Kind) {
    let server = start(&kind);
    let (mut eye, mut client) = (server.connect(), server.connect());
    for round in 0..30 {
        let key = format!("k{round}");
        token(&acquire(&mut eye, &key, "alice"));
        wait_in_queue(&mut client, &mut eye, &key, "bob");
        eye.call(cmd!["DEL", &key]);
        token(&arrival(&mut client));
        assert_eq!(eye.call(cmd!["HGET", &key, "bob"]), Value::bulk("1"));
    }
    expect_refusals(&server);
}

fn permits_of_dead_holders_go_to_the_next_waiter(kind: Kind) {
    let server = start(&kind);
    let mut eye = server.connect();
    eye.run("SEM.SET s 2");
    for owner in ["alice", "bob"] {
        eye.call(cmd!["SEM.ACQUIRE", "s", owner, 1, LEASE_MS]);
    }
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| server.connect()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(cmd!["SEM.WAIT", "s", format!("o{number}"), 1, LEASE_MS, LONG]);
    }
    for waiter in &mut waiters {
        assert_eq!(arrival(waiter), Value::Integer(1));
    }
    expect_refusals(&server);
}

/// A waiter is killed in the transaction of its grant. The next waiter gets the lock at once, before the lease
/// of the killed waiter ends.
fn a_grant_to_a_killed_waiter_is_revoked(kind: Kind) {
    let server = start(&kind);
    let mut eye = server.connect();
    for round in 0..15 {
        let (key, mut killed, mut next) = (format!("k{round}"), server.connect(), server.connect());
        token(&acquire(&mut eye, &key, "alice"));
        let id = killed.client_id();
        wait_in_queue(&mut killed, &mut eye, &key, "bob");
        wait_in_queue(&mut next, &mut eye, &key, "carol");
        eye.run("MULTI");
        eye.call(cmd!["LOCK.RELEASE", &key, "alice"]);
        eye.call(cmd!["CLIENT", "KILL", "ID", id]);
        eye.run("EXEC");
        token(&arrival(&mut next));
        assert_eq!(eye.call(cmd!["HGET", &key, "carol"]), Value::bulk("1"));
    }
    expect_refusals(&server);
}

fn bound_locks_are_released_when_their_session_ends(kind: Kind) {
    let server = start(&kind);
    let (mut eye, mut client) = (server.connect(), server.connect());
    for round in 0..5 {
        let (lock, semaphore) = (format!("k{round}"), format!("s{round}"));
        let opened = eye.run("SESSION.OPEN 100");
        let session = opened.elements().first().expect("an id").text();
        eye.call(cmd!["SEM.SET", &semaphore, 1]);
        token(&eye.call(cmd!["LOCK.ACQUIRE", &lock, "o", LONG, "SESSION", &session, "BOUND"]));
        eye.call(cmd!["SEM.ACQUIRE", &semaphore, "o", 1, LONG, "SESSION", &session, "BOUND"]);
        client.send(cmd!["LOCK.WAIT", &lock, "next", LONG, LONG]);
        token(&client.receive(SOON).expect("the lock"));
        client.send(cmd!["SEM.WAIT", &semaphore, "next", 1, LONG, LONG]);
        assert_eq!(client.receive(SOON).expect("the permit"), Value::Integer(1));
    }
    expect_refusals(&server);
}

on_each_server!(
    each_lease_ends_before_the_next_grant,
    a_deleted_lock_is_handed_on_and_replicated,
    permits_of_dead_holders_go_to_the_next_waiter,
    a_grant_to_a_killed_waiter_is_revoked,
    bound_locks_are_released_when_their_session_ends,
);

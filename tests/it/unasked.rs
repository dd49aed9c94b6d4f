//! Grants that no client asks for just now obey what the server would refuse a client.

use crate::asking::{acquire, arrival, release, token, wait_in_line};
use harness::{Kind, Server, Value, observe, on_each_server};

fn a_hand_off_with_too_few_replicas_is_refused(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    acquire(&mut control, "k", "alice");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    control.run("LOCK.RENEW k alice 100");
    control.run("CONFIG SET min-replicas-to-write 1");
    assert_eq!(arrival(&mut waiter).code(), "NOREPLICAS");
    control.run("CONFIG SET min-replicas-to-write 0");
    token(&acquire(&mut control, "k", "carol"));
    assert_eq!(release(&mut control, "k", "carol"), Value::Integer(0));
}

fn a_replica_lets_no_lease_end(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let (mut p, mut r) = (primary.connect(), replica.connect());
    for connection in [&mut p, &mut r] {
        connection.run("DEBUG SET-ACTIVE-EXPIRE 0");
    }
    p.run("LOCK.ACQUIRE k alice 300");
    observe::wait_for_replica(&mut p, &mut r);
    r.run("CONFIG SET replica-read-only no");
    observe::let_pass(&mut p, std::time::Duration::from_millis(500));
    // The lease is over, and only the primary may say so.
    assert_eq!(r.run("DBSIZE").integer(), 2, "the replica has deleted the key by itself");
    assert_eq!(r.run("LOCK.ACQUIRE k bob 1000").code(), "READONLY");
    assert!(!r.run("HGETALL k").to_string().contains("bob"));
}

on_each_server!(a_hand_off_with_too_few_replicas_is_refused, a_replica_lets_no_lease_end);

//! While the clients of a server are paused nothing may be written: a server that finds a write
//! from a timer or an event then ends itself.

use crate::asking::{LONG, SOON, acquire, arrival, release, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server, wait};
use std::time::{Duration, Instant};

/// A server where `k` is held by `alice` for a short time and `bob` is in line; all paused before
/// the lease ends.
fn paused(kind: &Kind, how: &str) -> (Server, Connection, Connection) {
    let server = Server::options().kind(kind).append_only("everysec").start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    acquire(&mut control, "k", "alice");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    control.send_raw(format!("LOCK.RENEW k alice 50\r\nCLIENT PAUSE 60000 {how}\r\n").as_bytes());
    assert_eq!(arrival(&mut control), Value::Integer(50));
    assert_eq!(arrival(&mut control), Value::Status("OK".into()));
    (server, control, waiter)
}

/// Waits until the lease of `k` has ended, by the server's clock.
fn lease_has_ended(control: &mut Connection) {
    wait::until("the lease has ended", SOON, || match control.run("PTTL k") {
        Value::Integer(left) if left <= 0 => Ok(()),
        left => Err(left.to_string()),
    });
    observe::wait_for_next_cron(control);
}

fn a_lease_that_ends_during_a_pause_is_handed_off_after_it(kind: Kind) {
    let (server, mut control, mut waiter) = paused(&kind, "WRITE");
    lease_has_ended(&mut control);
    assert!(!waiter.has_unread(), "granted during the pause");
    control.run("CLIENT UNPAUSE");
    token(&arrival(&mut waiter));
    assert_eq!(control.run("LOCK.INFO k").field("owner").text(), "bob");
    server.assert_alive();
}

fn who_goes_during_a_pause_is_passed_over_after_it(kind: Kind) {
    let (server, mut control, waiter) = paused(&kind, "WRITE");
    let id = control.run("LOCK.INFO k WAITERS 1").field("queue")[0][2].integer();
    waiter.reset();
    observe::wait_until_gone(&mut control, id);
    lease_has_ended(&mut control);
    control.run("CLIENT UNPAUSE");
    token(&acquire(&mut control, "k", "carol"));
    assert_eq!(release(&mut control, "k", "carol"), Value::Integer(0));
    server.assert_alive();
}

fn a_timeout_is_kept_during_a_pause(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut control, mut waiter) = (server.connect(), server.connect());
    acquire(&mut control, "k", "alice");
    let id = waiter.client_id();
    let sent = Instant::now();
    waiter.send(cmd!["LOCK.WAIT", "k", "bob", LONG, 500]);
    observe::wait_until_blocked(&mut control, id);
    control.run("CLIENT PAUSE 60000 WRITE");
    assert_eq!(arrival(&mut waiter), Value::Nil);
    assert!(sent.elapsed() >= Duration::from_millis(499), "{:?}", sent.elapsed());
    control.run("CLIENT UNPAUSE");
    server.assert_alive();
}

fn pauses_one_after_another_under_load_lose_nothing(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("everysec").start();
    let mut control = server.connect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = server.connect();
                    for turn in 0..60 {
                        let owner = format!("{client}:{turn}");
                        let reply = connection.call(cmd!["LOCK.WAIT", "k", owner, 20, 5000]);
                        assert!(!reply.is_nil() && !reply.is_error(), "{reply}");
                        if turn % 3 > 0 {
                            connection.call(cmd!["LOCK.RELEASE", "k", owner]);
                        }
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            control.run("CLIENT PAUSE 30 WRITE");
            observe::wait_for_next_cron(&mut control);
        }
    });
    server.assert_alive();
}

/// A failover and a shutdown pause the clients too, while they wait for the replica.
fn a_failover_under_waiters_sends_them_away(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let (mut p, mut r, mut waiter) = (primary.connect(), replica.connect(), primary.connect());
    let before = token(&acquire(&mut p, "k", "alice"));
    observe::wait_for_replica(&mut p, &mut r);
    wait_in_line(&mut waiter, &mut p, "k", "bob");
    acquire(&mut p, "short", "alice");
    p.send_raw(b"LOCK.RENEW k alice 100\r\nFAILOVER\r\n");
    assert_eq!(arrival(&mut p), Value::Integer(100));
    assert_eq!(arrival(&mut p), Value::Status("OK".into()));
    let answer = arrival(&mut waiter);
    // Sent away, or served in the moment before the pause began.
    if answer.is_error() {
        assert_eq!(answer.code(), "UNBLOCKED", "{answer}");
    } else {
        assert!(token(&answer) > before, "{answer}");
    }
    wait::until("the replica is the primary", SOON, || match observe::info_field(&mut r, "role") {
        Some(role) if role == "master" => Ok(()),
        role => Err(format!("{role:?}")),
    });
    assert_eq!(acquire(&mut r, "short", "bob"), Value::Nil);
    let next =
        wait::until("the lock can be had there", SOON, || match acquire(&mut r, "k", "carol") {
            Value::Nil => Err("nil".to_owned()),
            reply => Ok(token(&reply)),
        });
    assert!(next > before);
    primary.assert_alive();
    replica.assert_alive();
}

fn a_shutdown_under_waiters_ends_in_order(kind: Kind) {
    let primary = Server::options().kind(&kind).append_only("everysec").start();
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let (mut p, mut r, mut waiter) = (primary.connect(), replica.connect(), primary.connect());
    acquire(&mut p, "k", "alice");
    observe::wait_for_replica(&mut p, &mut r);
    wait_in_line(&mut waiter, &mut p, "k", "bob");
    // A replica that does not answer keeps the server waiting, and paused, past the end of the lease.
    replica.signal(nix::sys::signal::Signal::SIGSTOP);
    p.run("CONFIG SET shutdown-timeout 4");
    assert_eq!(p.run("LOCK.RENEW k alice 2500"), Value::Integer(2500));
    primary.shut_down();
    assert!(waiter.receive(SOON).is_err(), "granted by a server that was going down");
    let log = primary.log();
    assert!(log.contains("bye bye") && !log.contains("BUG REPORT"), "it crashed:\n{log}");
    replica.signal(nix::sys::signal::Signal::SIGCONT);
}

on_each_server!(
    a_lease_that_ends_during_a_pause_is_handed_off_after_it,
    who_goes_during_a_pause_is_passed_over_after_it,
    a_timeout_is_kept_during_a_pause,
    pauses_one_after_another_under_load_lose_nothing,
    a_failover_under_waiters_sends_them_away,
    a_shutdown_under_waiters_ends_in_order,
);

//! Waiters that are gone at the worst moment: in the same turn of the server's event loop in which
//! they get the lock. What is written at once arrives in one read and runs in one turn.

use super::stage::{LONG, SOON, Stage, Waiter, token_of};
use harness::{Connection, Kind, Value, observe, on_each_server, wait};

pub(super) fn kill(waiter: &Waiter) -> String {
    format!("CLIENT KILL ID {}", waiter.id)
}

/// The server has closed its connection without a reply.
pub(super) fn expect_closed(waiter: &mut Waiter) {
    let owner = &waiter.owner;
    let end = waiter.connection.receive(SOON);
    assert!(matches!(end, Err(harness::resp::ReceiveError::Closed)), "{owner}: {end:?}");
}

fn a_waiter_killed_in_the_turn_of_its_grant_passes_the_lock_on(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for release in ["LOCK.RELEASE k alice", "LOCK.FORCERELEASE k"] {
        let alices = stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut carol = stage.wait("k", "carol");
        let mut dave = stage.wait("k", "dave");
        let before = stage.counted("grants_taken_back");
        stage.at_once(&[release, &kill(&bob)]);
        stage.granted_unseen();
        expect_closed(&mut bob);
        assert!(stage.granted(&mut carol) > alices + 1);
        assert_eq!(stage.counted("grants_taken_back"), before + 1);
        stage.expect_in_line(&mut [&mut dave]);
        stage.release("k", "carol");
        stage.granted(&mut dave);
        stage.release("k", "dave");
        stage.check();
    }
}

fn all_waiters_killed_in_the_turn_of_the_first_grant_leave_the_lock_free(kind: Kind) {
    let mut stage = Stage::with(&kind, |o| o.module_config("redisson-turn-ms", 0));
    let mut redisson = stage.server.connect();
    redisson.run("SUBSCRIBE redisson_lock__channel:{k}");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    stage.at_once(&["LOCK.RELEASE k alice", &kill(&bob), &kill(&carol)]);
    stage.granted_unseen();
    expect_closed(&mut bob);
    expect_closed(&mut carol);
    wait::until("the lock is free", SOON, || match stage.run("EXISTS k").integer() {
        0 => Ok(()),
        _ => Err(stage.run("HGETALL k").to_string()),
    });
    assert_eq!(redisson.receive(SOON).unwrap()[2], Value::bulk("0"));
    assert_eq!((stage.counted("grants_taken_back"), stage.counted("disconnects")), (1, 1));
    stage.check();
}

/// Bob's connection ends in the turn of the release, before it or after it.
fn ends_in_the_turn_of_the_grant(stage: &mut Stage, end: fn(Connection), before: bool) {
    let ways = ["disconnects", "grants_taken_back", "handed_off_by_expiry"];
    let counted = |stage: &mut Stage| ways.map(|way| stage.counted(way));
    stage.hold("k", "alice", LONG);
    let bob = stage.wait_with("k", "bob", 400, 0);
    let mut carol = stage.wait("k", "carol");
    let earlier = counted(stage);
    stage.while_stopped(|stage| {
        let release = b"LOCK.RELEASE k alice\r\n";
        if before {
            end(bob.connection);
            stage.eye.send_raw(release);
        } else {
            stage.eye.send_raw(release);
            end(bob.connection);
        }
    });
    assert_eq!(stage.eye.receive(SOON).unwrap(), Value::Integer(0));
    stage.granted(&mut carol);
    let now = counted(stage);
    let [left, taken_back, ended] = [0, 1, 2].map(|way| now[way] - earlier[way]);
    assert_eq!(left + taken_back + ended, 1, "{ways:?}: {earlier:?}, now {now:?}");
    if left == 0 {
        stage.granted_unseen();
    }
    stage.release("k", "carol");
    observe::wait_for_blocked_clients(&mut stage.eye, 0);
}

/// Most often it is out of the line by then, or its grant is taken back. But the end of a connection may
/// arrive after the reply was written: then nobody can tell, and a dead waiter costs the lease that it
/// asked for.
fn a_waiter_that_breaks_off_in_the_turn_of_its_grant_costs_its_lease_at_most(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for end in [Connection::reset, Connection::close] {
        for before in [true, false, true, false] {
            ends_in_the_turn_of_the_grant(&mut stage, end, before);
        }
    }
    stage.check();
}

/// The server has decided to close the client's connection, drops what is sent to it from then on, and
/// tells nobody so.
fn a_waiter_condemned_in_the_turn_of_its_grant_passes_the_lock_on(kind: Kind) {
    let mut stage = Stage::with(&kind, |options| {
        options.config("client-output-buffer-limit", "normal 40000 0 0")
    });
    let cached = "x".repeat(60_000);
    for condemn in ["ACL DELUSER bob", &format!("SET {cached} 1")] {
        stage.run("ACL SETUSER bob on nopass ~* &* +@all");
        stage.hold("k", "alice", LONG);
        let mut connection = stage.server.connect_resp(3);
        connection.run("AUTH bob x");
        // It is told when this key changes, which is more than it may be sent at once.
        connection.run("CLIENT TRACKING on");
        connection.run(&format!("GET {cached}"));
        let mut bob = stage.wait_on(connection, "k", "bob", LONG, 0);
        let mut carol = stage.wait("k", "carol");
        let taken_back = stage.counted("grants_taken_back");
        stage.at_once(&[condemn, "LOCK.RELEASE k alice"]);
        stage.granted_unseen();
        expect_closed(&mut bob);
        stage.granted(&mut carol);
        assert_eq!(stage.counted("grants_taken_back"), taken_back + 1);
        stage.release("k", "carol");
        stage.run(&format!("DEL {cached}"));
        stage.check();
    }
}

/// A client that asks to be closed is so after its replies.
fn a_waiter_that_quits_behind_its_grant_keeps_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    bob.connection.send_raw(b"QUIT\r\n");
    stage.release("k", "alice");
    let token = token_of(&bob.connection.receive(SOON).unwrap());
    stage.granted_unseen();
    assert_eq!(bob.connection.receive(SOON).unwrap(), Value::Status("OK".into()));
    expect_closed(&mut bob);
    stage.expect_in_line(&mut [&mut carol]);
    stage.expect_holder("k", "bob", 1, Some(token));
    assert_eq!(stage.counted("grants_taken_back"), 0);
    stage.release("k", "bob");
    stage.granted(&mut carol);
    stage.check();
}

fn a_timeout_in_the_turn_of_a_grant_gives_one_reply(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for (number, lines) in [
        &["DEBUG SLEEP 0.3", "LOCK.RELEASE k alice"][..],
        &["DEBUG SLEEP 0.3", "DEL k"],
        &["DEBUG SLEEP 0.3", "LOCK.FORCERELEASE k", "LOCK.CANCEL k owner2"],
        &["DEBUG SLEEP 0.3", "LOCK.CANCEL k owner3", "LOCK.RELEASE k alice"],
    ]
    .into_iter()
    .enumerate()
    {
        let owner = format!("owner{number}");
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait_with("k", &owner, LONG, 100);
        stage.at_once(lines);
        let reply = bob.connection.receive(SOON).unwrap_or_else(|e| panic!("{lines:?}: {e}"));
        assert_eq!(bob.connection.run("PING"), Value::Status("PONG".into()), "{lines:?}");
        if reply == Value::Nil {
            stage.settle();
            assert_eq!(stage.run("EXISTS k"), Value::Integer(0), "{lines:?}");
        } else {
            stage.granted_unseen();
            stage.expect_holder("k", &owner, 1, Some(token_of(&reply)));
            stage.release("k", &owner);
        }
        stage.check();
    }
}

fn client_unblock_in_the_turn_of_a_grant_does_nothing(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    for how in ["TIMEOUT", "ERROR"] {
        let mut bob = stage.wait("k", "bob");
        let unblock = format!("CLIENT UNBLOCK {} {how}", bob.id);
        let replies = stage.at_once(&[&unblock, "LOCK.RELEASE k alice", &unblock, &unblock]);
        assert_eq!(replies, [0; 4].map(Value::Integer));
        stage.granted(&mut bob);
        stage.release("k", "bob");
        stage.hold("k", "alice", LONG);
    }
    stage.check();
}

fn a_grant_is_kept_when_its_owner_has_used_it_through_another_connection(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for (number, (used, holds)) in [
        ("LOCK.ACQUIRE k {} 600000", 2),
        ("LOCK.RENEW k {} 600000", 1),
        ("LOCK.ACQUIRE k {} 600000 HOLDS 1", 1),
        ("LOCK.WAIT k {} 600000 0", 2),
        ("LOCK.WAIT k {} 600000 0 HOLDS 1", 1),
        ("LOCK.RELEASE k {} HOLDS 1", 1),
    ]
    .into_iter()
    .enumerate()
    {
        let owner = format!("bob{number}");
        let used = used.replace("{}", &owner);
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", &owner);
        let mut carol = stage.wait("k", "carol");
        let replies = stage.at_once(&["LOCK.RELEASE k alice", &used, &kill(&bob)]);
        assert!(!replies[1].is_nil() && !replies[1].is_error(), "{used}: {}", replies[1]);
        stage.granted_unseen();
        expect_closed(&mut bob);
        stage.expect_in_line(&mut [&mut carol]);
        let token = stage.token("k");
        stage.expect_holder("k", &owner, holds, Some(token));
        assert_eq!(stage.counted("grants_taken_back"), 0, "after {used}");
        assert_eq!(stage.run(&format!("LOCK.RELEASE k {owner} ALL")), Value::Integer(0));
        stage.granted(&mut carol);
        stage.release("k", "carol");
        stage.check();
    }
}

fn a_grant_that_is_over_is_not_taken_back_from_the_next(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for (number, over) in
        ["LOCK.FORCERELEASE k", "LOCK.RELEASE k owner1", "DEL k"].into_iter().enumerate()
    {
        let owner = format!("owner{number}");
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", &owner);
        let mut carol = stage.wait("k", "carol");
        let mut dave = stage.wait("k", "dave");
        stage.at_once(&["LOCK.RELEASE k alice", over, &kill(&bob)]);
        stage.granted_unseen();
        expect_closed(&mut bob);
        stage.granted(&mut carol);
        stage.expect_in_line(&mut [&mut dave]);
        assert_eq!(stage.counted("grants_taken_back"), 0, "after {over}");
        stage.release("k", "carol");
        stage.granted(&mut dave);
        stage.release("k", "dave");
        stage.check();
    }
}

on_each_server!(
    a_waiter_killed_in_the_turn_of_its_grant_passes_the_lock_on,
    all_waiters_killed_in_the_turn_of_the_first_grant_leave_the_lock_free,
    a_waiter_that_breaks_off_in_the_turn_of_its_grant_costs_its_lease_at_most,
    a_waiter_condemned_in_the_turn_of_its_grant_passes_the_lock_on,
    a_waiter_that_quits_behind_its_grant_keeps_it,
    a_timeout_in_the_turn_of_a_grant_gives_one_reply,
    client_unblock_in_the_turn_of_a_grant_does_nothing,
    a_grant_is_kept_when_its_owner_has_used_it_through_another_connection,
    a_grant_that_is_over_is_not_taken_back_from_the_next,
);

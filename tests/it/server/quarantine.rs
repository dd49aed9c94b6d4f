//! `kvlock.quarantine-ms`: after a promotion or a start that may have lost grants, nothing new is
//! granted for a while.

use crate::asking::{LONG, acquire, arrival, error, release, token, wait_in_line};
use harness::clock::Clock;
use harness::cluster::Cluster;
use harness::{Connection, Kind, Options, Server, Value, cmd, observe, on_each_server, wait};
use std::time::{Duration, Instant};

/// How long a role change or a start may take.
const CHANGE: Duration = Duration::from_secs(30);

fn set(control: &mut Connection, ms: u64) {
    let set = control.call(cmd!["CONFIG", "SET", "kvlock.quarantine-ms", ms.to_string()]);
    assert_eq!(set, Value::Status("OK".into()));
}

fn left(control: &mut Connection) -> i64 {
    observe::info_number(control, "kvlock_quarantine_left_ms")
}

/// A server with a long quarantine, so that a test ends it when it likes.
fn options(kind: &Kind) -> Options {
    Server::options().kind(kind).module_config("quarantine-ms", LONG)
}

/// A primary whose own quarantine has ended, and its replica.
fn pair(kind: &Kind) -> (Server, Server) {
    let primary = options(kind).start();
    let mut control = primary.connect();
    set(&mut control, 0);
    let replica = options(kind).replica_of(&primary).start();
    observe::wait_for_replica(&mut control, &mut replica.connect());
    (primary, replica)
}

fn promote(replica: &Server) -> Connection {
    let mut control = replica.connect();
    assert_eq!(control.run("REPLICAOF NO ONE"), Value::Status("OK".into()));
    wait::until("it is a primary", CHANGE, || {
        let role = observe::info_field(&mut control, "role");
        if role.as_deref() == Some("master") { Ok(()) } else { Err(format!("{role:?}")) }
    });
    control
}

fn after_a_promotion_only_holders_are_served(kind: Kind) {
    let (primary, replica) = pair(&kind);
    let mut before = primary.connect();
    let known = token(&acquire(&mut before, "known", "alice"));
    token(&before.run("LOCK.ACQUIRE shared alice 600000 SHARED"));
    before.run("SEM.SET pool 3");
    before.run("SEM.ACQUIRE pool alice 1 600000");
    before.run("LATCH.SET latch 1");
    observe::wait_for_replica(&mut before, &mut replica.connect());

    let control = &mut promote(&replica);
    assert!((1..=LONG as i64).contains(&left(control)));
    assert_eq!(observe::info_number(control, "kvlock_quarantines"), 1);
    // What is known goes on.
    assert_eq!(control.run("LOCK.RENEW known alice 500000"), Value::Integer(500_000));
    let again = acquire(control, "known", "alice");
    assert_eq!((token(&again), again[1].integer()), (known, 2));
    token(&control.run("LOCK.ACQUIRE shared alice 600000 SHARED HOLDS 1"));
    assert_eq!(control.run("SEM.ACQUIRE pool alice 1 600000 HOLDS 1"), Value::Integer(1));
    assert_eq!(control.run("SEM.RENEW pool alice 600000"), Value::Integer(600_000));
    // What is free may be somebody's.
    let refused = ["LOCK.ACQUIRE free bob 1000", "LOCK.ACQUIRE shared bob 1000 SHARED"];
    for line in refused.into_iter().chain(["SEM.ACQUIRE pool bob 1 1000"]) {
        assert_eq!(control.run(line), Value::Nil, "{line}");
    }
    assert_eq!(control.run("SEM.ACQUIRE pool alice 1 1000"), Value::Nil);
    assert!(error(&control.run("LOCK.ACQUIRE free bob 1000 HOLDS 2")).starts_with("MISMATCH"));
    assert_eq!(control.run("EXISTS free"), Value::Integer(0));
    for (info, key) in [("LOCK.INFO", "free"), ("SEM.INFO", "pool")] {
        assert!(control.call(cmd![info, key]).field("quarantine-left").integer() > 0);
    }
    // A latch gives nobody anything that another could have.
    assert_eq!(control.run("LATCH.COUNTDOWN latch"), Value::Integer(0));
    assert!(!control.run("LATCH.SET another 1").is_error());

    // It was not over before this, and is now.
    set(control, 0);
    assert_eq!(left(control), 0);
    token(&control.run("LOCK.ACQUIRE free bob 1000"));
    assert_eq!(control.run("LOCK.RELEASE known alice ALL"), Value::Integer(0));
    let ended = control.run("LOCK.INFO known");
    assert!(!ended.to_string().contains("quarantine-left"), "{ended}");
}

fn a_start_is_a_quarantine_unless_each_grant_was_on_the_disk(kind: Kind) {
    for (fsync, expected) in [(None, true), (Some("everysec"), true), (Some("always"), false)] {
        let mut started = options(&kind);
        if let Some(fsync) = fsync {
            started = started.append_only(fsync);
        }
        let server = started.start();
        let mut control = server.connect();
        assert_eq!(left(&mut control) > 0, expected, "{fsync:?}");
        set(&mut control, 0);
        let before = token(&acquire(&mut control, "k", "alice"));
        server.kill9();
        server.restart();
        let control = &mut server.connect();
        assert_eq!(left(control) > 0, expected, "{fsync:?}");
        if expected {
            assert_eq!(acquire(control, "free", "bob"), Value::Nil, "{fsync:?}");
        } else {
            assert!(token(&acquire(control, "free", "bob")) > before);
            assert_eq!(release(control, "k", "alice"), Value::Integer(0));
        }
    }
}

on_each_server!(
    after_a_promotion_only_holders_are_served,
    a_start_is_a_quarantine_unless_each_grant_was_on_the_disk,
);

#[test]
fn it_lasts_as_long_as_it_says() {
    let (primary, replica) = pair(&Kind::chosen());
    set(&mut replica.connect(), 1500);
    drop(primary);
    // It begins after this, so it must not be over earlier.
    let begun = Instant::now();
    let control = &mut promote(&replica);
    let mut waiter = replica.connect();
    wait_in_line(&mut waiter, control, "k", "bob");
    token(&waiter.receive(CHANGE).unwrap());
    // The server counts whole milliseconds.
    assert!(begun.elapsed() >= Duration::from_millis(1498), "{:?}", begun.elapsed());
    assert_eq!(left(control), 0);
    token(&acquire(control, "l", "carol"));
}

#[test]
fn the_date_has_no_say_in_it() {
    let clock = Clock::new();
    let kind = Kind::chosen();
    let server = options(&kind).clock(&clock).start();
    let control = &mut server.connect();
    let mut waiter = server.connect();
    wait_in_line(&mut waiter, control, "k", "bob");
    let hour = 3_600_000;
    for ahead in [hour, -hour, 0] {
        clock.set(ahead);
        observe::wait_for_next_cron(control);
        assert_eq!(acquire(control, "free", "carol"), Value::Nil, "{ahead}");
        assert!((1..=LONG as i64).contains(&left(control)), "{ahead}");
    }
    assert!(!waiter.has_unread());
    clock.set(-hour);
    set(control, 0);
    token(&arrival(&mut waiter));
}

#[test]
fn a_replica_has_none_and_each_promotion_begins_another() {
    let (primary, replica) = pair(&Kind::chosen());
    let there = &mut replica.connect();
    assert_eq!((left(there), observe::info_number(there, "kvlock_quarantines")), (0, 0));
    for promotions in 1..=2 {
        let control = &mut promote(&replica);
        assert!(left(control) > 0);
        assert_eq!(observe::info_number(control, "kvlock_quarantines"), promotions);
        // Without a quarantine being wanted none begins, and none comes later.
        set(control, 0);
        set(control, LONG);
        assert_eq!(left(control), 0);
        control.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        observe::wait_for_replica(&mut primary.connect(), control);
        assert_eq!(left(control), 0);
    }
    set(&mut replica.connect(), 0);
    let control = &mut promote(&replica);
    set(control, LONG);
    assert_eq!(left(control), 0);
    token(&acquire(control, "k", "alice"));
}

#[test]
fn a_failover_in_a_cluster_begins_one() {
    let cluster = Cluster::start_with(&options(&Kind::chosen()), 3, 1);
    let home = cluster.node_for("k");
    set(&mut home.connect(), 0);
    token(&acquire(&mut home.connect(), "k", "alice"));
    let replica = cluster.replica_of(home);
    let control = &mut replica.connect();
    observe::wait_for_replica(&mut home.connect(), control);
    assert_eq!(left(control), 0);
    // Also a coordinated one: the server does not say which it was.
    cluster.fail_over(home);
    wait::until("it has the slot", CHANGE, || match left(control) {
        0 => Err("no quarantine".to_owned()),
        _ => Ok(()),
    });
    wait::until("it serves the lock", CHANGE, || {
        match control.call(cmd!["LOCK.RENEW", "k", "alice", LONG]) {
            Value::Integer(_) => Ok(()),
            other => Err(other.to_string()),
        }
    });
    assert_eq!(acquire(control, "other{k}", "bob"), Value::Nil);
    set(control, 0);
    token(&acquire(control, "other{k}", "bob"));
}

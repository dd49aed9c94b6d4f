//! Each place in line has one outcome, whatever happens to it and whoever asks twice.

use super::{Party, wait_for, words};
use crate::stage::{LONG, Stage};
use harness::{Kind, Value, cmd, on_each_server};

fn each_place_has_one_outcome(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    let mut granted = 0;
    for (number, end) in
        ["LOCK.RELEASE k alice", "DEL k", "LOCK.FORCERELEASE k", "LOCK.CANCEL k bob", "FLUSHALL"]
            .into_iter()
            .enumerate()
    {
        stage.hold("k", "alice", LONG);
        party.queue("k", "bob");
        // Asked again it is the same place.
        party.queue("k", "bob");
        stage.run(end);
        let told = party.read_next(granted);
        let what = if end.starts_with("LOCK.CANCEL") { "cancelled" } else { "granted" };
        assert_eq!(words(&told), [("bob", what)], "{end}");
        granted = number as i64 + 1;
        assert_eq!(told[0].number, granted);
        if what == "granted" {
            stage.granted_unseen();
            stage.expect_holder("k", "bob", 1, told[0].token);
        }
        stage.run("LOCK.FORCERELEASE k");
        assert_eq!(party.read(granted), [], "{end}");
    }
    assert_eq!((stage.counted("session_waits"), stage.counted("unread_outcomes")), (0, 0));
    stage.check();
}

/// Clients and sessions stand in one line.
fn blocked_and_queued_waiters_are_served_in_the_order_of_arrival(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    let mut line = Vec::new();
    for number in 0..10 {
        let owner = format!("owner{number}");
        if number % 3 == 0 {
            line.push((owner.clone(), Some(stage.wait("k", &owner))));
        } else {
            party.queue("k", &owner);
            line.push((owner, None));
        }
    }
    let (mut before, mut heard) = ("alice".to_owned(), 0);
    for (owner, blocked) in &mut line {
        stage.release("k", &before);
        if let Some(blocked) = blocked {
            stage.granted(blocked);
        } else {
            let told = party.read_next(heard);
            assert_eq!(words(&told), [(owner.as_str(), "granted")]);
            heard = told[0].number;
            stage.granted_unseen();
        }
        before.clone_from(owner);
    }
    stage.check();
}

/// As many as are released in one turn are told in one reply.
fn one_reply_carries_many_grants(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    let locks: Vec<_> = (0..50).map(|number| format!("k{number}")).collect();
    for lock in &locks {
        stage.hold(lock, "alice", LONG);
        party.queue(lock, "bob");
        stage.granted_unseen();
    }
    party.park(&mut stage, 0);
    let releases: Vec<_> = locks.iter().map(|lock| format!("LOCK.RELEASE {lock} alice")).collect();
    stage.at_once(&releases.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(party.hear().len(), 50);
    stage.check();
}

fn waits_time_out_on_time_read_or_not(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    for (owner, timeout) in [("late", 300), ("early", 100)] {
        let id = party.id.clone();
        party.connection.call(cmd!["LOCK.WAIT", "k", owner, LONG, timeout, "SESSION", id]);
    }
    party.park(&mut stage, 0);
    assert_eq!(words(&party.hear()), [("early", "timeout")]);
    party.reconnect(&mut stage);
    wait_for(&mut stage, "timeouts", 2);
    assert_eq!(words(&party.read(1)), [("late", "timeout")]);
    stage.check();
}

/// What was granted and not released is the same grant when it is asked for again.
fn waiting_again_for_what_was_granted_counts_nothing_twice(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    stage.release("k", "alice");
    stage.granted_unseen();
    let token = stage.token("k");
    for _ in 0..2 {
        let again = cmd!["LOCK.WAIT", "k", "bob", LONG, 0, "SESSION", party.id];
        assert_eq!(party.connection.call(again)[1], Value::Integer(1));
    }
    stage.expect_holder("k", "bob", 1, Some(token));
    assert_eq!(party.read(0)[0].token, Some(token));
    stage.run("SEM.SET pool 3");
    stage.run("SEM.ACQUIRE pool alice 3 600000");
    let ask = cmd!["SEM.WAIT", "pool", "bob", 2, LONG, 0, "SESSION", party.id];
    assert_eq!(party.connection.call(&ask)[0], Value::bulk("queued"));
    stage.run("SEM.RELEASE pool alice ALL");
    assert_eq!(party.connection.call(&ask), Value::Integer(2));
    // Two permits, alice's three, and bob's lock.
    assert_eq!(stage.counted("granted"), 4);
    stage.granted_unseen();
    stage.granted_unseen();
    stage.check();
}

/// A million outcomes that nobody reads are no way around the limits.
fn what_is_kept_for_readers_takes_the_room_of_waiters(kind: Kind) {
    let mut stage = Stage::with(&kind, |options| options.module_config("max-waiters", 5));
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    for number in 0..5 {
        let owner = format!("owner{number}");
        party.queue("k", &owner);
        stage.run(&format!("LOCK.CANCEL k {owner}"));
    }
    let ask = cmd!["LOCK.WAIT", "k", "late", LONG, 0, "SESSION", party.id];
    assert_eq!(party.connection.call(&ask).code(), "QUEUEFULL");
    assert_eq!(party.read(0).len(), 5);
    assert_eq!(party.connection.call(&ask).code(), "QUEUEFULL");
    assert_eq!(party.read(5), []);
    party.queue("k", "late");
    stage.check();
}

on_each_server!(
    each_place_has_one_outcome,
    blocked_and_queued_waiters_are_served_in_the_order_of_arrival,
    one_reply_carries_many_grants,
    waits_time_out_on_time_read_or_not,
    waiting_again_for_what_was_granted_counts_nothing_twice,
    what_is_kept_for_readers_takes_the_room_of_waiters,
);

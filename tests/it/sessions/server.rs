//! What servers do to sessions: pauses, new roles, restarts, drains, limits, crowds.

use super::{Party, wait_for, words};
use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Value, cmd, observe, on_each_server};

fn nothing_is_granted_or_taken_back_in_a_pause(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 300);
    let mut other = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    party.queue("l", "bob");
    other.queue("k", "carol");
    other.queue("l", "dave");
    other.park(&mut stage, 0);
    stage.release("l", "alice");
    stage.granted_unseen();
    stage.let_the_lease_end_after("CLIENT PAUSE 100000 WRITE");
    wait_for(&mut stage, "sessions_gone", 1);
    observe::wait_for_next_cron(&mut stage.eye);
    assert_eq!(stage.counted("grants_taken_back"), 0);
    assert!(!other.connection.has_unread());
    stage.run("CLIENT UNPAUSE");
    stage.granted_unseen();
    stage.granted_unseen();
    let mut told = other.hear();
    if told.len() < 2 {
        told.extend(other.read_next(1));
    }
    let mut told = words(&told);
    told.sort_unstable();
    assert_eq!(told, [("carol", "granted"), ("dave", "granted")]);
    assert_eq!(stage.counted("grants_taken_back"), 1);
    stage.check();
}

/// So many that they follow their session some at a time.
fn a_crowd_goes_away_comes_back_and_ends_without_a_long_turn(kind: Kind) {
    const CROWD: i64 = 5_000;
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    let id = party.id.clone();
    let asked = |number| cmd!["LOCK.WAIT", "k", format!("o{number}"), LONG, 0, "SESSION", &id];
    (0..CROWD).for_each(|number| party.connection.send(asked(number)));
    for _ in 0..CROWD {
        let reply = party.connection.receive(SOON).unwrap();
        assert_eq!(reply[0], Value::bulk("queued"));
    }
    let mut last = stage.wait("k", "last");
    party.park(&mut stage, 0);
    party.break_off(&mut stage);
    stage.release("k", "alice");
    stage.granted(&mut last);
    party.park(&mut stage, 0);
    stage.release("k", "last");
    stage.granted_unseen();
    assert_eq!(party.hear().len(), 1);
    assert_eq!(party.connection.call(cmd!["SESSION.CLOSE", id]), Value::Integer(1));
    wait_for(&mut stage, "waiters", 0);
    stage.check();
}

on_each_server!(
    nothing_is_granted_or_taken_back_in_a_pause,
    a_crowd_goes_away_comes_back_and_ends_without_a_long_turn,
);

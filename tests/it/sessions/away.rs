//! Sessions whose reader's connection is lost: passed over, and not forgotten.

use super::{Party, wait_for, words};
use crate::stage::{LONG, Stage};
use harness::{Kind, Value, cmd, on_each_server};

fn who_is_away_is_passed_over(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    let mut carol = stage.wait("k", "carol");
    party.park(&mut stage, 0);
    party.break_off(&mut stage);
    stage.release("k", "alice");
    stage.granted(&mut carol);
    stage.release("k", "carol");
    // Only one who is away waits: the lock is free for others.
    assert_eq!(stage.run("EXISTS k"), Value::Integer(0));
    assert_eq!(stage.run("LOCK.INFO k").field("waiters"), &Value::Integer(1));
    stage.hold("k", "dave", LONG);
    stage.release("k", "dave");
    stage.check();
}

/// Its last call was answered; only its connection was left.
fn a_reader_that_is_not_blocked_is_missed_too(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    party.read(0);
    party.reconnect(&mut stage);
    assert_eq!(stage.counted("sessions_away"), 1);
    stage.release("k", "alice");
    stage.settle();
    assert_eq!(stage.run("EXISTS k"), Value::Integer(0));
    assert_eq!(party.read(0), []);
    assert_eq!(words(&party.read_next(0)), [("bob", "granted")]);
    stage.granted_unseen();
    stage.check();
}

fn who_comes_back_stands_where_it_stood(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    let mut carol = stage.wait("k", "carol");
    party.queue("k", "dave");
    let mut erin = stage.wait("k", "erin");
    party.park(&mut stage, 0);
    party.break_off(&mut stage);
    party.park(&mut stage, 0);
    assert_eq!(stage.counted("sessions_away"), 0);
    for owner in ["alice", "bob", "carol", "dave"] {
        stage.release("k", owner);
        match owner {
            "bob" => drop(stage.granted(&mut carol)),
            "dave" => drop(stage.granted(&mut erin)),
            _ => {
                let next = if owner == "alice" { "bob" } else { "dave" };
                let told = party.hear();
                assert_eq!(words(&told), [(next, "granted")]);
                stage.granted_unseen();
                party.park(&mut stage, told[0].number);
            }
        }
    }
    stage.check();
}

fn permits_pass_over_who_is_away(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.run("SEM.SET pool 2");
    stage.run("SEM.ACQUIRE pool alice 2 600000");
    let ask = cmd!["SEM.WAIT", "pool", "bob", 2, LONG, 0, "SESSION", party.id];
    assert_eq!(party.connection.call(ask)[0], Value::bulk("queued"));
    let mut carol = stage.server.connect();
    let id = carol.client_id();
    carol.send(cmd!["SEM.WAIT", "pool", "carol", 1, LONG, 0]);
    harness::observe::wait_until_blocked(&mut stage.eye, id);
    party.park(&mut stage, 0);
    party.break_off(&mut stage);
    stage.run("SEM.RELEASE pool alice ALL");
    assert_eq!(carol.receive(crate::stage::SOON).unwrap(), Value::Integer(1));
    stage.run("SEM.ACQUIRE pool dave 1 600000");
    stage.run("SEM.RELEASE pool dave");
    party.park(&mut stage, 0);
    stage.run("SEM.RELEASE pool carol");
    assert_eq!(words(&party.hear()), [("bob", "granted")]);
    (0..4).for_each(|_| stage.granted_unseen());
    stage.check();
}

/// Whoever waits again through somebody else has the place, and no second one.
fn an_absent_place_can_be_taken_over(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    party.park(&mut stage, 0);
    party.break_off(&mut stage);
    stage.release("k", "alice");
    let mut other = Party::open(&stage, 60_000);
    other.queue("k", "bob");
    assert_eq!(words(&other.read_next(0)), [("bob", "granted")]);
    stage.granted_unseen();
    assert_eq!(words(&party.read(0)), [("bob", "replaced")]);
    wait_for(&mut stage, "waiters", 0);
    stage.check();
}

on_each_server!(
    who_is_away_is_passed_over,
    a_reader_that_is_not_blocked_is_missed_too,
    who_comes_back_stands_where_it_stood,
    permits_pass_over_who_is_away,
    an_absent_place_can_be_taken_over,
);

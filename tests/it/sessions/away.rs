//! Sessions whose reader's connection is lost: passed over, and not forgotten.

use super::{Party, words};
use crate::stage::{LONG, Stage};
use harness::{Kind, Value, on_each_server};

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

on_each_server!(who_is_away_is_passed_over, who_comes_back_stands_where_it_stood,);

//! When what is bound may not be released just now, when it must not be at all, and when it is much.

use super::{Party, wait_for};
use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Value, cmd, on_each_server, wait};

/// Whoever becomes the primary knows of no session: there the lease counts.
fn a_demoted_primary_releases_nothing_even_when_it_is_back(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    let mut party = Party::open(&stage, 60_000);
    let mut other = Party::open(&stage, 60_000);
    party.bind(&mut stage, "k", "alice");
    other.bind(&mut stage, "l", "alice");
    let mut new = stage.replica.connect();
    wait::until("the replica has them", SOON, || match new.run("DBSIZE") {
        // With the floor of the tokens.
        Value::Integer(3) => Ok(()),
        other => Err(other.to_string()),
    });
    // That one is to be released already, and may not be yet.
    stage.run("CLIENT PAUSE 600000 WRITE");
    other.close();
    new.run("REPLICAOF NO ONE");
    stage.run(&format!("REPLICAOF 127.0.0.1 {}", stage.replica.port()));
    stage.run("CLIENT UNPAUSE");
    wait_for(&mut stage, "sessions", 0);
    wait_for(&mut stage, "bound", 0);
    for key in ["k", "l"] {
        let info = new.run(&format!("LOCK.INFO {key}"));
        assert_eq!(info.field("owner"), &Value::bulk("alice"));
        assert!(!info.to_string().contains("bound"), "{info}");
    }
    stage.run("REPLICAOF NO ONE");
    assert_eq!(stage.run("LOCK.INFO k").field("owner"), &Value::bulk("alice"));
    assert_eq!(stage.counted("bound_released"), 0);
    stage.check_server();
}

/// A drain is no end of the clients: their locks stay.
fn a_drained_module_leaves_what_is_bound(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    party.bind(&mut stage, "k", "alice");
    stage.run("CONFIG SET kvlock.drain yes");
    let next = party.connection.call(cmd!["SESSION.NEXT", party.id, 0, 60_000]);
    assert_eq!(next.code(), "TRYAGAIN");
    wait::until("the module can be unloaded", SOON, || match stage.run("MODULE UNLOAD kvlock") {
        Value::Status(_) => Ok(()),
        refused => Err(refused.to_string()),
    });
    assert_eq!(stage.run("EXISTS k"), Value::Integer(1));
}

/// A server that stood still finds what was sent to it meanwhile: but the time of the session is over.
fn a_server_that_stood_still_releases_when_it_goes_on(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 200);
    let alices = party.bind(&mut stage, "k", "alice");
    let mut bob = stage.wait("k", "bob");
    party.park(&mut stage, 0);
    // It is there as long as its reader is blocked, and so it is still when that is over.
    stage.while_stopped(|_| wait::pass(std::time::Duration::from_millis(500)));
    stage.expect_in_line(&mut [&mut bob]);
    std::mem::replace(&mut party.connection, stage.server.connect()).reset();
    assert!(stage.granted(&mut bob) > alices);
    stage.check();
}

/// So many that they are released some at a time.
fn many_are_released_without_a_long_turn(kind: Kind) {
    const MANY: i64 = 20_000;
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    let id = party.id.clone();
    let keys = |n: i64| format!("k{n}");
    for numbers in [0..MANY / 2, MANY / 2..MANY] {
        let acquire = |n| cmd!["LOCK.ACQUIRE", keys(n), "alice", LONG, "SESSION", &id, "BOUND"];
        numbers.clone().for_each(|n| party.connection.send(acquire(n)));
        for _ in numbers {
            party.connection.receive(SOON).unwrap();
            stage.granted_unseen();
        }
    }
    assert_eq!(stage.counted("bound"), MANY);
    let mut waiters = [0, MANY - 1].map(|n| stage.wait(&keys(n), "bob"));
    party.close();
    wait_for(&mut stage, "bound", 0);
    assert_eq!(stage.counted("bound_released"), MANY);
    for waiter in &mut waiters {
        stage.granted(waiter);
    }
    assert!(stage.counted("turns") > 10);
    stage.check();
}

on_each_server!(
    a_demoted_primary_releases_nothing_even_when_it_is_back,
    a_drained_module_leaves_what_is_bound,
    a_server_that_stood_still_releases_when_it_goes_on,
    many_are_released_without_a_long_turn,
);

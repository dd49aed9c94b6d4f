//! Somebody else changes a lock that is waited for, in ways that servers do differently or that text cannot
//! tell. The others are in `transcripts/foreign_changes.txt` and `foreign_writes.txt`.

use crate::stage::{LONG, SOON, Stage, hash};
use harness::{Kind, Value, cmd, on_each_server, wait};

fn a_lock_moved_to_another_database_is_released_here_and_held_there(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    assert_eq!(stage.run("MOVE k 1"), Value::Integer(1));
    // When a module listens to key events, Valkey 8.1 leaves the client in the other database and
    // sends the command to the replicas as one for that database (valkey-io/valkey#4024).
    let astray = stage.run("CLIENT INFO").text().contains(" db=1 ");
    assert!(!astray || kind.name() == "valkey-8.1");
    stage.select(0);
    let bobs = stage.granted(&mut bob);
    assert!(bobs > alices);
    stage.select(1);
    stage.expect_holder("k", "alice", 1, Some(alices));
    let mut dave = stage.wait("k", "dave");
    stage.release("k", "alice");
    assert!(stage.granted(&mut dave) > bobs);
    if astray {
        stage.run("FLUSHALL");
    }
    stage.check();
}

/// Redis can end the life of a single field from 7.4 on, Valkey from 9.
fn a_lock_whose_owner_expires_as_a_field_goes_to_the_first_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    if stage.run("COMMAND INFO HPEXPIRE")[0].is_nil() {
        assert!(["redis-7.0", "valkey-8.0", "valkey-8.1"].contains(&kind.name()), "{kind}");
        return;
    }
    for fields in ["1 alice", "2 alice fencing-token"] {
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        stage.run(&format!("HPEXPIRE k 30 FIELDS {fields}"));
        stage.granted(&mut bob);
        stage.release("k", "bob");
    }
    // Without its token a lock is held as before.
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.run("HPEXPIRE k 1 FIELDS 1 fencing-token");
    wait::until_is("the token is gone", SOON, 1, || hash(&mut stage.eye, "k").len());
    stage.expect_in_line(&mut [&mut bob]);
    let reply = stage.eye.call(cmd!["LOCK.RELEASE", "k", "alice"]);
    assert_eq!(reply, Value::Integer(0));
    stage.granted(&mut bob);
    stage.check();
}

fn a_restored_key_counts_as_what_it_is(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let daves = stage.hold("k", "dave", LONG);
    let lock = stage.run("DUMP k").bytes().to_vec();
    stage.run("SET v v");
    let string = stage.run("DUMP v").bytes().to_vec();
    stage.run("DEL k v");
    let ok = Value::Status("OK".into());

    // Another's lock with an end of its own.
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    assert_eq!(stage.eye.call(cmd!["RESTORE", "k", 600_000, lock, "REPLACE"]), ok);
    stage.expect_in_line(&mut [&mut bob]);
    stage.expect_holder("k", "dave", 1, Some(daves));
    stage.run("PEXPIRE k 30");
    let bobs = stage.granted(&mut bob);
    let mut carol = stage.wait("k", "carol");
    assert_eq!(stage.eye.call(cmd!["RESTORE", "k", 60, lock, "REPLACE"]), ok);
    let carols = stage.granted(&mut carol);
    assert!(bobs > daves && carols > bobs);

    // Something else, and something that was over before it came.
    let mut erin = stage.wait("k", "erin");
    assert_eq!(stage.eye.call(cmd!["RESTORE", "k", 0, string, "REPLACE"]), ok);
    stage.expect_in_line(&mut [&mut erin]);
    assert_eq!(stage.eye.call(cmd!["RESTORE", "k", 1, lock, "REPLACE", "ABSTTL"]), ok);
    assert!(stage.granted(&mut erin) > carols);
    stage.check();
}

on_each_server!(
    a_lock_moved_to_another_database_is_released_here_and_held_there,
    a_lock_whose_owner_expires_as_a_field_goes_to_the_first_waiter,
    a_restored_key_counts_as_what_it_is,
);

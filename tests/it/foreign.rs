//! Somebody else changes a lock that is waited for, in ways that servers do differently or that text cannot
//! tell. The others are in `transcripts/foreign_changes.txt` and `foreign_writes.txt`.

use crate::stage::{LONG, SOON, Stage, hash, token_of};
use harness::{Kind, Value, cmd, observe, on_each_server, wait};

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
    wait::until("the token is gone", SOON, || match hash(&mut stage.eye, "k").len() {
        1 => Ok(()),
        fields => Err(fields.to_string()),
    });
    stage.expect_in_line(&mut [&mut bob]);
    let reply = stage.eye.call(cmd!["LOCK.RELEASE", "k", "alice"]);
    assert_eq!(reply, Value::Integer(0));
    stage.granted(&mut bob);
    stage.check();
}

fn a_lease_that_was_made_longer_ends_at_its_new_end(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // The server's own search for keys that have ended must not be needed.
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for longer in ["PEXPIRE k 700", "LOCK.ACQUIRE k alice 700", "LOCK.RENEW k alice 700"] {
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let replies = stage.at_once(&["LOCK.RENEW k alice 50", longer, "PEXPIRETIME k"]);
        // The look that was planned for the old end finds the lock held.
        let end = replies[2].integer();
        expect_in_time(stage.granted(&mut bob), end, longer);
        stage.release("k", "bob");
    }
    // Nor is it forgotten when nobody ever touches it.
    stage.hold("k", "alice", 1500);
    let mut bob = stage.wait("k", "bob");
    let end = stage.run("PEXPIRETIME k").integer();
    expect_in_time(stage.granted(&mut bob), end, "an acquire");
    stage.check();
}

/// A token is the moment of its grant, in microseconds, when nothing else lifts it.
fn expect_in_time(token: i64, end_ms: i64, after: &str) {
    let late_ms = token / 1000 - end_ms;
    assert!((0..1000).contains(&late_ms), "{late_ms} ms after the end of the lease, after {after}");
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

fn a_lock_taken_in_the_moment_of_its_end_goes_to_one_only(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut rival = stage.server.connect();
    for round in 0..20 {
        let owner = format!("bob{round}");
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", &owner);
        stage.run("LOCK.RENEW k alice 20");
        let mallorys = wait::until("somebody has the lock", SOON, || {
            let reply = rival.run("LOCK.ACQUIRE k mallory 1000");
            match reply {
                Value::Nil if bob.connection.has_unread() => Ok(None),
                Value::Nil => Err("nobody yet".to_owned()),
                _ => Ok(Some(token_of(&reply))),
            }
        });
        assert_eq!(mallorys, None, "a newcomer overtook");
        stage.granted(&mut bob);
        stage.release("k", &owner);
    }
    assert_eq!(observe::info_number(&mut stage.eye, "kvlock_handed_off"), 20);
    stage.check();
}

on_each_server!(
    a_lease_that_was_made_longer_ends_at_its_new_end,
    a_lock_moved_to_another_database_is_released_here_and_held_there,
    a_lock_taken_in_the_moment_of_its_end_goes_to_one_only,
    a_lock_whose_owner_expires_as_a_field_goes_to_the_first_waiter,
    a_restored_key_counts_as_what_it_is,
);

//! Somebody else takes away a lock that is waited for: the first in line is served once, right
//! after, and the replica hears of it in the right order.

use super::stage::{LONG, Stage, hash};
use harness::{Kind, Value, cmd, on_each_server, wait};

/// Alice holds `k`, bob and carol wait; by what `change` does bob gets it, and later carol.
/// Returns bob's token.
fn serves_the_first(stage: &mut Stage, change: &[&str]) -> i64 {
    let alices = stage.hold("k", "alice", LONG);
    serves_the_next(stage, change, alices)
}

fn serves_the_next(stage: &mut Stage, change: &[&str], alices: i64) -> i64 {
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    for line in change {
        let reply = stage.run(line);
        assert!(!reply.is_error(), "{line}: {reply}");
    }
    let bobs = stage.granted(&mut bob);
    assert!(bobs > alices, "after {change:?}");
    stage.expect_in_line(&mut [&mut carol]);
    stage.release("k", "bob");
    assert!(stage.granted(&mut carol) > bobs, "after {change:?}");
    stage.release("k", "carol");
    stage.check();
    bobs
}

fn a_deleted_lock_goes_to_the_first_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for change in [
        &["DEL k"][..],
        &["UNLINK k"],
        &["SUNIONSTORE k none"],
        &["SET k v", "DEL k"],
        &["SET k v PX 1"],
    ] {
        serves_the_first(&mut stage, change);
    }
}

fn two_locks_deleted_at_once_go_to_both_first_waiters(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("l", "carol");
    stage.run("DEL l k");
    let bobs = stage.granted(&mut bob);
    assert_ne!(stage.granted(&mut carol), bobs);
    stage.check();
}

fn a_shortened_lease_ends_when_it_says(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for change in ["PEXPIRE k 30", "EXPIRE k 0", "EXPIRE k -1", "PEXPIREAT k 1", "GETEX k PX 1"] {
        let change: &[&str] =
            if change.starts_with("GETEX") { &["SET k v", change] } else { &[change] };
        serves_the_first(&mut stage, change);
    }
}

fn a_lock_without_its_owner_is_free_and_its_token_counts(kind: Kind) {
    let mut stage = Stage::new(&kind);
    serves_the_first(&mut stage, &["HDEL k alice"]);
    serves_the_first(&mut stage, &["HDEL k alice fencing-token"]);
    // A remnant from a server whose clock was ahead by an hour.
    let alices = stage.hold("k", "alice", LONG);
    let ahead = alices + 3_600_000_000;
    let remnant = format!("HSET k fencing-token t{ahead}");
    assert!(serves_the_next(&mut stage, &[&remnant, "HDEL k alice"], alices) > ahead);
}

fn a_lock_deleted_by_a_script_or_a_transaction_goes_to_the_first_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for change in [
        &["EVAL \"return redis.call('DEL', KEYS[1])\" 1 k"][..],
        &[
            "EVAL \"redis.call('HINCRBY', KEYS[1], 'alice', -1) return redis.call('DEL', KEYS[1])\" 1 k",
        ],
        &["MULTI", "DEL k", "EXEC"],
        &["MULTI", "DEL k", "SET k v", "UNLINK k", "EXEC"],
        &["EVAL \"redis.call('PEXPIRE', KEYS[1], 1)\" 1 k"],
    ] {
        serves_the_first(&mut stage, change);
    }
}

fn a_lock_deleted_in_another_database_is_released_there_only(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.select(3);
    stage.hold("k", "dave", LONG);
    let mut erin = stage.wait("k", "erin");
    stage.run("DEL k");
    stage.granted(&mut erin);
    stage.expect_in_line(&mut [&mut bob]);
    stage.select(0);
    stage.release("k", "alice");
    stage.granted(&mut bob);
    stage.check();
}

fn a_lock_renamed_away_is_released_here_and_held_there(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.hold("there", "dave", LONG);
    let mut erin = stage.wait("there", "erin");
    stage.run("RENAME k there");
    stage.granted(&mut bob);
    stage.expect_in_line(&mut [&mut erin]);
    stage.expect_holder("there", "alice", 1, Some(alices));
    stage.release("there", "alice");
    assert!(stage.granted(&mut erin) > alices);
    stage.check();
}

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

fn an_evicted_lock_goes_to_the_first_waiter(kind: Kind) {
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl"] {
        let mut stage = Stage::new(&kind);
        stage.run(&format!("CONFIG SET maxmemory-policy {policy}"));
        let alices = stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut carol = stage.wait("k", "carol");
        // The keys go before the second of these commands; bob's grant is written after them all.
        stage.at_once(&["CONFIG SET maxmemory 1", "PING", "CONFIG SET maxmemory 0"]);
        assert!(stage.granted(&mut bob) > alices, "{policy}");
        assert!(harness::observe::info_number(&mut stage.eye, "evicted_keys") > 0);
        stage.expect_in_line(&mut [&mut carol]);
        stage.release("k", "bob");
        stage.granted(&mut carol);
        stage.check();
    }
}

fn a_flushed_database_releases_its_locks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for change in [
        &["FLUSHDB"][..],
        &["FLUSHDB ASYNC"],
        &["FLUSHALL SYNC"],
        &["FLUSHALL ASYNC"],
        &["MULTI", "FLUSHALL", "EXEC"],
        &["EVAL \"redis.call('FLUSHDB')\" 0"],
    ] {
        serves_the_first(&mut stage, change);
    }
}

fn a_flush_of_one_database_releases_no_lock_of_another(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.select(1);
    stage.run("FLUSHDB");
    stage.select(0);
    stage.expect_in_line(&mut [&mut bob]);
    stage.expect_holder("k", "alice", 1, Some(alices));
    stage.select(1);
    stage.run("FLUSHALL");
    stage.select(0);
    assert!(stage.granted(&mut bob) > alices);
    stage.check();
}

fn databases_that_are_swapped_keep_their_queues(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.select(1);
    let daves = stage.hold("l", "dave", LONG);
    let mut erin = stage.wait("l", "erin");
    stage.select(0);
    // Here k is free now, and there l; what was held is held in the other one.
    stage.run("SWAPDB 0 1");
    assert!(stage.granted(&mut bob) > alices);
    stage.expect_holder("l", "dave", 1, Some(daves));
    stage.select(1);
    assert!(stage.granted(&mut erin) > daves);
    stage.expect_holder("k", "alice", 1, Some(alices));
    stage.release("k", "alice");
    stage.check();
}

/// Redis can end the life of a single field from 7.4 on, Valkey from 9.
fn a_lock_whose_owner_expires_as_a_field_goes_to_the_first_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    if stage.run("COMMAND INFO HPEXPIRE")[0].is_nil() {
        assert!(["redis-7.0", "valkey-8.0", "valkey-8.1"].contains(&kind.name()), "{kind}");
        return;
    }
    serves_the_first(&mut stage, &["HPEXPIRE k 30 FIELDS 1 alice"]);
    serves_the_first(&mut stage, &["HPEXPIRE k 30 FIELDS 2 alice fencing-token"]);
    // Without its token a lock is held as before.
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.run("HPEXPIRE k 1 FIELDS 1 fencing-token");
    wait::until("the token is gone", super::stage::SOON, || {
        match hash(&mut stage.eye, "k").len() {
            1 => Ok(()),
            fields => Err(fields.to_string()),
        }
    });
    stage.expect_in_line(&mut [&mut bob]);
    let reply = stage.eye.call(cmd!["LOCK.RELEASE", "k", "alice"]);
    assert_eq!(reply, Value::Integer(0));
    stage.granted(&mut bob);
    stage.check();
}

on_each_server!(
    a_lock_whose_owner_expires_as_a_field_goes_to_the_first_waiter,
    a_deleted_lock_goes_to_the_first_waiter,
    two_locks_deleted_at_once_go_to_both_first_waiters,
    a_shortened_lease_ends_when_it_says,
    a_lock_without_its_owner_is_free_and_its_token_counts,
    a_lock_deleted_by_a_script_or_a_transaction_goes_to_the_first_waiter,
    a_lock_deleted_in_another_database_is_released_there_only,
    a_lock_renamed_away_is_released_here_and_held_there,
    a_lock_moved_to_another_database_is_released_here_and_held_there,
    an_evicted_lock_goes_to_the_first_waiter,
    a_flushed_database_releases_its_locks,
    a_flush_of_one_database_releases_no_lock_of_another,
    databases_that_are_swapped_keep_their_queues,
);

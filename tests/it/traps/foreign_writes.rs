//! Somebody else writes over a lock that is waited for, or makes it last: whatever is there then
//! counts. Nobody is served who should not be, and whoever waits is served when that is gone.

use super::stage::{LONG, SOON, Stage, token_of};
use harness::{Kind, Value, cmd, observe, on_each_server, wait};
use std::time::Duration;

fn a_lease_that_was_made_longer_does_not_end_early(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.hold("l", "alice", LONG);
    let mut carol = stage.wait("l", "carol");
    stage.at_once(&["LOCK.RENEW l alice 100", "PERSIST l"]);
    stage.let_the_lease_end_after("PEXPIRE k 600000");
    stage.expect_in_line(&mut [&mut bob, &mut carol]);
    stage.expect_holder("k", "alice", 1, Some(alices));
    assert_eq!(stage.run("LOCK.INFO l").field("lease-left"), &Value::Nil);
    stage.run("PEXPIRE k 50");
    assert!(stage.granted(&mut bob) > alices);
    stage.run("DEL l");
    stage.granted(&mut carol);
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

fn a_lock_without_an_end_is_looked_at_when_it_gets_one(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.run("PERSIST k");
    let mut bob = stage.wait("k", "bob");
    stage.expect_in_line(&mut [&mut bob]);
    stage.run("PEXPIRE k 50");
    stage.granted(&mut bob);
    stage.check();
}

fn a_lock_renamed_onto_a_waited_one_takes_its_place(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let daves = stage.hold("other", "dave", LONG);
    stage.run("RENAME other k");
    stage.expect_in_line(&mut [&mut bob]);
    stage.expect_holder("k", "dave", 1, Some(daves));
    assert_eq!(stage.run("LOCK.RELEASE k alice"), Value::Nil);
    stage.release("k", "dave");
    assert!(stage.granted(&mut bob) > daves);

    // Whether the lock was free or not when the other one came: also its end counts.
    let mut carol = stage.wait("k", "carol");
    stage.hold("other", "dave", 300);
    stage.run("RENAME other k");
    stage.granted(&mut carol);
    stage.check();
}

fn a_key_that_is_no_lock_makes_waiters_wait(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for (over, away) in [
        ("SET k v", "DEL k"),
        ("SET k v PX 600000", "PEXPIRE k 30"),
        ("SUNIONSTORE k members", "SPOP k"),
        ("HSET k a b", "DEL k"),
        ("HSET k alice x", "UNLINK k"),
        ("HSET k alice 0", "DEL k"),
        ("HINCRBY k alice -5", "DEL k"),
        ("HSET k lock-mode read", "FLUSHDB"),
        ("HSET k mallory 1", "RENAME k elsewhere"),
    ] {
        stage.run("SADD members one");
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut dave = stage.wait_with("k", "dave", LONG, 100);
        let reply = stage.run(over);
        assert!(!reply.is_error(), "{over}: {reply}");
        for refused in ["WAIT k x 1000 1", "RELEASE k alice", "INFO k", "FORCERELEASE k"] {
            let reply = stage.run(&format!("LOCK.{refused}"));
            // With a token of ours and one field more it is held by somebody, for all that others
            // need to know.
            if over.contains("k alice") && refused.starts_with("WAIT") {
                assert_eq!(reply, Value::Nil);
            } else {
                assert_eq!(reply.code(), "WRONGTYPE", "{over}");
            }
        }
        assert_eq!(dave.connection.receive(SOON).unwrap(), Value::Nil);
        stage.expect_in_line(&mut [&mut bob]);
        stage.run(away);
        stage.granted(&mut bob);
        stage.release("k", "bob");
        stage.run("DEL k members elsewhere");
        stage.check();
    }
    // One that ends by itself.
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.run("SET k v PX 60");
    stage.granted(&mut bob);
    stage.check();
}

fn a_lock_that_is_one_again_is_held_by_its_owner(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.run("HSET k mallory 1");
    assert_eq!(stage.run("LOCK.RELEASE k alice").code(), "WRONGTYPE");
    stage.run("HDEL k mallory");
    stage.expect_in_line(&mut [&mut bob]);
    stage.expect_holder("k", "alice", 1, Some(alices));
    stage.release("k", "alice");
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

fn a_copied_lock_is_held_under_both_names(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let daves = stage.hold("l", "dave", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut erin = stage.wait("l", "erin");
    assert_eq!(stage.run("COPY k l REPLACE"), Value::Integer(1));
    stage.expect_in_line(&mut [&mut bob, &mut erin]);
    stage.expect_holder("k", "alice", 1, Some(alices));
    stage.expect_holder("l", "alice", 1, Some(alices));
    assert_eq!(stage.run("LOCK.RELEASE l dave"), Value::Nil);
    stage.release("l", "alice");
    let erins = stage.granted(&mut erin);
    assert!(erins > daves && erins > alices);
    stage.expect_in_line(&mut [&mut bob]);
    stage.release("k", "alice");
    stage.granted(&mut bob);
    stage.check();
}

fn a_lock_deleted_and_taken_in_one_go_is_granted_to_nobody_else(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for (number, change) in [
        &["MULTI", "DEL k", "HSET k mallory 1", "PEXPIRE k 600000", "EXEC"][..],
        &["EVAL \"redis.call('DEL', 'k') redis.call('HSET', 'k', 'mallory', 1) redis.call('PEXPIRE', 'k', 600000)\" 1 k"],
        &["MULTI", "FLUSHALL", "HSET k mallory 1", "PEXPIRE k 600000", "EXEC"],
    ]
    .into_iter()
    .enumerate()
    {
        let mine = format!("owner{number}");
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", &mine);
        for line in change {
            assert!(!stage.run(line).is_error(), "{line}");
        }
        stage.expect_in_line(&mut [&mut bob]);
        stage.expect_holder("k", "mallory", 1, None);
        stage.run("DEL k");
        stage.granted(&mut bob);
        stage.release("k", &mine);
        stage.check();
    }
}

fn a_lock_deleted_and_acquired_in_one_transaction_goes_to_the_first_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    for line in ["MULTI", "DEL k", "LOCK.ACQUIRE k mallory 600000", "LOCK.WAIT k eve 9999 0"] {
        stage.run(line);
    }
    let replies = stage.run("EXEC");
    assert_eq!(replies.elements(), [Value::Integer(1), Value::Nil, Value::Nil]);
    stage.granted(&mut bob);
    stage.check();

    // Also in one write, when nobody had the time to look.
    for deletion in
        ["DEL k", "UNLINK k", "HDEL k bob", "RENAME k elsewhere", "FLUSHALL", "PEXPIRE k -1"]
    {
        let mut carol = stage.wait("k", "carol");
        let replies = stage.at_once(&[deletion, "LOCK.ACQUIRE k mallory 600000"]);
        assert_eq!(replies[1], Value::Nil, "after {deletion}");
        stage.granted(&mut carol);
        stage.release("k", "carol");
        stage.hold("k", "bob", LONG);
    }
    stage.run("DEL elsewhere");
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

/// Ends that the server's timers cannot count to: they add them to its clock in microseconds.
fn a_lease_that_ends_in_ages_keeps_the_server_idle(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let now_ms = stage.eye.run("PEXPIRETIME k").integer() - LONG.cast_signed();
    for later_ms in [18_446_744_073_709_552, 9_223_372_036_854_775, 1 << 61, i64::MAX - now_ms] {
        let end = now_ms + later_ms;
        assert_eq!(stage.run(&format!("PEXPIREAT k {end}")), Value::Integer(1), "{later_ms}");
        let before = stage.counted("turns");
        observe::let_pass(&mut stage.eye, Duration::from_millis(500));
        let turns = stage.counted("turns") - before;
        assert!(turns < 20, "{turns} turns in half a second, with an end at {end}");
    }
    stage.expect_in_line(&mut [&mut bob]);
    stage.run("PEXPIRE k 50");
    stage.granted(&mut bob);
    stage.check();
}

on_each_server!(
    a_lease_that_was_made_longer_does_not_end_early,
    a_lease_that_was_made_longer_ends_at_its_new_end,
    a_lock_without_an_end_is_looked_at_when_it_gets_one,
    a_lock_renamed_onto_a_waited_one_takes_its_place,
    a_key_that_is_no_lock_makes_waiters_wait,
    a_lock_that_is_one_again_is_held_by_its_owner,
    a_restored_key_counts_as_what_it_is,
    a_copied_lock_is_held_under_both_names,
    a_lock_deleted_and_taken_in_one_go_is_granted_to_nobody_else,
    a_lock_deleted_and_acquired_in_one_transaction_goes_to_the_first_waiter,
    a_lock_taken_in_the_moment_of_its_end_goes_to_one_only,
    a_lease_that_ends_in_ages_keeps_the_server_idle,
);

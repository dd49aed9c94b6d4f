//! Locks that are shared: who dies, leaves or is killed among those who share them, and what
//! replicas, files, other clients and pauses make of it.

use super::deaths::{expect_closed, kill};
use super::stage::{LONG, SOON, Stage};
use super::trail::trail;
use harness::{Kind, Value, cmd, on_each_server, wait};

/// Redisson's way to take a lock: nil when it has it, else how long it is still held.
const REDISSON: &str = "
    local free = redis.call('exists', KEYS[1]) == 0
    if free or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[1], 1)
        redis.call('pexpire', KEYS[1], 600000)
        return nil
    end
    return redis.call('pttl', KEYS[1])";

fn release_share(stage: &mut Stage, owner: &str) -> Value {
    stage.eye.call(cmd!["LOCK.RELEASE", "k", owner, "SHARED"])
}

fn effects_of_sharing_are_core_commands_in_one_transaction(kind: Kind) {
    let mut stage = Stage::with_files(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut read = 0;
    let begun =
        "{HSET k lock-mode shared fencing-token t# alice 1 #; PEXPIREAT k #; SET kvlock:floor #}";
    for (line, expected) in [
        ("LOCK.ACQUIRE k alice 600000 SHARED", begun),
        ("LOCK.ACQUIRE k bob 900000 SHARED", "{HSET k bob 1 #; PEXPIREAT k #}"),
        ("LOCK.ACQUIRE k carol 60000 SHARED", "HSET k carol 1 #"),
        ("LOCK.RENEW k carol 70000", "HSET k carol 1 #"),
        ("LOCK.ACQUIRE k carol 1000 SHARED", "HSET k carol 2 #"),
        ("LOCK.RELEASE k carol SHARED", "HSET k carol 1 #"),
        ("LOCK.RELEASE k bob SHARED", "{HDEL k bob; PEXPIREAT k #}"),
        ("LOCK.RELEASE k carol SHARED", "HDEL k carol"),
        ("LOCK.RELEASE k alice SHARED", "DEL k"),
        ("LOCK.ACQUIRE k alice 600000", "RESTORE k # alice 1 fencing-token t# REPLACE ABSTTL"),
        ("LOCK.ACQUIRE k alice 60000 SHARED", "HSET k lock-mode exclusive 1"),
        ("LOCK.ACQUIRE k alice 900000 SHARED", "{HSET k lock-mode exclusive 2; PEXPIREAT k #}"),
        ("LOCK.RELEASE k alice SHARED ALL", "HDEL k lock-mode"),
        ("LOCK.ACQUIRE k alice 60000 SHARED", "HSET k lock-mode exclusive 1"),
        (
            "LOCK.RELEASE k alice",
            "{DEL k; HSET k lock-mode shared fencing-token t# alice 1 #; PEXPIREAT k #}",
        ),
    ] {
        assert!(!stage.run(line).is_error(), "{line}");
        let lines = trail(&stage.server);
        assert_eq!(lines[read..], [expected], "after {line}");
        read = lines.len();
    }
    // The last who shares it hands it over, and all who follow come in, at once.
    let mut writer = stage.wait("k", "writer");
    let mut readers = ["bob", "carol"].map(|owner| stage.wait_to_share("k", owner, LONG));
    release_share(&mut stage, "alice");
    (0..4).for_each(|_| stage.granted_unseen());
    stage.granted(&mut writer);
    stage.release("k", "writer");
    let tokens = readers.each_mut().map(|reader| stage.granted_elsewhere(reader));
    assert_eq!(tokens[0], tokens[1]);
    let begun = "HSET k lock-mode shared fencing-token t# bob 1 # carol 1 #; PEXPIREAT k #";
    let expected = [
        "RESTORE k # writer 1 fencing-token t# REPLACE ABSTTL".to_owned(),
        format!("{{DEL k; {begun}}}"),
    ];
    assert_eq!(trail(&stage.server)[read..], expected);
    stage.check();
}

fn who_dies_among_many_frees_its_share_and_the_last_one_the_lock(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    // More than fit into the small form of a hash; the longest lease is given back.
    for reader in 0..600 {
        stage.share("k", &format!("reader-{reader}"), 300 + reader % 3);
    }
    stage.share("k", "long", LONG);
    let mut writer = stage.wait("k", "writer");
    assert_eq!(release_share(&mut stage, "long"), Value::Integer(0));
    stage.granted(&mut writer);
    stage.check();
}

fn a_lock_whose_hundreds_of_readers_are_dead_is_free_for_the_first_who_asks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for reader in 0..600 {
        stage.share("k", &format!("reader-{reader}"), 100);
    }
    stage.share("k", "long", LONG);
    release_share(&mut stage, "long");
    let end = stage.run("TIME")[0].text().parse::<i64>().unwrap() * 1000 + 1200;
    stage.wait_past(end);
    stage.hold("k", "writer", LONG);
    stage.check();
}

fn a_lock_that_is_always_shared_keeps_few_of_the_dead(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.share("k", "long", LONG);
    for reader in 0..6_000 {
        stage.share("k", &format!("reader-{reader}"), 1);
    }
    let left = stage.run("HLEN k").integer();
    assert!(left < 3_000, "{left} of 6000 dead readers are left");
    assert!(stage.counted("swept") > 3_000);
    assert_eq!(stage.run("LOCK.INFO k HOLDERS 1000").field("mode"), &Value::bulk("shared"));
    stage.check();
}

fn hundreds_who_wait_to_share_come_in_together_and_stop_at_the_next_writer(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut readers: Vec<_> =
        (0..200).map(|n| stage.wait_to_share("k", &format!("reader-{n}"), LONG)).collect();
    let mut writer = stage.wait("k", "writer");
    let mut late = stage.wait_to_share("k", "late", LONG);
    stage.release("k", "alice");
    let tokens: Vec<_> = readers.iter_mut().map(|r| stage.granted_elsewhere(r)).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    stage.expect_in_line(&mut [&mut writer, &mut late]);
    for reader in &readers {
        assert_eq!(release_share(&mut stage, &reader.owner), Value::Integer(0));
    }
    assert!(stage.granted(&mut writer) > tokens[0]);
    stage.release("k", "writer");
    stage.granted_elsewhere(&mut late);
    stage.check();
}

fn a_reader_killed_in_the_turn_of_its_grant_is_taken_back_alone(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait_to_share("k", "bob", LONG);
    let mut carol = stage.wait_to_share("k", "carol", LONG);
    let mut writer = stage.wait("k", "writer");
    stage.at_once(&["LOCK.RELEASE k alice", &kill(&bob)]);
    stage.granted_unseen();
    expect_closed(&mut bob);
    stage.granted_elsewhere(&mut carol);
    wait::until("bob's share is gone", SOON, || match stage.run("HEXISTS k bob").integer() {
        0 => Ok(()),
        _ => Err("it is there".to_owned()),
    });
    assert_eq!(stage.counted("grants_taken_back"), 1);
    stage.expect_in_line(&mut [&mut writer]);
    release_share(&mut stage, "carol");
    stage.granted(&mut writer);
    stage.check();
}

fn a_writer_that_leaves_the_line_lets_those_behind_it_in(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.share("k", "alice", LONG);
    for leave in ["LOCK.CANCEL k writer", "kill", "timeout"] {
        let timeout = if leave == "timeout" { 50 } else { 0 };
        let writer = stage.wait_with("k", "writer", LONG, timeout);
        let mut reader = stage.wait_to_share("k", "reader", LONG);
        match leave {
            "kill" => assert_eq!(stage.run(&kill(&writer)), Value::Integer(1)),
            "timeout" => {}
            cancel => assert_eq!(stage.run(cancel), Value::Integer(1)),
        }
        stage.granted_elsewhere(&mut reader);
        assert_eq!(release_share(&mut stage, "reader"), Value::Integer(0));
    }
    stage.check();
}

fn whatever_takes_a_shared_lock_away_serves_the_writer(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for take in [
        "DEL k",
        "UNLINK k",
        "FLUSHALL",
        "PEXPIRE k 20",
        "HDEL k alice bob",
        "EVAL \"redis.call('DEL', 'k')\" 1 k",
        "RENAME k other",
    ] {
        stage.share("k", "alice", LONG);
        stage.share("k", "bob", LONG);
        let mut writer = stage.wait("k", "writer");
        assert!(!stage.run(take).is_error(), "{take}");
        stage.granted(&mut writer);
        stage.release("k", "writer");
    }
    stage.check();
}

fn readers_that_die_in_a_pause_make_way_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let readers = stage.share("k", "alice", LONG);
    stage.share("k", "bob", LONG);
    let mut writer = stage.wait("k", "writer");
    let mut carol = stage.wait_to_share("k", "carol", LONG);
    // The key itself lives on: its TTL is that of the longest lease there was.
    let replies = stage.at_once(&[
        "LOCK.RENEW k alice 100",
        "LOCK.RENEW k bob 150",
        "TIME",
        "CLIENT PAUSE 600000 WRITE",
    ]);
    let seconds: i64 = replies[2][0].text().parse().unwrap();
    stage.wait_past(seconds * 1000 + 1400);
    let granted = stage.counted("granted");
    assert!(!writer.connection.has_unread());
    stage.run("CLIENT UNPAUSE");
    assert!(stage.granted(&mut writer) > readers);
    assert_eq!(stage.counted("granted"), granted + 1);
    stage.release("k", "writer");
    stage.granted_elsewhere(&mut carol);
    stage.check();
}

fn redisson_and_those_who_share_keep_each_other_out(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let theirs = "285475da-9152-4c83-822a-67ee2f116a79:52";
    let redisson = cmd!["EVAL", REDISSON, 1, "k", theirs];
    stage.share("k", "alice", LONG);
    assert!(stage.eye.call(redisson.clone()).integer() > 0, "it is held");
    release_share(&mut stage, "alice");
    assert_eq!(stage.eye.call(redisson), Value::Nil);
    assert_eq!(stage.run("LOCK.ACQUIRE k alice 1000 SHARED"), Value::Nil);
    // Its owner may share its own lock, and keeps others out as before.
    let reply = stage.eye.call(cmd!["LOCK.ACQUIRE", "k", theirs, 1000, "SHARED"]);
    assert_eq!(reply[1], Value::Integer(1));
    assert_eq!(stage.run("LOCK.ACQUIRE k alice 1000 SHARED"), Value::Nil);
    stage.check();
}

fn a_promoted_replica_knows_who_shares_a_lock(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    let token = stage.share("k", "alice", LONG);
    stage.share("k", "bob", LONG);
    stage.check();
    let mut promoted = stage.replica.connect();
    assert_eq!(promoted.run("LOCK.ACQUIRE k carol 1000 SHARED").code(), "READONLY");
    promoted.run("REPLICAOF NO ONE");
    let reply = promoted.call(cmd!["LOCK.ACQUIRE", "k", "carol", LONG, "SHARED"]);
    assert_eq!(reply, Value::Array(vec![Value::Integer(token), Value::Integer(1)]));
    assert_eq!(promoted.run("LOCK.ACQUIRE k writer 1000"), Value::Nil);
    for owner in ["alice", "bob", "carol"] {
        let left = promoted.call(cmd!["LOCK.RELEASE", "k", owner, "SHARED"]);
        assert_eq!(left, Value::Integer(0));
    }
    let reply = promoted.run("LOCK.ACQUIRE k writer 1000");
    assert!(reply[0].integer() > token);
}

on_each_server!(
    effects_of_sharing_are_core_commands_in_one_transaction,
    who_dies_among_many_frees_its_share_and_the_last_one_the_lock,
    a_lock_whose_hundreds_of_readers_are_dead_is_free_for_the_first_who_asks,
    a_lock_that_is_always_shared_keeps_few_of_the_dead,
    hundreds_who_wait_to_share_come_in_together_and_stop_at_the_next_writer,
    a_reader_killed_in_the_turn_of_its_grant_is_taken_back_alone,
    a_writer_that_leaves_the_line_lets_those_behind_it_in,
    whatever_takes_a_shared_lock_away_serves_the_writer,
    readers_that_die_in_a_pause_make_way_after_it,
    redisson_and_those_who_share_keep_each_other_out,
    a_promoted_replica_knows_who_shares_a_lock,
);

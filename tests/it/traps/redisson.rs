//! Clients of Redisson on the same locks. Its protocol is open: a hash with the owner and its
//! count, a TTL, and a message when the lock is free. The scripts here do what it says, in words of
//! our own.

use super::stage::{LONG, SOON, Stage, token_of};
use harness::{Connection, Kind, Value, cmd, observe, on_each_server};

const THEIRS: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
const OTHERS: &str = "285475da-9152-4c83-822a-67ee2f116a79:53";

/// Nil when the lock was taken or entered again, else how long it is still held.
const LOCK: &str = "
    local free = redis.call('exists', KEYS[1]) == 0
    if free or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[1], 1)
        redis.call('pexpire', KEYS[1], ARGV[2])
        return nil
    end
    return redis.call('pttl', KEYS[1])";

/// 1 when the lock is free now, 0 when it is still held, nil when it was not the owner's.
const UNLOCK: &str = "
    if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
    if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
        redis.call('pexpire', KEYS[1], ARGV[2])
        return 0
    end
    redis.call('del', KEYS[1])
    redis.call('publish', KEYS[2], '0')
    return 1";

/// What its watchdog does: 1 when the owner still holds the lock.
const RENEW: &str = "
    if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1";

const CHANNEL: &str = "redisson_lock__channel:{k}";

fn script(script: &str, owner: &str, lease_ms: u64) -> Vec<Vec<u8>> {
    cmd!["EVAL", script, 2, "k", CHANNEL, owner, lease_ms]
}

fn lock(connection: &mut Connection, owner: &str) -> Value {
    connection.call(script(LOCK, owner, LONG))
}

fn unlock(connection: &mut Connection, owner: &str) -> Value {
    connection.call(script(UNLOCK, owner, LONG))
}

/// A connection of theirs that waits for the message.
fn subscribe(stage: &Stage, command: &str) -> Connection {
    let mut subscriber = stage.server.connect();
    subscriber.call(cmd![command, CHANNEL]);
    subscriber
}

fn expect_message(subscriber: &mut Connection, kind: &str) {
    let message = subscriber.receive(SOON).expect("a message");
    assert_eq!(message.elements(), [kind, CHANNEL, "0"].map(Value::bulk));
}

/// All that was published has arrived, and it was nothing.
fn expect_silence(stage: &mut Stage, subscriber: &mut Connection) {
    stage.settle();
    subscriber.run("PING");
    assert!(!subscriber.has_unread());
}

fn each_side_keeps_the_other_out(kind: Kind) {
    let mut stage = Stage::new(&kind);
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    assert_eq!(stage.run("LOCK.ACQUIRE k alice 1000"), Value::Nil);
    assert_eq!(stage.run("LOCK.RELEASE k alice"), Value::Nil);
    assert_eq!(stage.run("LOCK.RENEW k alice 1000"), Value::Nil);
    stage.expect_holder("k", THEIRS, 1, None);
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(1));

    let token = stage.hold("k", "alice", LONG);
    let left = lock(&mut stage.eye, THEIRS).integer();
    assert!((1..=LONG as i64).contains(&left), "{left}");
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Nil);
    assert_eq!(stage.eye.call(script(RENEW, THEIRS, LONG)), Value::Integer(0));
    stage.expect_holder("k", "alice", 1, Some(token));
    stage.release("k", "alice");
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    stage.check();
}

fn their_unlock_serves_our_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    // One of two holds, and a renewal, free nothing.
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(0));
    assert_eq!(stage.eye.call(script(RENEW, THEIRS, LONG)), Value::Integer(1));
    stage.expect_in_line(&mut [&mut bob, &mut carol]);
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(1));
    let bobs = stage.granted(&mut bob);
    assert!(lock(&mut stage.eye, THEIRS).integer() > 0);
    stage.expect_in_line(&mut [&mut carol]);
    stage.release("k", "bob");
    assert!(stage.granted(&mut carol) > bobs);
    stage.check();
}

fn the_end_of_their_lease_serves_our_waiter_and_their_watchdog_puts_it_off(kind: Kind) {
    let mut stage = Stage::new(&kind);
    assert_eq!(stage.eye.call(script(LOCK, THEIRS, LONG)), Value::Nil);
    let mut bob = stage.wait("k", "bob");
    // They renew for a short time, and in time once more.
    let short = script(RENEW, THEIRS, 300);
    assert_eq!(stage.eye.call(&short), Value::Integer(1));
    let end = stage.run("PEXPIRETIME k").integer();
    assert_eq!(stage.eye.call(script(RENEW, THEIRS, 3000)), Value::Integer(1));
    stage.wait_past(end + 150);
    stage.expect_in_line(&mut [&mut bob]);
    assert_eq!(stage.eye.call(&short), Value::Integer(1));
    stage.granted(&mut bob);
    stage.check();
}

fn our_release_tells_their_waiter_who_then_takes_the_lock(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut subscriber = subscribe(&stage, "SUBSCRIBE");
    for release in ["LOCK.RELEASE k alice", "LOCK.RELEASE k alice ALL", "LOCK.FORCERELEASE k"] {
        stage.hold("k", "alice", LONG);
        assert!(lock(&mut stage.eye, THEIRS).integer() > 0);
        assert!(!stage.run(release).is_error());
        expect_message(&mut subscriber, "message");
        assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
        assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(1));
        expect_message(&mut subscriber, "message");
    }
    expect_silence(&mut stage, &mut subscriber);
    stage.check();
}

fn only_a_lock_that_became_free_is_announced(kind: Kind) {
    let mut stage = Stage::with(&kind, |o| o.module_config("redisson-turn-ms", 0));
    let mut subscriber = subscribe(&stage, "SUBSCRIBE");
    stage.hold("k", "alice", LONG);
    stage.run("LOCK.ACQUIRE k alice 1000");
    assert_eq!(stage.run("LOCK.RELEASE k alice"), Value::Integer(1));
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait("k", "dave");
    stage.release("k", "alice");
    stage.granted(&mut bob);
    assert_eq!(stage.run("LOCK.FORCERELEASE k"), Value::Integer(1));
    stage.granted(&mut carol);
    stage.run("PEXPIRE k 50");
    stage.granted(&mut dave);
    stage.at_once(&["PEXPIRE k 1", "LOCK.CANCEL k nobody"]);
    harness::wait::until("the lease has ended", SOON, || match stage.run("EXISTS k").integer() {
        0 => Ok(()),
        _ => Err("held".to_owned()),
    });
    assert_eq!(stage.run("LOCK.FORCERELEASE k"), Value::Integer(0));
    assert_eq!(stage.run("LOCK.RELEASE k dave"), Value::Nil);
    expect_silence(&mut stage, &mut subscriber);
    stage.check();
}

fn who_comes_in_the_moment_of_their_unlock_is_first_and_our_waiter_next(kind: Kind) {
    let mut stage = Stage::new(&kind);
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    let mut bob = stage.wait("k", "bob");
    // Another client of theirs asks in the same turn, before anybody could look.
    stage.eye.send(script(UNLOCK, THEIRS, LONG));
    stage.eye.send(script(LOCK, OTHERS, LONG));
    assert_eq!(stage.eye.receive(SOON).unwrap(), Value::Integer(1));
    match stage.eye.receive(SOON).unwrap() {
        Value::Nil => {
            stage.expect_in_line(&mut [&mut bob]);
            stage.expect_holder("k", OTHERS, 1, None);
            assert_eq!(unlock(&mut stage.eye, OTHERS), Value::Integer(1));
        }
        left => assert!(left.integer() > 0),
    }
    stage.granted(&mut bob);
    stage.check();
}

fn holds_of_both_sides_add_up_and_a_reentry_of_ours_gives_a_token(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let before = stage.hold("k", "alice", LONG);
    stage.release("k", "alice");
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    assert_eq!(stage.run("LOCK.INFO k").field("token"), &Value::Nil);
    let entered = stage.eye.call(cmd!["LOCK.ACQUIRE", "k", THEIRS, 1000]);
    let token = entered[0].integer();
    assert!(token > before && entered[1] == Value::Integer(2), "{entered}");
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    stage.expect_holder("k", THEIRS, 3, Some(token));
    assert_eq!(stage.eye.call(cmd!["LOCK.RELEASE", "k", THEIRS]), Value::Integer(2));
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(0));
    let again = stage.eye.call(cmd!["LOCK.ACQUIRE", "k", THEIRS, 1000]);
    assert_eq!((&again[0], &again[1]), (&Value::Integer(token), &Value::Integer(2)));
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(0));
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(1));

    // The other way round: ours first, and theirs gives the last one back.
    stage.hold("k", THEIRS, LONG);
    assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
    assert_eq!(stage.eye.call(cmd!["LOCK.RELEASE", "k", THEIRS]), Value::Integer(1));
    assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(1));
    assert_eq!(stage.run("EXISTS k"), Value::Integer(0));
    assert!(stage.hold("k", "alice", LONG) > token);
    stage.check();
}

fn the_channel_is_what_the_option_says(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut subscriber = subscribe(&stage, "SUBSCRIBE");
    let mut in_shard = subscribe(&stage, "SSUBSCRIBE");
    for (option, told, told_in_shard) in
        [("auto", true, false), ("both", true, true), ("no", false, false), ("auto", true, false)]
    {
        stage.run(&format!("CONFIG SET kvlock.redisson-channel {option}"));
        stage.hold("k", "alice", LONG);
        stage.release("k", "alice");
        if told {
            expect_message(&mut subscriber, "message");
        }
        if told_in_shard {
            expect_message(&mut in_shard, "smessage");
        }
        expect_silence(&mut stage, &mut subscriber);
        expect_silence(&mut stage, &mut in_shard);
    }
    stage.check();
}

fn who_listens_at_a_replica_is_told(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut subscriber = stage.replica.connect();
    subscriber.call(cmd!["SUBSCRIBE", CHANNEL]);
    let mut in_shard = stage.replica.connect();
    in_shard.call(cmd!["SSUBSCRIBE", CHANNEL]);
    // If the option says so; else a release is one command for replicas.
    stage.hold("k", "alice", LONG);
    stage.release("k", "alice");
    stage.run("CONFIG SET kvlock.redisson-channel both");
    stage.hold("k", "alice", LONG);
    stage.release("k", "alice");
    expect_message(&mut subscriber, "message");
    expect_message(&mut in_shard, "smessage");
    stage.check();
    expect_silence(&mut stage, &mut subscriber);
    expect_silence(&mut stage, &mut in_shard);
}

fn tokens_grow_while_the_sides_take_turns(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut last = 0;
    for round in 0..50 {
        let owner = format!("bob{round}");
        assert_eq!(lock(&mut stage.eye, THEIRS), Value::Nil);
        let mut bob = stage.wait("k", &owner);
        if round % 2 == 0 {
            let entered = stage.eye.call(cmd!["LOCK.ACQUIRE", "k", THEIRS, 1000]);
            assert!(entered[0].integer() > last);
            last = entered[0].integer();
            assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(0));
        }
        assert_eq!(unlock(&mut stage.eye, THEIRS), Value::Integer(1));
        let bobs = token_of(&bob.connection.receive(SOON).unwrap());
        stage.granted_unseen();
        assert!(bobs > last);
        last = bobs;
        stage.release("k", &owner);
    }
    assert_eq!(observe::info_number(&mut stage.eye, "kvlock_handed_off"), 50);
    stage.check();
}

/// Their waiters sleep until the end that they have seen: they are told of one that is sooner.
fn who_waits_hears_of_an_end_that_is_sooner(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut subscriber = subscribe(&stage, "SUBSCRIBE");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait_with("k", "bob", LONG / 2, 0);
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait_to_share("k", "dave", LONG / 2);
    stage.release("k", "alice");
    stage.granted(&mut bob);
    expect_message(&mut subscriber, "message");
    stage.run("LOCK.RENEW k bob 600000");
    expect_silence(&mut stage, &mut subscriber);
    stage.run("LOCK.RENEW k bob 100000");
    expect_message(&mut subscriber, "message");
    stage.run("LOCK.ACQUIRE k bob 50000");
    stage.run("LOCK.RELEASE k bob");
    stage.release("k", "bob");
    stage.granted(&mut carol);
    expect_silence(&mut stage, &mut subscriber);
    stage.release("k", "carol");
    stage.granted_elsewhere(&mut dave);
    expect_message(&mut subscriber, "message");
    stage.run("LOCK.RELEASE k dave SHARED");
    expect_message(&mut subscriber, "message");
    stage.check();
}

/// They look at the end of the key alone: it is that of the last lease, whoever leaves.
fn a_shared_lock_ends_with_its_last_lease(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut subscriber = subscribe(&stage, "SUBSCRIBE");
    stage.share("k", "alice", LONG);
    stage.share("k", "bob", LONG / 2);
    let ends = |stage: &mut Stage| stage.run("PTTL k").integer();
    assert_eq!(stage.run("LOCK.RELEASE k alice SHARED"), Value::Integer(0));
    expect_message(&mut subscriber, "message");
    assert!((1..=LONG.cast_signed() / 2).contains(&ends(&mut stage)));
    stage.run("LOCK.RENEW k bob 100000");
    expect_message(&mut subscriber, "message");
    assert!((1..=100_000).contains(&ends(&mut stage)));
    // Not the longest: nothing changes.
    stage.share("k", "carol", 50_000);
    stage.run("LOCK.RENEW k carol 40000");
    stage.run("LOCK.RELEASE k carol SHARED");
    expect_silence(&mut stage, &mut subscriber);
    assert!((60_000..=100_000).contains(&ends(&mut stage)));
    stage.check();

    // The last who lives gives it back.
    stage.share("k", "dave", 30);
    let end = stage.run("TIME")[0].text().parse::<i64>().unwrap() * 1000 + 1100;
    stage.wait_past(end);
    assert_eq!(stage.run("LOCK.RELEASE k bob SHARED"), Value::Integer(0));
    expect_message(&mut subscriber, "message");
    assert_eq!(stage.run("EXISTS k"), Value::Integer(0));
    stage.check();
}

fn a_forced_release_removes_what_readers_left_behind(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut subscriber = subscribe(&stage, "SUBSCRIBE");
    for left in ["lock-mode shared alice '1 5' fencing-token t5", "fencing-token t5"] {
        stage.run(&format!("HSET k {left}"));
        assert_eq!(stage.run("LOCK.FORCERELEASE k"), Value::Integer(0), "{left}");
        assert_eq!(stage.run("EXISTS k"), Value::Integer(0), "{left}");
        expect_message(&mut subscriber, "message");
        assert_eq!(stage.run("LOCK.FORCERELEASE k"), Value::Integer(0));
        expect_silence(&mut stage, &mut subscriber);
    }
    stage.check();
}

/// The read-write locks of theirs take a key whatever is there.
fn a_read_write_lock_that_moves_in_is_not_shared_with(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.share("k", "alice", LONG);
    stage.share("k", "carol", LONG);
    for mode in ["read", "write"] {
        stage.run(&format!("HSET k mode {mode} {THEIRS}:write 1"));
        for command in [
            "LOCK.ACQUIRE k bob 1000 SHARED",
            "LOCK.ACQUIRE k alice 1000 SHARED",
            "LOCK.ACQUIRE k bob 1000",
            "LOCK.RENEW k alice 1000",
            "LOCK.RELEASE k alice SHARED",
            "LOCK.INFO k",
        ] {
            assert_eq!(stage.run(command).code(), "WRONGTYPE", "{command}");
        }
        stage.run(&format!("HDEL k mode {THEIRS}:write"));
        assert_eq!(stage.run("LOCK.RENEW k alice 600000"), Value::Integer(600_000));
    }
    // An owner may be called so.
    stage.share("k", "mode", LONG);
    stage.check();
}

/// Their unlock of a read lock counts down from every number in the hash.
fn nothing_but_holds_reads_as_a_number(kind: Kind) {
    const NUMBERS: &str = "
        local numbers = {}
        local all = redis.call('hgetall', KEYS[1])
        for i = 1, #all, 2 do
            if tonumber(all[i + 1]) then table.insert(numbers, all[i] .. ' ' .. all[i + 1]) end
        end
        return table.concat(numbers, ', ')";
    let mut stage = Stage::new(&kind);
    for (commands, numbers) in [
        (&["LOCK.ACQUIRE k alice 1000", "LOCK.ACQUIRE k alice 1000 SHARED"][..], "alice 1"),
        (&["LOCK.ACQUIRE k alice 1000 SHARED", "LOCK.ACQUIRE k bob 1000 SHARED"], ""),
        (&["LATCH.SET k 3", "LATCH.COUNTDOWN k alice"], ""),
        (&["SEM.SET k 3", "SEM.ACQUIRE k alice 2 1000"], ""),
    ] {
        for command in commands {
            assert!(!stage.run(command).is_error(), "{command}");
        }
        let found = stage.eye.call(cmd!["EVAL", NUMBERS, 1, "k"]);
        assert_eq!(found.text(), numbers, "{commands:?}");
        stage.run("DEL k");
    }
}

on_each_server!(
    who_waits_hears_of_an_end_that_is_sooner,
    a_shared_lock_ends_with_its_last_lease,
    a_forced_release_removes_what_readers_left_behind,
    a_read_write_lock_that_moves_in_is_not_shared_with,
    nothing_but_holds_reads_as_a_number,
    each_side_keeps_the_other_out,
    their_unlock_serves_our_waiter,
    the_end_of_their_lease_serves_our_waiter_and_their_watchdog_puts_it_off,
    our_release_tells_their_waiter_who_then_takes_the_lock,
    only_a_lock_that_became_free_is_announced,
    who_comes_in_the_moment_of_their_unlock_is_first_and_our_waiter_next,
    holds_of_both_sides_add_up_and_a_reentry_of_ours_gives_a_token,
    the_channel_is_what_the_option_says,
    who_listens_at_a_replica_is_told,
    tokens_grow_while_the_sides_take_turns,
);

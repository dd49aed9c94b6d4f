//! Latches: many who wait for one, latches that go away in every other way, and what replicas,
//! files, pauses and failovers make of them.

use super::deaths::{expect_closed, kill};
use super::stage::{SOON, Stage, Waiter, expect_same_data};
use super::trail::trail;
use harness::{Kind, Value, cmd, observe, on_each_server, wait};

/// Puts a client in line for the latch.
fn wait_for_latch(stage: &mut Stage, waiter: &str, timeout_ms: u64) -> Waiter {
    let mut connection = stage.server.connect();
    let id = connection.client_id();
    connection.send(cmd!["LATCH.WAIT", "k", waiter, timeout_ms]);
    observe::wait_until_blocked(&mut stage.eye, id);
    Waiter { key: "k".to_owned(), owner: waiter.to_owned(), id, connection }
}

/// The waiter is told that the latch is open, and nothing else.
fn expect_released(waiter: &mut Waiter) {
    let owner = &waiter.owner;
    let reply = waiter.connection.receive(SOON).unwrap_or_else(|e| panic!("{owner}: {e}"));
    assert_eq!(reply, Value::Integer(0), "{owner}");
    assert_eq!(waiter.connection.run("PING"), Value::Status("PONG".into()), "{owner}");
}

fn hundreds_who_wait_for_a_latch_are_released_by_one_command(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("LATCH.SET k 1");
    let mut waiters: Vec<_> =
        (0..300).map(|n| wait_for_latch(&mut stage, &format!("waiter-{n}"), 0)).collect();
    // The next latch is set in the turn in which the first opens: it holds nobody back but its own.
    let next = ["LATCH.COUNTDOWN k", "LATCH.SET k 1", "LATCH.CANCEL k waiter-299"];
    let replies = stage.at_once(&next);
    assert_eq!(replies, [0, 1, 0].map(Value::Integer));
    waiters.iter_mut().for_each(expect_released);
    assert_eq!(stage.counted("released_by_latches"), 300);
    let mut late = wait_for_latch(&mut stage, "waiter-0", 0);
    assert!(!late.connection.has_unread());
    stage.run("LATCH.COUNTDOWN k");
    expect_released(&mut late);
    stage.check();
}

fn whatever_takes_a_latch_away_opens_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for take in [
        "DEL k",
        "UNLINK k",
        "PEXPIRE k 20",
        "FLUSHALL",
        "HDEL k lock-mode",
        "RENAME k other",
        "EVAL \"redis.call('DEL', 'k') return redis.call('LATCH.SET', 'k', 1)\" 1 k",
    ] {
        stage.run("LATCH.SET k 2");
        let mut waiter = wait_for_latch(&mut stage, "waiter", 0);
        assert!(!stage.run(take).is_error(), "{take}");
        expect_released(&mut waiter);
        stage.run("DEL k");
    }
    stage.check();
}

fn effects_of_latches_are_core_commands(kind: Kind) {
    let mut stage = Stage::with_files(&kind);
    let mut read = 0;
    for (line, expected) in [
        ("LATCH.SET k 3", vec!["HSET k lock-mode latch 3"]),
        ("LATCH.SET k 5", vec![]),
        ("LATCH.COUNTDOWN k", vec!["HSET k lock-mode latch 2"]),
        ("LATCH.COUNTDOWN k bob", vec!["HSET k lock-mode latch 1 bob counted"]),
        ("LATCH.COUNTDOWN k bob", vec![]),
        (
            "LATCH.SET k 1 REPLACE PX 600000",
            vec!["{DEL k; HSET k lock-mode latch 1; PEXPIREAT k #}"],
        ),
        ("LATCH.COUNTDOWN k bob", vec!["DEL k"]),
        ("LATCH.WAIT k bob 0", vec![]),
        ("LATCH.SET k 2 PX 600000", vec!["{HSET k lock-mode latch 2; PEXPIREAT k #}"]),
    ] {
        assert!(!stage.run(line).is_error(), "{line}");
        let lines = trail(&stage.server);
        assert_eq!(lines[read..], expected, "after {line}");
        read = lines.len();
    }
    stage.check();
}

fn a_latch_that_ends_in_a_pause_opens_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("LATCH.SET k 2");
    let mut waiter = wait_for_latch(&mut stage, "waiter", 0);
    let mut impatient = wait_for_latch(&mut stage, "impatient", 700);
    let replies = stage.at_once(&["PEXPIRE k 50", "TIME", "CLIENT PAUSE 600000 WRITE"]);
    let seconds: i64 = replies[1][0].text().parse().unwrap();
    stage.wait_past(seconds * 1000 + 2000);
    assert!(!waiter.connection.has_unread());
    assert_eq!(impatient.connection.receive(SOON).unwrap(), Value::Nil);
    stage.run("CLIENT UNPAUSE");
    expect_released(&mut waiter);
    stage.check();
}

fn waiters_killed_in_the_turn_in_which_the_latch_opens_disturb_nobody(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("LATCH.SET k 1");
    let mut waiters: Vec<_> =
        (0..150).map(|n| wait_for_latch(&mut stage, &format!("waiter-{n}"), 0)).collect();
    // The first is answered by then, the last is not.
    let (first, last) = (kill(&waiters[0]), kill(&waiters[149]));
    stage.at_once(&["LATCH.COUNTDOWN k", &first, &last]);
    for waiter in &mut waiters[1..149] {
        expect_released(waiter);
    }
    expect_closed(&mut waiters[149]);
    wait::until("nobody waits", SOON, || match stage.counted("waiters") {
        0 => Ok(()),
        waiters => Err(format!("{waiters} wait")),
    });
    stage.check();
}

fn a_promoted_replica_goes_on_counting(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    stage.run("LATCH.SET k 3");
    stage.run("LATCH.COUNTDOWN k bob");
    expect_same_data(&stage.server, &stage.replica);
    let mut promoted = stage.replica.connect();
    for refused in
        ["LATCH.SET k 1 REPLACE", "LATCH.COUNTDOWN k", "LATCH.WAIT k w 0", "LATCH.CANCEL k w"]
    {
        assert_eq!(promoted.run(refused).code(), "READONLY", "{refused}");
    }
    assert_eq!(promoted.run("LATCH.INFO k").field("count"), &Value::Integer(2));
    let mut waiter = wait_for_latch(&mut stage, "waiter", 0);
    promoted.run("REPLICAOF NO ONE");
    assert_eq!(promoted.run("LATCH.COUNTDOWN k bob"), Value::Integer(2));
    assert_eq!(promoted.run("LATCH.COUNTDOWN k carol"), Value::Integer(1));
    // Who waits on a server that becomes a replica is sent away, or its connection ends.
    let port = stage.replica.port().to_string();
    stage.eye.call(cmd!["REPLICAOF", "127.0.0.1", port]);
    match waiter.connection.receive(SOON) {
        Ok(reply) => assert_eq!(reply.code(), "UNBLOCKED"),
        Err(why) => assert!(matches!(why, harness::resp::ReceiveError::Closed), "{why}"),
    }
}

on_each_server!(
    hundreds_who_wait_for_a_latch_are_released_by_one_command,
    whatever_takes_a_latch_away_opens_it,
    effects_of_latches_are_core_commands,
    a_latch_that_ends_in_a_pause_opens_after_it,
    waiters_killed_in_the_turn_in_which_the_latch_opens_disturb_nobody,
    a_promoted_replica_goes_on_counting,
);

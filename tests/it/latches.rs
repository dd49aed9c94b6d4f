//! Latches: many who wait for one, latches that go away in every other way, and what replicas,
//! files, pauses and failovers make of them.

use crate::stage::{SOON, Stage, Waiter, expect_closed, kill};
use crate::trail::trail;
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

on_each_server!(
    hundreds_who_wait_for_a_latch_are_released_by_one_command,
    effects_of_latches_are_core_commands,
    waiters_killed_in_the_turn_in_which_the_latch_opens_disturb_nobody,
);

//! While clients are paused nothing may be written that none of them asked for: the server aborts.
//! So what falls due during a pause is done when it is over, and nothing else is held up by it.

use super::deaths::{expect_closed, kill};
use super::stage::{LONG, SOON, Stage};
use harness::{Kind, Server, Value, cmd, observe, on_each_server};
use std::time::{Duration, Instant};

const PAUSE: &str = "CLIENT PAUSE 600000 WRITE";

/// Sees that `k` has no new owner although it is free.
fn expect_put_off(stage: &mut Stage, granted: i64) {
    assert_eq!(stage.counted("granted"), granted);
    assert_eq!(stage.run("LOCK.INFO k").field("state"), &Value::bulk("free"));
    assert_eq!(stage.run("HGETALL k"), Value::Array(Vec::new()));
}

fn a_lease_that_ends_in_a_pause_is_passed_on_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    stage.let_the_lease_end_after(PAUSE);
    expect_put_off(&mut stage, 1);
    assert!(!bob.connection.has_unread());
    stage.run("CLIENT UNPAUSE");
    assert!(stage.granted(&mut bob) > alices);
    stage.expect_in_line(&mut [&mut carol]);
    stage.release("k", "bob");
    stage.granted(&mut carol);
    stage.check();
}

fn a_lease_that_ends_in_a_pause_is_passed_on_when_the_pause_ends_by_itself(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for mode in ["WRITE", "ALL"] {
        for _ in 0..3 {
            stage.hold("k", "alice", LONG);
            let mut bob = stage.wait_with("k", "bob", 20, 0);
            let mut carol = stage.wait("k", "carol");
            stage.at_once(&["LOCK.RENEW k alice 20", &format!("CLIENT PAUSE 100 {mode}")]);
            // Bob's lease may end at once too, or in a pause of its own.
            stage.granted_elsewhere(&mut bob);
            stage.run(&format!("CLIENT PAUSE 60 {mode}"));
            stage.granted(&mut carol);
            stage.release("k", "carol");
        }
    }
    stage.check();
}

fn a_deletion_just_before_a_pause_is_acted_upon_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // (Redis 8 blocks the caller of a synchronous flush, and others get their turn.)
    for delete in ["DEL k", "FLUSHALL ASYNC", "EVAL \"return redis.call('UNLINK', 'k')\" 1 k"] {
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let granted = stage.counted("granted");
        stage.at_once(&[delete, PAUSE]);
        let now: i64 = stage.run("TIME")[0].text().parse().unwrap();
        stage.wait_past(now * 1000 + 1150);
        expect_put_off(&mut stage, granted);
        stage.run("CLIENT UNPAUSE");
        stage.granted(&mut bob);
        stage.release("k", "bob");
    }
    stage.check();
}

fn waits_time_out_in_a_pause_as_ever(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let sent = Instant::now();
    let mut bob = stage.wait_with("k", "bob", LONG, 1000);
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait_with("k", "dave", LONG, 1500);
    stage.let_the_lease_end_after(PAUSE);
    assert_eq!(bob.connection.receive(SOON).unwrap(), Value::Nil);
    assert!(sent.elapsed() >= Duration::from_millis(999), "{:?}", sent.elapsed());
    assert_eq!(dave.connection.receive(SOON).unwrap(), Value::Nil);
    assert_eq!(stage.counted("timeouts"), 2);
    expect_put_off(&mut stage, 1);
    stage.run("CLIENT UNPAUSE");
    stage.granted(&mut carol);
    stage.check();
}

fn waiters_that_leave_in_a_pause_are_not_served_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let carol = stage.wait("k", "carol");
    let mut dave = stage.wait("k", "dave");
    stage.let_the_lease_end_after(PAUSE);
    stage.run(&kill(&bob));
    expect_closed(&mut bob);
    let id = carol.id;
    carol.connection.reset();
    observe::wait_until_gone(&mut stage.eye, id);
    expect_put_off(&mut stage, 1);
    stage.run("CLIENT UNPAUSE");
    stage.granted(&mut dave);
    assert_eq!(stage.counted("disconnects"), 2);
    stage.check();
}

fn a_grant_whose_client_died_is_taken_back_after_the_pause(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    stage.at_once(&["LOCK.RELEASE k alice", &kill(&bob), PAUSE]);
    stage.granted_unseen();
    expect_closed(&mut bob);
    let now: i64 = stage.run("TIME")[0].text().parse().unwrap();
    stage.wait_past(now * 1000 + 1150);
    let token = stage.token("k");
    stage.expect_holder("k", "bob", 1, Some(token));
    assert!(!carol.connection.has_unread());
    stage.run("CLIENT UNPAUSE");
    stage.granted(&mut carol);
    assert_eq!(stage.counted("grants_taken_back"), 1);
    stage.check();
}

fn a_pause_within_the_transaction_that_releases_does_no_harm(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("l", "carol");
    for line in ["MULTI", PAUSE, "LOCK.RELEASE k alice", "DEL l"] {
        stage.run(line);
    }
    let replies = stage.run("EXEC");
    assert_eq!(replies[1], Value::Integer(0));
    stage.granted(&mut bob);
    assert!(!carol.connection.has_unread());
    stage.run("CLIENT UNPAUSE");
    stage.granted(&mut carol);
    stage.check();
}

fn a_wait_that_is_sent_in_a_pause_joins_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.run(PAUSE);
    let mut bob = stage.wait_with("k", "bob", LONG, 0);
    let mut dead = stage.wait_with("k", "dead", LONG, 0);
    assert_eq!(stage.run("LOCK.INFO k").field("waiters"), &Value::Integer(0));
    stage.run(&kill(&dead));
    expect_closed(&mut dead);
    stage.run("CLIENT UNPAUSE");
    observe::wait_for_waiters(&mut stage.eye, "k", 1);
    stage.release("k", "alice");
    stage.granted(&mut bob);
    stage.check();
}

fn pauses_one_after_another_under_load_lose_nothing(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("everysec").start();
    let mut control = server.connect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = server.connect();
                    for turn in 0..60 {
                        let owner = format!("{client}:{turn}");
                        let reply = connection.call(cmd!["LOCK.WAIT", "k", owner, 20, 5000]);
                        assert!(!reply.is_nil() && !reply.is_error(), "{reply}");
                        if turn % 3 > 0 {
                            connection.call(cmd!["LOCK.RELEASE", "k", owner]);
                        }
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            control.run("CLIENT PAUSE 30 WRITE");
            observe::wait_for_next_cron(&mut control);
        }
    });
    server.assert_alive();
}

on_each_server!(
    pauses_one_after_another_under_load_lose_nothing,
    a_lease_that_ends_in_a_pause_is_passed_on_after_it,
    a_lease_that_ends_in_a_pause_is_passed_on_when_the_pause_ends_by_itself,
    a_deletion_just_before_a_pause_is_acted_upon_after_it,
    waits_time_out_in_a_pause_as_ever,
    waiters_that_leave_in_a_pause_are_not_served_after_it,
    a_grant_whose_client_died_is_taken_back_after_the_pause,
    a_pause_within_the_transaction_that_releases_does_no_harm,
    a_wait_that_is_sent_in_a_pause_joins_after_it,
);

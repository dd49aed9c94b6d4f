//! The data set is loaded anew while clients wait: the queues live on, and what was loaded counts.

use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Value, observe, on_each_server, wait};

fn waiters_outlive_a_reload_in_which_the_lock_is_held(kind: Kind) {
    let mut stage = Stage::with(&kind, |o| o.append_only("always"));
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF", "BGREWRITEAOF"] {
        let alices = stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut carol = stage.wait("k", "carol");
        let reply = stage.run(reload);
        assert!(!reply.is_error(), "{reload}: {reply}");
        stage.expect_in_line(&mut [&mut bob, &mut carol]);
        stage.expect_holder("k", "alice", 1, Some(alices));
        stage.release("k", "alice");
        assert!(stage.granted(&mut bob) > alices);
        stage.release("k", "bob");
        stage.granted(&mut carol);
        stage.release("k", "carol");
    }
    stage.check();
}

fn a_lock_that_is_not_in_what_was_loaded_goes_to_the_first_waiter(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("l", "dave", LONG);
    assert_eq!(stage.run("SAVE"), Value::Status("OK".into()));
    let alices = stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut erin = stage.wait("l", "erin");
    assert_eq!(stage.run("DEBUG RELOAD NOSAVE"), Value::Status("OK".into()));
    let bobs = stage.granted(&mut bob);
    assert!(bobs > alices);
    stage.expect_in_line(&mut [&mut erin]);
    stage.release("l", "dave");
    assert!(stage.granted(&mut erin) > bobs);
    stage.check_server();
}

fn a_lease_that_ended_before_the_data_were_loaded_is_over(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    // The reload takes longer than what is left of the lease.
    let replies = stage.at_once(&["LOCK.RENEW k alice 100", "DEBUG SLEEP 0.2", "DEBUG RELOAD"]);
    assert_eq!(replies[2], Value::Status("OK".into()));
    stage.granted(&mut bob);
    // (A key that ended is not loaded, and this command does not tell the replica.)
    stage.check_server();
}

fn waiters_that_leave_while_data_are_loaded_are_not_served(kind: Kind) {
    let slow = |o: harness::Options| {
        o.config("key-load-delay", 1000).config("loading-process-events-interval-bytes", 1024)
    };
    let mut stage = Stage::with(&kind, slow);
    stage.run("EVAL \"for n = 1, 3000 do redis.call('SET', 'key' .. n, n) end\" 0");
    stage.hold("k", "alice", LONG);
    let bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait_with("k", "dave", LONG, 1);
    assert_eq!(dave.connection.receive(SOON).unwrap(), Value::Nil);
    let mut dave = stage.wait_with("k", "dave", LONG, 1500);
    let mut other = stage.server.connect();
    stage.eye.send_raw(b"DEBUG RELOAD\r\n");
    wait::until("the server is loading", SOON, || match other.run("LOCK.ACQUIRE k x 1000") {
        Value::Error { code, .. } if code == "LOADING" => Ok(()),
        reply => Err(reply.to_string()),
    });
    assert_eq!(other.run("LOCK.INFO k").code(), "LOADING");
    bob.connection.reset();
    assert_eq!(stage.eye.receive(4 * SOON).unwrap(), Value::Status("OK".into()));
    assert_eq!(dave.connection.receive(SOON).unwrap(), Value::Nil);
    observe::wait_until_gone(&mut stage.eye, bob.id);
    stage.release("k", "alice");
    stage.granted(&mut carol);
    stage.check();
}

on_each_server!(
    waiters_outlive_a_reload_in_which_the_lock_is_held,
    a_lock_that_is_not_in_what_was_loaded_goes_to_the_first_waiter,
    a_lease_that_ended_before_the_data_were_loaded_is_over,
    waiters_that_leave_while_data_are_loaded_are_not_served,
);

//! Sessions that end: what becomes of their waits, and of what they were granted.

use super::{Party, wait_for, words};
use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Value, cmd, on_each_server};

fn a_session_that_nobody_reads_ends(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 200);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    let mut carol = stage.wait("k", "carol");
    wait_for(&mut stage, "sessions_gone", 1);
    wait_for(&mut stage, "waiters", 1);
    stage.release("k", "alice");
    stage.granted(&mut carol);
    let next = party.connection.call(cmd!["SESSION.NEXT", party.id, 0, 0]);
    assert_eq!(next.code(), "NOSESSION");
    stage.check();
}

fn only_grants_that_were_never_written_are_taken_back(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for (number, end) in ["the time to live", "SESSION.CLOSE"].into_iter().enumerate() {
        let mut party = Party::open(&stage, 400);
        let mut waiters = Vec::new();
        for (key, owner) in [("k", "told"), ("l", "untold"), ("m", "used")] {
            stage.hold(key, "alice", LONG);
            party.queue(key, owner);
            waiters.push(stage.wait(key, "next"));
        }
        stage.release("k", "alice");
        assert_eq!(words(&party.read(0)), [("told", "granted")]);
        stage.release("l", "alice");
        stage.release("m", "alice");
        (0..3).for_each(|_| stage.granted_unseen());
        assert_eq!(stage.run("LOCK.RENEW m used 600000"), Value::Integer(600_000));
        if end == "SESSION.CLOSE" {
            let reply = party.connection.call(cmd!["SESSION.CLOSE", party.id]);
            assert_eq!(reply, Value::Integer(1));
        }
        stage.granted(&mut waiters[1]);
        wait_for(&mut stage, "sessions", 0);
        assert_eq!(stage.counted("grants_taken_back"), number as i64 + 1, "{end}");
        let [told, _, used] = &mut waiters[..] else { unreachable!() };
        stage.expect_in_line(&mut [told, used]);
        for key in ["k", "l", "m"] {
            stage.run(&format!("LOCK.FORCERELEASE {key}"));
        }
        stage.granted(told);
        stage.granted(used);
        for key in ["k", "m"] {
            stage.release(key, "next");
        }
        stage.check();
    }
}

fn a_reader_condemned_in_the_turn_of_a_grant_was_told_nothing(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("ACL SETUSER bob on nopass ~* &* +@all");
    let mut connection = stage.server.connect();
    connection.run("AUTH bob x");
    let mut party = Party::on(connection, 300);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    let mut carol = stage.wait("k", "carol");
    party.park(&mut stage, 0);
    stage.at_once(&["ACL DELUSER bob", "LOCK.RELEASE k alice"]);
    stage.granted_unseen();
    let end = party.connection.receive(SOON);
    assert!(matches!(end, Err(harness::resp::ReceiveError::Closed)), "{end:?}");
    stage.granted(&mut carol);
    assert_eq!(stage.counted("grants_taken_back"), 1);
    stage.check();
}

/// Nothing is written when waits leave: nobody waits for the end of a pause with that.
fn what_a_session_leaves_is_cleared_while_nothing_may_be_written(kind: Kind) {
    const MANY: usize = 32_000;
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    for owner in 0..MANY {
        party.connection.send(cmd!["LOCK.WAIT", "k", owner, LONG, 0, "SESSION", party.id]);
    }
    for _ in 0..MANY {
        assert_eq!(party.connection.receive(SOON).expect("an answer")[0], Value::bulk("queued"));
    }
    stage.run("CLIENT PAUSE 100000 WRITE");
    party.close();
    wait_for(&mut stage, "waiters", 0);
    stage.run("CLIENT UNPAUSE");
    stage.check();
}

on_each_server!(
    what_a_session_leaves_is_cleared_while_nothing_may_be_written,
    a_session_that_nobody_reads_ends,
    only_grants_that_were_never_written_are_taken_back,
    a_reader_condemned_in_the_turn_of_a_grant_was_told_nothing,
);

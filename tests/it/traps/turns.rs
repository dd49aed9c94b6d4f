//! The turn of those who wait with Redisson: a lock that is released to our line is left free for a
//! moment, from time to time and if somebody listens.
//!
//! A moment is short. What is to happen within one is sent together with the release that begins it,
//! and runs in the same turn of the event loop.

use super::stage::{LONG, SOON, Stage};
use harness::{Connection, Kind, Value, cmd, observe, on_each_server};

const RELEASE: &str = "LOCK.RELEASE k alice";
/// What Redisson's script does to a free lock.
const TAKE: &str = "EVAL \"redis.call('HINCRBY', KEYS[1], 'theirs:1', 1) \
    return redis.call('PEXPIRE', KEYS[1], 600000)\" 1 k";

/// A server with this time between two turns; alice holds the lock.
fn stage(kind: &Kind, turn_ms: u64) -> Stage {
    let mut stage = Stage::with(kind, |o| o.module_config("redisson-turn-ms", turn_ms));
    stage.hold("k", "alice", LONG);
    stage
}

fn listen(stage: &Stage) -> Connection {
    let mut listener = stage.server.connect();
    listener.run("SUBSCRIBE redisson_lock__channel:{k}");
    listener
}

fn who_listens_has_the_lock_first_and_the_head_is_next(kind: Kind) {
    let mut stage = stage(&kind, LONG);
    let mut listener = listen(&stage);
    let (mut bob, mut carol) = (stage.wait("k", "bob"), stage.wait("k", "carol"));
    let replies = stage.at_once(&[RELEASE, "EXISTS k", TAKE]);
    assert_eq!(replies, [0, 0, 1].map(Value::Integer));
    assert_eq!(listener.receive(SOON).unwrap()[2], Value::bulk("0"));
    stage.expect_in_line(&mut [&mut bob, &mut carol]);
    // Their release, seen by its key event.
    stage.run("DEL k");
    stage.granted(&mut bob);
    // It is not their turn again.
    stage.release("k", "bob");
    stage.granted(&mut carol);
    assert_eq!(stage.counted("redisson_turns"), 1);
    stage.check();
}

fn a_moment_ends_when_nobody_comes(kind: Kind) {
    let mut stage = stage(&kind, 1);
    let _listener = listen(&stage);
    let mut bob = stage.wait("k", "bob");
    let replies = stage.at_once(&[RELEASE, "EXISTS k", "CLIENT PAUSE 300 WRITE"]);
    assert_eq!(replies[..2], [Value::Integer(0), Value::Integer(0)]);
    stage.granted(&mut bob);
    assert_eq!(stage.counted("redisson_turns"), 1);
    stage.check();
}

fn nobody_here_may_have_it_in_between(kind: Kind) {
    let mut stage = stage(&kind, 1);
    let _listener = listen(&stage);
    let mut bob = stage.wait("k", "bob");
    let replies = stage.at_once(&[
        RELEASE,
        "LOCK.ACQUIRE k dave 1000",
        "LOCK.WAIT k dave 1000 1",
        "LOCK.ACQUIRE k alice 1000 SHARED",
        "LOCK.FORCERELEASE k",
    ]);
    assert_eq!(replies[1..4], [Value::Nil, Value::Nil, Value::Nil]);
    stage.granted(&mut bob);
    stage.check();
}

fn where_nobody_listens_the_head_has_it_at_once(kind: Kind) {
    for turn_ms in [0, 1] {
        let mut stage = stage(&kind, turn_ms);
        // With the option at zero it does not matter that somebody does.
        let _listener = (turn_ms == 0).then(|| listen(&stage));
        let mut bob = stage.wait("k", "bob");
        let replies = stage.at_once(&[RELEASE, "HGET k bob"]);
        assert_eq!(replies, [Value::Integer(0), Value::bulk("1")]);
        stage.granted(&mut bob);
        assert_eq!(stage.counted("redisson_turns"), 0);
        stage.check();
    }
}

fn those_who_share_it_give_way_too(kind: Kind) {
    let mut stage = Stage::with(&kind, |o| o.module_config("redisson-turn-ms", LONG));
    let _listener = listen(&stage);
    stage.share("k", "alice", LONG);
    let (mut bob, mut carol) = (stage.wait("k", "bob"), stage.wait_to_share("k", "carol", LONG));
    let replies = stage.at_once(&["LOCK.RELEASE k alice SHARED", TAKE, "DEL k"]);
    assert_eq!(replies, [0, 1, 1].map(Value::Integer));
    stage.granted(&mut bob);
    stage.release("k", "bob");
    stage.granted_elsewhere(&mut carol);
    stage.check();
}

fn when_all_who_wait_have_left_it_is_free_for_everybody(kind: Kind) {
    let mut stage = stage(&kind, LONG);
    let _listener = listen(&stage);
    let mut bob = stage.wait("k", "bob");
    let replies =
        stage.at_once(&[RELEASE, "LOCK.CANCEL k bob", "LOCK.ACQUIRE k carol 600000", "FLUSHALL"]);
    assert_eq!(replies[1], Value::Integer(1));
    assert_eq!(replies[2][1], Value::Integer(1));
    stage.granted_unseen();
    assert_eq!(bob.connection.receive(SOON).unwrap(), Value::Nil);
    stage.check();
}

/// Nobody is granted it by the end of the moment, and then it is free for everybody.
fn a_drain_in_a_moment_sends_away_who_waits(kind: Kind) {
    let mut stage = stage(&kind, 1);
    let _listener = listen(&stage);
    let mut bob = stage.wait("k", "bob");
    stage.at_once(&[RELEASE, "CONFIG SET kvlock.drain yes"]);
    assert_eq!(bob.connection.receive(SOON).unwrap().code(), "TRYAGAIN");
    stage.run("CONFIG SET kvlock.drain no");
    stage.hold("k", "carol", LONG);
    assert_eq!(stage.counted("redisson_turns"), 1);
    stage.check();
}

/// Who holds it may go on; everybody else has to wait, with Redisson or with us.
fn in_a_quarantine_there_are_no_turns(kind: Kind) {
    let mut stage = stage(&kind, 1);
    stage.run(&format!("CONFIG SET kvlock.quarantine-ms {LONG}"));
    let _listener = listen(&stage);
    let mut bob = stage.wait("k", "bob");
    // A primary that was a replica has not heard of all that was granted.
    stage.run("REPLICAOF 127.0.0.1 1");
    assert_eq!(bob.connection.receive(SOON).unwrap().code(), "UNBLOCKED");
    stage.run("REPLICAOF NO ONE");
    let _bob = stage.wait("k", "bob");
    assert_eq!(stage.run(RELEASE), Value::Integer(0));
    observe::wait_for_next_cron(&mut stage.eye);
    assert_eq!((stage.run("EXISTS k"), stage.counted("waiters")), (Value::Integer(0), 1));
    assert_eq!(stage.counted("redisson_turns"), 0);
    stage.check_server();
}

fn a_session_waits_for_the_moment_to_be_over(kind: Kind) {
    let mut stage = stage(&kind, 1);
    let _listener = listen(&stage);
    let mut reader = stage.server.connect();
    let id = reader.call(cmd!["SESSION.OPEN", 10_000])[0].text();
    let queued = reader.call(cmd!["LOCK.WAIT", "k", "bob", LONG, LONG, "SESSION", id.as_str()]);
    assert_eq!(queued[0], Value::bulk("queued"));
    stage.release("k", "alice");
    let outcomes = reader.call(cmd!["SESSION.NEXT", id, 0, 5_000]);
    assert!(outcomes.to_string().contains("granted"), "{outcomes}");
    stage.granted_unseen();
    assert_eq!(stage.counted("redisson_turns"), 1);
    stage.check();
}

on_each_server!(
    who_listens_has_the_lock_first_and_the_head_is_next,
    a_moment_ends_when_nobody_comes,
    nobody_here_may_have_it_in_between,
    where_nobody_listens_the_head_has_it_at_once,
    those_who_share_it_give_way_too,
    when_all_who_wait_have_left_it_is_free_for_everybody,
    a_drain_in_a_moment_sends_away_who_waits,
    in_a_quarantine_there_are_no_turns,
    a_session_waits_for_the_moment_to_be_over,
);

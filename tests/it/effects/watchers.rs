//! Those who watch a lock for a transaction of their own, or keep a copy of it, hear of every change
//! and of nothing else. A refused acquire is asked for often: it must not flush anybody's copy.

use crate::stage::{LONG, SOON, Stage, expect_closed, kill};
use harness::{Connection, Kind, Value, on_each_server};

/// Somebody who watches `k`, and somebody who keeps a copy of it.
struct Watchers {
    watching: Connection,
    caching: Connection,
}

impl Watchers {
    fn of(stage: &Stage) -> Self {
        let mut caching = stage.server.connect_resp(3);
        caching.run("CLIENT TRACKING ON");
        let mut watchers = Self { watching: stage.server.connect(), caching };
        watchers.begin();
        watchers
    }

    fn begin(&mut self) {
        self.watching.run("WATCH k");
        self.caching.run("HGETALL k");
    }

    /// Sees whether both were told that `k` has changed, and begins anew.
    fn expect(&mut self, changed: bool, what: &str) {
        self.watching.run("MULTI");
        self.watching.run("PING");
        assert_eq!(self.watching.run("EXEC").is_nil(), changed, "the watcher, after {what}");
        if changed {
            let told = self.caching.receive(SOON).unwrap_or_else(|e| panic!("after {what}: {e}"));
            assert_eq!(told.elements()[0], Value::bulk("invalidate"), "after {what}");
        }
        assert_eq!(self.caching.run("PING"), Value::Status("PONG".into()), "after {what}");
        assert!(!self.caching.has_unread(), "the copy, after {what}");
        self.begin();
    }
}

fn every_change_is_told_to_those_who_watch(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut watchers = Watchers::of(&stage);
    for line in [
        "LOCK.ACQUIRE k alice 600000",
        "LOCK.ACQUIRE k alice 1000",
        "LOCK.ACQUIRE k alice 900000 HOLDS 2",
        "LOCK.RENEW k alice 600000",
        "LOCK.RELEASE k alice",
        "LOCK.RELEASE k alice",
        "LOCK.WAIT k alice 600000 0",
        "LOCK.FORCERELEASE k",
    ] {
        let reply = stage.run(line);
        assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply}");
        watchers.expect(true, line);
    }
    stage.granted_unseen();
    stage.granted_unseen();

    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait("k", "dave");
    let mut erin = stage.wait("k", "erin");
    watchers.expect(true, "an acquire");
    stage.release("k", "alice");
    stage.granted(&mut bob);
    watchers.expect(true, "a hand-off");
    stage.run("LOCK.RENEW k bob 50");
    watchers.expect(true, "a renewal");
    stage.granted(&mut carol);
    watchers.expect(true, "the end of a lease");
    let kill = kill(&dave);
    stage.at_once(&["LOCK.RELEASE k carol", &kill]);
    stage.granted_unseen();
    expect_closed(&mut dave);
    watchers.watching.run("UNWATCH");
    stage.granted(&mut erin);
    watchers.caching.receive(SOON).expect("the copy is out of date");
    watchers.begin();
    stage.run("DEL k");
    watchers.expect(true, "a deletion");
    stage.check();
}

fn what_changes_nothing_is_told_to_nobody(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.run("LOCK.ACQUIRE k alice 1000");
    let mut bob = stage.wait("k", "bob");
    let mut watchers = Watchers::of(&stage);
    for line in [
        "LOCK.ACQUIRE k carol 1000",
        "LOCK.ACQUIRE k carol 1000 HOLDS 2",
        "LOCK.ACQUIRE k alice 1000 HOLDS 2",
        "LOCK.ACQUIRE k alice 1000 HOLDS 5",
        "LOCK.WAIT k carol 1000 20",
        "LOCK.WAIT k alice 1000 0 HOLDS 2",
        "LOCK.RELEASE k carol",
        "LOCK.RELEASE k carol ALL",
        "LOCK.RELEASE k alice HOLDS 2",
        "LOCK.RELEASE k alice HOLDS 0",
        "LOCK.RENEW k carol 1000",
        "LOCK.CANCEL k carol",
        "LOCK.CANCEL k bob",
        "LOCK.INFO k WAITERS 10",
        "LOCK.LIST",
    ] {
        stage.run(line);
        watchers.expect(false, line);
    }
    assert_eq!(bob.connection.receive(SOON).unwrap(), Value::Nil);
    // Nor is there anything in a key that is free.
    stage.run("DEL k");
    watchers.expect(true, "a deletion");
    for line in ["RELEASE k alice", "RENEW k alice 1000", "FORCERELEASE k", "CANCEL k alice"] {
        stage.run(&format!("LOCK.{line}"));
        watchers.expect(false, line);
    }
    stage.check();
}

on_each_server!(every_change_is_told_to_those_who_watch, what_changes_nothing_is_told_to_nobody);

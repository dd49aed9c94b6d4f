//! Observers hear of each change of a holder, however it came about, and of nothing else.

use super::{Party, wait_for};
use crate::stage::{LONG, SOON, Stage, expect_unharmed, token_of};
use harness::{Kind, Value, cmd, on_each_server};

/// A change, as an observer hears of it.
#[derive(Debug)]
pub(super) struct Change {
    number: i64,
    key: String,
    owner: Option<String>,
    state: String,
    token: Option<i64>,
    version: i64,
    why: Option<String>,
}

fn text_of(value: &Value) -> Option<String> {
    (!value.is_nil()).then(|| value.text())
}

fn changes(reply: &Value) -> Vec<Change> {
    let change = |entry: &Value| {
        assert_eq!((entry[1].text(), entry[4].text()), ("lock".into(), "changed".into()));
        Change {
            number: entry[0].integer(),
            key: entry[2].text(),
            owner: text_of(&entry[3]),
            state: entry[5].text(),
            token: (!entry[6].is_nil()).then(|| entry[6].integer()),
            version: entry[8].integer(),
            why: text_of(&entry[9]),
        }
    };
    reply[1].elements().iter().map(change).collect()
}

impl Party {
    /// Observes a lock, and returns how it stands.
    pub(super) fn observe(&mut self, key: &str) -> Value {
        self.connection.call(cmd!["LOCK.OBSERVE", key, "SESSION", self.id])
    }

    /// Blocks until there is a change after that.
    fn next_change(&mut self, ack: i64) -> Change {
        self.connection.send(cmd!["SESSION.NEXT", self.id, ack, 60_000]);
        let reply = self.connection.receive(SOON);
        let mut told = changes(&reply.unwrap_or_else(|e| panic!("nothing is told: {e}")));
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0)
    }
}

/// What can happen to a lock that alice holds, and what observers hear of that.
const ENDS: [(&str, &str); 14] = [
    ("LOCK.RELEASE k alice", "released"),
    ("LOCK.FORCERELEASE k", "forced"),
    ("DEL k", "deleted"),
    ("UNLINK k", "deleted"),
    ("HDEL k alice", "deleted"),
    ("RENAME k other", "deleted"),
    (
        "EVAL \"redis.call('HINCRBY',KEYS[1],'alice',-1); return redis.call('DEL',KEYS[1])\" 1 k",
        "deleted",
    ),
    ("SET k x", "deleted"),
    ("SWAPDB 0 1", "deleted"),
    ("FLUSHDB", "flushed"),
    ("FLUSHALL ASYNC", "flushed"),
    ("PEXPIRE k 30", "expired"),
    ("PEXPIREAT k 1", "deleted or expired"),
    ("LOCK.RENEW k alice 30", "expired"),
];

fn however_a_holder_goes_its_observers_hear_why(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    assert_eq!(party.observe("k")[0], Value::bulk("vacant"));
    let (mut number, mut version, mut token) = (0, 0, 0);
    for (end, why) in ENDS {
        party.connection.call(cmd!["SESSION.NEXT", party.id, number, 0]);
        token_of(&stage.run("LOCK.ACQUIRE k alice 600000"));
        let held = party.next_change(number);
        assert_eq!((held.owner.as_deref(), held.why), (Some("alice"), None), "before {end}");
        assert!(held.version > version && held.token > Some(token), "before {end}");
        token = held.token.expect("a token");
        assert!(!stage.run(end).is_error(), "{end}");
        let gone = party.next_change(held.number);
        assert_eq!((gone.state.as_str(), gone.owner), ("vacant", None), "{end}");
        let said = gone.why.expect("it says why");
        assert!(why.split(" or ").any(|why| why == said), "{end}: {said:?}, not {why}");
        (number, version) = (gone.number, gone.version);
        stage.run("DEL k other");
    }
    let unread = party.connection.call(cmd!["SESSION.NEXT", party.id, number, 0]);
    assert_eq!(changes(&unread).len(), 0);
    expect_unharmed(&stage.server);
}

/// A holder that observes its lock hears that it lost it, and who has it now.
fn a_lock_that_changes_hands_is_told_of_in_one(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    let mut bound = Party::open(&stage, 60_000);
    party.observe("k");
    let alices = bound.bind(&mut stage, "k", "alice");
    let mut number = party.next_change(0).number;
    let [mut bob, mut carol, dave] = ["bob", "carol", "dave"].map(|owner| stage.wait("k", owner));
    let mut erin = stage.wait("k", "erin");
    let mut expect = |owner: &str, why: &str| {
        let change = party.next_change(number);
        assert_eq!((change.owner.as_deref(), change.why.as_deref()), (Some(owner), Some(why)));
        number = change.number;
    };
    bound.close();
    assert!(stage.granted(&mut bob) > alices);
    expect("bob", "gone");
    stage.run("DEL k");
    stage.granted(&mut carol);
    expect("carol", "deleted");
    // Dave never hears of it.
    stage.at_once(&["LOCK.RELEASE k carol", &format!("CLIENT KILL ID {}", dave.id)]);
    stage.granted_unseen();
    stage.granted(&mut erin);
    expect("erin", "taken-back");
    stage.release("k", "erin");
    stage.check();
}

fn a_slow_reader_costs_one_change_for_each_lock(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    for key in ["k", "l", "m"] {
        party.observe(key);
    }
    let mut latest = 0;
    for round in 0..200 {
        for key in ["k", "l", "m"] {
            latest = stage.hold(key, "alice", LONG);
            stage.release(key, "alice");
        }
        if round % 3 == 0 {
            // It reads, and does not acknowledge: now on this connection, now on another.
            let told = changes(&party.connection.call(cmd!["SESSION.NEXT", party.id, 0, 0]));
            assert!(told.iter().all(|it| it.state == "vacant"), "{told:?}");
            if round % 2 == 0 {
                party.connection = stage.server.connect();
            }
        }
        assert_eq!(stage.counted("unread_outcomes"), 3, "after round {round}");
    }
    assert_eq!(stage.hold("k", "bob", LONG).max(latest), stage.token("k"));
    let told = changes(&party.connection.call(cmd!["SESSION.NEXT", party.id, 0, 0]));
    let of_k: Vec<_> = told.iter().filter(|it| it.key == "k").collect();
    assert_eq!((of_k.len(), of_k[0].owner.as_deref()), (1, Some("bob")));
    assert_eq!(of_k[0].why.as_deref(), Some("released"));
    stage.release("k", "bob");
    stage.check();
}

/// Observers are waiters: they have limits, and a drain sends them away.
fn observers_are_limited_and_drained(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut parties = [0; 3].map(|_| Party::open(&stage, 60_000));
    stage.run("CONFIG SET kvlock.max-waiters-per-key 2");
    let [one, two, three] = &mut parties;
    assert_eq!(one.observe("k")[0], Value::bulk("vacant"));
    assert_eq!(two.observe("k")[0], Value::bulk("vacant"));
    assert_eq!(three.observe("k").code(), "QUEUEFULL");
    assert_eq!(one.observe("k")[0], Value::bulk("vacant"), "it has its place");
    assert_eq!(three.observe("l")[0], Value::bulk("vacant"));
    let foreign = one.connection.call(cmd!["LOCK.OBSERVE", "k", "SESSION", "0".repeat(32)]);
    assert_eq!(foreign.code(), "NOSESSION");
    // In a script, too: it never blocks.
    let script = "return redis.call('LOCK.OBSERVE', KEYS[1], 'SESSION', ARGV[1])";
    let told = one.connection.call(cmd!["EVAL", script, 1, "m", one.id]);
    assert_eq!(told[0], Value::bulk("vacant"));
    stage.run("CONFIG SET kvlock.drain yes");
    assert_eq!(three.observe("n").code(), "TRYAGAIN");
    wait_for(&mut stage, "observers", 0);
    let told = two.connection.call(cmd!["SESSION.NEXT", two.id, 0, 0]);
    let entry = &told[1][0];
    assert!(entry[3].is_nil() && entry[5].text().starts_with("TRYAGAIN "), "{told}");
    stage.run("CONFIG SET kvlock.drain no");
    assert_eq!(two.observe("k")[0], Value::bulk("vacant"));
    stage.check();
}

on_each_server!(
    however_a_holder_goes_its_observers_hear_why,
    a_lock_that_changes_hands_is_told_of_in_one,
    a_slow_reader_costs_one_change_for_each_lock,
    observers_are_limited_and_drained,
);

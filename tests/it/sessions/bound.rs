//! Locks that are bound to sessions are free when these are gone, however long their leases still are.

use super::{Party, wait_for, words};
use crate::stage::{LONG, SOON, Stage, token_of};
use harness::{Kind, Value, cmd, observe, on_each_server};

impl Party {
    /// Takes a lock that is free, bound to the session, and returns its token.
    pub(super) fn bind(&mut self, stage: &mut Stage, key: &str, owner: &str) -> i64 {
        stage.granted_unseen();
        token_of(&self.ask("LOCK.ACQUIRE", &[key, owner], &["BOUND"]))
    }

    /// Asks for something with a long lease, through the session.
    pub(super) fn ask(&mut self, command: &str, first: &[&str], last: &[&str]) -> Value {
        let (lease, id) = (LONG.to_string(), self.id.clone());
        let words = [&[command], first, &[&lease], &["SESSION", &id], last].concat();
        self.connection.call(Vec::from_iter(words.iter().map(|word| word.as_bytes().to_vec())))
    }

    pub(super) fn close(&mut self) {
        let reply = self.connection.call(cmd!["SESSION.CLOSE", self.id]);
        assert_eq!(reply, Value::Integer(1));
    }
}

fn a_killed_client_leaves_nothing_behind(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET s 2");
    let mut party = Party::open(&stage, 400);
    let alices = party.bind(&mut stage, "k", "alice");
    stage.granted_unseen();
    token_of(&party.ask("LOCK.ACQUIRE", &["shared", "alice"], &["BOUND", "SHARED"]));
    stage.granted_unseen();
    assert_eq!(party.ask("SEM.ACQUIRE", &["s", "alice", "2"], &["BOUND"]), Value::Integer(2));
    let mut bob = stage.wait("k", "bob");
    let mut writer = stage.wait("shared", "writer");
    let mut permits = stage.server.connect();
    permits.send(cmd!["SEM.WAIT", "s", "bob", 1, LONG, 0]);
    observe::wait_for_blocked_clients(&mut stage.eye, 3);
    let reader = party.connection.client_id();
    party.park(&mut stage, 0);
    assert_eq!(stage.counted("bound"), 3);
    // As long as it reads it is there.
    observe::let_pass(&mut stage.eye, std::time::Duration::from_millis(900));
    stage.expect_in_line(&mut [&mut bob, &mut writer]);
    stage.run(&format!("CLIENT KILL ID {reader}"));
    assert!(stage.granted(&mut bob) > alices);
    stage.granted_elsewhere(&mut writer);
    stage.granted_unseen();
    assert_eq!(permits.receive(SOON).unwrap(), Value::Integer(1));
    assert_eq!((stage.counted("bound"), stage.counted("bound_released")), (0, 3));
    stage.check();
}

/// It relies on the session from when it sent what was answered, and a reader that was about to give up
/// was answered just now.
fn an_answered_reader_keeps_what_is_bound_for_its_time(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    party.bind(&mut stage, "k", "alice");
    stage.hold("l", "alice", LONG);
    party.queue("l", "bob");
    let mut bob = stage.wait("k", "bob");
    party.connection.send(cmd!["SESSION.NEXT", party.id, 0, 1000]);
    observe::wait_for_blocked_clients(&mut stage.eye, 2);
    stage.release("l", "alice");
    stage.granted_unseen();
    assert_eq!(words(&party.hear()), [("bob", "granted")]);
    // Longer than that call would have waited.
    observe::let_pass(&mut stage.eye, std::time::Duration::from_millis(1300));
    stage.expect_in_line(&mut [&mut bob]);
    assert_eq!((stage.counted("sessions"), stage.counted("bound")), (1, 1));
    stage.check();
}

/// A later session takes over what its owner still has.
fn what_was_bound_anew_stays(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut old = Party::open(&stage, 60_000);
    let mut new = Party::open(&stage, 60_000);
    let token = old.bind(&mut stage, "k", "alice");
    let again = new.ask("LOCK.ACQUIRE", &["k", "alice"], &["BOUND", "HOLDS", "1"]);
    assert_eq!(again, Value::Array(vec![Value::Integer(token), Value::Integer(1)]));
    let mut bob = stage.wait("k", "bob");
    old.close();
    stage.expect_in_line(&mut [&mut bob]);
    assert_eq!(stage.counted("bound"), 1);
    new.close();
    stage.granted(&mut bob);
    stage.check();
}

/// Somebody deletes the lock, and its owner, or another, takes it again: that is another grant.
fn another_grant_is_not_released(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    for (key, owner) in [("k", "alice"), ("l", "zoe"), ("m", "alice"), ("n", "alice")] {
        party.bind(&mut stage, key, "alice");
        match key {
            "m" => stage.release(key, "alice"),
            "n" => {
                let forged = "HSET n alice 1 fencing-token t9";
                assert_eq!(stage.run(forged), Value::Integer(0));
                continue;
            }
            _ => assert_eq!(stage.run(&format!("DEL {key}")), Value::Integer(1)),
        }
        stage.hold(key, owner, LONG);
    }
    let mut waiters = ["k", "l", "m", "n"].map(|key| stage.wait(key, "bob"));
    party.close();
    stage.expect_in_line(&mut waiters.each_mut());
    wait_for(&mut stage, "bound", 0);
    assert_eq!(stage.counted("bound_released"), 0);
    stage.check();
}

on_each_server!(
    a_killed_client_leaves_nothing_behind,
    an_answered_reader_keeps_what_is_bound_for_its_time,
    what_was_bound_anew_stays,
    another_grant_is_not_released,
);

//! One reader at a time, of one user; what it was sent and may not have got is sent again.

use super::{Party, words};
use crate::stage::{LONG, Stage};
use harness::{Kind, Value, cmd, on_each_server};

fn a_reader_on_a_new_connection_hears_what_the_lost_one_was_sent(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    for owner in ["bob", "carol"] {
        party.queue("k", owner);
    }
    stage.release("k", "alice");
    stage.granted_unseen();
    stage.run("LOCK.CANCEL k carol");
    let all = party.read(0);
    assert_eq!(words(&all), [("bob", "granted"), ("carol", "cancelled")]);
    assert_eq!(party.read(0), [], "the same connection was told");
    party.reconnect(&mut stage);
    assert_eq!(party.read(0), all);
    party.reconnect(&mut stage);
    assert_eq!(party.read(1), all[1..]);
    stage.check();
}

fn a_session_is_its_users_alone(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("ACL SETUSER eve on nopass ~* &* +@all");
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    let mut eve = stage.server.connect();
    eve.run("AUTH eve x");
    let id = party.id.clone();
    for line in [
        format!("SESSION.NEXT {id} 0 0"),
        format!("LOCK.WAIT k eve 1000 0 SESSION {id}"),
        format!("SEM.WAIT pool eve 1 1000 0 SESSION {id}"),
        format!("LATCH.WAIT gate eve 0 SESSION {id}"),
    ] {
        let reply = eve.run(&line);
        assert_eq!(reply.code(), "NOSESSION", "{line}");
        assert!(!reply.to_string().contains(&id), "{reply}");
    }
    assert_eq!(eve.call(cmd!["SESSION.CLOSE", id]), Value::Integer(0));
    // Operators see it, and not enough to use it.
    let listed = eve.run("SESSION.LIST")[0].clone();
    assert_eq!(listed.field("user"), &Value::bulk("default"));
    assert_eq!(listed.field("id").text(), party.id[..8]);
    party.queue("k", "bob");
    let mut own = Party::on(eve, 60_000);
    assert_eq!(own.read(0), []);
    assert_ne!(own.id, party.id);
    stage.check();
}

on_each_server!(
    a_reader_on_a_new_connection_hears_what_the_lost_one_was_sent,
    a_session_is_its_users_alone,
);

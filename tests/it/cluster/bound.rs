//! Locks that are bound to sessions of a node, when their slot goes to another.

use super::{SLOT, floor_of_slot, ok, two_nodes};
use crate::asking::{LONG, SOON, acquire, token};
use harness::{Connection, Kind, Value, cmd, observe, on_each_server, wait};

fn open(at: &mut Connection) -> String {
    at.call(cmd!["SESSION.OPEN", 60_000])[0].text()
}

fn bind(at: &mut Connection, key: &str, session: &str) -> i64 {
    let again = ["HOLDS", "1", "SESSION", session, "BOUND"];
    let mut command = cmd!["LOCK.ACQUIRE", key, "alice", LONG];
    command.extend(again.map(|word| word.as_bytes().to_vec()));
    token(&at.call(command))
}

/// Ends a session; how many locks were released for it.
fn close(at: &mut Connection, session: &str) -> i64 {
    let released = |at: &mut Connection| observe::info_number(at, "kvlock_bound_released");
    let before = released(at);
    assert_eq!(at.call(cmd!["SESSION.CLOSE", session]), Value::Integer(1));
    observe::wait_for_info(at, "kvlock_bound", 0);
    released(at) - before
}

fn what_has_moved_is_left_to_its_lease_until_it_is_bound_there(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let (here, there) = (open(&mut home), open(&mut away));
    let first = bind(&mut home, &key, &here);
    pair.begin_to_move(SLOT);
    for moves in [&key, &floor_of_slot(SLOT)] {
        ok(&pair.migrate(moves));
    }
    pair.end_of_move(SLOT);
    assert_eq!(close(&mut home, &here), 0);
    assert_eq!(acquire(&mut away, &key, "bob"), Value::Nil);
    assert_eq!(bind(&mut away, &key, &there), first);
    assert_eq!(close(&mut away, &there), 1);
    assert!(token(&acquire(&mut away, &key, "bob")) > first);
    pair.assert_alive();
}

/// What is released while its slot is copied as a whole is released there, too.
#[test]
fn a_release_for_a_session_arrives_with_the_slot() {
    let (pair, key, mut home, mut away) = two_nodes(&Kind::named("valkey-9"));
    let here = open(&mut home);
    let first = bind(&mut home, &key, &here);
    pair.copy_as_a_whole(SLOT);
    assert_eq!(close(&mut home, &here), 1);
    ok(&home.run("DEBUG SLOTMIGRATION PREVENT-PAUSE 0"));
    wait::until_is("the slot has moved", SOON, Value::Integer(0), || {
        away.call(cmd!["EXISTS", key])
    });
    assert!(token(&acquire(&mut away, &key, "bob")) > first);
    pair.assert_alive();
}

on_each_server!(what_has_moved_is_left_to_its_lease_until_it_is_bound_there);

//! A slot that is half moved: its keys are on two nodes, and each node serves a part.

use super::{Pair, SLOT, asking, floor_of_slot, key_of_slot, keys_in_slot, ok, two_nodes};
use crate::asking::{LONG, SOON, acquire, arrival, error, release, token, wait_in_line};
use harness::cluster::is_redirect;
use harness::observe::{self, PATIENCE};
use harness::{Connection, Kind, Value, cmd, on_each_server, wait};

/// Sends a wait to a node that imports the slot; returns when it is blocked there.
fn wait_asking(waiter: &mut Connection, control: &mut Connection, key: &str, owner: &str) {
    let id = waiter.client_id();
    ok(&waiter.run("ASKING"));
    waiter.send(cmd!["LOCK.WAIT", key, owner, LONG, LONG]);
    observe::wait_until_blocked(control, id);
}

fn a_held_lock_is_found_on_either_side_and_granted_on_neither(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let first = token(&acquire(&mut home, &key, "alice"));
    let mut bob = pair.home().connect();
    wait_in_line(&mut bob, &mut home, &key, "bob");
    pair.begin_to_move(SLOT);

    // Nothing has moved: all is as before.
    assert_eq!(acquire(&mut home, &key, "carol"), Value::Nil);
    assert!(is_redirect(&acquire(&mut away, &key, "carol"), "MOVED"));

    ok(&pair.migrate(&key));
    let told = error(&arrival(&mut bob));
    assert!(told.starts_with("TRYAGAIN ") || told.starts_with("MOVED "), "{told}");
    assert!(is_redirect(&acquire(&mut home, &key, "bob"), "ASK"));
    assert_eq!(asking(&mut away, cmd!["LOCK.ACQUIRE", key, "bob", LONG]), Value::Nil);
    assert_eq!(token(&asking(&mut away, cmd!["LOCK.ACQUIRE", key, "alice", LONG])), first);
    assert_eq!(asking(&mut away, cmd!["LOCK.RELEASE", key, "alice", "ALL"]), Value::Integer(0));
    assert_eq!(keys_in_slot(pair.home(), SLOT), 1, "only the floor is left");

    ok(&pair.migrate(&floor_of_slot(SLOT)));
    assert_eq!(keys_in_slot(pair.home(), SLOT), 0);
    pair.end_of_move(SLOT);
    assert!(token(&acquire(&mut away, &key, "bob")) > first);
    pair.assert_alive();
}

/// Alice holds the lock, which is there already while its slot is on its way, and bob waits for it there.
fn waits_at_the_importing_node(
    pair: &Pair,
    key: &str,
    [home, away]: [&mut Connection; 2],
) -> Connection {
    acquire(home, key, "alice");
    pair.begin_to_move(SLOT);
    ok(&pair.migrate(key));
    let mut bob = pair.away().connect();
    wait_asking(&mut bob, away, key, "bob");
    bob
}

/// The node cannot know whether the slot will ever be its own.
fn who_waits_at_the_importing_node_is_told(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let mut bob = waits_at_the_importing_node(&pair, &key, [&mut home, &mut away]);
    assert_eq!(arrival(&mut bob).code(), "TRYAGAIN");
    pair.assert_alive();
}

fn who_waits_at_the_importing_node_is_not_forgotten(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let mut bob = waits_at_the_importing_node(&pair, &key, [&mut home, &mut away]);
    // The operator gives up, and the slot stays where it was: the key goes back.
    let mut back = pair.away().connect();
    let port = pair.home().port();
    ok(&pair.home().connect().call(cmd!["CLUSTER", "SETSLOT", SLOT, "STABLE"]));
    ok(&back.call(cmd!["MIGRATE", "127.0.0.1", port, key, 0, 5000]));
    ok(&back.call(cmd!["CLUSTER", "SETSLOT", SLOT, "STABLE"]));
    let told = bob.receive(SOON).unwrap();
    assert!(["TRYAGAIN", "MOVED"].contains(&told.code()), "{told}");
    assert_eq!(acquire(&mut home, &key, "bob"), Value::Nil);
    assert_eq!(release(&mut home, &key, "alice"), Value::Integer(0));
    assert_eq!(keys_in_slot(pair.away(), SLOT), 0);
    pair.assert_alive();
}

/// They observe again where the slot is then.
fn observers_are_told_that_their_slot_moves(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let first = token(&acquire(&mut home, &key, "alice"));
    let observe =
        |it: &mut Connection, session: &str| it.call(cmd!["LOCK.OBSERVE", key, "SESSION", session]);
    let open = |it: &mut Connection| it.call(cmd!["SESSION.OPEN", 60_000])[0].text();
    let mut bob = pair.home().connect();
    let (session, there) = (open(&mut bob), open(&mut away));
    assert_eq!(observe(&mut home, &session)[2].integer(), first);
    bob.send(cmd!["SESSION.NEXT", session, 0, 60_000]);
    assert!(is_redirect(&observe(&mut away, &there), "MOVED"));
    pair.begin_to_move(SLOT);
    ok(&pair.migrate(&key));
    let told = arrival(&mut bob);
    let entry = &told[1][0];
    assert!(entry[3].is_nil() && entry[4].text() == "error", "{told}");
    assert!(entry[5].text().starts_with("TRYAGAIN "), "{told}");
    assert_eq!(observe::info_number(&mut home, "kvlock_observers"), 0);
    assert!(is_redirect(&observe(&mut home, &session), "ASK"));
    let held = asking(&mut away, cmd!["LOCK.OBSERVE", key, "SESSION", there]);
    assert_eq!((held[0].text(), held[2].integer()), ("held".into(), first));
    pair.assert_alive();
}

/// Who is away hears of it when it reads again.
fn waits_through_sessions_are_told_that_their_slot_moves(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let first = token(&acquire(&mut home, &key, "alice"));
    let open = |it: &mut Connection| it.call(cmd!["SESSION.OPEN", 60_000])[0].text();
    let wait =
        |owner: &str, session: &str| cmd!["LOCK.WAIT", key, owner, LONG, 0, "SESSION", session];
    let next = |session: &str| cmd!["SESSION.NEXT", session, 0, 60_000];
    let (mut bob, mut carol) = (pair.home().connect(), pair.home().connect());
    let (present, lost) = (open(&mut bob), open(&mut carol));
    for (owner, session) in [("bob", &present), ("carol", &lost)] {
        assert_eq!(home.call(wait(owner, session))[0], Value::bulk("queued"));
    }
    let client = carol.client_id();
    carol.call(cmd!["SESSION.NEXT", lost, 0, 0]);
    carol.reset();
    observe::wait_until_gone(&mut home, client);
    bob.send(next(&present));
    pair.begin_to_move(SLOT);
    ok(&pair.migrate(&key));
    for (owner, told) in [("bob", arrival(&mut bob)), ("carol", home.call(next(&lost)))] {
        let told = &told[1][0];
        assert_eq!([told[3].text(), told[4].text()], [owner, "error"]);
        assert!(told[5].text().starts_with("TRYAGAIN "), "{told}");
    }
    assert!(is_redirect(&home.call(wait("bob", &present)), "ASK"));

    ok(&pair.migrate(&floor_of_slot(SLOT)));
    pair.end_of_move(SLOT);
    assert!(is_redirect(&home.call(wait("bob", &present)), "MOVED"));
    // A session is one node's.
    assert_eq!(away.call(wait("bob", &present)).code(), "NOSESSION");
    let there = open(&mut away);
    assert_eq!(away.call(wait("bob", &there))[0], Value::bulk("queued"));
    assert_eq!(release(&mut away, &key, "alice"), Value::Integer(0));
    assert!(away.call(next(&there))[1][0][5].integer() > first);
    pair.assert_alive();
}

fn the_importing_node_writes_no_floor(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let floor = floor_of_slot(SLOT);
    let mut last = token(&acquire(&mut home, &key, "alice"));
    pair.begin_to_move(SLOT);
    ok(&pair.migrate(&key));
    // Grants on the side that is to have the slot: a floor there would stop the migration.
    for owner in ["bob", "carol"] {
        let mut waiter = pair.away().connect();
        wait_asking(&mut waiter, &mut away, &key, owner);
        let forced = asking(&mut away, cmd!["LOCK.FORCERELEASE", key]);
        assert_eq!(forced, Value::Integer(1));
        if let granted @ Value::Array(_) = arrival(&mut waiter) {
            assert!(token(&granted) > last);
            last = token(&granted);
        }
        assert_eq!(asking(&mut away, cmd!["EXISTS", floor]), Value::Integer(0));
    }
    ok(&pair.migrate(&floor));
    pair.end_of_move(SLOT);
    acquire(&mut away, &key, "dave");
    away.call(cmd!["LOCK.FORCERELEASE", key]);
    assert!(token(&acquire(&mut away, &key, "erin")) > last);
    let value: i64 = away.call(cmd!["GET", floor]).text().parse().unwrap();
    assert!(value > last, "it is raised now");
}

/// A node that took over lately, after a failover say, issues tokens ahead of the clock.
fn tokens_grow_even_if_the_source_is_ahead_of_the_clock(kind: Kind) {
    let (pair, key, mut home, mut away) = two_nodes(&kind);
    let floor = floor_of_slot(SLOT);
    let ahead = token(&acquire(&mut home, &key, "alice")) + 50_000_000;
    release(&mut home, &key, "alice");
    home.call(cmd!["SET", floor, ahead]);
    let last = wait::until("tokens are above the other's floor", PATIENCE, || {
        let last = token(&acquire(&mut home, &key, "alice"));
        release(&mut home, &key, "alice");
        if last > ahead { Ok(last) } else { Err(format!("{last}")) }
    });
    pair.begin_to_move(SLOT);
    // The lock is free, so nothing of it moves; only the floor knows its last token.
    let early = asking(&mut away, cmd!["LOCK.ACQUIRE", key, "bob", LONG]);
    if !early.is_error() {
        assert!(token(&early) > last, "{early} after {last}");
        asking(&mut away, cmd!["LOCK.RELEASE", key, "bob"]);
    }
    ok(&pair.migrate(&floor));
    let late = token(&asking(&mut away, cmd!["LOCK.ACQUIRE", key, "carol", LONG]));
    assert!(late > last, "{late} after {last}");
    pair.end_of_move(SLOT);
    release(&mut away, &key, "carol");
    assert!(token(&acquire(&mut away, &key, "dave")) > late);
}

/// Another node says that the slot is its own, and nobody has moved the keys.
fn a_slot_that_is_taken_away_keeps_no_key_of_ours(kind: Kind) {
    let pair = Pair::start(&kind);
    let key = key_of_slot(SLOT);
    let (mut home, mut bob) = (pair.home().connect(), pair.home().connect());
    acquire(&mut home, &key, "alice");
    wait_in_line(&mut bob, &mut home, &key, "bob");
    let (mut away, id) = (pair.away().connect(), pair.cluster.id_of(pair.away()));
    ok(&away.call(cmd!["CLUSTER", "SETSLOT", SLOT, "NODE", id]));
    assert!(away.run("CLUSTER BUMPEPOCH").text().starts_with("BUMPED"));
    // The old owner learns of it, and drops the keys: to a lock that looks like a release.
    let told = error(&arrival(&mut bob));
    assert!(told.starts_with("TRYAGAIN ") || told.starts_with("MOVED "), "{told}");
    pair.cluster.wait_until_agreed();
    wait::until("the old owner has no key of the slot", PATIENCE, || {
        match keys_in_slot(pair.home(), SLOT) {
            0 => Ok(()),
            left => Err(format!("{left} keys")),
        }
    });
    token(&acquire(&mut away, &key, "carol"));
    assert_eq!(keys_in_slot(pair.home(), SLOT), 0);
    pair.assert_alive();
}

on_each_server!(
    a_held_lock_is_found_on_either_side_and_granted_on_neither,
    who_waits_at_the_importing_node_is_told,
    who_waits_at_the_importing_node_is_not_forgotten,
    observers_are_told_that_their_slot_moves,
    waits_through_sessions_are_told_that_their_slot_moves,
    the_importing_node_writes_no_floor,
    tokens_grow_even_if_the_source_is_ahead_of_the_clock,
    a_slot_that_is_taken_away_keeps_no_key_of_ours,
);

//! What a cluster of Valkey 9 adds: `CLUSTER MIGRATESLOTS`, which moves a slot as a whole while its
//! keys go on changing, and more databases than one.

use super::{Pair, SLOT, key_of_slot, ok, two_nodes};
use crate::asking::{SOON, acquire, arrival, release, token, wait_in_line};
use harness::{Kind, Server, Value, cmd, observe, wait};

/// What is written by a timer, which no command has asked for, reaches the node that takes the slot.
#[test]
fn a_hand_off_while_a_slot_migrates_arrives_with_it() {
    let (pair, key, mut home, mut away) = two_nodes(&Kind::named("valkey-9"));
    let first = token(&home.call(cmd!["LOCK.ACQUIRE", key, "alice", 2000]));
    let [mut bob, mut carol] = ["bob", "carol"].map(|owner| {
        let mut waiter = pair.home().connect();
        wait_in_line(&mut waiter, &mut home, &key, owner);
        waiter
    });
    // It stays between the copy of the slot and the end of the move.
    pair.copy_as_a_whole(SLOT);

    // By the end of a lease, and by a release.
    let second = token(&arrival(&mut bob));
    assert!(second > first);
    assert_eq!(release(&mut bob, &key, "bob"), Value::Integer(0));
    let third = token(&arrival(&mut carol));
    let fields = || cmd!["HMGET", key, "carol", "fencing-token"];
    let held = home.call(fields());
    let ends = home.call(cmd!["PEXPIRETIME", key]);
    ok(&home.run("DEBUG SLOTMIGRATION PREVENT-PAUSE 0"));
    wait::until("the slot has moved", SOON, || {
        let seen = away.call(fields());
        if seen == held { Ok(()) } else { Err(seen.to_string()) }
    });
    assert_eq!(away.call(cmd!["PEXPIRETIME", key]), ends);
    assert_eq!(acquire(&mut away, &key, "dave"), Value::Nil);
    assert_eq!(release(&mut away, &key, "carol"), Value::Integer(0));
    assert!(token(&acquire(&mut away, &key, "dave")) > third);
    pair.assert_alive();
}

/// A slot is served as long as its keys are here, and they are looked for in their own database.
#[test]
fn a_wait_in_another_database_is_served_while_the_slot_moves() {
    let options = Server::options().kind(&Kind::named("valkey-9")).config("cluster-databases", 2);
    let pair = Pair::start_with(&options);
    let key = key_of_slot(SLOT);
    let [mut home, mut bob] = [(); 2].map(|()| {
        let mut connection = pair.home().connect();
        ok(&connection.run("SELECT 1"));
        connection
    });
    let first = token(&acquire(&mut home, &key, "alice"));
    wait_in_line(&mut bob, &mut home, &key, "bob");
    pair.begin_to_move(SLOT);
    // The module asks whether what waits here can still be granted here.
    let mut turns = || observe::info_number(&mut home, "kvlock_turns");
    let before = turns();
    wait::until("the module has looked", SOON, || match turns() {
        now if now > before + 1 => Ok(()),
        now => Err(now.to_string()),
    });
    assert_eq!(release(&mut home, &key, "alice"), Value::Integer(0));
    assert!(token(&arrival(&mut bob)) > first);
    pair.assert_alive();
}

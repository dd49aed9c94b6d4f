//! `CLUSTER MIGRATESLOTS` of Valkey 9: a slot moves as a whole, while its keys go on changing.

use super::{Pair, key_of_slot, ok};
use crate::asking::{SOON, acquire, arrival, release, token, wait_in_line};
use harness::{Kind, Value, cmd, wait};

const SLOT: u16 = 5;

/// What is written by a timer, which no command has asked for, reaches the node that takes the slot.
#[test]
fn a_hand_off_while_a_slot_migrates_arrives_with_it() {
    let pair = Pair::start(&Kind::named("valkey-9"));
    let key = key_of_slot(SLOT);
    let (mut home, mut away) = (pair.home().connect(), pair.away().connect());
    let first = token(&home.call(cmd!["LOCK.ACQUIRE", key, "alice", 2000]));
    let [mut bob, mut carol] = ["bob", "carol"].map(|owner| {
        let mut waiter = pair.home().connect();
        wait_in_line(&mut waiter, &mut home, &key, owner);
        waiter
    });
    // It stays between the copy of the slot and the end of the move.
    ok(&home.run("DEBUG SLOTMIGRATION PREVENT-PAUSE 1"));
    let to = pair.cluster.id_of(pair.away());
    ok(&home.call(cmd!["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", SLOT, SLOT, "NODE", to]));
    wait::until("all is copied", SOON, || {
        let jobs = home.run("CLUSTER GETSLOTMIGRATIONS").to_string();
        if jobs.contains("waiting-to-pause") { Ok(()) } else { Err(jobs) }
    });

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

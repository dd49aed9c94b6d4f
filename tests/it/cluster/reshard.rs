//! Slots go to another node, as an operator moves them, while what is in them is held and waited for.

use super::{MOVED_SLOTS, Pair, key_of_slot, keys_in_slot};
use crate::asking::{arrival, error};
use harness::resp::split;
use harness::{Connection, Kind, Value, observe, on_each_server};

/// A waiter whose lock moves away is told so, and by nobody that it has it.
fn sent_away(waiter: &mut Connection) {
    let told = error(&arrival(waiter));
    assert!(told.starts_with("MOVED ") || told.starts_with("TRYAGAIN "), "{told}");
}

/// The slot goes without its keys being moved first.
fn who_waits_for_anything_is_sent_away_when_its_slot_moves(kind: Kind) {
    let pair = Pair::start(&kind);
    let (mut control, mut there) = (pair.home().connect(), pair.away().connect());
    let of_slot =
        |line: &str| split(&line.replace('@', &format!("{{{}}}", key_of_slot(5)))).unwrap();
    for line in [
        "LOCK.ACQUIRE @lock alice 600000 SHARED",
        "LATCH.SET @latch 2",
        "SEM.SET @pool 1",
        "SEM.ACQUIRE @pool alice 1 600000",
    ] {
        assert!(!control.call(of_slot(line)).is_error(), "{line}");
    }
    let waits =
        ["LOCK.WAIT @lock bob 1000 0", "LATCH.WAIT @latch bob 0", "SEM.WAIT @pool bob 1 1000 0"];
    let mut waiters = waits.map(|line| {
        let mut waiter = pair.home().connect();
        let id = waiter.client_id();
        waiter.send(of_slot(line));
        observe::wait_until_blocked(&mut control, id);
        waiter
    });
    pair.cluster.reshard(pair.home(), pair.away(), MOVED_SLOTS);
    waiters.iter_mut().for_each(sent_away);
    assert_eq!(keys_in_slot(pair.home(), 5), 0);
    for (line, reply) in [
        ("LOCK.ACQUIRE @lock bob 1000", Value::Nil),
        ("LOCK.RELEASE @lock alice SHARED", Value::Integer(0)),
        ("LATCH.COUNTDOWN @latch", Value::Integer(1)),
        ("SEM.ACQUIRE @pool bob 1 1000", Value::Nil),
        ("SEM.RELEASE @pool alice", Value::Integer(0)),
    ] {
        assert_eq!(there.call(of_slot(line)), reply, "{line}");
    }
}

on_each_server!(who_waits_for_anything_is_sent_away_when_its_slot_moves);

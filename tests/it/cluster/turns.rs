//! The turn of those who wait with Redisson, in a cluster: they listen in the shard, and the slot may
//! be gone when their moment is over.

use super::{Pair, floor_of_slot, key_of_slot, ok};
use crate::asking::{LONG, acquire, arrival, release, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

/// Longer than a test: each lock has one turn at most.
const TURN_MS: u64 = 600_000;

fn listen(connection: &mut Connection, how: &str, key: &str) {
    let reply = connection.call(cmd![how, format!("redisson_lock__channel:{{{key}}}")]);
    assert_eq!(reply[2], Value::Integer(1));
}

fn turns(home: &mut Connection) -> i64 {
    observe::info_number(home, "kvlock_redisson_turns")
}

fn who_listens_in_the_shard_has_its_turn(kind: Kind) {
    let options = Server::options().kind(&kind).module_config("redisson-turn-ms", TURN_MS);
    let pair = Pair::start_with(&options);
    let [mut home, mut eye, mut listener] = [(); 3].map(|()| pair.home().connect());
    // Elsewhere, or for messages that are not sent in a cluster: not counted, and so no turn.
    for (slot, how, turns_so_far) in [(9, "SUBSCRIBE", 0), (8, "SSUBSCRIBE", 1)] {
        let key = key_of_slot(slot);
        listen(&mut listener, how, &key);
        token(&acquire(&mut home, &key, "alice"));
        let mut bob = pair.home().connect();
        wait_in_line(&mut bob, &mut eye, &key, "bob");
        home.run("MULTI");
        home.call(cmd!["LOCK.RELEASE", key, "alice"]);
        home.call(cmd!["EXISTS", key]);
        let replies = home.run("EXEC");
        assert_eq!(replies[0], Value::Integer(0), "{how}");
        assert_eq!(replies[1], Value::Integer(1 - turns_so_far), "{how}");
        token(&arrival(&mut bob));
        assert_eq!(turns(&mut home), turns_so_far, "{how}");
        assert_eq!(release(&mut home, &key, "bob"), Value::Integer(0));
    }
    pair.assert_alive();
}

/// Whoever waited is told, and the lock is nobody's here.
fn a_slot_that_leaves_in_a_moment_takes_the_waiters_along(kind: Kind) {
    let options = Server::options().kind(&kind).module_config("redisson-turn-ms", TURN_MS);
    let pair = Pair::start_with(&options);
    let [mut home, mut eye, mut listener] = [(); 3].map(|()| pair.home().connect());
    let slot = 9;
    let key = key_of_slot(slot);
    listen(&mut listener, "SSUBSCRIBE", &key);
    home.call(cmd!["LOCK.ACQUIRE", key, "alice", LONG]);
    let mut bob = pair.home().connect();
    wait_in_line(&mut bob, &mut eye, &key, "bob");
    pair.begin_to_move(slot);
    ok(&pair.migrate(&floor_of_slot(slot)));
    let to = pair.cluster.id_of(pair.away());
    // Both in one turn of the event loop, and so in the moment.
    home.send(cmd!["LOCK.RELEASE", key, "alice"]);
    home.send(cmd!["CLUSTER", "SETSLOT", slot, "NODE", to]);
    assert_eq!(arrival(&mut home), Value::Integer(0));
    ok(&arrival(&mut home));
    assert_eq!(arrival(&mut bob).code(), "TRYAGAIN");
    assert_eq!(turns(&mut eye), 1);
    assert_eq!(eye.call(cmd!["CLUSTER", "COUNTKEYSINSLOT", slot]), Value::Integer(0));
    pair.assert_alive();
}

on_each_server!(
    who_listens_in_the_shard_has_its_turn,
    a_slot_that_leaves_in_a_moment_takes_the_waiters_along,
);

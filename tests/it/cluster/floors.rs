//! In a cluster every slot in use has a floor of its own, which moves with it; and which node
//! serves a lock is the server's business.

use super::{MOVED_SLOTS, Pair, floor_of_slot, key_of_slot};
use crate::asking::{acquire, error, release, token};
use harness::cluster::is_redirect;
use harness::{Connection, Kind, Value, cmd, on_each_server};
use std::collections::BTreeSet;

fn floors(connection: &mut Connection) -> BTreeSet<String> {
    let keys = connection.run("KEYS kvlock:floor*");
    keys.elements().iter().map(Value::text).collect()
}

fn every_slot_in_use_has_its_own(kind: Kind) {
    let pair = Pair::start(&kind);
    let (mut home, mut away) = (pair.home().connect(), pair.away().connect());
    let slots = [0_u16, 1, 17, 42];
    for slot in slots {
        let key = key_of_slot(slot);
        assert_eq!(pair.cluster.slot_of(&key), i64::from(slot));
        assert_eq!(pair.cluster.slot_of(floor_of_slot(slot)), i64::from(slot));
        for key in [key.clone(), format!("{{{key}}}:a"), format!("b{{{key}}}")] {
            token(&acquire(&mut home, &key, "alice"));
            assert_eq!(release(&mut home, &key, "alice"), Value::Integer(0));
        }
    }
    let expected: BTreeSet<String> = slots.map(floor_of_slot).into();
    assert_eq!(floors(&mut home), expected);
    assert_eq!(floors(&mut away), BTreeSet::new());
    let before: Vec<Value> = expected.iter().map(|f| home.call(cmd!["GET", f])).collect();

    // Without a lock in sight they move, and do not stop the slots from coming back either.
    pair.cluster.reshard(pair.home(), pair.away(), MOVED_SLOTS);
    assert_eq!(floors(&mut home), BTreeSet::new());
    assert_eq!(floors(&mut away), expected);
    for slot in slots {
        token(&acquire(&mut away, &key_of_slot(slot), "bob"));
    }
    pair.cluster.reshard(pair.away(), pair.home(), MOVED_SLOTS);
    assert_eq!(floors(&mut away), BTreeSet::new());
    assert_eq!(floors(&mut home), expected);
    for (floor, before) in expected.iter().zip(before) {
        let number = |value: &Value| value.text().parse::<i64>().unwrap();
        let (before, after) = (number(&before), number(&home.call(cmd!["GET", floor])));
        assert!(after > before, "the other node has used it: {floor} {before} {after}");
    }
}

fn the_server_says_where_a_lock_is(kind: Kind) {
    let pair = Pair::start(&kind);
    let (mut home, mut away) = (pair.home().connect(), pair.away().connect());
    let (key, other) = (key_of_slot(3), key_of_slot(4));
    let at_home = format!("MOVED 3 127.0.0.1:{}", pair.home().port());
    for line in ["WAIT @ alice 1000 0", "RELEASE @ alice", "CANCEL @ alice", "INFO @"] {
        let line = format!("LOCK.{}", line.replace('@', &key));
        assert_eq!(error(&away.run(&line)), at_home, "{line}");
    }
    home.run("MULTI");
    for key in [&key, &other] {
        let queued = home.call(cmd!["LOCK.ACQUIRE", key, "alice", 1000]);
        assert_eq!(queued, Value::Status("QUEUED".into()));
    }
    assert!(is_redirect(&home.run("EXEC"), "CROSSSLOT"));
    let both = "return {redis.call('LOCK.ACQUIRE', KEYS[1], 'a', 1000), redis.call('LOCK.ACQUIRE', KEYS[2], 'a', 1000)}";
    assert!(is_redirect(&home.call(cmd!["EVAL", both, 2, key, other]), "CROSSSLOT"));
    assert!(is_redirect(&away.call(cmd!["EVAL", both, 2, key, key]), "MOVED"));
    assert_eq!(home.call(cmd!["LOCK.INFO", key]).field("state").text(), "free");
    token(&home.call(cmd!["EVAL", both, 2, key, format!("{{{key}}}")])[1]);
}

on_each_server!(every_slot_in_use_has_its_own, the_server_says_where_a_lock_is);

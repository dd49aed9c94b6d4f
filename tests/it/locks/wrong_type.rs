//! What is not a lock is refused and left as it is.

use crate::asking::{LONG, release, state};
use harness::{Connection, Server, Value};

/// Commands that put something at `k` that is not a lock.
const NOT_LOCKS: [&str; 23] = [
    "SET k v",
    "SET k 1",
    "SETBIT k 100 1",
    "RPUSH k alice",
    "SADD k alice",
    "ZADD k 1 alice",
    "XADD k 1-1 alice 1",
    "HSET k alice 1 bob 1",
    "HSET k alice 1 bob 1 fencing-token t5",
    "HSET k lock-mode shared alice 1",
    "HSET k lock-mode shared alice '1 x' fencing-token t5",
    "HSET k lock-mode exclusive alice 1",
    "HSET k lock-mode 'exclusive 1' alice 1 bob 1 fencing-token t5",
    "HSET k alice one",
    "HSET k alice ''",
    "HSET k alice 0",
    "HSET k alice -1",
    "HSET k alice 1.5",
    "HSET k alice +1",
    "HSET k alice ' 1'",
    "HSET k alice \"1\\x00\"",
    "HSET k alice 18446744073709551616",
    "HSET k alice 99999999999999999999999999 fencing-token 5",
];

const COMMANDS: [&str; 13] = [
    "LOCK.ACQUIRE k alice 1000",
    "LOCK.ACQUIRE k carol 1000 HOLDS 1",
    "LOCK.WAIT k alice 1000 0",
    "LOCK.WAIT k carol 1000 0",
    "LOCK.ACQUIRE k alice 1000 SHARED",
    "LOCK.WAIT k alice 1000 0 SHARED",
    "LOCK.RELEASE k alice SHARED",
    "LOCK.RELEASE k alice",
    "LOCK.RELEASE k alice ALL",
    "LOCK.RELEASE k alice HOLDS 0",
    "LOCK.RENEW k alice 1000",
    "LOCK.INFO k WAITERS 10",
    "LOCK.FORCERELEASE k",
];

fn for_both_protocols(body: impl Fn(&mut Connection)) {
    let server = Server::start();
    for protocol in [2, 3] {
        let mut connection = server.connect_resp(protocol);
        connection.run("FLUSHALL");
        body(&mut connection);
    }
    server.assert_alive();
}

#[test]
fn what_is_not_a_lock_is_refused_and_left_alone() {
    let long = format!("HSET k {} 1", "a".repeat(1_025));
    refuses_all(&[&NOT_LOCKS[..], &[long.as_str()]].concat(), &COMMANDS);
}

#[test]
fn the_largest_count_is_not_exceeded() {
    for_both_protocols(|connection| {
        connection.run("HSET k alice 4294967295");
        connection.run(&format!("PEXPIRE k {LONG}"));
        let before = state(connection, "k");
        for command in ["LOCK.ACQUIRE k alice 1000", "LOCK.WAIT k alice 1000 0"] {
            assert!(connection.run(command).is_error(), "{command}");
            assert_eq!(state(connection, "k"), before, "{command}");
        }
        assert_eq!(release(connection, "k", "alice"), Value::Integer(4_294_967_294));
    });
}

#[test]
fn what_is_not_a_latch_is_refused_and_left_alone() {
    refuses_all(
        &[
            "SET k v",
            "RPUSH k alice",
            "ZADD k 1 alice",
            "HSET k alice 1",
            "HSET k alice 1 fencing-token t5",
            "HSET k lock-mode shared alice '1 5'",
            "HSET k lock-mode latch",
            "HSET k lock-mode 'latch 0'",
            "HSET k lock-mode 'latch -1'",
            "HSET k lock-mode 'latch 1.5'",
            "HSET k lock-mode 'latch 99999999999999999999'",
        ],
        &[
            "LATCH.SET k 1",
            "LATCH.SET k 1 REPLACE",
            "LATCH.COUNTDOWN k",
            "LATCH.COUNTDOWN k alice",
            "LATCH.WAIT k w 10",
            "LATCH.INFO k",
        ],
    );
}

#[test]
fn what_is_not_a_semaphore_is_refused_and_left_alone() {
    let of_owners = [
        "SEM.ACQUIRE k alice 1 1000",
        "SEM.ACQUIRE k alice ALL 1000",
        "SEM.WAIT k alice 1 1000 0",
        "SEM.RELEASE k alice",
        "SEM.RENEW k alice 1000",
    ];
    refuses_all(
        &[
            "SET k v",
            "RPUSH k alice",
            "HSET k alice 1",
            "HSET k lock-mode shared alice '1 5'",
            "HSET k lock-mode 'latch 1'",
            "HSET k lock-mode semaphore",
            "HSET k lock-mode 'semaphore 1'",
            "HSET k lock-mode 'semaphore 1 -1'",
            "HSET k lock-mode 'semaphore 1 1 1'",
        ],
        &[&["SEM.SET k 1", "SEM.INFO k"], &of_owners[..]].concat(),
    );
    // A field that is none is in the way of its owner only.
    refuses_all(&["HSET k lock-mode 'semaphore 1 0' alice 1"], &of_owners);
}

/// After each of the first each of the others is refused and changes nothing, of `k` and of the floor of
/// the tokens, in whatever slot.
fn refuses_all(setups: &[&str], commands: &[&str]) {
    for_both_protocols(|connection| {
        for setup in setups {
            connection.run("DEL k");
            assert!(!connection.run(setup).is_error(), "{setup}");
            for command in commands {
                for key in ["k", "kvlock:floor", "kvlock:floor:{7}"] {
                    let before = state(connection, key);
                    let reply = connection.run(&command.replacen(" k", &format!(" {key}"), 1));
                    let what = format!("after {setup} {command}, of {key}");
                    assert_eq!(reply.code(), "WRONGTYPE", "{what}: {reply}");
                    assert_eq!(state(connection, key), before, "{what}");
                }
            }
        }
        connection.run("SET k v");
        assert_eq!(connection.run("LOCK.CANCEL k alice"), Value::Integer(0));
    });
}

//! What is not a lock is refused and left as it is.

use crate::asking::{LONG, acquire, error, release, state, token};
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
    for_both_protocols(|connection| {
        let long = format!("HSET k {} 1", "a".repeat(1_025));
        for setup in NOT_LOCKS.into_iter().chain([long.as_str()]) {
            connection.run("DEL k");
            assert!(!connection.run(setup).is_error(), "{setup}");
            let before = state(connection, "k");
            for command in COMMANDS {
                let text = error(&connection.run(command));
                assert!(text.starts_with("WRONGTYPE "), "after {setup} {command} answers {text}");
                assert_eq!(state(connection, "k"), before, "after {setup} {command} changes it");
            }
            assert_eq!(connection.run("LOCK.CANCEL k alice"), Value::Integer(0));
            assert_eq!(state(connection, "k"), before, "CANCEL changes what {setup} made");
        }
    });
}

/// All fields with their values, and when the key expires.
fn sorted(connection: &mut Connection) -> (Vec<String>, Value) {
    let mut all = Vec::new();
    for list in ["HKEYS k", "HVALS k"] {
        all.extend(connection.run(list).elements().iter().map(Value::text));
    }
    all.sort();
    (all, connection.run("PEXPIRETIME k"))
}

#[test]
fn a_hash_with_a_thousand_fields_is_refused() {
    for_both_protocols(|connection| {
        for field in 0..1000 {
            connection.run(&format!("HSET k f{field} 1"));
        }
        // (Its fields may change places inside: a server that has just grown a hash goes on with
        // that at every look.)
        let before = sorted(connection);
        for command in COMMANDS {
            assert_eq!(connection.run(command).code(), "WRONGTYPE", "{command}");
        }
        assert_eq!(sorted(connection), before);
    });
}

#[test]
fn a_remnant_with_only_the_token_is_a_free_lock_above_which_tokens_go_on() {
    for_both_protocols(|connection| {
        let stored = 4_400_000_000_000_000_i64;
        connection.run(&format!("HSET k fencing-token t{stored}"));
        assert_eq!(connection.run("LOCK.INFO k").field("state"), &Value::bulk("free"));
        assert_eq!(release(connection, "k", "alice"), Value::Nil);
        assert_eq!(connection.run("LOCK.FORCERELEASE k"), Value::Integer(0));
        assert!(token(&acquire(connection, "k", "alice")) > stored);
        assert_eq!(connection.run("HLEN k"), Value::Integer(2));
    });
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
    let of_anybody =
        ["SET k 1", "SET k 1 REPLACE", "COUNTDOWN k", "COUNTDOWN k alice", "WAIT k w 10", "INFO k"];
    refuses_all(
        "LATCH",
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
        &of_anybody,
    );
}

#[test]
fn what_is_not_a_semaphore_is_refused_and_left_alone() {
    let of_owners = [
        "ACQUIRE k alice 1 1000",
        "ACQUIRE k alice ALL 1000",
        "WAIT k alice 1 1000 0",
        "RELEASE k alice",
        "RENEW k alice 1000",
    ];
    refuses_all(
        "SEM",
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
        &[&["SET k 1", "INFO k"], &of_owners[..]].concat(),
    );
    // A field that is none is in the way of its owner only.
    refuses_all("SEM", &["HSET k lock-mode 'semaphore 1 0' alice 1"], &of_owners);
}

fn refuses_all(family: &str, setups: &[&str], commands: &[&str]) {
    for_both_protocols(|connection| {
        for setup in setups {
            connection.run("DEL k");
            assert!(!connection.run(setup).is_error(), "{setup}");
            let before = state(connection, "k");
            for command in commands {
                let reply = connection.run(&format!("{family}.{command}"));
                assert_eq!(reply.code(), "WRONGTYPE", "after {setup} {command} answers {reply}");
                assert_eq!(state(connection, "k"), before, "after {setup} {command} changes it");
            }
        }
        let floor = connection.run(&format!("{family}.SET kvlock:floor 1"));
        assert_eq!(floor.code(), "WRONGTYPE", "{floor}");
    });
}

//! Bad arguments change nothing, and what they are never comes back in an error.

use crate::asking::{LONG, acquire, arrival, token, wait_in_line};
use crate::refused::{NOT_NUMBERS, expect_refusal};
use harness::{Connection, Server, Value, cmd};

const MAX_LEASE: &str = "86400000";
const TEN_YEARS: &str = "315360000000";

/// Bytes that any name may be.
const NAMES: [&[u8]; 9] = [
    b"\0",
    b"a\0b",
    b"\xff",
    b"\xc3\x28",
    b"\r\n",
    b"+OK\r\n",
    b"{}",
    b" ",
    "schl\u{fc}ssel".as_bytes(),
];

/// A server where `k` is held by `alice`, and connections in both protocols.
fn held() -> (Server, [Connection; 2]) {
    let server = Server::start();
    let mut connections = [2, 3].map(|protocol| server.connect_resp(protocol));
    acquire(&mut connections[0], "k", "alice");
    (server, connections)
}

#[track_caller]
fn refused(connections: &mut [Connection; 2], command: Vec<Vec<u8>>, beginning: &str) {
    expect_refusal(connections, &command, beginning, "LOCK.INFO k");
}

#[test]
fn names_are_bytes() {
    let (_server, mut connections) = held();
    for connection in &mut connections {
        for name in NAMES {
            for (key, owner) in [(name, &b"owner"[..]), (b"key", name), (name, name)] {
                let grant = connection.call(cmd!["LOCK.ACQUIRE", key, owner, LONG]);
                assert_eq!(connection.call(cmd!["HGET", key, owner]), Value::bulk("1"), "{name:?}");
                let info = connection.call(cmd!["LOCK.INFO", key]);
                assert_eq!(
                    (info.field("owner"), info.field("token")),
                    (&Value::bulk(owner), &grant[0]),
                    "{name:?}"
                );
                assert_eq!(
                    connection.call(cmd!["LOCK.RENEW", key, owner, 5000]),
                    Value::Integer(5000),
                    "{name:?}"
                );
                assert_eq!(
                    connection.call(cmd!["LOCK.RELEASE", key, owner]),
                    Value::Integer(0),
                    "{name:?}"
                );
            }
        }
    }
}

#[test]
fn waiters_have_any_name_too() {
    let (server, [mut a, mut b]) = held();
    for name in NAMES {
        let mut waiter = server.connect();
        let id = waiter.client_id();
        waiter.send(cmd!["LOCK.WAIT", "k", name, LONG, LONG]);
        harness::observe::wait_until_blocked(&mut a, id);
        let info = b.call(cmd!["LOCK.INFO", "k", "WAITERS", 1]);
        assert_eq!(info.field("queue")[0][0], Value::bulk(name));
        assert_eq!(a.call(cmd!["LOCK.CANCEL", "k", name]), Value::Integer(1));
        assert_eq!(arrival(&mut waiter), Value::Nil);
    }
}

#[test]
fn an_empty_key_is_a_key() {
    let (_server, mut connections) = held();
    for connection in &mut connections {
        token(&acquire(connection, "", "alice"));
        assert_eq!(connection.run("LOCK.RELEASE \"\" alice"), Value::Integer(0));
    }
}

#[test]
fn owners_of_a_wrong_length_or_reserved_name_are_refused() {
    let (_server, mut connections) = held();
    for owner in [
        Vec::new(),
        vec![b'o'; 1025],
        vec![b'\xff'; 1 << 20],
        b"fencing-token".to_vec(),
        b"lock-mode".to_vec(),
    ] {
        for key in ["k", "free"] {
            for command in [
                cmd!["LOCK.ACQUIRE", key, owner, 1000],
                cmd!["LOCK.WAIT", key, owner, 1000, 1000],
                cmd!["LOCK.RELEASE", key, owner],
                cmd!["LOCK.RENEW", key, owner, 1000],
                cmd!["LOCK.CANCEL", key, owner],
            ] {
                refused(&mut connections, command, "ERR invalid owner");
            }
        }
    }
}

#[test]
fn the_longest_owner_and_names_like_the_reserved_are_taken() {
    let (_server, mut connections) = held();
    for connection in &mut connections {
        for owner in [
            vec![b'o'; 1024],
            b"Fencing-Token".to_vec(),
            b"fencing-token ".to_vec(),
            b"lock".to_vec(),
        ] {
            token(&connection.call(cmd!["LOCK.ACQUIRE", "free", owner, 1000]));
            assert_eq!(connection.call(cmd!["LOCK.RELEASE", "free", owner]), Value::Integer(0));
        }
    }
}

#[test]
fn leases_are_whole_milliseconds_up_to_the_limit() {
    let (_server, mut connections) = held();
    let above: [&[u8]; 3] = [b"0", b"86400001", b"9223372036854775807"];
    for lease in NOT_NUMBERS.into_iter().chain(above) {
        for (key, owner) in [("k", "alice"), ("k", "secret"), ("free", "secret")] {
            for command in [
                cmd!["LOCK.ACQUIRE", key, owner, lease],
                cmd!["LOCK.WAIT", key, owner, lease, 1000],
                cmd!["LOCK.RENEW", key, owner, lease],
            ] {
                refused(
                    &mut connections,
                    command,
                    "ERR invalid lease-ms: must be between 1 and 86400000",
                );
            }
        }
    }
    let [connection, _] = &mut connections;
    token(&connection.call(cmd!["LOCK.ACQUIRE", "free", "bob", MAX_LEASE]));
    assert_eq!(connection.call(cmd!["LOCK.RENEW", "free", "bob", 1]), Value::Integer(1));
}

#[test]
fn timeouts_are_whole_milliseconds_up_to_ten_years() {
    let (server, mut connections) = held();
    let above: [&[u8]; 2] = [b"315360000001", b"9223372036854775807"];
    for timeout in NOT_NUMBERS.into_iter().chain(above) {
        for (key, owner) in [("k", "alice"), ("k", "secret"), ("free", "secret")] {
            refused(
                &mut connections,
                cmd!["LOCK.WAIT", key, owner, 1000, timeout],
                "ERR invalid timeout-ms",
            );
        }
    }
    for timeout in ["0", "1", TEN_YEARS] {
        token(&connections[0].call(cmd!["LOCK.WAIT", "free", "bob", LONG, timeout]));
    }
    for timeout in ["0", TEN_YEARS] {
        let mut waiter = server.connect();
        let id = waiter.client_id();
        waiter.send(cmd!["LOCK.WAIT", "k", "bob", LONG, timeout]);
        harness::observe::wait_until_blocked(&mut connections[0], id);
        assert_eq!(connections[1].run("LOCK.CANCEL k bob"), Value::Integer(1));
        assert_eq!(arrival(&mut waiter), Value::Nil);
    }
}

#[test]
fn holds_and_counts_are_whole_numbers() {
    let (_server, mut connections) = held();
    for number in NOT_NUMBERS {
        refused(
            &mut connections,
            cmd!["LOCK.ACQUIRE", "k", "alice", 1000, "HOLDS", number],
            "ERR ",
        );
        refused(
            &mut connections,
            cmd!["LOCK.WAIT", "k", "secret", 1000, 1000, "HOLDS", number],
            "ERR ",
        );
        refused(&mut connections, cmd!["LOCK.RELEASE", "k", "alice", "HOLDS", number], "ERR ");
        refused(&mut connections, cmd!["LOCK.INFO", "k", "WAITERS", number], "ERR ");
        refused(&mut connections, cmd!["LOCK.INFO", "k", "HOLDERS", number], "ERR ");
        refused(&mut connections, cmd!["LOCK.LIST", "COUNT", number], "ERR ");
    }
    refused(&mut connections, cmd!["LOCK.ACQUIRE", "free", "secret", 1000, "HOLDS", 0], "ERR ");
}

#[test]
fn tokens_are_whole_numbers_up_to_a_day_ahead() {
    let (_server, mut connections) = held();
    let now = connections[0].run("TIME")[0].text().parse::<u64>().unwrap() * 1_000_000;
    let day = 24 * 60 * 60 * 1_000_000;
    let ahead = [now + day + 60_000_000, (1 << 52) + 1].map(|n: u64| n.to_string());
    let ahead = ahead.iter().map(String::as_bytes);
    let above: [&[u8]; 3] = [b"0", b"4503599627370496", b"9223372036854775807"];
    for number in NOT_NUMBERS.into_iter().chain(above).chain(ahead) {
        let command = cmd!["LOCK.RENEW", "k", "alice", 1000, "TOKEN", number];
        refused(&mut connections, command, "ERR invalid TOKEN: ");
    }
    // Who does not hold it is told so, whatever it asks for.
    let [a, b] = &mut connections;
    let (most, lasts) = (now + day, Value::Integer(LONG.cast_signed()));
    assert_eq!(a.call(cmd!["LOCK.RENEW", "k", "bob", 1000, "TOKEN", 1u64 << 52]), Value::Nil);
    assert_eq!(a.call(cmd!["LOCK.RENEW", "k", "alice", LONG, "token", most]), lasts);
    assert_eq!(b.run("LOCK.INFO k").field("token"), &Value::Integer(most.cast_signed()));
    a.call(cmd!["LOCK.ACQUIRE", "shared", "alice", LONG, "SHARED"]);
    let reply = a.call(cmd!["LOCK.RENEW", "shared", "alice", LONG, "TOKEN", most]);
    assert!(reply.to_string().contains("invalid TOKEN"), "{reply}");
}

#[test]
fn options_that_are_unknown_twice_or_at_odds_are_syntax_errors() {
    let (_server, mut connections) = held();
    for line in [
        "LOCK.ACQUIRE k alice 1000 secret",
        "LOCK.ACQUIRE k alice 1000 secret 1",
        "LOCK.ACQUIRE k alice 1000 HOLDS",
        "LOCK.ACQUIRE k alice 1000 HOLDS 2 HOLDS 2",
        "LOCK.ACQUIRE k alice 1000 HOLDS 2 secret",
        "LOCK.ACQUIRE k alice 1000 HOLDS\\x00 2",
        "LOCK.ACQUIRE k alice 1000 SHARED SHARED",
        "LOCK.ACQUIRE k alice 1000 SHARED HOLDS",
        "LOCK.ACQUIRE k alice 1000 HOLDS SHARED 2",
        "LOCK.WAIT k alice 1000 1000 SHARED SHARED",
        "LOCK.WAIT k alice 1000 1000 secret",
        "LOCK.WAIT k alice 1000 1000 HOLDS",
        "LOCK.WAIT k alice 1000 1000 HOLDS 2 HOLDS 2",
        "LOCK.RELEASE k alice SHARED SHARED",
        "LOCK.RELEASE k alice ALL SHARED ALL",
        "LOCK.RELEASE k alice secret",
        "LOCK.RELEASE k alice HOLDS",
        "LOCK.RELEASE k alice ALL ALL",
        "LOCK.RELEASE k alice ALL HOLDS 0",
        "LOCK.RELEASE k alice HOLDS 0 ALL",
        "LOCK.RELEASE k alice HOLDS 0 HOLDS 0",
        "LOCK.RENEW k alice 1000 secret",
        "LOCK.RENEW k alice 1000 TOKEN",
        "LOCK.RENEW k alice 1000 HOLDS 1",
        "LOCK.RENEW k alice 1000 TOKEN 1 TOKEN 1",
        "LOCK.RENEW k alice 1000 TOKEN 1 secret",
        "LOCK.INFO k secret",
        "LOCK.INFO k WAITERS",
        "LOCK.INFO k WAITERS 1 WAITERS 1",
        "LOCK.INFO k HOLDERS 1 HOLDERS 1",
        "LOCK.INFO k HOLDERS 1 WAITERS",
        "LOCK.LIST secret",
        "LOCK.LIST COUNT",
        "LOCK.LIST COUNT 1 COUNT 1",
    ] {
        refused(&mut connections, harness::resp::split(line).unwrap(), "ERR syntax error");
    }
    for connection in &mut connections {
        connection.run("DEL free");
        token(&connection.run("lock.acquire free bob 1000 holds 1"));
        assert_eq!(connection.run("lock.release free bob all"), Value::Integer(0));
    }
}

#[test]
fn too_few_or_too_many_arguments_are_refused() {
    let (_server, mut connections) = held();
    for (name, least, most) in [
        ("LOCK.ACQUIRE", 3, None),
        ("LOCK.WAIT", 4, None),
        ("LOCK.RELEASE", 2, None),
        ("LOCK.RENEW", 3, None),
        ("LOCK.CANCEL", 2, Some(2)),
        ("LOCK.INFO", 1, None),
        ("LOCK.FORCERELEASE", 1, Some(1)),
    ] {
        let arguments = ["k", "secret", "1000", "1000"];
        for count in (0..least).chain(most.map(|most: usize| most + 1)) {
            let words = std::iter::once(&name).chain(&arguments[..count]);
            let command = words.map(|word| word.as_bytes().to_vec()).collect();
            refused(&mut connections, command, "ERR wrong number of arguments");
        }
    }
}

#[test]
fn a_million_arguments_are_a_syntax_error() {
    let (server, mut connections) = held();
    for head in [
        "LOCK.ACQUIRE k secret 1000",
        "LOCK.WAIT k secret 1000 0",
        "LOCK.RELEASE k alice",
        "LOCK.RENEW k alice 1000",
        "LOCK.INFO k",
        "LOCK.LIST",
    ] {
        let mut command = harness::resp::split(head).unwrap();
        command.resize(1_000_000, b"HOLDS".to_vec());
        refused(&mut connections, command, "ERR syntax error");
    }
    server.assert_alive();
}

#[test]
fn a_key_of_a_megabyte_is_a_key() {
    let (_server, [mut a, mut b]) = held();
    let key = "x".repeat(1 << 20);
    token(&acquire(&mut a, &key, "alice"));
    assert_eq!(acquire(&mut b, &key, "bob"), Value::Nil);
    assert_eq!(a.call(cmd!["LOCK.RELEASE", key, "alice"]), Value::Integer(0));
}

#[test]
fn an_argument_that_never_ends_blocks_nobody_else() {
    let (server, [mut a, mut b]) = held();
    let mut slow = server.connect();
    slow.send_raw(b"*4\r\n$12\r\nLOCK.ACQUIRE\r\n$4\r\nfree\r\n$1000\r\nsecret");
    token(&acquire(&mut a, "free", "bob"));
    slow.reset();
    wait_in_line(&mut b, &mut a, "free", "carol");
    assert_eq!(a.run("LOCK.RELEASE free bob"), Value::Integer(0));
    token(&arrival(&mut b));
}

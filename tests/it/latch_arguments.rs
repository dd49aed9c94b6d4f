//! Bad arguments of the latch commands change nothing, and never come back in an error.

use crate::refused::{NOT_NUMBERS, expect_refusal};
use harness::{Connection, Server, Value, cmd};

/// A server with a latch at `k`, and connections in both protocols.
fn counting() -> (Server, [Connection; 2]) {
    let server = Server::start();
    let mut connections = [2, 3].map(|protocol| server.connect_resp(protocol));
    connections[0].run("LATCH.SET k 3 PX 600000");
    (server, connections)
}

#[track_caller]
fn refused(connections: &mut [Connection; 2], command: Vec<Vec<u8>>, beginning: &str) {
    expect_refusal(connections, &command, beginning, "LATCH.INFO k");
}

#[test]
fn numbers_are_strict_decimals_within_limits() {
    let (_server, mut connections) = counting();
    let too_much: [&[u8]; 2] = [b"0", b"4294967296"];
    for number in NOT_NUMBERS.into_iter().chain(too_much) {
        for key in ["k", "free"] {
            refused(&mut connections, cmd!["LATCH.SET", key, number], "ERR invalid count");
        }
    }
    let too_long: [&[u8]; 1] = [b"315360000001"];
    for number in NOT_NUMBERS.into_iter().chain(too_long) {
        let set = cmd!["LATCH.SET", "free", 1, "PX", number];
        refused(&mut connections, set, "ERR invalid lifetime-ms");
        let wait = cmd!["LATCH.WAIT", "k", "waiter", number];
        refused(&mut connections, wait, "ERR invalid timeout-ms");
        refused(&mut connections, cmd!["LATCH.INFO", "k", "WAITERS", number], "ERR invalid count");
    }
    refused(&mut connections, cmd!["LATCH.SET", "free", 1, "PX", 0], "ERR invalid lifetime-ms");
    let [connection, _] = &mut connections;
    assert_eq!(connection.run("LATCH.SET free 4294967295 PX 315360000000"), Value::Integer(1));
    assert_eq!(connection.run("LATCH.COUNTDOWN free"), Value::Integer(4_294_967_294));
}

#[test]
fn names_are_bytes_of_a_certain_length() {
    let (_server, mut connections) = counting();
    for name in [Vec::new(), vec![b'o'; 1025], b"fencing-token".to_vec(), b"lock-mode".to_vec()] {
        for key in ["k", "free"] {
            let count = cmd!["LATCH.COUNTDOWN", key, name];
            refused(&mut connections, count, "ERR invalid participant");
            refused(&mut connections, cmd!["LATCH.WAIT", key, name, 10], "ERR invalid waiter");
            refused(&mut connections, cmd!["LATCH.CANCEL", key, name], "ERR invalid waiter");
        }
    }
    let [connection, _] = &mut connections;
    for name in [&b"\0"[..], b"\xff", b"\r\n", b"+OK\r\n", &[b'x'; 1024]] {
        connection.call(cmd!["LATCH.SET", name, 2]);
        let count = cmd!["LATCH.COUNTDOWN", name, name];
        assert_eq!(connection.call(&count), Value::Integer(1));
        assert_eq!(connection.call(&count), Value::Integer(1));
    }
}

#[test]
fn what_is_too_little_too_much_or_unknown_is_refused() {
    let (_server, mut connections) = counting();
    for line in [
        "LATCH.SET k 1 secret",
        "LATCH.SET k 1 PX",
        "LATCH.SET k 1 PX 5 PX 5",
        "LATCH.SET k 1 REPLACE REPLACE",
        "LATCH.SET k 1 PX REPLACE 5",
        "LATCH.WAIT k secret 0 secret",
        "LATCH.COUNTDOWN k secret secret",
        "LATCH.INFO k secret",
        "LATCH.INFO k WAITERS",
        "LATCH.INFO k WAITERS 1 WAITERS 1",
    ] {
        refused(&mut connections, harness::resp::split(line).unwrap(), "ERR syntax error");
    }
    for (name, least, most) in [
        ("LATCH.SET", 2, None),
        ("LATCH.COUNTDOWN", 1, None),
        ("LATCH.WAIT", 3, None),
        ("LATCH.CANCEL", 2, Some(2)),
        ("LATCH.INFO", 1, None),
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
fn what_is_not_a_latch_is_refused_and_left_alone() {
    let (_server, mut connections) = counting();
    for setup in [
        "SET x v",
        "RPUSH x alice",
        "ZADD x 1 alice",
        "HSET x alice 1",
        "HSET x alice 1 fencing-token t5",
        "HSET x lock-mode shared alice '1 5'",
        "HSET x lock-mode latch",
        "HSET x lock-mode 'latch 0'",
        "HSET x lock-mode 'latch -1'",
        "HSET x lock-mode 'latch 1.5'",
        "HSET x lock-mode 'latch 99999999999999999999'",
    ] {
        connections[0].run("DEL x");
        assert!(!connections[0].run(setup).is_error(), "{setup}");
        for command in [
            "SET x 1",
            "SET x 1 REPLACE",
            "COUNTDOWN x",
            "COUNTDOWN x alice",
            "WAIT x w 10",
            "INFO x",
        ] {
            let command = harness::resp::split(&format!("LATCH.{command}")).unwrap();
            refused(&mut connections, command, "WRONGTYPE ");
        }
    }
    let floor = harness::resp::split("LATCH.SET kvlock:floor 1").unwrap();
    refused(&mut connections, floor, "WRONGTYPE ");
}

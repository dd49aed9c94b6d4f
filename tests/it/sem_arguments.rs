//! Bad arguments of the semaphore commands change nothing, and never come back in an error.

use crate::refused::{NOT_NUMBERS, expect_refusal};
use harness::{Connection, Server, Value, cmd};

/// A server with a semaphore at `k`, and connections in both protocols.
fn set() -> (Server, [Connection; 2]) {
    let server = Server::start();
    let mut connections = [2, 3].map(|protocol| server.connect_resp(protocol));
    connections[0].run("SEM.SET k 3");
    connections[0].run("SEM.ACQUIRE k alice 2 600000");
    (server, connections)
}

#[track_caller]
fn refused(connections: &mut [Connection; 2], command: Vec<Vec<u8>>, beginning: &str) {
    expect_refusal(connections, &command, beginning, "SEM.INFO k");
}

#[test]
fn numbers_are_strict_decimals_within_limits() {
    let (_server, mut connections) = set();
    let c = &mut connections;
    for n in NOT_NUMBERS {
        refused(c, cmd!["SEM.SET", "k", n], "ERR invalid permits");
        refused(c, cmd!["SEM.ACQUIRE", "k", "bob", n, 1000], "ERR invalid permits");
        refused(c, cmd!["SEM.ACQUIRE", "k", "bob", 1, n], "ERR invalid lease-ms");
        refused(c, cmd!["SEM.ACQUIRE", "k", "bob", 1, 1000, "HOLDS", n], "ERR invalid HOLDS");
        refused(c, cmd!["SEM.WAIT", "k", "bob", n, 1000, 1000], "ERR invalid permits");
        refused(c, cmd!["SEM.WAIT", "k", "bob", 2, n, 1000], "ERR invalid lease-ms");
        refused(c, cmd!["SEM.WAIT", "k", "bob", 2, 1000, n], "ERR invalid timeout-ms");
        refused(c, cmd!["SEM.RELEASE", "k", "alice", "HOLDS", n], "ERR invalid HOLDS");
        refused(c, cmd!["SEM.RENEW", "k", "alice", n], "ERR invalid lease-ms");
        refused(c, cmd!["SEM.INFO", "k", "WAITERS", n], "ERR invalid count");
        refused(c, cmd!["SEM.INFO", "k", "HOLDERS", n], "ERR invalid count");
    }
    for (command, beginning) in [
        (cmd!["SEM.SET", "k", 4_294_967_296_u64], "ERR invalid permits"),
        (cmd!["SEM.ACQUIRE", "k", "bob", 0, 1000], "ERR invalid permits"),
        (cmd!["SEM.ACQUIRE", "k", "bob", 4_294_967_296_u64, 1000], "ERR invalid permits"),
        (cmd!["SEM.ACQUIRE", "k", "bob", 1, 0], "ERR invalid lease-ms"),
        (cmd!["SEM.ACQUIRE", "k", "bob", "ALLES", 1000], "ERR invalid permits"),
        (cmd!["SEM.ACQUIRE", "k", "bob", "ALL", 0], "ERR invalid lease-ms"),
        (cmd!["SEM.ACQUIRE", "k", "bob", "ALL", 86_400_001], "ERR invalid lease-ms"),
        (cmd!["SEM.ACQUIRE", "k", "bob", "ALL", 1000, "HOLDS", 0], "ERR invalid HOLDS"),
        (cmd!["SEM.ACQUIRE", "k", "bob", "ALL", 1000, "HOLDS", 2], "MISMATCH "),
        (cmd!["SEM.ACQUIRE", "free", "bob", "ALL", 1000], "UNSET "),
        (cmd!["SEM.WAIT", "k", "bob", "ALL", 1000, 1000], "ERR invalid permits"),
        (cmd!["SEM.ACQUIRE", "k", "bob", 1, 86_400_001], "ERR invalid lease-ms"),
        (cmd!["SEM.WAIT", "k", "bob", 2, 1000, 315_360_000_001_u64], "ERR invalid timeout-ms"),
        (cmd!["SEM.ACQUIRE", "k", "bob", 4_294_967_295_u64, 1000], "TOOMANY "),
        (cmd!["SEM.ACQUIRE", "k", "alice", 4_294_967_295_u64, 1000], "TOOMANY "),
        (cmd!["SEM.ACQUIRE", "free", "alice", 1, 1000], "UNSET "),
        (cmd!["SEM.WAIT", "free", "alice", 1, 1000, 0], "UNSET "),
    ] {
        refused(c, command, beginning);
    }
    let [connection, _] = c;
    assert_eq!(connection.run("SEM.SET big 4294967295"), Value::Integer(1));
    let all = connection.run("SEM.ACQUIRE big bob 4294967295 86400000");
    assert_eq!(all, Value::Integer(4_294_967_295));
    assert_eq!(connection.run("SEM.RELEASE big bob HOLDS 4294967294").integer(), 4_294_967_294);
}

#[test]
fn owners_are_bytes_of_a_certain_length() {
    let (_server, mut connections) = set();
    for owner in [Vec::new(), vec![b'o'; 1025], b"fencing-token".to_vec(), b"lock-mode".to_vec()] {
        for command in [
            cmd!["SEM.ACQUIRE", "k", owner, 1, 1000],
            cmd!["SEM.ACQUIRE", "k", owner, "ALL", 1000],
            cmd!["SEM.WAIT", "k", owner, 1, 1000, 10],
            cmd!["SEM.RELEASE", "k", owner],
            cmd!["SEM.RENEW", "k", owner, 1000],
            cmd!["SEM.CANCEL", "k", owner],
        ] {
            refused(&mut connections, command, "ERR invalid owner");
        }
    }
    let [connection, _] = &mut connections;
    for name in [&b"\0"[..], b"\xff", b"\r\n", b"+OK\r\n", &[b'x'; 1024]] {
        connection.call(cmd!["SEM.SET", name, 2]);
        assert_eq!(connection.call(cmd!["SEM.ACQUIRE", name, name, 2, 1000]), Value::Integer(2));
        assert_eq!(connection.call(cmd!["SEM.RELEASE", name, name]), Value::Integer(1));
    }
}

#[test]
fn what_is_too_little_too_much_or_unknown_is_refused() {
    let (_server, mut connections) = set();
    for line in [
        "SEM.SET k 1 secret",
        "SEM.SET k 1 NX NX",
        "SEM.ACQUIRE k bob 1 1000 secret",
        "SEM.ACQUIRE k bob 1 1000 HOLDS",
        "SEM.ACQUIRE k bob ALL 1000 HOLDS",
        "SEM.ACQUIRE k bob ALL 1000 secret",
        "SEM.ACQUIRE k bob 1 1000 HOLDS 1 HOLDS 1",
        "SEM.ACQUIRE k bob 1 1000 SHARED",
        "SEM.WAIT k bob 1 1000 1000 secret",
        "SEM.RELEASE k alice secret",
        "SEM.RELEASE k alice HOLDS",
        "SEM.RELEASE k alice ALL HOLDS 0",
        "SEM.INFO k secret",
        "SEM.INFO k WAITERS 1 WAITERS 1",
    ] {
        refused(&mut connections, harness::resp::split(line).unwrap(), "ERR syntax error");
    }
    for (name, least, most) in [
        ("SEM.SET", 2, None),
        ("SEM.ACQUIRE", 4, None),
        ("SEM.WAIT", 5, None),
        ("SEM.RELEASE", 2, None),
        ("SEM.RENEW", 3, Some(3)),
        ("SEM.CANCEL", 2, Some(2)),
        ("SEM.INFO", 1, None),
    ] {
        let arguments = ["k", "secret", "1", "1000", "1000"];
        for count in (0..least).chain(most.map(|most: usize| most + 1)) {
            let words = std::iter::once(&name).chain(&arguments[..count]);
            let command = words.map(|word| word.as_bytes().to_vec()).collect();
            refused(&mut connections, command, "ERR wrong number of arguments");
        }
    }
}

#[test]
fn what_is_not_a_semaphore_is_refused_and_left_alone() {
    let (_server, mut connections) = set();
    for setup in [
        "SET x v",
        "RPUSH x alice",
        "HSET x alice 1",
        "HSET x lock-mode shared alice '1 5'",
        "HSET x lock-mode 'latch 1'",
        "HSET x lock-mode semaphore",
        "HSET x lock-mode 'semaphore 1'",
        "HSET x lock-mode 'semaphore 1 -1'",
        "HSET x lock-mode 'semaphore 1 1 1'",
        "HSET x lock-mode 'semaphore 1 0' alice 1",
    ] {
        connections[0].run("DEL x");
        assert!(!connections[0].run(setup).is_error(), "{setup}");
        let own_only = setup.ends_with("alice 1") && setup.contains("semaphore");
        let all = [
            "SET x 1",
            "INFO x",
            "ACQUIRE x alice 1 1000",
            "ACQUIRE x alice ALL 1000",
            "WAIT x alice 1 1000 0",
            "RELEASE x alice",
            "RENEW x alice 1000",
        ];
        for command in &all[if own_only { 2 } else { 0 }..] {
            let command = harness::resp::split(&format!("SEM.{command}")).unwrap();
            refused(&mut connections, command, "WRONGTYPE ");
        }
    }
    let floor = harness::resp::split("SEM.SET kvlock:floor 1").unwrap();
    refused(&mut connections, floor, "WRONGTYPE ");
}

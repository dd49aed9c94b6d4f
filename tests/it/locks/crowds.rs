//! Thousands of owners share a lock or wait for one. Tests expired holders, the number of grants in a turn of
//! the event loop, and the end of all waiters but the last. More cases are in `transcripts/crowds.txt`.

use crate::asking::{LONG, SOON, acquire, arrival, token, wait_in_queue};
use harness::agree::expect_unharmed;
use harness::clock::Clock;
use harness::{Kind, Server, Value, cmd, observe, on_each_server};
use std::process::Command;
use std::time::Instant;

fn a_constantly_shared_lock_keeps_few_dead_sharers(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut eye = server.connect();
    token(&eye.run("LOCK.ACQUIRE k long 600000 SHARED"));
    for reader in 0..6_000 {
        token(&eye.run(&format!("LOCK.ACQUIRE k reader-{reader} 1 SHARED")));
    }
    let left = eye.run("HLEN k").integer();
    assert!(left < 3_000, "{left} of 6000 dead readers are left");
    assert!(observe::info_number(&mut eye, "kvlock_swept") > 3_000);
    assert_eq!(eye.run("LOCK.INFO k HOLDERS 1000").field("mode"), &Value::bulk("shared"));
    expect_unharmed(&server);
}

const READERS: i64 = 1_000;

/// Highest number of readers that may be granted between two commands of another client. It covers several
/// turns, because a command may not arrive in every turn.
const STEP: i64 = 512;

fn many_waiting_sharers_are_granted_in_batches(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut eye = server.connect();
    eye.run("LOCK.ACQUIRE k writer 600000");
    let mut readers: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(cmd!["LOCK.WAIT", "k", format!("reader-{number}"), LONG, 0, "SHARED"]);
    }
    observe::wait_for_waiters(&mut eye, "k", READERS);

    // More than the server reads in one turn, so that each turn has some.
    let looks = 30_000;
    let mut observer = server.connect();
    observer.send_raw("LOCK.INFO k\r\n".repeat(looks).as_bytes());
    eye.send(cmd!["LOCK.RELEASE", "k", "writer"]);
    let mut seen = 0;
    for _ in 0..looks {
        let info = observer.receive(SOON).expect("an answer");
        let mode = info.field("mode");
        let shared = !mode.is_nil() && mode.text() == "shared";
        let inside = if shared { info.field("holders").integer() } else { 0 };
        assert!(inside - seen <= STEP, "{} were let in in one go", inside - seen);
        seen = inside;
    }
    assert_eq!(eye.receive(SOON).expect("released").integer(), 0);
    for reader in &mut readers {
        assert!(!reader.receive(SOON).expect("granted").is_error());
    }
    assert_eq!(eye.run("LOCK.INFO k").field("holders").integer(), READERS);
}

const DEAD: i64 = 50_000;

/// Highest number of dead readers that may be removed between two commands of another client. It also covers
/// several turns.
const REMOVED: i64 = 8_192;

/// The clock jumps past the end of all leases but one, and the live reader releases. The server removes the dead
/// readers in steps, with other commands in between.
fn a_writer_is_granted_behind_a_crowd_of_dead_readers(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).start();
    let (mut eye, mut writer, mut crowd) = (server.connect(), server.connect(), server.connect());
    token(&eye.call(cmd!["LOCK.ACQUIRE", "k", "alive", 10 * LONG, "SHARED"]));
    let batch = 1_000_i64;
    for first in (0..DEAD / batch).map(|number| number * batch) {
        let readers = first..first + batch;
        let acquire = |reader| format!("LOCK.ACQUIRE k reader-{reader} {LONG} SHARED\r\n");
        crowd.send_raw(readers.clone().map(acquire).collect::<String>().as_bytes());
        readers.for_each(|_| assert!(!arrival(&mut crowd).is_error()));
    }
    wait_in_queue(&mut writer, &mut eye, "k", "writer");
    clock.begin_to_set(i64::try_from(LONG).unwrap() + 1000);
    assert_eq!(eye.run("LOCK.RELEASE k alive SHARED"), Value::Integer(0));
    let (mut before, mut steps) = (DEAD, 0);
    let end = Instant::now() + 2 * SOON;
    while before > batch {
        assert!(Instant::now() < end, "{before} dead readers are left");
        let left = eye.run("HLEN k").integer();
        assert!(before - left <= REMOVED, "{} were removed at once", before - left);
        steps += i32::from(left < before);
        before = left;
    }
    assert!(steps > 1);
    assert!(!arrival(&mut writer).is_error());
    expect_unharmed(&server);
}

const MANY: i64 = 3000;

/// Raises this process's limit of open files to the hard limit. The servers that the process starts inherit
/// the limit.
fn raise_the_limit_of_files() {
    let own = std::process::id().to_string();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("the limits of this process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let most = line.split_whitespace().nth(4).unwrap();
    let raised =
        Command::new("prlimit").args(["--pid", &own, &format!("--nofile={most}:{most}")]).status();
    assert!(raised.expect("run prlimit").success());
}

fn the_last_of_thousands_of_killed_waiters_gets_the_lock(kind: Kind) {
    raise_the_limit_of_files();
    let server = Server::options().kind(&kind).start();
    let (mut eye, mut last) = (server.connect(), server.connect());
    let first = token(&acquire(&mut eye, "k", "alice"));
    eye.run("ACL SETUSER one on nopass ~* &* +@all");
    let crowd: Vec<_> = (0..MANY)
        .map(|number| {
            let mut one = server.connect();
            one.run("AUTH one any");
            one.send(cmd!["LOCK.WAIT", "k", format!("owner{number}"), LONG, 0]);
            one
        })
        .collect();
    observe::wait_for_waiters(&mut eye, "k", MANY);
    wait_in_queue(&mut last, &mut eye, "k", "last");
    // In one write, and so in one turn of the event loop.
    eye.send_raw(b"LOCK.RELEASE k alice\r\nCLIENT KILL USER one\r\n");
    assert_eq!([arrival(&mut eye), arrival(&mut eye)], [0, MANY].map(Value::Integer));
    assert!(token(&arrival(&mut last)) > first);
    let counted = ["granted", "disconnects", "grants_taken_back"]
        .map(|field| observe::info_number(&mut eye, &format!("kvlock_{field}")));
    assert_eq!(counted, [3, MANY - 1, 1]);
    expect_unharmed(&server);
    drop(crowd);
}

on_each_server!(
    a_constantly_shared_lock_keeps_few_dead_sharers,
    many_waiting_sharers_are_granted_in_batches,
    a_writer_is_granted_behind_a_crowd_of_dead_readers,
    the_last_of_thousands_of_killed_waiters_gets_the_lock,
);

//! Waiters that leave in the turn of the event loop in which they get the lock, that leave in their
//! thousands, or that the server throws out to save memory. Most of it is in `transcripts/deaths.txt`.

use crate::stage::{LONG, SOON, Stage, Waiter, expect_closed, token_of};
use harness::{Kind, Value, cmd, observe, on_each_server, wait};
use std::process::Command;

/// The server has decided to close the client's connection, drops what is sent to it from then on, and
/// tells nobody so.
fn a_waiter_condemned_in_the_turn_of_its_grant_passes_the_lock_on(kind: Kind) {
    let mut stage = Stage::with(&kind, |options| {
        options.config("client-output-buffer-limit", "normal 40000 0 0")
    });
    let cached = "x".repeat(60_000);
    for condemn in ["ACL DELUSER bob", &format!("SET {cached} 1")] {
        stage.run("ACL SETUSER bob on nopass ~* &* +@all");
        stage.hold("k", "alice", LONG);
        let mut connection = stage.server.connect_resp(3);
        connection.run("AUTH bob x");
        // It is told when this key changes, which is more than it may be sent at once.
        connection.run("CLIENT TRACKING on");
        connection.run(&format!("GET {cached}"));
        let mut bob = stage.wait_on(connection, "k", "bob", LONG, 0);
        let mut carol = stage.wait("k", "carol");
        let taken_back = stage.counted("grants_taken_back");
        stage.at_once(&[condemn, "LOCK.RELEASE k alice"]);
        stage.granted_unseen();
        expect_closed(&mut bob);
        stage.granted(&mut carol);
        assert_eq!(stage.counted("grants_taken_back"), taken_back + 1);
        stage.release("k", "carol");
        stage.run(&format!("DEL {cached}"));
        stage.check();
    }
}

const MANY: i64 = 3000;

/// Lets this process have as many open files as the machine allows; the servers that it starts
/// inherit that.
fn raise_the_limit_of_files() {
    let own = std::process::id().to_string();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("the limits of this process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let most = line.split_whitespace().nth(4).unwrap();
    let raised =
        Command::new("prlimit").args(["--pid", &own, &format!("--nofile={most}:{most}")]).status();
    assert!(raised.expect("run prlimit").success());
}

fn thousands_of_waiters_killed_in_the_turn_of_a_grant_leave_the_lock_to_the_last(kind: Kind) {
    raise_the_limit_of_files();
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.run("ACL SETUSER one on nopass ~* &* +@all");
    let crowd: Vec<_> = (0..MANY)
        .map(|number| {
            let mut one = stage.server.connect();
            one.run("AUTH one any");
            one.send(cmd!["LOCK.WAIT", "k", format!("owner{number}"), LONG, 0]);
            one
        })
        .collect();
    observe::wait_for_waiters(&mut stage.eye, "k", MANY);
    let mut last = stage.wait("k", "last");
    let replies = stage.at_once(&["LOCK.RELEASE k alice", "CLIENT KILL USER one"]);
    assert_eq!(replies[1], Value::Integer(MANY));
    stage.granted_unseen();
    stage.granted(&mut last);
    assert_eq!((stage.counted("disconnects"), stage.counted("grants_taken_back")), (MANY - 1, 1));
    stage.check();
    drop(crowd);
}

/// Lets the client take up a megabyte of the server, with what it has pipelined behind its wait.
fn fatten(stage: &mut Stage, waiter: &mut Waiter) {
    waiter.connection.send_raw(&b"PING\r\n".repeat(200_000));
    wait::until("the server has read it", SOON, || {
        let line = stage.eye.call(cmd!["CLIENT", "LIST", "ID", waiter.id]).text();
        let memory = line.split(' ').find_map(|word| word.strip_prefix("tot-mem=")).unwrap();
        let memory: u64 = memory.parse().unwrap();
        if memory > 1_000_000 { Ok(()) } else { Err(line) }
    });
}

/// Alice holds `k`; bob, fat and to be evicted, and carol wait.
fn fat_bob_and_carol(stage: &mut Stage) -> (Waiter, Waiter) {
    stage.run("CLIENT NO-EVICT ON");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.server.connect();
    carol.run("CLIENT NO-EVICT ON");
    let mut carol = stage.wait_on(carol, "k", "carol", LONG, 0);
    fatten(stage, &mut bob);
    fatten(stage, &mut carol);
    (bob, carol)
}

fn a_waiter_evicted_to_save_memory_is_out_of_the_line(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let (mut bob, mut carol) = fat_bob_and_carol(&mut stage);
    stage.run("CONFIG SET maxmemory-clients 500kb");
    expect_closed(&mut bob);
    observe::wait_for_blocked_clients(&mut stage.eye, 1);
    stage.run("CONFIG SET maxmemory-clients 0");
    assert_eq!(stage.counted("disconnects"), 1);
    stage.release("k", "alice");
    stage.granted_unseen();
    assert_eq!(token_of(&carol.connection.receive(SOON).unwrap()), stage.token("k"));
    stage.check();
}

fn a_waiter_evicted_in_the_turn_of_its_grant_passes_the_lock_on(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let (mut bob, mut carol) = fat_bob_and_carol(&mut stage);
    let squeeze = ["CONFIG SET maxmemory-clients 500kb", "PING", "CONFIG SET maxmemory-clients 0"];
    let lines: Vec<_> = ["LOCK.RELEASE k alice"].into_iter().chain(squeeze).collect();
    stage.at_once(&lines);
    stage.granted_unseen();
    expect_closed(&mut bob);
    stage.granted_unseen();
    assert_eq!(token_of(&carol.connection.receive(SOON).unwrap()), stage.token("k"));
    assert_eq!((stage.counted("disconnects"), stage.counted("grants_taken_back")), (0, 1));
    stage.check();
}

on_each_server!(
    a_waiter_condemned_in_the_turn_of_its_grant_passes_the_lock_on,
    thousands_of_waiters_killed_in_the_turn_of_a_grant_leave_the_lock_to_the_last,
    a_waiter_evicted_to_save_memory_is_out_of_the_line,
    a_waiter_evicted_in_the_turn_of_its_grant_passes_the_lock_on,
);

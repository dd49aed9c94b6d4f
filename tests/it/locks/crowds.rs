//! Thousands who share a lock: how many of the dead are kept, and how many are let in at a time. Hundreds are in
//! `transcripts/crowds.txt`.

use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Server, Value, cmd, on_each_server};

fn a_lock_that_is_always_shared_keeps_few_of_the_dead(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.share("k", "long", LONG);
    for reader in 0..6_000 {
        stage.share("k", &format!("reader-{reader}"), 1);
    }
    let left = stage.run("HLEN k").integer();
    assert!(left < 3_000, "{left} of 6000 dead readers are left");
    assert!(stage.counted("swept") > 3_000);
    assert_eq!(stage.run("LOCK.INFO k HOLDERS 1000").field("mode"), &Value::bulk("shared"));
    stage.check();
}

const READERS: i64 = 1_000;

/// How many are let in, at most, between two commands of somebody else: a few turns' worth, since
/// his commands may not have arrived in every turn.
const STEP: i64 = 256;

fn a_crowd_of_readers_is_let_in_a_few_at_a_time(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut eye = server.connect();
    eye.run("LOCK.ACQUIRE k writer 600000");
    let mut readers: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(cmd!["LOCK.WAIT", "k", format!("reader-{number}"), LONG, 0, "SHARED"]);
    }
    harness::observe::wait_for_waiters(&mut eye, "k", READERS);

    // More than the server reads in one turn, so that it looks every turn.
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

on_each_server!(
    a_lock_that_is_always_shared_keeps_few_of_the_dead,
    a_crowd_of_readers_is_let_in_a_few_at_a_time,
);

//! Hundreds and thousands who share a lock, hold permits or wait for a latch: who dies among them, and how
//! many are served at a time.

use crate::stage::{LONG, SOON, Stage, expect_same_data};
use harness::{Connection, Kind, Server, Value, cmd, on_each_server};

fn release_share(stage: &mut Stage, owner: &str) -> Value {
    stage.eye.call(cmd!["LOCK.RELEASE", "k", owner, "SHARED"])
}

fn who_dies_among_many_frees_its_share_and_the_last_one_the_lock(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    // More than fit into the small form of a hash; the longest lease is given back.
    for reader in 0..600 {
        stage.share("k", &format!("reader-{reader}"), 300 + reader % 3);
    }
    stage.share("k", "long", LONG);
    let mut writer = stage.wait("k", "writer");
    assert_eq!(release_share(&mut stage, "long"), Value::Integer(0));
    stage.granted(&mut writer);
    stage.check();
}

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

/// More holders than fit into the small form of a hash.
fn permits_of_hundreds_of_dead_are_there_for_who_waits_and_for_the_first_who_asks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for waits in [true, false] {
        stage.run("DEL k");
        stage.run("SEM.SET k 700");
        for holder in 0..700 {
            let holder = format!("holder-{holder}");
            let taken = stage.eye.call(cmd!["SEM.ACQUIRE", "k", holder, 1, 300]);
            assert_eq!(taken, Value::Integer(1));
        }
        if waits {
            let mut all = stage.blocked(cmd!["SEM.WAIT", "k", "all", 700, LONG, 0]);
            told(&mut all, 700);
            assert_eq!(stage.counted("swept"), 700);
        } else {
            let end = stage.run("TIME")[0].text().parse::<i64>().unwrap() * 1000 + 1400;
            stage.wait_past(end);
            assert_eq!(stage.run("SEM.ACQUIRE k all 700 600000"), Value::Integer(700));
        }
        assert_eq!(stage.run("HGET k lock-mode").text(), "semaphore 700 700", "waits: {waits}");
        expect_same_data(&stage.server, &stage.replica);
    }
}

/// The only reply is that number.
fn told(waiter: &mut Connection, number: i64) {
    assert_eq!(waiter.receive(SOON).expect("a reply"), Value::Integer(number));
    assert_eq!(waiter.run("PING"), Value::Status("PONG".into()));
}

fn hundreds_who_wait_for_permits_are_served_by_one_command(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 1");
    stage.run("SEM.ACQUIRE k alice 1 600000");
    let wait = |n| cmd!["SEM.WAIT", "k", format!("waiter-{n}"), 1, LONG, 0];
    let mut waiters: Vec<_> = (0..200).map(|n| stage.blocked(wait(n))).collect();
    let mut late = stage.blocked(wait(200));
    stage.run("SEM.SET k 201");
    waiters.iter_mut().for_each(|waiter| told(waiter, 1));
    stage.settle();
    assert!(!late.has_unread());
    assert_eq!(stage.run("HGET k lock-mode").text(), "semaphore 201 201");
    stage.run("SEM.RELEASE k waiter-77");
    told(&mut late, 1);
    expect_same_data(&stage.server, &stage.replica);
}

fn hundreds_who_wait_for_a_latch_are_released_by_one_command(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("LATCH.SET k 1");
    let wait = |n| cmd!["LATCH.WAIT", "k", format!("waiter-{n}"), 0];
    let mut waiters: Vec<_> = (0..300).map(|n| stage.blocked(wait(n))).collect();
    // The next latch is set in the turn in which the first opens: it holds nobody back but its own.
    let next = ["LATCH.COUNTDOWN k", "LATCH.SET k 1", "LATCH.CANCEL k waiter-299"];
    let replies = stage.at_once(&next);
    assert_eq!(replies, [0, 1, 0].map(Value::Integer));
    waiters.iter_mut().for_each(|waiter| told(waiter, 0));
    assert_eq!(stage.counted("released_by_latches"), 300);
    let mut late = stage.blocked(wait(0));
    assert!(!late.has_unread());
    stage.run("LATCH.COUNTDOWN k");
    told(&mut late, 0);
    stage.check();
}

on_each_server!(
    who_dies_among_many_frees_its_share_and_the_last_one_the_lock,
    a_lock_that_is_always_shared_keeps_few_of_the_dead,
    a_crowd_of_readers_is_let_in_a_few_at_a_time,
    permits_of_hundreds_of_dead_are_there_for_who_waits_and_for_the_first_who_asks,
    hundreds_who_wait_for_permits_are_served_by_one_command,
    hundreds_who_wait_for_a_latch_are_released_by_one_command,
);

//! The floor that keeps tokens growing is a plain key that anybody can read, and spoil.

use crate::asking::{acquire, release, token};
use harness::clock::Clock;
use harness::disk::append_only_file;
use harness::observe;
use harness::{Connection, Kind, Server, Value, cmd, on_each_server, wait};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

const FLOOR: &str = "kvlock:floor";

fn floor(connection: &mut Connection) -> i64 {
    let text = connection.call(cmd!["GET", FLOOR]).text();
    text.parse().unwrap_or_else(|_| panic!("the floor is {text:?}"))
}

/// Microseconds since 1970, as the server has it.
fn date(connection: &mut Connection) -> i64 {
    let now = connection.run("TIME");
    let part = |index: usize| now[index].text().parse::<i64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

fn the_floor_is_a_plain_number_a_minute_ahead(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    assert_eq!(a.run("KEYS *"), Value::Array(vec![]), "nothing is written before it is needed");
    let first = token(&acquire(&mut a, "k", "alice"));
    assert_eq!(a.call(cmd!["TYPE", FLOOR]).text(), "string");
    assert_eq!(a.call(cmd!["PTTL", FLOOR]), Value::Integer(-1));
    let floor = floor(&mut a);
    assert!((first + 30_000_000..=first + 60_000_000).contains(&floor), "{first}, {floor}");
    release(&mut a, "k", "alice");
    assert_eq!(a.run("KEYS *"), Value::Array(vec![Value::bulk(FLOOR)]), "no key outlives its lock");
}

/// How many times `SET` is in the append-only file, which is written before any reply.
fn sets_in_file(dir: &Path) -> usize {
    let files = fs::read_dir(dir.join("appendonlydir")).unwrap();
    let files = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    files.map(|bytes| String::from_utf8_lossy(&bytes).matches("\r\nSET\r\n").count()).sum()
}

fn the_floor_is_raised_once_in_half_a_minute(kind: Kind) {
    let clock = Clock::new();
    let server = Server::options().kind(&kind).clock(&clock).append_only("no").start();
    let mut a = server.connect();
    let mut grants = |ahead_ms: i64| {
        clock.set(ahead_ms);
        for _ in 0..100 {
            acquire(&mut a, "k", "alice");
            release(&mut a, "k", "alice");
        }
        sets_in_file(server.dir())
    };
    assert_eq!(grants(0), 1);
    assert_eq!(grants(20_000), 1);
    assert_eq!(grants(35_000), 2);
    assert_eq!(grants(55_000), 2);
    assert_eq!(grants(70_000), 3);
}

/// Two replicas, of which the second hears nothing of what the first does as a primary.
fn who_takes_over_without_having_heard_of_the_one_before_is_above_it(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = || Server::options().kind(&kind).replica_of(&primary).start();
    let (first, second) = (replica(), replica());
    let (mut p, mut f, mut s) = (primary.connect(), first.connect(), second.connect());
    observe::wait_for_replica(&mut p, &mut f);
    observe::wait_for_replica(&mut p, &mut s);
    let before = token(&acquire(&mut p, "k", "alice"));
    release(&mut p, "k", "alice");
    observe::wait_for_replica(&mut p, &mut f);
    observe::wait_for_replica(&mut p, &mut s);

    f.run("REPLICAOF NO ONE");
    let mut last = before;
    for _ in 0..100 {
        let next = token(&acquire(&mut f, "k", "bob"));
        assert!(next > last, "{next} after {last}");
        last = next;
        release(&mut f, "k", "bob");
    }
    s.run("REPLICAOF NO ONE");
    let next = token(&acquire(&mut s, "k", "carol"));
    assert!(next > last, "{next} after {last}");
}

/// Starts within a minute, of which each finds a reservation that is further ahead than the one
/// before; and one of them dies with the power before it could save its own.
fn who_starts_without_what_the_start_before_had_reserved_is_above_it(kind: Kind) {
    let server = Server::options().kind(&kind).append_only("always").start();
    let mut last = 0;
    for saved in [true, true, true, false, false, true] {
        let file = append_only_file(server.dir());
        let size = fs::metadata(&file).unwrap().len();
        let mut a = server.connect();
        for _ in 0..20 {
            let next = token(&acquire(&mut a, "k", "alice"));
            assert!(next > last, "{next} after {last}");
            last = next;
            release(&mut a, "k", "alice");
        }
        server.kill9();
        if !saved {
            File::options().write(true).open(&file).unwrap().set_len(size).unwrap();
        }
        server.restart();
    }
    assert!(token(&acquire(&mut server.connect(), "k", "alice")) > last);
}

/// Neither is a reason to begin above one's own reservation, which nobody may have heard of yet.
fn who_takes_over_before_anything_was_granted_is_above_the_one_before(kind: Kind) {
    let options = Server::options().kind(&kind);
    let before = options.clone().start();
    let after = options.replica_of(&before).start();
    observe::wait_for_replica(&mut before.connect(), &mut after.connect());
    assert_eq!(after.connect().run("REPLICAOF NO ONE"), Value::Status("OK".into()));
    // The one before does not know it yet, and grants its first lock a little later.
    let theirs = token(&acquire(&mut after.connect(), "k", "bob"));
    let ours = token(&acquire(&mut before.connect(), "k", "alice"));
    assert!(ours < theirs, "{ours} of the deposed primary, {theirs} of its successor");
}

/// Two that take over one after the other, of which the first grants nothing before the second does:
/// what counts is who was there first, not who grants first.
fn who_was_deposed_before_it_granted_anything_is_below_its_successor(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = || Server::options().kind(&kind).replica_of(&primary).start();
    let (first, second) = (replica(), replica());
    acquire(&mut primary.connect(), "k", "alice");
    release(&mut primary.connect(), "k", "alice");
    for replica in [&first, &second] {
        observe::wait_for_replica(&mut primary.connect(), &mut replica.connect());
        assert_eq!(replica.connect().run("REPLICAOF NO ONE"), Value::Status("OK".into()));
        // The date goes on in between.
        observe::let_pass(&mut replica.connect(), Duration::from_millis(10));
    }
    let theirs = token(&acquire(&mut second.connect(), "k", "carol"));
    let ours = token(&acquire(&mut first.connect(), "k", "bob"));
    assert!(ours < theirs, "{ours} of the deposed primary, {theirs} of its successor");
}

/// Values of a floor that no server of ours has written.
const POISONED_FLOORS: [&str; 8] =
    ["9007199254740992", "4503599627370497", "18446744073709551616", "-5", "0", "1e15", "text", ""];

/// Values of a token field that no server of ours has written.
const POISON: [&str; 13] = [
    "t9223372036854775807",
    "t-1",
    "t",
    "17",
    "t9007199254740992",
    "t4503599627370497",
    "t18446744073709551616",
    "t-5",
    "t0",
    "t1e15",
    "text",
    "5",
    "",
];

fn a_poisoned_token_of_a_held_lock_is_ignored_and_replaced(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    let mut last = token(&acquire(&mut a, "k", "alice"));
    for poison in POISON {
        a.call(cmd!["HSET", "k", "fencing-token", poison]);
        assert_eq!(a.run("LOCK.INFO k").field("token"), &Value::Nil, "{poison:?}");
        let again = token(&a.run("LOCK.ACQUIRE k alice 1000"));
        assert!(again > last && again <= date(&mut a), "{poison:?}: {again} after {last}");
        assert_eq!(a.run("HGET k fencing-token"), Value::bulk(format!("t{again}")));
        last = again;

        // The next owner does not inherit it either.
        a.call(cmd!["HSET", "k", "fencing-token", poison]);
        a.run("LOCK.FORCERELEASE k");
        let next = token(&acquire(&mut a, "k", "alice"));
        assert!(next > last && next <= date(&mut a), "{poison:?}: {next} after {last}");
        last = next;
    }
}

/// A server reads the floor before its first grant, and again when something befell the key.
fn a_poisoned_floor_is_ignored_and_replaced(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    let mut last = 0;
    let poisoned = POISONED_FLOORS.map(|poison| format!("SET {FLOOR} \"{poison}\""));
    let others = ["RPUSH # 1", "SADD # 1", "HSET # f 1"];
    let others = others.map(|line| line.replace('#', FLOOR));
    for spoil in poisoned.into_iter().chain(others) {
        a.call(cmd!["DEL", FLOOR]);
        assert!(!a.run(&spoil).is_error(), "{spoil}");
        let next = token(&acquire(&mut a, "k", "alice"));
        let now = date(&mut a);
        assert!(next > last && next <= now, "{spoil}: {next} after {last}, now {now}");
        assert!((next..now + 60_000_001).contains(&floor(&mut a)), "{spoil}");
        release(&mut a, "k", "alice");
        last = next;
    }
}

fn a_floor_that_another_server_has_set_is_noticed(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    acquire(&mut a, "k", "alice");
    // No event tells of it, so it takes a moment.
    let theirs = floor(&mut a) + 1_000_000_000;
    a.call(cmd!["SET", FLOOR, theirs]);
    wait::until("tokens are above the other server's", observe::PATIENCE, || {
        release(&mut a, "k", "alice");
        let token = token(&acquire(&mut a, "k", "alice"));
        if token > theirs { Ok(()) } else { Err(format!("{token}, not above {theirs}")) }
    });
    assert!(floor(&mut a) > theirs);
}

fn a_floor_that_expires_is_written_anew_without_an_end(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    let first = token(&acquire(&mut a, "k", "alice"));
    let before = floor(&mut a);
    a.call(cmd!["PEXPIRE", FLOOR, 600_000]);
    release(&mut a, "k", "alice");
    // Whoever touched it may have read it: the server starts above what it finds.
    let next = token(&acquire(&mut a, "k", "alice"));
    assert!(first < before && before < next, "{first}, {before}, {next}");
    assert_eq!(a.call(cmd!["PTTL", FLOOR]), Value::Integer(-1));
    assert!(floor(&mut a) > next);
}

on_each_server!(
    a_floor_that_expires_is_written_anew_without_an_end,
    the_floor_is_a_plain_number_a_minute_ahead,
    the_floor_is_raised_once_in_half_a_minute,
    who_takes_over_without_having_heard_of_the_one_before_is_above_it,
    who_starts_without_what_the_start_before_had_reserved_is_above_it,
    who_takes_over_before_anything_was_granted_is_above_the_one_before,
    who_was_deposed_before_it_granted_anything_is_below_its_successor,
    a_poisoned_token_of_a_held_lock_is_ignored_and_replaced,
    a_poisoned_floor_is_ignored_and_replaced,
    a_floor_that_another_server_has_set_is_noticed,
);

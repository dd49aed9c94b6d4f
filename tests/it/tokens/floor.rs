//! Servers that start or take over one after the other, of which a later one has not heard what an earlier
//! one had reserved. What anybody can do to the floor is in `transcripts/floor.txt`.

use crate::asking::{acquire, release, token};
use harness::disk::append_only_file;
use harness::observe;
use harness::{Kind, Server, Value, on_each_server};
use std::fs::{self, File};
use std::time::Duration;

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

on_each_server!(
    who_takes_over_without_having_heard_of_the_one_before_is_above_it,
    who_starts_without_what_the_start_before_had_reserved_is_above_it,
    who_was_deposed_before_it_granted_anything_is_below_its_successor,
);

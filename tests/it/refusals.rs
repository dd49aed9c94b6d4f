//! What the server as a whole refuses: memory, replicas, roles, disks.

use crate::asking::{acquire, arrival, error, release, state, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, observe, on_each_server, wait};
use std::time::Duration;

#[track_caller]
fn refused(connection: &mut Connection, line: &str, code: &str) {
    let text = error(&connection.run(line));
    assert!(text.starts_with(&format!("{code} ")) || text == code, "{line} answers {text}");
}

fn a_server_out_of_memory_takes_no_locks_and_gives_them_back(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut a, mut b) = (server.connect(), server.connect());
    for key in ["k", "l", "m"] {
        acquire(&mut a, key, "alice");
    }
    wait_in_line(&mut b, &mut a, "k", "bob");
    a.run("CONFIG SET maxmemory 1");
    refused(&mut a, "LOCK.ACQUIRE free alice 1000", "OOM");
    refused(&mut a, "LOCK.WAIT free alice 1000 1000", "OOM");
    assert_eq!(a.run("LOCK.RENEW k alice 1000"), Value::Integer(1000));
    assert_eq!(a.run("LOCK.CANCEL k bob"), Value::Integer(1));
    assert_eq!(arrival(&mut b), Value::Nil);
    assert_eq!(release(&mut a, "k", "alice"), Value::Integer(0));
    assert_eq!(a.run("LOCK.FORCERELEASE l"), Value::Integer(1));
    assert_eq!(a.run("LOCK.INFO m").field("owner"), &Value::bulk("alice"));
}

fn a_server_without_its_replicas_takes_no_locks(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    acquire(&mut a, "k", "alice");
    a.run("CONFIG SET min-replicas-to-write 1");
    refused(&mut a, "LOCK.ACQUIRE free alice 1000", "NOREPLICAS");
    refused(&mut a, "LOCK.WAIT free alice 1000 1000", "NOREPLICAS");
    assert_eq!(a.run("EXISTS free"), Value::Integer(0));
    assert_eq!(a.run("LOCK.INFO k").field("owner"), &Value::bulk("alice"));
}

fn who_shares_holds_permits_or_counts_can_stop_when_memory_is_short(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut a = server.connect();
    for line in [
        "LOCK.ACQUIRE k alice 600000 SHARED",
        "SEM.SET pool 2",
        "SEM.ACQUIRE pool alice 2 600000",
        "LATCH.SET latch 2",
        "CONFIG SET maxmemory 1",
    ] {
        assert!(!a.run(line).is_error(), "{line}");
    }
    for line in [
        "LOCK.ACQUIRE k bob 1000 SHARED",
        "SEM.SET pool 3",
        "SEM.ACQUIRE pool bob 1 1000",
        "SEM.WAIT pool bob 1 1000 0",
        "LATCH.SET other 1",
    ] {
        refused(&mut a, line, "OOM");
    }
    for (line, reply) in [
        ("LOCK.RENEW k alice 1000", 1000),
        ("LOCK.RELEASE k alice SHARED", 0),
        ("SEM.RENEW pool alice 1000", 1000),
        ("SEM.RELEASE pool alice", 1),
        ("SEM.CANCEL pool bob", 0),
        ("LATCH.COUNTDOWN latch bob", 1),
        ("LATCH.CANCEL latch bob", 0),
        ("LATCH.WAIT free bob 0", 0),
    ] {
        assert_eq!(a.run(line), Value::Integer(reply), "{line}");
    }
}

fn nobody_is_let_in_unasked_without_the_replicas(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let (mut a, mut b, mut c) = (server.connect(), server.connect(), server.connect());
    a.run("LOCK.ACQUIRE k alice 600000 SHARED");
    a.run("SEM.SET pool 1");
    a.run("SEM.ACQUIRE pool alice 1 600000");
    wait_in_line(&mut b, &mut a, "k", "writer");
    let id = c.client_id();
    c.send(harness::cmd!["SEM.WAIT", "pool", "bob", 1, 1000, 0]);
    observe::wait_until_blocked(&mut a, id);
    // Both leases end when nothing may be written.
    let both = "LOCK.RENEW k alice 100\r\nSEM.RENEW pool alice 100\r\nCONFIG SET min-replicas-to-write 1\r\n";
    a.send_raw(both.as_bytes());
    for _ in 0..3 {
        assert!(!arrival(&mut a).is_error());
    }
    assert_eq!(arrival(&mut b).code(), "NOREPLICAS");
    assert_eq!(arrival(&mut c).code(), "NOREPLICAS");
    a.run("CONFIG SET min-replicas-to-write 0");
    token(&acquire(&mut a, "k", "carol"));
    assert_eq!(a.run("SEM.ACQUIRE pool carol 1 1000"), Value::Integer(1));
}

fn a_server_that_cannot_save_takes_no_locks(kind: Kind) {
    let server = Server::options()
        .kind(&kind)
        .config("save", "3600 1")
        .config("dbfilename", "taken")
        .start();
    // A file cannot be put where a folder is.
    std::fs::create_dir_all(server.dir().join("taken/inside")).unwrap();
    let mut a = server.connect();
    acquire(&mut a, "k", "alice");
    a.run("BGSAVE");
    wait::until("the save has failed", Duration::from_secs(10), || {
        match observe::info_field(&mut a, "rdb_last_bgsave_status").as_deref() {
            Some("err") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    refused(&mut a, "LOCK.ACQUIRE free alice 1000", "MISCONF");
    refused(&mut a, "LOCK.WAIT free alice 1000 1000", "MISCONF");
    assert_eq!(a.run("EXISTS free"), Value::Integer(0));
}

const CHANGES: [&str; 5] = [
    "LOCK.ACQUIRE k alice 1000",
    "LOCK.WAIT k bob 1000 0",
    "LOCK.RELEASE k alice",
    "LOCK.RENEW k alice 1000",
    "LOCK.FORCERELEASE k",
];

fn a_replica_shows_locks_and_grants_none(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let mut p = primary.connect();
    let granted = token(&acquire(&mut p, "k", "alice"));
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let mut r = replica.connect();
    observe::wait_for_replica(&mut p, &mut r);
    assert_eq!(r.run("LOCK.INFO k").field("token"), &Value::Integer(granted));
    let before = state(&mut r, "k");
    for line in CHANGES {
        refused(&mut r, line, "READONLY");
    }
    // By its role, not by its setting.
    r.run("CONFIG SET replica-read-only no");
    for line in
        CHANGES.into_iter().chain(["LOCK.ACQUIRE free bob 1000", "LOCK.WAIT free bob 1000 0"])
    {
        refused(&mut r, line, "READONLY");
    }
    assert_eq!(state(&mut r, "k"), before);
    assert_eq!(r.run("EXISTS free"), Value::Integer(0));
}

fn a_server_that_becomes_a_replica_sends_its_waiters_away(kind: Kind) {
    let (primary, server) =
        (Server::options().kind(&kind).start(), Server::options().kind(&kind).start());
    let (mut a, mut b) = (server.connect(), server.connect());
    acquire(&mut a, "k", "alice");
    wait_in_line(&mut b, &mut a, "k", "bob");
    a.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    assert_eq!(arrival(&mut b).code(), "UNBLOCKED");
    observe::wait_for_replica(&mut primary.connect(), &mut a);
    assert_eq!(a.run("LOCK.INFO k").field("waiters"), &Value::Integer(0));
    // And back: nothing is left of the old queue.
    a.run("REPLICAOF NO ONE");
    token(&acquire(&mut a, "k", "carol"));
    assert_eq!(release(&mut a, "k", "carol"), Value::Integer(0));
    assert_eq!(a.run("EXISTS k"), Value::Integer(0));
    server.assert_alive();
}

fn a_promoted_replica_knows_the_locks_and_goes_on_with_larger_tokens(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let mut p = primary.connect();
    let granted = token(&acquire(&mut p, "k", "alice"));
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let mut r = replica.connect();
    observe::wait_for_replica(&mut p, &mut r);
    primary.kill9();
    r.run("REPLICAOF NO ONE");
    assert_eq!(acquire(&mut r, "k", "bob"), Value::Nil);
    assert_eq!(r.run("LOCK.RENEW k alice 60000"), Value::Integer(60_000));
    assert_eq!(release(&mut r, "k", "alice"), Value::Integer(0));
    assert!(token(&acquire(&mut r, "k", "bob")) > granted);
}

fn a_replica_and_a_file_need_no_module(kind: Kind) {
    let primary = Server::options().kind(&kind).append_only("always").start();
    let plain = Server::options().kind(&kind).without_module().replica_of(&primary).start();
    let (mut p, mut b, mut r) = (primary.connect(), primary.connect(), plain.connect());
    acquire(&mut p, "k", "alice");
    wait_in_line(&mut b, &mut p, "k", "bob");
    assert_eq!(release(&mut p, "k", "alice"), Value::Integer(0));
    let granted = token(&arrival(&mut b));
    acquire(&mut p, "gone", "alice");
    assert_eq!(release(&mut p, "gone", "alice"), Value::Integer(0));
    observe::wait_for_replica(&mut p, &mut r);
    let lock = |connection: &mut Connection| {
        let fields = connection.run("HMGET k bob alice fencing-token");
        assert_eq!(fields.to_string(), format!("1) \"1\"\n2) (nil)\n3) \"t{granted}\""));
        assert_eq!(connection.run("EXISTS gone"), Value::Integer(0));
        connection.run("PEXPIRETIME k").integer()
    };
    let ends = lock(&mut p);
    assert_eq!(lock(&mut r), ends, "the replica has another deadline");
    primary.kill9();
    let copy = Server::options()
        .kind(&kind)
        .without_module()
        .append_only("always")
        .dir(primary.dir())
        .start();
    assert_eq!(lock(&mut copy.connect()), ends, "the file has another deadline");
}

on_each_server!(
    who_shares_holds_permits_or_counts_can_stop_when_memory_is_short,
    nobody_is_let_in_unasked_without_the_replicas,
    a_server_out_of_memory_takes_no_locks_and_gives_them_back,
    a_server_without_its_replicas_takes_no_locks,
    a_server_that_cannot_save_takes_no_locks,
    a_replica_shows_locks_and_grants_none,
    a_server_that_becomes_a_replica_sends_its_waiters_away,
    a_promoted_replica_knows_the_locks_and_goes_on_with_larger_tokens,
    a_replica_and_a_file_need_no_module,
);

//! A server that takes no writes from clients, for want of replicas, disk or memory, takes none
//! from the module either: those who wait hear the server's own reason instead of a grant.

use crate::asking::{acquire, arrival, token, wait_in_line};

use super::deaths::{expect_closed, kill};
use super::stage::{LONG, SOON, Stage};
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};

const TOO_FEW: &str = "CONFIG SET min-replicas-to-write 2";
const ENOUGH: &str = "CONFIG SET min-replicas-to-write 0";

/// Both waiters of `k` are refused with that code, and nothing is written.
fn expect_refused(stage: &mut Stage, code: &str, cause: impl FnOnce(&mut Stage)) {
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let granted = stage.counted("granted");
    cause(stage);
    for waiter in [&mut bob, &mut carol] {
        let reply = waiter.connection.receive(SOON).unwrap();
        assert_eq!(reply.code(), code, "{reply}");
        assert_eq!(waiter.connection.run("ECHO on"), Value::bulk("on"));
    }
    assert_eq!(stage.counted("granted"), granted);
    assert_eq!(stage.run("EXISTS k"), Value::Integer(0));
    assert_eq!(stage.counted("waiters"), 0);
}

fn too_few_replicas_refuse_a_lock_and_its_waiters(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    expect_refused(&mut stage, "NOREPLICAS", |stage| {
        stage.let_the_lease_end_after(TOO_FEW);
    });
    for line in ["ACQUIRE k bob 1000", "WAIT k bob 1000 0", "RELEASE k bob", "FORCERELEASE k"] {
        assert_eq!(stage.run(&format!("LOCK.{line}")).code(), "NOREPLICAS", "{line}");
    }
    stage.run(ENOUGH);

    stage.hold("k", "alice", LONG);
    expect_refused(&mut stage, "NOREPLICAS", |stage| {
        stage.at_once(&["DEL k", TOO_FEW]);
    });
    stage.run(ENOUGH);

    // Enough of them, and all is as ever.
    stage.run("CONFIG SET min-replicas-to-write 1");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.let_the_lease_end_after("PING");
    stage.granted(&mut bob);
    stage.check();
}

fn too_few_replicas_do_not_disturb_who_waits_for_the_living(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // A writer behind a reader: whatever befalls the key, there is nothing to be granted.
    stage.share("k", "reader", LONG);
    let mut writer = stage.wait("k", "writer");
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("l", "bob");
    stage.at_once(&["PEXPIRE k 900000", "DEL l", TOO_FEW]);
    // Both were looked at, the lock with the reader first.
    assert_eq!(bob.connection.receive(SOON).unwrap().code(), "NOREPLICAS");
    assert!(!writer.connection.has_unread(), "the writer was told something");
    assert!(observe::is_blocked(&mut stage.eye, writer.id));
    stage.run(ENOUGH);
    assert_eq!(stage.run("LOCK.RELEASE k reader SHARED"), Value::Integer(0));
    stage.granted(&mut writer);
    stage.release("k", "writer");
    stage.check();
}

fn too_few_replicas_do_not_disturb_who_waits_for_permits_of_the_living(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET s 2");
    assert_eq!(stage.run("SEM.ACQUIRE s alice 1 2000"), Value::Integer(1));
    let mut carol = stage.server.connect();
    let id = carol.client_id();
    carol.send(cmd!["SEM.WAIT", "s", "carol", 2, LONG, 0]);
    observe::wait_until_blocked(&mut stage.eye, id);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("l", "bob");
    // The permits are looked at when that lease would have ended, before the lock.
    stage.at_once(&["SEM.RENEW s alice 600000", "LOCK.RENEW l alice 2500", TOO_FEW]);
    assert_eq!(bob.connection.receive(2 * SOON).unwrap().code(), "NOREPLICAS");
    assert!(!carol.has_unread(), "somebody who waits for permits was told something");
    assert!(observe::is_blocked(&mut stage.eye, id));
    stage.run(ENOUGH);
    assert_eq!(stage.run("SEM.RELEASE s alice"), Value::Integer(0));
    assert_eq!(carol.receive(SOON).unwrap(), Value::Integer(2));
    (0..2).for_each(|_| stage.granted_unseen());
    stage.check();
}

fn too_few_replicas_refuse_permits_of_the_dead(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET s 2");
    assert_eq!(stage.run("SEM.ACQUIRE s alice 1 600000"), Value::Integer(1));
    let mut carol = stage.server.connect();
    let id = carol.client_id();
    carol.send(cmd!["SEM.WAIT", "s", "carol", 2, LONG, 0]);
    observe::wait_until_blocked(&mut stage.eye, id);
    stage.at_once(&["SEM.RENEW s alice 100", TOO_FEW]);
    assert_eq!(carol.receive(SOON).unwrap().code(), "NOREPLICAS");
    stage.run(ENOUGH);
    assert_eq!(stage.run("SEM.ACQUIRE s carol 2 600000"), Value::Integer(2));
    (0..2).for_each(|_| stage.granted_unseen());
    stage.check();
}

fn a_dead_waiters_grant_stays_until_its_lease_ends_when_replicas_are_too_few(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait_with("k", "bob", 2000, 0);
    let mut carol = stage.wait("k", "carol");
    stage.at_once(&["LOCK.RELEASE k alice", &kill(&bob), TOO_FEW]);
    stage.granted_unseen();
    expect_closed(&mut bob);
    stage.run(ENOUGH);
    stage.granted(&mut carol);
    stage.check();
}

fn a_failing_disk_refuses_a_lock_and_its_waiters(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // A folder in the place of the snapshot lets every snapshot fail, also for root.
    std::fs::create_dir(stage.server.dir().join("dump.rdb")).unwrap();
    stage.run("CONFIG SET stop-writes-on-bgsave-error no");
    stage.run("CONFIG SET save \"3600 1000000\"");
    assert!(!stage.run("BGSAVE").is_error());
    wait::until("the snapshot has failed", SOON, || {
        match observe::info_field(&mut stage.eye, "rdb_last_bgsave_status") {
            Some(status) if status == "err" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    stage.hold("k", "alice", LONG);
    expect_refused(&mut stage, "MISCONF", |stage| {
        stage.let_the_lease_end_after("CONFIG SET stop-writes-on-bgsave-error yes");
    });
    for line in ["ACQUIRE k bob 1000", "WAIT k bob 1000 0", "RENEW k bob 1000"] {
        assert_eq!(stage.run(&format!("LOCK.{line}")).code(), "MISCONF", "{line}");
    }
    stage.run("CONFIG SET stop-writes-on-bgsave-error no");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    stage.release("k", "alice");
    stage.granted(&mut bob);
    stage.check();
}

fn a_full_server_takes_no_locks_but_passes_them_on(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let full = "CONFIG SET maxmemory 1";
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait("k", "dave");
    let mut erin = stage.wait("k", "erin");
    let mut frank = stage.wait("k", "frank");
    stage.run(full);
    for line in ["ACQUIRE free x 1000", "WAIT free x 1000 0", "ACQUIRE l alice 1000"] {
        assert_eq!(stage.run(&format!("LOCK.{line}")).code(), "OOM", "{line}");
    }
    assert_eq!(stage.run("LOCK.RENEW l alice 600000"), Value::Integer(600_000));
    assert_eq!(stage.run("LOCK.CANCEL k erin"), Value::Integer(1));
    assert_eq!(erin.connection.receive(SOON).unwrap(), Value::Nil);
    // By release, force, the end of a lease, and from outside.
    stage.release("k", "alice");
    stage.granted(&mut bob);
    assert_eq!(stage.run("LOCK.FORCERELEASE k"), Value::Integer(1));
    stage.granted(&mut carol);
    assert_eq!(stage.run("LOCK.RENEW k carol 50"), Value::Integer(50));
    stage.granted(&mut dave);
    stage.run("DEL k");
    stage.granted(&mut frank);
    stage.release("k", "frank");
    stage.release("l", "alice");
    stage.run("CONFIG SET maxmemory 0");
    stage.check();
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
        assert_eq!(a.run(line).code(), "OOM", "{line}");
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
    c.send(cmd!["SEM.WAIT", "pool", "bob", 1, 1000, 0]);
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

on_each_server!(
    who_shares_holds_permits_or_counts_can_stop_when_memory_is_short,
    nobody_is_let_in_unasked_without_the_replicas,
    too_few_replicas_refuse_a_lock_and_its_waiters,
    too_few_replicas_do_not_disturb_who_waits_for_the_living,
    too_few_replicas_do_not_disturb_who_waits_for_permits_of_the_living,
    too_few_replicas_refuse_permits_of_the_dead,
    a_dead_waiters_grant_stays_until_its_lease_ends_when_replicas_are_too_few,
    a_failing_disk_refuses_a_lock_and_its_waiters,
    a_full_server_takes_no_locks_but_passes_them_on,
);

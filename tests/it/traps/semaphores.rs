//! Semaphores: many who wait, holders that die, and what replicas, files, pauses and foreign
//! changes make of them.

use super::deaths::{expect_closed, kill};
use super::stage::{LONG, SOON, Stage, Waiter, expect_same_data};
use super::trail::trail;
use harness::random::Random;
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};
use std::sync::atomic::{AtomicI64, Ordering};

/// Puts a client in line for permits.
fn wait_for_permits(stage: &mut Stage, owner: &str, permits: u64, lease_ms: u64) -> Waiter {
    wait_for_permits_of(stage, "k", owner, permits, lease_ms)
}

fn wait_for_permits_of(
    stage: &mut Stage,
    key: &str,
    owner: &str,
    permits: u64,
    lease_ms: u64,
) -> Waiter {
    let mut connection = stage.server.connect();
    let id = connection.client_id();
    connection.send(cmd!["SEM.WAIT", key, owner, permits, lease_ms, 0]);
    observe::wait_until_blocked(&mut stage.eye, id);
    Waiter { key: key.to_owned(), owner: owner.to_owned(), id, connection }
}

fn expect_permits(waiter: &mut Waiter, permits: i64) {
    let owner = &waiter.owner;
    let reply = waiter.connection.receive(SOON).unwrap_or_else(|e| panic!("{owner}: {e}"));
    assert_eq!(reply, Value::Integer(permits), "{owner}");
    assert_eq!(waiter.connection.run("PING"), Value::Status("PONG".into()), "{owner}");
}

fn counts(stage: &mut Stage) -> String {
    stage.run("HGET k lock-mode").text()
}

fn effects_of_semaphores_are_core_commands_in_one_transaction(kind: Kind) {
    let mut stage = Stage::with_files(&kind);
    let mut read = 0;
    for (line, expected) in [
        ("SEM.SET k 3", vec!["HSET k lock-mode semaphore 3 0"]),
        ("SEM.SET k 3", vec![]),
        ("SEM.SET k 9 NX", vec![]),
        ("SEM.ACQUIRE k alice 2 600000", vec!["HSET k lock-mode semaphore 3 2 alice 2 #"]),
        ("SEM.ACQUIRE k alice 2 1000 HOLDS 2", vec![]),
        ("SEM.ACQUIRE k bob 2 1000", vec![]),
        ("SEM.ACQUIRE k bob 1 600000", vec!["HSET k lock-mode semaphore 3 3 bob 1 #"]),
        ("SEM.RENEW k bob 700000", vec!["HSET k lock-mode semaphore 3 3 bob 1 #"]),
        ("SEM.RELEASE k alice", vec!["HSET k lock-mode semaphore 3 2 alice 1 #"]),
        ("SEM.RELEASE k alice", vec!["{HDEL k alice; HSET k lock-mode semaphore 3 1}"]),
        ("SEM.SET k 2", vec!["HSET k lock-mode semaphore 2 1"]),
    ] {
        assert!(!stage.run(line).is_error(), "{line}");
        let lines = trail(&stage.server);
        assert_eq!(lines[read..], expected, "after {line}");
        read = lines.len();
    }
    let mut carol = wait_for_permits(&mut stage, "carol", 2, LONG);
    stage.run("SEM.RELEASE k bob");
    expect_permits(&mut carol, 2);
    let handed_over =
        "{HDEL k bob; HSET k lock-mode semaphore 2 0; HSET k lock-mode semaphore 2 2 carol 2 #}";
    assert_eq!(trail(&stage.server)[read..], [handed_over]);
    expect_same_data(&stage.server, &stage.replica);
}

fn permits_of_the_dead_come_back_to_those_who_wait(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // More holders than fit into the small form of a hash.
    stage.run("SEM.SET k 700");
    for holder in 0..700 {
        let lease = 300 + holder % 7;
        let taken = stage.eye.call(cmd!["SEM.ACQUIRE", "k", format!("holder-{holder}"), 1, lease]);
        assert_eq!(taken, Value::Integer(1));
    }
    let mut all = wait_for_permits(&mut stage, "all", 700, LONG);
    expect_permits(&mut all, 700);
    assert_eq!(stage.run("HLEN k"), Value::Integer(2));
    assert_eq!(counts(&mut stage), "semaphore 700 700");
    assert_eq!(stage.counted("swept"), 700);
    expect_same_data(&stage.server, &stage.replica);
}

fn permits_of_hundreds_of_dead_are_there_for_the_first_who_asks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 700");
    for holder in 0..700 {
        stage.eye.call(cmd!["SEM.ACQUIRE", "k", format!("holder-{holder}"), 1, 100]);
    }
    let end = stage.run("TIME")[0].text().parse::<i64>().unwrap() * 1000 + 1200;
    stage.wait_past(end);
    assert_eq!(stage.run("SEM.ACQUIRE k all 700 600000"), Value::Integer(700));
    assert_eq!(counts(&mut stage), "semaphore 700 700");
    expect_same_data(&stage.server, &stage.replica);
}

fn hundreds_who_wait_are_served_by_one_command(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 1");
    stage.run("SEM.ACQUIRE k alice 1 600000");
    let mut waiters: Vec<_> =
        (0..200).map(|n| wait_for_permits(&mut stage, &format!("waiter-{n}"), 1, LONG)).collect();
    let mut late = wait_for_permits(&mut stage, "late", 1, LONG);
    stage.run("SEM.SET k 201");
    waiters.iter_mut().for_each(|waiter| expect_permits(waiter, 1));
    stage.settle();
    assert!(!late.connection.has_unread());
    assert_eq!(counts(&mut stage), "semaphore 201 201");
    stage.run("SEM.RELEASE k waiter-77");
    expect_permits(&mut late, 1);
    expect_same_data(&stage.server, &stage.replica);
}

fn permits_granted_to_a_client_that_is_gone_are_taken_back(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 2");
    stage.run("SEM.ACQUIRE k alice 2 600000");
    let mut bob = wait_for_permits(&mut stage, "bob", 2, LONG);
    let mut carol = wait_for_permits(&mut stage, "carol", 1, LONG);
    stage.at_once(&["SEM.RELEASE k alice ALL", &kill(&bob)]);
    expect_closed(&mut bob);
    expect_permits(&mut carol, 1);
    assert_eq!(stage.counted("grants_taken_back"), 1);
    assert_eq!(counts(&mut stage), "semaphore 2 1");
    expect_same_data(&stage.server, &stage.replica);
}

fn permits_of_two_semaphores_granted_to_one_owner_that_is_gone_are_taken_back(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let (mut gone, mut next) = (Vec::new(), Vec::new());
    for key in ["k", "other"] {
        stage.run(&format!("SEM.SET {key} 1"));
        stage.run(&format!("SEM.ACQUIRE {key} alice 1 600000"));
        gone.push(wait_for_permits_of(&mut stage, key, "bob", 1, LONG));
        next.push(wait_for_permits_of(&mut stage, key, "carol", 1, LONG));
    }
    let kills = [kill(&gone[0]), kill(&gone[1])];
    stage.at_once(&["SEM.RELEASE k alice", "SEM.RELEASE other alice", &kills[0], &kills[1]]);
    gone.iter_mut().for_each(expect_closed);
    next.iter_mut().for_each(|carol| expect_permits(carol, 1));
    assert_eq!(stage.counted("grants_taken_back"), 2);
    expect_same_data(&stage.server, &stage.replica);
}

fn a_holder_that_dies_in_a_pause_makes_way_after_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 1");
    stage.run("SEM.ACQUIRE k alice 1 600000");
    let mut bob = wait_for_permits(&mut stage, "bob", 1, LONG);
    let replies = stage.at_once(&["SEM.RENEW k alice 100", "TIME", "CLIENT PAUSE 600000 WRITE"]);
    let seconds: i64 = replies[1][0].text().parse().unwrap();
    stage.wait_past(seconds * 1000 + 1400);
    assert!(!bob.connection.has_unread());
    assert_eq!(counts(&mut stage), "semaphore 1 1");
    stage.run("CLIENT UNPAUSE");
    expect_permits(&mut bob, 1);
    expect_same_data(&stage.server, &stage.replica);
}

fn who_waits_is_told_when_the_semaphore_goes_and_not_when_it_is_back_at_once(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for take in ["DEL k", "UNLINK k", "FLUSHALL", "PEXPIRE k 20", "RENAME k other"] {
        stage.run("SEM.SET k 1");
        stage.run("SEM.ACQUIRE k alice 1 600000");
        let mut bob = wait_for_permits(&mut stage, "bob", 1, LONG);
        assert!(!stage.run(take).is_error(), "{take}");
        assert_eq!(bob.connection.receive(SOON).unwrap().code(), "UNSET", "{take}");
    }
    stage.run("SEM.SET k 1");
    stage.run("SEM.ACQUIRE k alice 1 600000");
    let mut bob = wait_for_permits(&mut stage, "bob", 1, LONG);
    stage.at_once(&["MULTI", "DEL k", "SEM.SET k 1", "EXEC"]);
    expect_permits(&mut bob, 1);
    expect_same_data(&stage.server, &stage.replica);
}

/// The number of held permits is a field of its own, and a stranger who takes a holder out of the
/// hash does not know it.
fn permits_of_a_holder_that_a_stranger_took_out_are_free(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 3");
    for owner in ["alice", "bob", "carol"] {
        stage.eye.call(cmd!["SEM.ACQUIRE", "k", owner, 1, 600_000]);
    }
    // It is known now that no lease ends soon.
    assert_eq!(stage.run("SEM.ACQUIRE k dave 1 600000"), Value::Nil);
    stage.run("HDEL k alice");
    assert_eq!(stage.run("SEM.ACQUIRE k dave 1 600000"), Value::Integer(1));
    assert_eq!(counts(&mut stage), "semaphore 3 3");
    let mut erin = wait_for_permits(&mut stage, "erin", 2, 600_000);
    stage.run("HDEL k bob carol");
    expect_permits(&mut erin, 2);
    assert_eq!(counts(&mut stage), "semaphore 3 3");
    expect_same_data(&stage.server, &stage.replica);
}

fn who_waits_for_more_than_there_are_hears_so_even_if_the_server_takes_no_writes(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("SEM.SET k 3");
    stage.run("SEM.ACQUIRE k alice 3 600000");
    stage.run("SEM.SET small 2");
    stage.run("SEM.ACQUIRE small alice 1 600000");
    stage.run("SEM.ACQUIRE small dave 1 600000");
    let mut bob = wait_for_permits(&mut stage, "bob", 3, LONG);
    let mut carol = wait_for_permits(&mut stage, "carol", 1, LONG);
    stage.at_once(&["RENAME small k", "CONFIG SET min-replicas-to-write 9"]);
    assert_eq!(bob.connection.receive(SOON).unwrap().code(), "TOOMANY");
    stage.run("CONFIG SET min-replicas-to-write 0");
    stage.run("SEM.RELEASE k alice");
    expect_permits(&mut carol, 1);
    expect_same_data(&stage.server, &stage.replica);
}

fn a_promoted_replica_knows_who_holds_permits(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    stage.run("SEM.SET k 3");
    stage.run("SEM.ACQUIRE k alice 2 600000");
    expect_same_data(&stage.server, &stage.replica);
    let mut promoted = stage.replica.connect();
    for refused in [
        "SET k 1",
        "ACQUIRE k bob 1 1000",
        "WAIT k bob 1 1000 0",
        "RELEASE k alice",
        "RENEW k alice 1000",
    ] {
        assert_eq!(promoted.run(&format!("SEM.{refused}")).code(), "READONLY", "{refused}");
    }
    promoted.run("REPLICAOF NO ONE");
    assert_eq!(promoted.run("SEM.ACQUIRE k bob 2 600000"), Value::Nil);
    assert_eq!(promoted.run("SEM.RELEASE k alice ALL"), Value::Integer(0));
    assert_eq!(promoted.run("SEM.ACQUIRE k bob 3 600000"), Value::Integer(3));
}

/// Clients that take and give back in any order; each counts what it knows to hold.
fn never_more_permits_are_held_than_there_are(kind: Kind) {
    const LIMIT: i64 = 5;
    let server = Server::options().kind(&kind).start();
    server.connect().call(cmd!["SEM.SET", "k", LIMIT]);
    let held = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for client in 0..8_u64 {
            let (server, held) = (&server, &held);
            scope.spawn(move || {
                let mut random = Random::new(client);
                let mut connection = server.connect();
                let owner = format!("owner-{client}");
                for _ in 0..150 {
                    let n = random.below(4).cast_signed() + 1;
                    connection.send(cmd!["SEM.WAIT", "k", owner, n, LONG, 0]);
                    assert_eq!(connection.receive(SOON).unwrap(), Value::Integer(n));
                    let now = held.fetch_add(n, Ordering::SeqCst) + n;
                    assert!(now <= LIMIT, "{now} are held");
                    let back = random.below(n.cast_unsigned()).cast_signed();
                    held.fetch_sub(n - back, Ordering::SeqCst);
                    let left = connection.call(cmd!["SEM.RELEASE", "k", owner, "HOLDS", back]);
                    assert_eq!(left, Value::Integer(back));
                    held.fetch_sub(back, Ordering::SeqCst);
                    connection.call(cmd!["SEM.RELEASE", "k", owner, "ALL"]);
                }
            });
        }
    });
    let mut eye = server.connect();
    assert_eq!(eye.run("HGETALL k").elements()[1].text(), "semaphore 5 0");
    wait::until("nobody waits", SOON, || match observe::info_number(&mut eye, "kvlock_waiters") {
        0 => Ok(()),
        waiters => Err(format!("{waiters} wait")),
    });
    assert_eq!(observe::info_number(&mut eye, "kvlock_caught_panics"), 0);
}

on_each_server!(
    effects_of_semaphores_are_core_commands_in_one_transaction,
    permits_of_the_dead_come_back_to_those_who_wait,
    permits_of_hundreds_of_dead_are_there_for_the_first_who_asks,
    hundreds_who_wait_are_served_by_one_command,
    permits_granted_to_a_client_that_is_gone_are_taken_back,
    permits_of_two_semaphores_granted_to_one_owner_that_is_gone_are_taken_back,
    a_holder_that_dies_in_a_pause_makes_way_after_it,
    who_waits_is_told_when_the_semaphore_goes_and_not_when_it_is_back_at_once,
    permits_of_a_holder_that_a_stranger_took_out_are_free,
    who_waits_for_more_than_there_are_hears_so_even_if_the_server_takes_no_writes,
    a_promoted_replica_knows_who_holds_permits,
    never_more_permits_are_held_than_there_are,
);

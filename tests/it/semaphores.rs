//! Semaphores: many who wait, holders that die, and what replicas, files, pauses and foreign
//! changes make of them.

use crate::stage::{LONG, SOON, Stage, Waiter, expect_same_data};
use crate::trail::trail;
use harness::{Kind, Value, cmd, observe, on_each_server};

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

on_each_server!(
    effects_of_semaphores_are_core_commands_in_one_transaction,
    permits_of_the_dead_come_back_to_those_who_wait,
    permits_of_hundreds_of_dead_are_there_for_the_first_who_asks,
    hundreds_who_wait_are_served_by_one_command,
);

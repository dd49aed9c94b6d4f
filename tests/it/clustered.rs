//! Locks in a real cluster: every key has one home, and moving house doubles nobody.

use crate::asking::{SOON, acquire, arrival, error, release, token, wait_in_line};
use harness::cluster::{Cluster, is_redirect};
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};

/// A key in one of the slots that are moved first: the lowest of their node.
fn early_key(cluster: &Cluster) -> String {
    (0..).map(|number| format!("k{number}")).find(|key| cluster.slot_of(key) < 100).unwrap()
}

fn other_than<'a>(cluster: &'a Cluster, home: &Server) -> &'a Server {
    cluster.nodes().iter().find(|node| node.port() != home.port()).unwrap()
}

fn start(kind: &Kind, replicas: usize) -> Cluster {
    Cluster::start_with(&Server::options().kind(kind), 3, replicas)
}

/// A waiter whose lock moves away is told so, and by nobody that it has it.
fn sent_away(answer: &Value) {
    let text = error(answer);
    assert!(text.starts_with("MOVED ") || text.starts_with("TRYAGAIN "), "{text}");
}

fn a_key_is_served_at_home_and_nowhere_else(kind: Kind) {
    let cluster = start(&kind, 0);
    let home = cluster.node_for("k");
    let mut away = other_than(&cluster, home).connect();
    for line in [
        "LOCK.ACQUIRE k alice 1000",
        "LOCK.WAIT k alice 1000 0",
        "LOCK.RELEASE k alice",
        "LOCK.INFO k",
        "LOCK.CANCEL k alice",
    ] {
        assert!(is_redirect(&away.run(line), "MOVED"), "{line}");
    }
    let (mut control, mut waiter) = (home.connect(), home.connect());
    let first = token(&acquire(&mut control, "k", "alice"));
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    assert_eq!(release(&mut control, "k", "alice"), Value::Integer(0));
    assert!(token(&arrival(&mut waiter)) > first);
    // By its end too, which no client asks for.
    wait_in_line(&mut waiter, &mut control, "k", "carol");
    control.run("LOCK.RENEW k bob 50");
    token(&arrival(&mut waiter));
}

/// The slot goes without its keys being moved first: another node claims it.
fn who_waits_for_anything_is_sent_away_when_its_slot_moves(kind: Kind) {
    let cluster = start(&kind, 0);
    let tag = early_key(&cluster);
    let home = cluster.node_for(&tag);
    let away = other_than(&cluster, home);
    let mut control = home.connect();
    let of_slot = |line: &str| line.replace('@', &format!("{{{tag}}}"));
    for line in [
        "LOCK.ACQUIRE @lock alice 600000 SHARED",
        "LATCH.SET @latch 2",
        "SEM.SET @pool 1",
        "SEM.ACQUIRE @pool alice 1 600000",
    ] {
        assert!(!control.run(&of_slot(line)).is_error(), "{line}");
    }
    let waits =
        ["LOCK.WAIT @lock bob 1000 0", "LATCH.WAIT @latch bob 0", "SEM.WAIT @pool bob 1 1000 0"];
    let mut waiters = waits.map(|line| {
        let mut waiter = home.connect();
        let id = waiter.client_id();
        waiter.send(harness::resp::split(&of_slot(line)).unwrap());
        observe::wait_until_blocked(&mut control, id);
        waiter
    });
    cluster.reshard(home, away, 100);
    waiters.iter_mut().for_each(|waiter| sent_away(&arrival(waiter)));
    let left = control.call(cmd!["CLUSTER", "COUNTKEYSINSLOT", cluster.slot_of(&tag)]);
    assert_eq!(left, Value::Integer(0));
    let mut there = away.connect();
    for (line, reply) in [
        ("LOCK.ACQUIRE @lock bob 1000", Value::Nil),
        ("LOCK.RELEASE @lock alice SHARED", Value::Integer(0)),
        ("LATCH.COUNTDOWN @latch", Value::Integer(1)),
        ("SEM.ACQUIRE @pool bob 1 1000", Value::Nil),
        ("SEM.RELEASE @pool alice", Value::Integer(0)),
    ] {
        assert_eq!(there.run(&of_slot(line)), reply, "{line}");
    }
}

fn a_failover_of_a_master_keeps_locks_and_tokens(kind: Kind) {
    let cluster = start(&kind, 1);
    let home = cluster.node_for("k");
    let (mut control, mut waiter) = (home.connect(), home.connect());
    let first = token(&acquire(&mut control, "k", "alice"));
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    let follows = |node: &&Server| {
        let port = observe::info_field(&mut node.connect(), "master_port");
        port == Some(home.port().to_string())
    };
    let replica = cluster.nodes().iter().find(follows).unwrap();
    let mut there = replica.connect();
    observe::wait_for_replica(&mut control, &mut there);
    // A master that does not know its replica yet ignores what it asks for.
    let home_id = cluster.id_of(home);
    wait::until("the master knows its replica", SOON, || {
        let known = control.call(cmd!["CLUSTER", "REPLICAS", home_id.as_str()]);
        if known.elements().is_empty() { Err(known.to_string()) } else { Ok(()) }
    });
    assert_eq!(there.run("CLUSTER FAILOVER"), Value::Status("OK".into()));
    let told = waiter.receive(SOON);
    assert!(
        matches!(told, Ok(Value::Error { .. }) | Err(harness::resp::ReceiveError::Closed)),
        "{told:?}"
    );
    wait::until("the replica serves the key", 3 * SOON, || match acquire(&mut there, "k", "bob") {
        Value::Nil => Ok(()),
        other => Err(other.to_string()),
    });
    assert_eq!(release(&mut there, "k", "alice"), Value::Integer(0));
    assert!(token(&acquire(&mut there, "k", "bob")) > first);
    home.assert_alive();
}

on_each_server!(
    who_waits_for_anything_is_sent_away_when_its_slot_moves,
    a_key_is_served_at_home_and_nowhere_else,
    a_failover_of_a_master_keeps_locks_and_tokens,
);

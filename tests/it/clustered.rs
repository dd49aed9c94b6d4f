//! Locks in a real cluster: every key has one home, and moving house doubles nobody.

use crate::asking::{LONG, SOON, acquire, arrival, error, release, token, wait_in_line};
use harness::cluster::{Cluster, is_redirect};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server, wait};

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

fn a_held_lock_moves_with_its_slot_and_its_waiters_are_sent_away(kind: Kind) {
    let cluster = start(&kind, 0);
    let key = early_key(&cluster);
    let home = cluster.node_for(&key);
    let away = other_than(&cluster, home);
    let (mut control, mut waiter) = (home.connect(), home.connect());
    let first = token(&acquire(&mut control, &key, "alice"));
    wait_in_line(&mut waiter, &mut control, &key, "bob");
    cluster.reshard(home, away, 100);
    sent_away(&arrival(&mut waiter));
    assert_eq!(
        control.call(cmd!["CLUSTER", "COUNTKEYSINSLOT", cluster.slot_of(&key)]),
        Value::Integer(0)
    );
    let mut there = away.connect();
    let info = there.call(cmd!["LOCK.INFO", key]);
    assert_eq!(
        (info.field("owner").text(), info.field("token").integer()),
        ("alice".to_owned(), first)
    );
    assert_eq!(acquire(&mut there, &key, "carol"), Value::Nil);
    let mut again = away.connect();
    wait_in_line(&mut again, &mut there, &key, "bob");
    assert_eq!(release(&mut there, &key, "alice"), Value::Integer(0));
    let second = token(&arrival(&mut again));
    assert!(second > first);
    // And back again.
    cluster.reshard(away, home, 100);
    assert_eq!(cluster.node_for(&key).port(), home.port(), "the lowest slots did not come back");
    assert_eq!(release(&mut home.connect(), &key, "bob"), Value::Integer(0));
    assert!(token(&acquire(&mut home.connect(), &key, "carol")) > second);
    cluster.nodes().iter().for_each(Server::assert_alive);
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

fn waiters_of_a_slot_that_is_taken_away_are_sent_away(kind: Kind) {
    let cluster = start(&kind, 0);
    let home = cluster.node_for("k");
    let away = other_than(&cluster, home);
    let (mut control, mut waiter) = (home.connect(), home.connect());
    acquire(&mut control, "k", "alice");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    let (slot, from, to) = (cluster.slot_of("k"), cluster.id_of(home), cluster.id_of(away));
    let mut claimer = away.connect();
    for command in [
        cmd!["CLUSTER", "SETSLOT", slot, "IMPORTING", from],
        cmd!["CLUSTER", "SETSLOT", slot, "NODE", to],
    ] {
        assert_eq!(claimer.call(command), Value::Status("OK".into()));
    }
    sent_away(&arrival(&mut waiter));
    observe::wait_for_next_cron(&mut control);
    // Nothing was granted into a slot that belongs to another.
    assert!(is_redirect(&control.run("LOCK.INFO k"), "MOVED"));
    assert_eq!(control.call(cmd!["CLUSTER", "COUNTKEYSINSLOT", slot]), Value::Integer(0));
    home.assert_alive();
}

fn a_key_that_is_migrated_alone_is_not_granted_twice(kind: Kind) {
    let cluster = start(&kind, 0);
    let home = cluster.node_for("k");
    let away = other_than(&cluster, home);
    let (mut control, mut waiter) = (home.connect(), home.connect());
    let (slot, from, to) = (cluster.slot_of("k"), cluster.id_of(home), cluster.id_of(away));
    acquire(&mut control, "k", "alice");
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    away.connect().call(cmd!["CLUSTER", "SETSLOT", slot, "IMPORTING", from]);
    control.call(cmd!["CLUSTER", "SETSLOT", slot, "MIGRATING", to]);
    // The source sees its key deleted. The lock is held, over there.
    let moved = control.call(cmd!["MIGRATE", "127.0.0.1", away.port(), "k", 0, 5000]);
    assert_eq!(moved, Value::Status("OK".into()));
    sent_away(&arrival(&mut waiter));
    assert!(is_redirect(&acquire(&mut control, "k", "bob"), "ASK"));
    let mut asking = away.connect();
    asking.run("ASKING");
    assert_eq!(asking.run("LOCK.INFO k").field("owner").text(), "alice");
    asking.run("ASKING");
    assert_eq!(asking.call(cmd!["LOCK.RELEASE", "k", "alice"]), Value::Integer(0));
    home.assert_alive();
    away.assert_alive();
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

/// Redisson's waiters hear of it by the sharded channel, which stays on its node.
fn a_release_is_published_in_the_shard(kind: Kind) {
    let cluster = start(&kind, 0);
    let home = cluster.node_for("k");
    let subscribe = |node: &Server, command: &str| -> Connection {
        let mut connection = node.connect();
        assert_eq!(
            connection.call(cmd![command, "redisson_lock__channel:{k}"])[2],
            Value::Integer(1)
        );
        connection
    };
    let mut sharded = subscribe(home, "SSUBSCRIBE");
    let mut plain = subscribe(home, "SUBSCRIBE");
    let mut control = home.connect();
    token(&control.call(cmd!["LOCK.ACQUIRE", "k", "alice", LONG]));
    assert_eq!(release(&mut control, "k", "alice"), Value::Integer(0));
    let message = arrival(&mut sharded);
    assert_eq!((message[0].text(), message[2].text()), ("smessage".to_owned(), "0".to_owned()));
    control.run("PING");
    assert!(!plain.has_unread(), "broadcast to every node");
}

on_each_server!(
    who_waits_for_anything_is_sent_away_when_its_slot_moves,
    a_key_is_served_at_home_and_nowhere_else,
    a_held_lock_moves_with_its_slot_and_its_waiters_are_sent_away,
    waiters_of_a_slot_that_is_taken_away_are_sent_away,
    a_key_that_is_migrated_alone_is_not_granted_twice,
    a_failover_of_a_master_keeps_locks_and_tokens,
    a_release_is_published_in_the_shard,
);

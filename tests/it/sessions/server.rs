//! What servers do to sessions: pauses, new roles, restarts, drains, limits, crowds.

use super::{Party, wait_for, words};
use crate::stage::{LONG, SOON, Stage};
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};

fn nothing_is_granted_or_taken_back_in_a_pause(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 300);
    let mut other = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    party.queue("l", "bob");
    other.queue("k", "carol");
    other.queue("l", "dave");
    other.park(&mut stage, 0);
    stage.release("l", "alice");
    stage.granted_unseen();
    stage.let_the_lease_end_after("CLIENT PAUSE 100000 WRITE");
    wait_for(&mut stage, "sessions_gone", 1);
    observe::wait_for_next_cron(&mut stage.eye);
    assert_eq!(stage.counted("grants_taken_back"), 0);
    assert!(!other.connection.has_unread());
    stage.run("CLIENT UNPAUSE");
    stage.granted_unseen();
    stage.granted_unseen();
    let mut told = other.hear();
    if told.len() < 2 {
        told.extend(other.read_next(1));
    }
    let mut told = words(&told);
    told.sort_unstable();
    assert_eq!(told, [("carol", "granted"), ("dave", "granted")]);
    assert_eq!(stage.counted("grants_taken_back"), 1);
    stage.check();
}

fn a_demoted_primary_ends_all_sessions(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let other = Server::options().kind(&kind).without_module();
    let other = other.config("repl-diskless-sync-delay", 0).start();
    let mut party = Party::open(&stage, 60_000);
    let mut reader = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    reader.park(&mut stage, 0);
    stage.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    wait_for(&mut stage, "sessions", 0);
    wait_for(&mut stage, "waiters", 0);
    observe::wait_for_blocked_clients(&mut stage.eye, 0);
    assert_eq!(stage.run("SESSION.OPEN 1000").code(), "READONLY");
    stage.run("REPLICAOF NO ONE");
    let next = party.connection.call(cmd!["SESSION.NEXT", party.id, 0, 0]);
    assert_eq!(next.code(), "NOSESSION");
    stage.check_server();
}

fn a_session_does_not_survive_a_restart(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let party = Party::open(&stage, 60_000);
    stage.server.restart();
    let mut again = stage.server.connect();
    assert_eq!(again.call(cmd!["SESSION.NEXT", party.id, 0, 0]).code(), "NOSESSION");
    stage.eye = stage.server.connect();
    stage.check_server();
}

/// In the newer protocol.
fn waits_outlive_a_reload_of_the_data(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::on(stage.server.connect_resp(3), 60_000);
    let alices = stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    party.queue("k", "carol");
    party.park(&mut stage, 0);
    assert_eq!(stage.run("DEBUG RELOAD"), Value::Status("OK".into()));
    assert!(!party.connection.has_unread());
    stage.expect_holder("k", "alice", 1, Some(alices));
    for (heard, (before, owner)) in [("alice", "bob"), ("bob", "carol")].into_iter().enumerate() {
        stage.release("k", before);
        stage.granted_unseen();
        let told = if heard == 0 { party.hear() } else { party.read_next(1) };
        assert_eq!(words(&told), [(owner, "granted")]);
    }
    stage.check();
}

/// Until the last session has ended, the module stays.
fn a_drained_module_can_be_unloaded(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    let mut idle = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    party.queue("k", "bob");
    idle.park(&mut stage, 0);
    assert!(stage.run("MODULE UNLOAD kvlock").is_error());
    stage.run("CONFIG SET kvlock.drain yes");
    assert_eq!(idle.hear(), []);
    assert_eq!(words(&party.read_next(0)), [("bob", "error")]);
    for party in [&mut party, &mut idle] {
        let ack = i64::from(party.id.is_empty());
        let next = party.connection.call(cmd!["SESSION.NEXT", party.id, ack, 60_000]);
        assert_eq!(next.code(), "TRYAGAIN");
    }
    assert_eq!(stage.counted("sessions"), 0);
    wait::until("the module can be unloaded", SOON, || match stage.run("MODULE UNLOAD kvlock") {
        Value::Status(_) => Ok(()),
        refused => Err(refused.to_string()),
    });
    crate::stage::expect_unharmed(&stage.server);
}

fn there_are_only_so_many_sessions_and_blocked_clients(kind: Kind) {
    let mut stage = Stage::with(&kind, |options| {
        options.module_config("max-sessions", 2).module_config("max-blocked", 1)
    });
    let mut party = Party::open(&stage, 60_000);
    let _other = Party::open(&stage, 60_000);
    assert_eq!(stage.run("SESSION.OPEN 1000").code(), "QUEUEFULL");
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    assert_eq!(stage.run("LOCK.WAIT k carol 1000 0").code(), "QUEUEFULL");
    party.queue("k", "carol");
    stage.release("k", "alice");
    stage.granted(&mut bob);
    stage.check();
}

/// So many that they follow their session some at a time.
fn a_crowd_goes_away_comes_back_and_ends_without_a_long_turn(kind: Kind) {
    const CROWD: i64 = 5_000;
    let mut stage = Stage::new(&kind);
    let mut party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    let id = party.id.clone();
    let asked = |number| cmd!["LOCK.WAIT", "k", format!("o{number}"), LONG, 0, "SESSION", &id];
    (0..CROWD).for_each(|number| party.connection.send(asked(number)));
    for _ in 0..CROWD {
        let reply = party.connection.receive(SOON).unwrap();
        assert_eq!(reply[0], Value::bulk("queued"));
    }
    let mut last = stage.wait("k", "last");
    party.park(&mut stage, 0);
    party.break_off(&mut stage);
    stage.release("k", "alice");
    stage.granted(&mut last);
    party.park(&mut stage, 0);
    stage.release("k", "last");
    stage.granted_unseen();
    assert_eq!(party.hear().len(), 1);
    assert_eq!(party.connection.call(cmd!["SESSION.CLOSE", id]), Value::Integer(1));
    wait_for(&mut stage, "waiters", 0);
    stage.check();
}

on_each_server!(
    nothing_is_granted_or_taken_back_in_a_pause,
    a_demoted_primary_ends_all_sessions,
    a_session_does_not_survive_a_restart,
    waits_outlive_a_reload_of_the_data,
    a_drained_module_can_be_unloaded,
    there_are_only_so_many_sessions_and_blocked_clients,
    a_crowd_goes_away_comes_back_and_ends_without_a_long_turn,
);

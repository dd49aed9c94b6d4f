//! A server changes its role while clients wait. Only a primary grants: a replica that writes on
//! its own no longer has the data of its primary.

use crate::server::failovers::expect_sent_away;
use crate::stage::{LONG, SOON, Stage, expect_same_data, expect_unharmed, kill, token_of};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server, wait};

fn follow(other: &Server) -> String {
    format!("REPLICAOF 127.0.0.1 {}", other.port())
}

fn wait_until_unloaded(eye: &mut Connection) {
    wait::until("the module can be unloaded", SOON, || match eye.run("MODULE UNLOAD kvlock") {
        Value::Status(_) => Ok(()),
        refused => Err(refused.to_string()),
    });
}

fn a_demoted_primary_sends_its_waiters_away_and_writes_no_more(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let other = Server::options().kind(&kind).without_module();
    let other = other.config("repl-diskless-sync-delay", 0).start();
    let mut there = other.connect();
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("l", "carol");
    // The lease ends when the server is a replica, of a primary that still has the dead lock.
    there.run("DEBUG SET-ACTIVE-EXPIRE 0");
    there.run("HSET k dave 1");
    there.run("PEXPIRE k 200");
    stage.let_the_lease_end_after(&follow(&other));
    expect_sent_away(&mut bob);
    expect_sent_away(&mut carol);
    observe::wait_for_replica(&mut there, &mut stage.eye);
    assert_eq!((stage.counted("waiters"), stage.counted("waiting_keys")), (0, 0));
    observe::wait_for_blocked_clients(&mut stage.eye, 0);
    assert_eq!(stage.run("LOCK.ACQUIRE k erin 1000").code(), "READONLY");
    assert_eq!(stage.counted("granted"), 2);
    expect_same_data(&other, &stage.server);
    wait_until_unloaded(&mut stage.eye);
    expect_unharmed(&stage.server);
}

fn a_grant_on_its_way_when_the_role_changes_leaves_nothing_behind(kind: Kind) {
    for dead in [false, true] {
        let mut stage = Stage::new(&kind);
        let other = Server::options().kind(&kind).without_module();
        let other = other.config("repl-diskless-sync-delay", 0).start();
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut carol = stage.wait("k", "carol");
        let kill = if dead { kill(&bob) } else { "PING".to_owned() };
        stage.at_once(&["LOCK.RELEASE k alice", &kill, &follow(&other)]);
        if let Some(reply) = bob.connection.receive_or_closed() {
            assert!(!dead && (reply.is_error() || token_of(&reply) > 0), "{reply}");
        }
        expect_sent_away(&mut carol);
        observe::wait_for_replica(&mut other.connect(), &mut stage.eye);
        expect_same_data(&other, &stage.server);
        assert_eq!(stage.counted("grants_taken_back"), 0);
        wait_until_unloaded(&mut stage.eye);
        expect_unharmed(&stage.server);
    }
}

fn a_grant_that_another_primary_has_confirmed_is_not_taken_back(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    stage.hold("k", "alice", LONG);
    let bob = stage.wait("k", "bob");
    // Bob's client dies before his reply, and the pause keeps the grant from being taken back.
    let (kill, pause) = (kill(&bob), "CLIENT PAUSE 600000 WRITE");
    stage.at_once(&["LOCK.RELEASE k alice", &kill, pause]);
    let token = stage.token("k");
    observe::wait_for_replica(&mut stage.eye, &mut stage.replica.connect());
    // The other server becomes the primary, and there bob learns what he has.
    let mut there = stage.replica.connect();
    there.run("REPLICAOF NO ONE");
    let follow = follow(&stage.replica);
    stage.run(&follow);
    stage.run("CLIENT UNPAUSE");
    let reply = there.call(cmd!["LOCK.WAIT", "k", "bob", LONG, 0, "HOLDS", 1]);
    assert_eq!(token_of(&reply), token);
    observe::wait_for_replica(&mut there, &mut stage.eye);

    // And back again.
    stage.run("REPLICAOF NO ONE");
    let mut carol = stage.wait("k", "carol");
    stage.granted_unseen();
    stage.expect_in_line(&mut [&mut carol]);
    stage.expect_holder("k", "bob", 1, Some(token));
    stage.check_server();
}

fn a_replica_lets_no_lease_end(kind: Kind) {
    let primary = Server::options().kind(&kind).start();
    let replica = Server::options().kind(&kind).replica_of(&primary).start();
    let (mut p, mut r) = (primary.connect(), replica.connect());
    for connection in [&mut p, &mut r] {
        connection.run("DEBUG SET-ACTIVE-EXPIRE 0");
    }
    p.run("LOCK.ACQUIRE k alice 300");
    observe::wait_for_replica(&mut p, &mut r);
    r.run("CONFIG SET replica-read-only no");
    observe::let_pass(&mut p, std::time::Duration::from_millis(500));
    // The lease is over, and only the primary may say so.
    assert_eq!(r.run("DBSIZE").integer(), 2, "the replica has deleted the key by itself");
    assert_eq!(r.run("LOCK.ACQUIRE k bob 1000").code(), "READONLY");
    assert!(!r.run("HGETALL k").to_string().contains("bob"));
}

/// Who holds it may go on; everybody else has to wait, with Redisson or with us.
fn in_a_quarantine_there_are_no_turns_of_redisson(kind: Kind) {
    let mut stage = Stage::with(&kind, |o| o.module_config("redisson-turn-ms", 1));
    stage.hold("k", "alice", LONG);
    stage.run(&format!("CONFIG SET kvlock.quarantine-ms {LONG}"));
    let mut listener = stage.server.connect();
    listener.run("SUBSCRIBE redisson_lock__channel:{k}");
    let mut bob = stage.wait("k", "bob");
    // A primary that was a replica has not heard of all that was granted.
    stage.run("REPLICAOF 127.0.0.1 1");
    assert_eq!(bob.connection.receive(SOON).unwrap().code(), "UNBLOCKED");
    stage.run("REPLICAOF NO ONE");
    let _bob = stage.wait("k", "bob");
    assert_eq!(stage.run("LOCK.RELEASE k alice"), Value::Integer(0));
    observe::wait_for_next_cron(&mut stage.eye);
    assert_eq!((stage.run("EXISTS k"), stage.counted("waiters")), (Value::Integer(0), 1));
    assert_eq!(stage.counted("redisson_turns"), 0);
    stage.check_server();
}

on_each_server!(
    in_a_quarantine_there_are_no_turns_of_redisson,
    a_replica_lets_no_lease_end,
    a_demoted_primary_sends_its_waiters_away_and_writes_no_more,
    a_grant_on_its_way_when_the_role_changes_leaves_nothing_behind,
    a_grant_that_another_primary_has_confirmed_is_not_taken_back,
);

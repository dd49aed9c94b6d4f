//! A server changes its role while a grant is on its way, or ends while clients wait. More of it is in
//! `transcripts/roles.txt` and `transcripts/failovers.txt`.

use crate::stage::{LONG, SOON, Stage, Waiter, expect_same_data, expect_unharmed, kill, token_of};
use harness::resp::ReceiveError;
use harness::{Connection, Kind, Server, Value, observe, on_each_server, wait};
use nix::sys::signal::Signal;

/// A waiter of a server that is no primary any more is told so, by the server, which closes its
/// connection, or by the module. Valkey 9 leaves it to the module in a `FAILOVER`.
fn expect_sent_away(waiter: &mut Waiter) {
    let Some(told) = waiter.connection.receive_or_closed() else { return };
    assert_eq!(told.code(), "UNBLOCKED", "{}", waiter.owner);
    waiter.connection.send_raw(b"PING\r\n");
    let pong = waiter.connection.receive_or_closed();
    let once = pong.is_none_or(|pong| pong == Value::Status("PONG".into()));
    assert!(once, "{} was told twice", waiter.owner);
}

fn follow(other: &Server) -> String {
    format!("REPLICAOF 127.0.0.1 {}", other.port())
}

fn wait_until_unloaded(eye: &mut Connection) {
    wait::until("the module can be unloaded", SOON, || match eye.run("MODULE UNLOAD kvlock") {
        Value::Status(_) => Ok(()),
        refused => Err(refused.to_string()),
    });
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

/// Alice's lease ends, and the time of carol's wait, while a shutdown waits for a replica that is stopped.
fn a_shutdown_that_waits_for_its_replica_while_leases_end_is_an_ordered_one(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait_with("l", "carol", LONG, 1000);
    stage.replica.signal(Signal::SIGSTOP);
    let mut asker = stage.server.connect();
    asker.send_raw(b"LOCK.RENEW k alice 100\r\nPEXPIRETIME k\r\nSHUTDOWN NOSAVE\r\n");
    assert_eq!(asker.receive(SOON).unwrap(), Value::Integer(100));
    let end = asker.receive(SOON).unwrap().integer();
    assert!(observe::info_field(&mut stage.eye, "shutdown_in_milliseconds").is_some());
    stage.wait_past(end + 150);
    assert_eq!(stage.counted("granted"), 2);
    assert_eq!(carol.connection.receive(SOON).unwrap(), Value::Nil);
    stage.replica.signal(Signal::SIGCONT);
    wait::until_is("the server runs", 4 * SOON, false, || stage.server.is_running());
    let log = stage.server.log();
    assert!(log.contains("is now ready to exit, bye bye"), "{log}");
    for mark in ["BUG REPORT", "ASSERTION FAILED", "crashed", "panic"] {
        assert!(!log.contains(mark), "{log}");
    }
    assert!(matches!(bob.connection.receive(SOON), Err(ReceiveError::Closed)));
    assert!(asker.receive(SOON).is_err());
}

on_each_server!(
    a_grant_on_its_way_when_the_role_changes_leaves_nothing_behind,
    a_shutdown_that_waits_for_its_replica_while_leases_end_is_an_ordered_one,
);

//! A coordinated failover and an ordered shutdown pause writes until the replicas have everything.
//! Leases end meanwhile, with clients waiting: both servers survive it, and no lock is forgotten.

use crate::stage::{LONG, SOON, Stage, Waiter};
use harness::resp::ReceiveError;
use harness::{Connection, Kind, Server, Value, observe, on_each_server, wait};
use nix::sys::signal::Signal;

/// A waiter of a server that is no primary any more is told so, by the server, which closes its
/// connection, or by the module. Valkey 9 leaves it to the module in a `FAILOVER`.
pub(crate) fn expect_sent_away(waiter: &mut Waiter) {
    let Some(told) = waiter.connection.receive_or_closed() else { return };
    assert_eq!(told.code(), "UNBLOCKED", "{}", waiter.owner);
    waiter.connection.send_raw(b"PING\r\n");
    let pong = waiter.connection.receive_or_closed();
    let once = pong.is_none_or(|pong| pong == Value::Status("PONG".into()));
    assert!(once, "{} was told twice", waiter.owner);
}

/// Alice's lease ends while a shutdown waits for a replica that is stopped.
fn begin_shutdown(stage: &mut Stage) -> Connection {
    stage.replica.signal(Signal::SIGSTOP);
    let mut asker = stage.server.connect();
    asker.send_raw(b"LOCK.RENEW k alice 100\r\nPEXPIRETIME k\r\nSHUTDOWN NOSAVE\r\n");
    assert_eq!(asker.receive(SOON).unwrap(), Value::Integer(100));
    let end = asker.receive(SOON).unwrap().integer();
    assert!(observe::info_field(&mut stage.eye, "shutdown_in_milliseconds").is_some());
    stage.wait_past(end + 150);
    asker
}

fn wait_for_the_end(server: &Server) {
    wait::until("the server has ended", 4 * SOON, || match server.is_running() {
        false => Ok(()),
        true => Err(server.log()),
    });
    let log = server.log();
    assert!(log.contains("is now ready to exit, bye bye"), "{log}");
    for mark in ["BUG REPORT", "ASSERTION FAILED", "crashed", "panic"] {
        assert!(!log.contains(mark), "{log}");
    }
}

fn a_shutdown_that_waits_for_its_replica_while_leases_end_is_an_ordered_one(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    stage.hold("l", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait_with("l", "carol", LONG, 1000);
    let mut asker = begin_shutdown(&mut stage);
    assert_eq!(stage.counted("granted"), 2);
    assert_eq!(carol.connection.receive(SOON).unwrap(), Value::Nil);
    stage.replica.signal(Signal::SIGCONT);
    wait_for_the_end(&stage.server);
    assert!(matches!(bob.connection.receive(SOON), Err(ReceiveError::Closed)));
    assert!(asker.receive(SOON).is_err());
}

on_each_server!(a_shutdown_that_waits_for_its_replica_while_leases_end_is_an_ordered_one,);

//! A coordinated failover and an ordered shutdown pause writes until the replicas have everything.
//! Leases end meanwhile, with clients waiting: both servers survive it, and no lock is forgotten.

use crate::stage::{LONG, SOON, Stage, Waiter, expect_same_data, expect_unharmed, token_of};
use harness::resp::ReceiveError;
use harness::{Connection, Kind, Server, Value, observe, on_each_server, wait};
use nix::sys::signal::Signal;

fn role(connection: &mut Connection) -> String {
    observe::info_field(connection, "role").unwrap()
}

fn wait_for_role(connection: &mut Connection, wanted: &str) {
    wait::until("the server has its new role", 4 * SOON, || match role(connection) {
        seen if seen == wanted => Ok(()),
        seen => Err(seen),
    });
}

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

/// Waits until the server says that it waits for its replicas before it goes on.
fn wait_for_failover_state(stage: &mut Stage, wanted: &str) {
    wait::until("the failover is that far", SOON, || {
        match observe::info_field(&mut stage.eye, "master_failover_state") {
            Some(state) if state == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

fn a_failover_with_waiters_harms_neither_side_and_loses_no_lock(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    let alices = stage.hold("i", "alice", LONG);
    let daves = stage.hold("l", "dave", LONG);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("l", "bob");
    let mut carol = stage.wait("k", "carol");
    // The replica lags, so that the lease ends while the primary waits for it.
    stage.replica.signal(Signal::SIGSTOP);
    stage.let_the_lease_end_after("FAILOVER");
    wait_for_failover_state(&mut stage, "waiting-for-sync");
    assert_eq!(stage.counted("granted"), 3);
    stage.replica.signal(Signal::SIGCONT);

    let mut new = stage.replica.connect();
    wait_for_role(&mut new, "master");
    expect_sent_away(&mut bob);
    expect_sent_away(&mut carol);
    for (key, owner, token) in [("i", "alice", alices), ("l", "dave", daves)] {
        let info = new.run(&format!("LOCK.INFO {key}"));
        assert_eq!(info.field("owner"), &Value::bulk(owner));
        assert_eq!(info.field("token"), &Value::Integer(token));
    }
    assert!(token_of(&new.run("LOCK.ACQUIRE k carol 600000")) > daves);
    let mut bob = stage.replica.connect();
    bob.send_raw(b"LOCK.WAIT l bob 600000 0\r\n");
    observe::wait_for_waiters(&mut new, "l", 1);
    assert_eq!(new.run("LOCK.RELEASE l dave"), Value::Integer(0));
    assert!(token_of(&bob.receive(SOON).unwrap()) > daves);
    wait_for_role(&mut stage.server.connect(), "slave");
    expect_same_data(&stage.replica, &stage.server);
    expect_unharmed(&stage.server);
    expect_unharmed(&stage.replica);
}

fn a_failover_that_is_given_up_lets_grants_go_on(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    for (failover, give_up) in [("FAILOVER", "FAILOVER ABORT"), ("FAILOVER TIMEOUT 600", "PING")] {
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        stage.replica.signal(Signal::SIGSTOP);
        stage.let_the_lease_end_after(failover);
        stage.run(give_up);
        stage.granted(&mut bob);
        stage.replica.signal(Signal::SIGCONT);
        stage.release("k", "bob");
        stage.check();
    }
    assert_eq!(role(&mut stage.eye), "master");
}

fn failovers_back_and_forth_with_leases_ending_all_the_time_harm_nobody(kind: Kind) {
    let stage = Stage::of_twins(&kind);
    let (mut primary, mut replica) = (&stage.server, &stage.replica);
    let mut last = 0;
    for round in 0..6 {
        let mut eye = primary.connect();
        let owner = format!("alice{round}");
        let token = wait::until("the lock is free", SOON, || {
            match eye.run(&format!("LOCK.ACQUIRE k {owner} 50")) {
                Value::Nil => Err("held".to_owned()),
                granted => Ok(token_of(&granted)),
            }
        });
        assert!(token > last, "{token} after {last}");
        last = token;
        let mut line: Vec<_> = (0..5).map(|_| primary.connect()).collect();
        for (number, one) in line.iter_mut().enumerate() {
            one.send_raw(format!("LOCK.WAIT k w{round}.{number} 50 0\r\n").as_bytes());
        }
        observe::wait_for_replica(&mut eye, &mut replica.connect());
        assert_eq!(eye.run("FAILOVER"), Value::Status("OK".into()));
        wait_for_role(&mut replica.connect(), "master");
        wait_for_role(&mut primary.connect(), "slave");
        for one in &mut line {
            // Some were served before the failover began; nobody is left without an answer.
            match one.receive(SOON) {
                Ok(granted @ Value::Array(_)) => last = last.max(token_of(&granted)),
                // A wait that came after the pause had begun is that of a replica.
                Ok(told) => assert!(["UNBLOCKED", "READONLY"].contains(&told.code()), "{told}"),
                Err(ReceiveError::Closed) => {}
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        (primary, replica) = (replica, primary);
    }
    expect_same_data(primary, replica);
    expect_unharmed(&stage.server);
    expect_unharmed(&stage.replica);
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

fn a_shutdown_that_is_given_up_lets_grants_go_on(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bob = stage.wait("k", "bob");
    let mut asker = begin_shutdown(&mut stage);
    assert_eq!(stage.counted("granted"), 1);
    assert_eq!(stage.run("SHUTDOWN ABORT"), Value::Status("OK".into()));
    assert!(asker.receive(SOON).unwrap().is_error());
    stage.granted(&mut bob);
    stage.replica.signal(Signal::SIGCONT);
    stage.check();
}

on_each_server!(
    a_failover_with_waiters_harms_neither_side_and_loses_no_lock,
    a_failover_that_is_given_up_lets_grants_go_on,
    failovers_back_and_forth_with_leases_ending_all_the_time_harm_nobody,
    a_shutdown_that_waits_for_its_replica_while_leases_end_is_an_ordered_one,
    a_shutdown_that_is_given_up_lets_grants_go_on,
);

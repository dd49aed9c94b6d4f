//! An owner whose connection is half dead waits again through another one: it keeps its place, and
//! the old connection's end takes nothing away from the new one.

use super::deaths::{expect_closed, kill};
use super::stage::{LONG, SOON, Stage, Waiter};
use harness::{Connection, Kind, Value, cmd, observe, on_each_server};

/// The owner waits through a new connection; the old one is told so.
fn wait_again(stage: &mut Stage, old: &mut Waiter) -> Waiter {
    let new = stage.wait(&old.key, &old.owner);
    let told = old.connection.receive(SOON).unwrap();
    assert_eq!(told.code(), "UNBLOCKED", "{told}");
    new
}

fn a_reconnected_owner_keeps_its_place(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut old = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut new = wait_again(&mut stage, &mut old);
    assert_eq!(stage.run("LOCK.INFO k").field("waiters"), &Value::Integer(2));
    // The connection that was told is an ordinary one again.
    assert_eq!(old.connection.run("PING"), Value::Status("PONG".into()));
    stage.release("k", "alice");
    stage.granted(&mut new);
    stage.expect_in_line(&mut [&mut carol]);
    stage.release("k", "bob");
    stage.granted(&mut carol);
    stage.check();
}

fn the_end_of_the_old_connection_does_not_end_the_wait(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for end in [Connection::close, Connection::reset] {
        stage.hold("k", "alice", LONG);
        let mut old = stage.wait("k", "bob");
        let id = old.id;
        let mut new = wait_again(&mut stage, &mut old);
        end(old.connection);
        observe::wait_until_gone(&mut stage.eye, id);
        stage.expect_in_line(&mut [&mut new]);
        stage.release("k", "alice");
        stage.granted(&mut new);
        stage.release("k", "bob");
    }
    assert_eq!(stage.counted("disconnects"), 0);
    stage.check();
}

fn an_old_connection_killed_in_the_turn_of_its_replacement_takes_nothing_away(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let old = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut new = stage.server.connect();
    let id = new.client_id();
    // Kill and wait come in one turn, and the wait is the last that its connection sends.
    new.send_raw(format!("{}\r\nLOCK.WAIT k bob {LONG} 0\r\n", kill(&old)).as_bytes());
    assert_eq!(new.receive(SOON).unwrap(), Value::Integer(1));
    observe::wait_until_blocked(&mut stage.eye, id);
    let mut old = old;
    expect_closed(&mut old);
    // He was gone before he came again: his place was free.
    stage.release("k", "alice");
    stage.granted(&mut carol);
    let mut new = Waiter { key: "k".into(), owner: "bob".into(), id, connection: new };
    stage.release("k", "carol");
    stage.granted(&mut new);

    // The other way round: replaced first, killed before the reply.
    let old = stage.wait("k", "carol");
    let mut newer = stage.server.connect();
    let id = newer.client_id();
    stage.while_stopped(|stage| {
        newer.send_raw(format!("LOCK.WAIT k carol {LONG} 0\r\n").as_bytes());
        stage.eye.send_raw(format!("{}\r\n", kill(&old)).as_bytes());
    });
    assert_eq!(stage.eye.receive(SOON).unwrap(), Value::Integer(1));
    observe::wait_until_blocked(&mut stage.eye, id);
    let mut newer = Waiter { key: "k".into(), owner: "carol".into(), id, connection: newer };
    stage.expect_in_line(&mut [&mut newer]);
    stage.release("k", "bob");
    stage.granted(&mut newer);
    stage.check();
}

fn an_owner_that_waits_again_and_again_has_one_place(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.hold("k", "alice", LONG);
    let mut bobs: Vec<_> = (0..50)
        .map(|_| {
            let mut bob = stage.server.connect();
            bob.send(cmd!["LOCK.WAIT", "k", "bob", LONG, 0]);
            bob
        })
        .collect();
    observe::wait_for_blocked_clients(&mut stage.eye, 1);
    observe::wait_for_waiters(&mut stage.eye, "k", 1);
    let told = |bob: &mut Connection| bob.has_unread();
    harness::wait::until("all but one are told", SOON, || {
        match bobs.iter_mut().filter_map(|bob| told(bob).then_some(())).count() {
            49 => Ok(()),
            seen => Err(seen.to_string()),
        }
    });
    stage.release("k", "alice");
    stage.granted_unseen();
    let replies: Vec<_> = bobs.iter_mut().map(|bob| bob.receive(SOON).unwrap()).collect();
    assert_eq!(replies.iter().filter(|reply| !reply.is_error()).count(), 1);
    assert!(bobs.iter_mut().all(|bob| bob.run("PING") == Value::Status("PONG".into())));
    stage.check();
}

on_each_server!(
    a_reconnected_owner_keeps_its_place,
    the_end_of_the_old_connection_does_not_end_the_wait,
    an_old_connection_killed_in_the_turn_of_its_replacement_takes_nothing_away,
    an_owner_that_waits_again_and_again_has_one_place,
);

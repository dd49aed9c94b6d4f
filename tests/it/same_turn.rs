//! Things that happen to a waiter in one turn of the server's loop: granted, timed out, unblocked,
//! killed. Pipelining them on one connection is what makes it one turn.

use crate::asking::{LONG, SOON, acquire, arrival, release, token, wait_in_line};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server, wait};

/// A server where `k` is held by `alice`.
fn start(kind: &Kind) -> (Server, Connection) {
    let server = Server::options().kind(kind).start();
    let mut control = server.connect();
    acquire(&mut control, "k", "alice");
    (server, control)
}

/// Sends all the lines at once and returns all the replies.
fn pipeline(connection: &mut Connection, lines: &[String]) -> Vec<Value> {
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    connection.send_raw(&bytes);
    lines.iter().map(|_| arrival(connection)).collect()
}

fn owner(control: &mut Connection) -> String {
    control.run("LOCK.INFO k").field("owner").text()
}

fn a_grant_and_a_timeout_give_one_answer(kind: Kind) {
    let (server, mut control) = start(&kind);
    for release in ["LOCK.RELEASE k alice", "LOCK.FORCERELEASE k", "DEL k"] {
        let mut waiter = server.connect();
        let id = waiter.client_id();
        waiter.send(cmd!["LOCK.WAIT", "k", "bob", LONG, 100]);
        observe::wait_until_blocked(&mut control, id);
        // The timeout passes during the sleep; nobody can look before the release.
        pipeline(&mut control, &["DEBUG SLEEP 0.2".to_owned(), release.to_owned()]);
        let answer = arrival(&mut waiter);
        let info = control.run("LOCK.INFO k");
        if answer.is_nil() {
            assert_eq!(info.field("state").text(), "free", "after {release}");
        } else {
            token(&answer);
            assert_eq!(info.field("owner").text(), "bob", "after {release}");
        }
        assert_eq!(
            waiter.run("PING"),
            Value::Status("PONG".into()),
            "a second answer after {release}"
        );
        control.run("DEL k");
        acquire(&mut control, "k", "alice");
    }
    server.assert_alive();
}

fn client_unblock_does_not_touch_a_grant(kind: Kind) {
    let (server, mut control) = start(&kind);
    let mut waiter = server.connect();
    wait_in_line(&mut waiter, &mut control, "k", "bob");
    let unblock =
        |how: &str, waiter: &mut Connection| format!("CLIENT UNBLOCK {} {how}", waiter.client_id());
    let mut other = server.connect();
    wait_in_line(&mut other, &mut control, "k", "carol");
    let id = control.run("LOCK.INFO k WAITERS 1").field("queue")[0][2].integer();
    let lines = [
        format!("CLIENT UNBLOCK {id} ERROR"),
        "LOCK.RELEASE k alice".to_owned(),
        format!("CLIENT UNBLOCK {id} TIMEOUT"),
        format!("CLIENT UNBLOCK {id} ERROR"),
    ];
    let replies = pipeline(&mut control, &lines);
    assert_eq!(replies, [0, 0, 0, 0].map(Value::Integer));
    token(&arrival(&mut waiter));
    let line = unblock("TIMEOUT", &mut waiter);
    assert_eq!(control.run(&line), Value::Integer(0));
    assert!(!other.has_unread());
}

fn a_grant_to_a_client_that_is_killed_is_passed_on(kind: Kind) {
    let (server, mut control) = start(&kind);
    let (mut b, mut c) = (server.connect(), server.connect());
    let id = b.client_id();
    wait_in_line(&mut b, &mut control, "k", "bob");
    wait_in_line(&mut c, &mut control, "k", "carol");
    let replies = pipeline(
        &mut control,
        &["LOCK.RELEASE k alice".to_owned(), format!("CLIENT KILL ID {id}")],
    );
    assert_eq!(replies, [0, 1].map(Value::Integer));
    token(&arrival(&mut c));
    assert_eq!(owner(&mut control), "carol");
    assert_eq!(observe::info_number(&mut control, "kvlock_grants_taken_back"), 1);
}

fn a_grant_to_the_last_client_that_is_killed_leaves_the_lock_free(kind: Kind) {
    let (server, mut control) = start(&kind);
    let mut b = server.connect();
    let id = b.client_id();
    wait_in_line(&mut b, &mut control, "k", "bob");
    pipeline(&mut control, &["LOCK.RELEASE k alice".to_owned(), format!("CLIENT KILL ID {id}")]);
    wait::until("the lock is free", SOON, || match control.run("LOCK.INFO k") {
        info if info.field("state").text() == "free" => Ok(()),
        info => Err(info.to_string()),
    });
}

fn a_grant_that_its_owner_has_confirmed_is_not_taken_back(kind: Kind) {
    let (server, mut control) = start(&kind);
    for confirm in
        ["LOCK.RENEW k bob 60000", "LOCK.ACQUIRE k bob 60000", "LOCK.ACQUIRE k bob 60000 HOLDS 1"]
    {
        let (mut b, mut c) = (server.connect(), server.connect());
        let id = b.client_id();
        wait_in_line(&mut b, &mut control, "k", "bob");
        wait_in_line(&mut c, &mut control, "k", "carol");
        let lines =
            ["LOCK.RELEASE k alice".to_owned(), format!("CLIENT KILL ID {id}"), confirm.to_owned()];
        assert!(!pipeline(&mut control, &lines)[2].is_nil(), "{confirm}");
        observe::wait_until_gone(&mut control, id);
        // Long enough for what should not happen: a turn of the server's cron.
        observe::wait_for_next_cron(&mut control);
        assert_eq!(owner(&mut control), "bob", "after {confirm}");
        assert_eq!(control.run("LOCK.RELEASE k bob ALL"), Value::Integer(0));
        token(&arrival(&mut c));
        assert_eq!(release(&mut control, "k", "carol"), Value::Integer(0));
        acquire(&mut control, "k", "alice");
    }
}

fn a_newcomer_does_not_overtake_in_the_turn_of_a_deletion(kind: Kind) {
    let (server, mut control) = start(&kind);
    for deletion in
        ["DEL k", "UNLINK k", "HDEL k alice", "RENAME k elsewhere", "FLUSHALL", "PEXPIRE k -1"]
    {
        let mut b = server.connect();
        wait_in_line(&mut b, &mut control, "k", "bob");
        let replies =
            pipeline(&mut control, &[deletion.to_owned(), "LOCK.ACQUIRE k carol 60000".to_owned()]);
        assert_eq!(replies[1], Value::Nil, "after {deletion}");
        token(&arrival(&mut b));
        assert_eq!(owner(&mut control), "bob", "after {deletion}");
        assert_eq!(release(&mut control, "k", "bob"), Value::Integer(0));
        acquire(&mut control, "k", "alice");
    }
}

fn two_hundred_waiters_that_go_in_one_turn_leave_nothing(kind: Kind) {
    let (server, mut control) = start(&kind);
    let start = |number: usize| {
        let mut waiter = server.connect();
        waiter.send(cmd!["LOCK.WAIT", "k", format!("o{number}"), LONG, LONG]);
        waiter
    };
    let waiters: Vec<Connection> = (0..200).map(start).collect();
    observe::wait_for_waiters(&mut control, "k", 200);
    let lines = [
        "LOCK.RELEASE k alice",
        "CLIENT KILL TYPE normal SKIPME yes",
        "LOCK.ACQUIRE k carol 60000",
    ];
    let replies = pipeline(&mut control, &lines.map(str::to_owned));
    assert_eq!(replies[..2], [0, 200].map(Value::Integer));
    drop(waiters);
    wait::until("carol can have the lock", SOON, || match acquire(&mut control, "k", "carol") {
        Value::Nil => Err("nil".to_owned()),
        _ => Ok(()),
    });
    observe::wait_for_waiters(&mut control, "k", 0);
    observe::wait_for_blocked_clients(&mut control, 0);
    server.assert_alive();
}

fn resets_of_all_clients_again_and_again_leave_nothing(kind: Kind) {
    let (server, mut control) = start(&kind);
    for round in 0..20 {
        let start = |number: usize| {
            let mut waiter = server.connect();
            waiter.send(cmd!["LOCK.WAIT", "k", format!("o{number}"), LONG, LONG]);
            waiter
        };
        let waiters: Vec<Connection> = (0..20).map(start).collect();
        // Every other time they go while they come.
        if round % 2 == 0 {
            observe::wait_for_waiters(&mut control, "k", 20);
        }
        control.run("LOCK.FORCERELEASE k");
        waiters.into_iter().for_each(Connection::reset);
        control.run("LOCK.FORCERELEASE k");
        observe::wait_for_blocked_clients(&mut control, 0);
        observe::wait_for_waiters(&mut control, "k", 0);
        control.run("DEL k");
        token(&acquire(&mut control, "k", "alice"));
    }
    server.assert_alive();
}

on_each_server!(
    a_grant_and_a_timeout_give_one_answer,
    client_unblock_does_not_touch_a_grant,
    a_grant_to_a_client_that_is_killed_is_passed_on,
    a_grant_to_the_last_client_that_is_killed_leaves_the_lock_free,
    a_grant_that_its_owner_has_confirmed_is_not_taken_back,
    a_newcomer_does_not_overtake_in_the_turn_of_a_deletion,
    two_hundred_waiters_that_go_in_one_turn_leave_nothing,
    resets_of_all_clients_again_and_again_leave_nothing,
);

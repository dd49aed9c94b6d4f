//! Who waits first is served first.

use crate::asking::{LONG, acquire, arrival, token};
use harness::checker::{Limits, assert_correct};
use harness::history::{Outcome, Recorder, Request};
use harness::{Connection, Kind, Server, Value, cmd, lines, observe, on_each_server};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WAITERS: usize = 50;

fn owner(number: usize) -> String {
    format!("owner-{number}")
}

/// Fifty clients in line for `k`, each seen there before the next one came.
fn line(server: &Server, control: &mut Connection) -> Vec<Connection> {
    let join = |number: usize| {
        let mut waiter = server.connect();
        waiter.send(cmd!["LOCK.WAIT", "k", owner(number), LONG, LONG]);
        observe::wait_for_waiters(control, "k", number as i64 + 1);
        waiter
    };
    (0..WAITERS).map(join).collect()
}

fn fifty_waiters_are_served_in_the_order_of_arrival(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    let mut last = token(&acquire(&mut control, "k", "holder"));
    let mut holder = "holder".to_owned();
    for (number, mut waiter) in line(&server, &mut control).into_iter().enumerate() {
        assert_eq!(control.call(cmd!["LOCK.RELEASE", "k", holder]), Value::Integer(0));
        holder = owner(number);
        let next = token(&arrival(&mut waiter));
        assert!(next > last, "token {next} after {last}");
        last = next;
        let info = control.run("LOCK.INFO k");
        assert_eq!(info.field("owner").text(), holder);
        assert_eq!(info.field("waiters").integer(), (WAITERS - number - 1) as i64);
    }
}

fn fifty_waiters_are_served_in_order_when_nobody_releases(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    acquire(&mut control, "k", "holder");
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let mut waiter = server.connect();
        waiter.send(cmd!["LOCK.WAIT", "k", owner(number), 20, LONG]);
        observe::wait_for_waiters(&mut control, "k", number as i64 + 1);
        waiters.push(waiter);
    }
    control.run("LOCK.RENEW k holder 1");
    let tokens: Vec<i64> = waiters.iter_mut().map(|waiter| token(&arrival(waiter))).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

fn leaving_the_middle_of_the_line_moves_nobody_else(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    acquire(&mut control, "k", "holder");
    let mut stayed = Vec::new();
    for (number, mut waiter) in line(&server, &mut control).into_iter().enumerate() {
        match number % 3 {
            0 => stayed.push((number, waiter)),
            1 => waiter.close(),
            _ => {
                assert_eq!(
                    control.call(cmd!["LOCK.CANCEL", "k", owner(number)]),
                    Value::Integer(1)
                );
                assert_eq!(arrival(&mut waiter), Value::Nil);
            }
        }
    }
    observe::wait_for_waiters(&mut control, "k", stayed.len() as i64);
    let mut holder = "holder".to_owned();
    for (number, mut waiter) in stayed {
        assert_eq!(control.call(cmd!["LOCK.RELEASE", "k", holder]), Value::Integer(0));
        token(&arrival(&mut waiter));
        holder = owner(number);
    }
}

on_each_server!(
    fifty_waiters_are_served_in_the_order_of_arrival,
    fifty_waiters_are_served_in_order_when_nobody_releases,
    leaving_the_middle_of_the_line_moves_nobody_else,
);

/// One client of a crowd: takes the lock in any way, renews it, gives it back or lets it end.
fn turn(connection: &mut Connection, recorder: &Recorder, key: &str, owner: &str, number: u64) {
    let lease = Duration::from_millis(40);
    let timeout = (!number.is_multiple_of(3)).then_some(Duration::from_millis(300));
    let mut ask = |request: Request| recorder.call(connection, key, owner, &request);
    if !matches!(ask(Request::Acquire { lease, timeout }), Outcome::Granted { .. }) {
        return;
    }
    if number.is_multiple_of(4) {
        ask(Request::Renew { lease });
    }
    // One in ten lets its lease end.
    if !number.is_multiple_of(10) {
        ask(Request::Release);
    }
}

fn what_a_crowd_sees_is_explained_by_a_lock(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let recorder = Recorder::new();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (eye, recorder, over) = (server.connect(), &recorder, &over);
        scope.spawn(move || lines::watch(eye, &["busy", "rare"], recorder, over));
        let client = |client: u8| {
            let server = &server;
            scope.spawn(move || {
                let mut connection = server.connect_resp(2 + client % 2);
                for number in 0..150 {
                    let key = if number % 5 == 0 { "rare" } else { "busy" };
                    turn(
                        &mut connection,
                        recorder,
                        key,
                        &format!("{client}:{number}"),
                        u64::from(client) + number,
                    );
                }
            })
        };
        let clients: Vec<_> = (0..8).map(client).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    let calls = recorder.calls();
    let granted = calls
        .iter()
        .filter(|call| matches!(call.answer, Some((_, Outcome::Granted { .. }))))
        .count();
    assert!(granted > 300, "only {granted} grants");
    let queued = calls.iter().filter(|call| call.queued.is_some()).count();
    assert!(queued > 100, "only {queued} were seen in line");
    // Far more than it takes, far less than any timeout here would hide.
    assert_correct(&calls, &Limits { prompt: Duration::from_secs(2), ..Limits::default() });
    server.assert_alive();
}

on_each_server!(what_a_crowd_sees_is_explained_by_a_lock);

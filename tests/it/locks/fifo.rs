//! Who waits first is served first.

use crate::asking::{LONG, acquire, arrival, token};
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

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

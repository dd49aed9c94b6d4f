//! The server's memory for waiting clients.

use crate::asking::acquire;
use harness::{Connection, Kind, Server, cmd, observe, on_each_server, wait};
use std::time::Duration;

const WAITERS: i64 = 300;

/// Number of waiting clients that must fit into 100 MiB.
const FIT: i64 = 2_700;

/// Longest time until all clients wait, and then until the server has freed unused buffers of connections.
const LEISURE: Duration = Duration::from_secs(60);

fn used(control: &mut Connection) -> i64 {
    observe::info_number(control, "used_memory")
}

#[expect(clippy::print_stdout, reason = "the figure, for whoever asks with --nocapture")]
fn two_thousand_seven_hundred_waiters_fit_into_100_mib(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    acquire(&mut control, "k", "holder");
    let before = used(&mut control);
    let _waiters: Vec<Connection> = (0..WAITERS)
        .map(|number| {
            let mut waiter = server.connect();
            waiter.send(cmd!["LOCK.WAIT", "k", format!("waiter{number}"), 10_000, 0]);
            waiter
        })
        .collect();
    wait::until("all wait", LEISURE, || {
        match observe::info_number(&mut control, "kvlock_waiters") {
            WAITERS => Ok(()),
            fewer => Err(fewer.to_string()),
        }
    });
    wait::until("they fit", LEISURE, || {
        let each = (used(&mut control) - before) / WAITERS;
        if each * FIT <= 100 << 20 { Ok(()) } else { Err(format!("{each} bytes each")) }
    });
    let each = (used(&mut control) - before) / WAITERS;
    println!(
        "{kind}: {each} bytes for each of {WAITERS} waiters, {} in 100 MiB",
        (100 << 20) / each
    );
}

on_each_server!(two_thousand_seven_hundred_waiters_fit_into_100_mib);

//! What it is all for: a counter that is guarded by a lock. Its holder reads it, is paused for
//! longer than its lease, and writes it, when the next holder has done so long ago.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

use harness::{Connection, Server, cmd};
use std::time::Duration;

const ROUNDS: u64 = 40;
const LEASE_MS: u64 = 20;

/// A store of one number.
#[derive(Default)]
struct Store {
    number: u64,
    /// The largest token it has seen, if it looks at them.
    largest: Option<i64>,
}

impl Store {
    fn looks(&mut self, token: i64) -> bool {
        match &mut self.largest {
            None => true,
            Some(largest) if token < *largest => false,
            Some(largest) => {
                *largest = token;
                true
            }
        }
    }

    fn read(&mut self, token: i64) -> Option<u64> {
        self.looks(token).then_some(self.number)
    }

    /// Whether it was written.
    fn write(&mut self, token: i64, number: u64) -> bool {
        let allowed = self.looks(token);
        if allowed {
            self.number = number;
        }
        allowed
    }
}

/// How many increments were acknowledged, and how many of them are in the number at the end.
fn count(mut store: Store) -> (u64, u64) {
    let server = Server::start();
    let (mut a, mut b) = (server.connect(), server.connect());
    let mut acknowledged = 0;
    for _ in 0..ROUNDS {
        let paused = take(&mut a, "alice", LEASE_MS);
        let read = store.read(paused).unwrap();
        // Alice is paused until her lease is over and Bob has done his work.
        let token = take(&mut b, "bob", 10_000);
        let number = store.read(token).unwrap();
        acknowledged += u64::from(store.write(token, number + 1));
        b.call(cmd!["LOCK.RELEASE", "counter", "bob"]);
        acknowledged += u64::from(store.write(paused, read + 1));
    }
    (acknowledged, store.number)
}

fn take(connection: &mut Connection, owner: &str, lease: u64) -> i64 {
    connection.send(cmd!["LOCK.WAIT", "counter", owner, lease, 0]);
    connection.receive(Duration::from_secs(60)).unwrap()[0].integer()
}

#[test]
fn a_store_that_looks_at_tokens_loses_nothing() {
    let (acknowledged, counted) = count(Store { largest: Some(0), ..Store::default() });
    assert_eq!((acknowledged, counted), (ROUNDS, ROUNDS));
}

#[test]
fn a_store_that_does_not_loses_every_write_of_the_next_holder() {
    let (acknowledged, counted) = count(Store::default());
    assert_eq!((acknowledged, counted), (2 * ROUNDS, ROUNDS));
}

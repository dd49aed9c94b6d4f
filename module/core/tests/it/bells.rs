//! Bells of sessions: one message when there are outcomes to read, and no further one until the
//! session is read.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

use kvlock_core::{
    Holding, Join, KeyRef, Limits, Millis, MonoMillis, Now, Observed, Results, SessionId,
    SessionName, Situation, Table, UnixMillis, Via, Want, Work,
};

const NAME: SessionName = [b'1'; 32];
const NOW: Now = Now { unix_us: 1_000_000_000, mono: MonoMillis(1_000_000) };

fn table() -> (Table<u32>, SessionId) {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = table.open_session(NAME, b"user", Millis(60_000), NOW).expect("there is room");
    (table, session)
}

fn with_bell() -> (Table<u32>, SessionId) {
    let (mut table, session) = table();
    table.add_bell(session);
    (table, session)
}

/// Posts one outcome, of a wait that is cancelled.
fn post(table: &mut Table<u32>, session: SessionId) {
    let until = Some(UnixMillis(1_060_000));
    let held = Holding { owner: b"holder", holds: 1, shared: 0, token: None, until };
    let key = KeyRef::lock(0, b"orders");
    let seen = Observed::Held(held);
    let at = Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE };
    let join = Join { owner: b"bob", want: Want::Exclusive, lease: Millis(9), timeout: None };
    table.enqueue(&at, &join, Via::Session(session));
    table.cancel(key, b"bob");
}

/// Does all due work. Returns the number of the last outcome from each message of the bell.
fn rings(table: &mut Table<u32>) -> Vec<u64> {
    let mut rings = Vec::new();
    while let Some(work) = table.next_work(NOW, true) {
        if let Work::Ring(name, last) = work {
            assert_eq!(name, NAME);
            rings.push(last);
        }
    }
    rings
}

/// Reads up to this outcome, always on the same connection.
fn read(table: &mut Table<u32>, session: SessionId, up_to: u64) {
    let (reading, _) = table.begin_reading(session, Some(1), 0, NOW).expect("nothing is ahead");
    table.sent(reading.expect("the session is there"), up_to, NOW);
}

#[test]
fn a_bell_rings_once_until_the_session_is_read() {
    let (mut table, session) = with_bell();
    assert_eq!(rings(&mut table), []);
    post(&mut table, session);
    assert_eq!(table.next_due(NOW), Some(Millis(0)));
    assert_eq!(rings(&mut table), [1]);
    post(&mut table, session);
    post(&mut table, session);
    assert_eq!(rings(&mut table), []);
    read(&mut table, session, 3);
    assert_eq!(rings(&mut table), []);
    post(&mut table, session);
    assert_eq!(rings(&mut table), [4]);
}

/// For example, a call that waits for outcomes, and whose client disconnects.
#[test]
fn a_bell_rings_again_after_a_call_without_a_reply() {
    let (mut table, session) = with_bell();
    post(&mut table, session);
    assert_eq!(rings(&mut table), [1]);
    assert!(table.begin_reading(session, Some(1), 0, NOW).is_ok());
    assert_eq!(rings(&mut table), []);
    post(&mut table, session);
    assert_eq!(rings(&mut table), [2]);
}

#[test]
fn a_bell_rings_once_for_outcomes_of_one_turn() {
    let (mut table, session) = with_bell();
    post(&mut table, session);
    post(&mut table, session);
    assert_eq!(rings(&mut table), [2]);
}

#[test]
fn a_bell_rings_again_if_a_reply_leaves_outcomes() {
    let (mut table, session) = with_bell();
    post(&mut table, session);
    post(&mut table, session);
    post(&mut table, session);
    assert_eq!(rings(&mut table), [3]);
    read(&mut table, session, 1);
    assert_eq!(rings(&mut table), [3]);
    read(&mut table, session, 3);
    assert_eq!(rings(&mut table), []);
}

#[test]
fn a_bell_does_not_ring_for_outcomes_that_were_already_read() {
    let (mut table, session) = with_bell();
    post(&mut table, session);
    read(&mut table, session, 1);
    assert_eq!(rings(&mut table), []);
    post(&mut table, session);
    assert_eq!(rings(&mut table), [2]);
}

#[test]
fn a_bell_that_is_due_ends_with_its_session() {
    let (mut table, session) = with_bell();
    post(&mut table, session);
    table.close_session(session);
    assert_eq!(rings(&mut table), []);
    let (mut table, session) = with_bell();
    post(&mut table, session);
    table.forget();
    assert_eq!(rings(&mut table), []);
}

#[test]
fn a_session_has_no_bell_unless_it_is_asked_for() {
    let (mut table, session) = table();
    post(&mut table, session);
    assert_eq!(rings(&mut table), []);
}

//! Readers of sessions: what a reply counts for, and how many are answered at once.

#![expect(clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

use kvlock_core::{
    AckAhead, Cause, Change, HandOff, Holding, Join, Limits, Millis, Observed, Reading, SessionId,
    Table, Via, Want,
};

use super::common::{FREE, LEASE, NOW, at, open};

fn wait(table: &mut Table<u32>, name: &[u8], session: SessionId) {
    let join = Join { owner: b"ann", want: Want::Exclusive, lease: LEASE, timeout: None };
    table.enqueue(&at(name, FREE), &join, Via::Session(session));
}

/// Grants the lock to the session's wait.
fn grant(table: &mut Table<u32>, name: &[u8], session: SessionId) -> HandOff<u32> {
    wait(table, name, session);
    let change = table.look(&at(name, FREE), Cause::Outside);
    let Change::HandOff(hand_off) = change else { panic!("{change:?}") };
    hand_off
}

/// Returns a table with a session, and two grants to it that were not read.
fn two_unread() -> (Table<u32>, SessionId, [HandOff<u32>; 2]) {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = open(&mut table, 1);
    let granted = [b"a", b"b"].map(|name| grant(&mut table, name, session));
    (table, session, granted)
}

/// Takes a grant back. Returns whether it had not been sent.
fn is_taken_back(table: &mut Table<u32>, name: &[u8], granted: &HandOff<u32>) -> bool {
    let token = granted.token;
    let holding = Holding { owner: b"ann", holds: 1, shared: 0, token: Some(token), until: None };
    let at = at(name, Observed::Held(holding));
    table.take_back(&at, granted.id, b"ann", token) != Change::None
}

fn read(table: &mut Table<u32>, session: SessionId, ack: u64) -> Reading {
    let began = table.begin_reading(session, Some(1), ack, NOW);
    began.ok().and_then(|(reading, _)| reading).expect("the session is there")
}

#[test]
fn only_the_grants_of_a_reply_were_sent() {
    let (mut table, session, [first, second]) = two_unread();
    let reading = read(&mut table, session, 0);
    table.sent(reading, 1, NOW);
    assert!(!is_taken_back(&mut table, b"a", &first));
    assert!(is_taken_back(&mut table, b"b", &second));
}

#[test]
fn a_reply_counts_only_if_its_call_is_the_latest_and_was_answered() {
    let (mut table, session, [first, second]) = two_unread();
    let replaced = read(&mut table, session, 0);
    let reading = read(&mut table, session, 0);
    table.sent(replaced, 1, NOW);
    table.block_reader(reading, 7, LEASE, NOW);
    table.sent(reading, 1, NOW);
    assert_eq!(table.begin_reading(session, Some(1), 1, NOW).map(|_| ()), Err(AckAhead));
    assert!(is_taken_back(&mut table, b"a", &first) && is_taken_back(&mut table, b"b", &second));
}

#[test]
fn readers_are_answered_a_few_at_a_time() {
    let mut table = Table::new(Limits::UNLIMITED);
    let count = u32::try_from(kvlock_core::RUN_MAX).expect("it is small") + 1;
    for client in 0..count {
        let session = open(&mut table, u8::try_from(client).expect("it is small"));
        let reading = read(&mut table, session, 0);
        table.block_reader(reading, client, LEASE, NOW);
    }
    table.wake_readers();
    let clients = |table: &mut Table<u32>| {
        table.next_readers(NOW).into_iter().map(|(_, client)| client).collect::<Vec<_>>()
    };
    assert!(clients(&mut table).into_iter().eq(0..count - 1));
    assert_eq!(clients(&mut table), [count - 1]);
    assert!(!table.has_readers_to_tell());
}

#[test]
fn an_empty_session_leaves_nothing_to_clear() {
    let mut table = Table::new(Limits::UNLIMITED);
    let sessions = [1, 2].map(|name| open(&mut table, name));
    let names = |table: &Table<u32>| table.sessions().map(|it| it.name[0]).collect::<Vec<_>>();
    assert_eq!(names(&table), [1, 2]);
    assert!(!table.has_waits(sessions[0]));
    wait(&mut table, b"a", sessions[0]);
    assert!(table.has_waits(sessions[0]) && !table.has_waits(sessions[1]));
    assert_eq!(table.close_session(sessions[1]), None);
    assert!(!table.sessions_have_work());
    assert_eq!(table.close_session(sessions[0]), None);
    assert!(table.sessions_have_work() && !table.has_waits(sessions[0]));
    assert_eq!(names(&table), [0; 0]);
}

/// A drain dismisses the waits of sessions, if there are any.
#[test]
fn a_drain_is_work_while_sessions_wait() {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = open(&mut table, 1);
    table.limits.draining = true;
    assert!(!table.sessions_have_work());
    wait(&mut table, b"a", session);
    assert!(table.sessions_have_work());
    table.limits.draining = false;
    assert!(!table.sessions_have_work());
}

#[test]
fn a_grant_that_cannot_be_taken_back_yet_stays_on_the_list() {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = open(&mut table, 1);
    grant(&mut table, b"a", session);
    assert_eq!(table.close_session(session), None);
    while table.work_on_sessions() {}
    let unsent = table.next_unsent().expect("the grant was not read");
    assert_eq!(table.next_unsent(), None);
    assert_eq!(table.unsent().count(), 0);
    table.not_taken_back(unsent);
    assert_eq!(table.unsent().count(), 1);
    assert_eq!(table.next_due(NOW), Some(Millis(0)));
    assert!(table.next_unsent().is_some_and(|unsent| *unsent.owner == *b"ann"));
}

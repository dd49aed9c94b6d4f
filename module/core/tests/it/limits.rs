//! Limits of waits for one lock: of the server, of a key, and of one user. Those of waits for sets are in
//! `set_limits.rs`.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, AcquireReply, Caller, Full, Holding, Join, Limits, Observed, Quota, SessionId,
    Situation, Table, Token, UnixMillis, Via, WaitReply, Want,
};

use super::common::{LEASE, NOW, at};

type Waited = Result<Option<u32>, WaitReply<AcquireReply>>;

fn held(name: &[u8]) -> Situation<'_> {
    let (token, until) = (Token::from_stored(7), Some(UnixMillis(1_050)));
    let holding = Holding { owner: b"holder", holds: 1, shared: 0, token, until };
    at(name, Observed::Held(holding))
}

fn request(owner: &[u8], holds: Option<u64>) -> Acquire<'_> {
    Acquire { owner, want: Want::Exclusive, lease: LEASE, holds }
}

/// Queues `owner` for a lock. Returns the client that waited in its place, or the refusal.
fn wait(table: &mut Table<u32>, name: &[u8], owner: &[u8], via: Via<u32>) -> Waited {
    let session = if let Via::Session(session) = via { Some(session) } else { None };
    let (reply, _) = table.wait(&held(name), &request(owner, None), session);
    if reply != WaitReply::Block {
        return Err(reply);
    }
    let join = Join { owner, want: Want::Exclusive, lease: LEASE, timeout: None };
    Ok(table.enqueue(&held(name), &join, via).1)
}

fn open(table: &mut Table<u32>, name: u8) -> SessionId {
    table.open_session([name; 32], b"user", LEASE, NOW).expect("there is room")
}

const FULL: Waited = Err(WaitReply::QueueFull(Full::Server));
const USER_FULL: Waited = Err(WaitReply::QueueFull(Full::User));

#[test]
fn a_place_that_is_taken_over_counts_once_and_the_outcome_for_its_session_too() {
    for (waiters, other_session) in [(1, FULL), (2, Ok(None))] {
        let limits = Limits { waiters, waiters_per_key: 1, ..Limits::UNLIMITED };
        let mut table = Table::new(limits);
        let (first, second) = (open(&mut table, 1), open(&mut table, 2));
        assert_eq!(wait(&mut table, b"k", b"ann", Via::Client(1)), Ok(None));
        assert_eq!(wait(&mut table, b"k", b"ann", Via::Client(2)), Ok(Some(1)));
        assert_eq!(wait(&mut table, b"k", b"bob", Via::Client(3)), FULL, "one waiter per key");
        assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(first)), Ok(Some(2)));
        assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(first)), Ok(None));
        assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(second)), other_session);
    }
    // A session that has ended gets no outcome.
    let mut table = Table::new(Limits { waiters: 1, waiters_per_key: 1, ..Limits::UNLIMITED });
    let session = open(&mut table, 1);
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(session)), Ok(None));
    table.close_session(session);
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Client(1)), Ok(None));
}

#[test]
fn a_wait_that_takes_over_a_blocked_client_needs_no_room_for_another() {
    let mut table =
        Table::new(Limits { blocked: 1, waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED });
    let session = open(&mut table, 1);
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Client(1)), Ok(None));
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Client(2)), Ok(Some(1)));
    assert_eq!(wait(&mut table, b"k", b"bob", Via::Session(session)), Ok(None));
    assert_eq!(wait(&mut table, b"k", b"bob", Via::Client(3)), FULL);
    assert_eq!(wait(&mut table, b"k", b"carol", Via::Client(3)), FULL);
}

/// Half of the limits are one user's.
#[test]
fn the_waits_of_sessions_count_for_their_user() {
    let limits = Limits { waiters: 4, waiters_per_key: 9, user_share: 50, ..Limits::UNLIMITED };
    let mut table = Table::new(limits);
    let (first, second) = (open(&mut table, 1), open(&mut table, 2));
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(first)), Ok(None));
    assert_eq!(wait(&mut table, b"l", b"ann", Via::Session(second)), Ok(None));
    assert_eq!(wait(&mut table, b"m", b"ann", Via::Session(second)), USER_FULL);
    let account = table.account_of_session(first).expect("it has an account");
    assert_eq!((account.user(), account.count(Quota::Waits)), (&b"user"[..], 2));
    assert_eq!(table.account(b"user").count(Quota::Waits), 2);

    let ask = |table: &mut Table<u32>, user: &[u8]| {
        let caller = Caller::Client(table.account(user));
        table.wait(&held(b"m"), &request(b"ann", None), caller).0
    };
    assert_eq!(ask(&mut table, b"user"), WaitReply::QueueFull(Full::User));
    assert_eq!(ask(&mut table, b"other"), WaitReply::Block);
    // An owner that takes back its place needs no room.
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(first)), Ok(None));
    table.close_session(second);
    while table.work_on_sessions() {}
    assert_eq!(ask(&mut table, b"user"), WaitReply::Block);
}

/// A session that is away keeps the place of its owner.
#[test]
fn an_owner_that_has_a_place_waits_there_unless_holds_does_not_match() {
    let mut table = Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED });
    let session = open(&mut table, 1);
    assert_eq!(wait(&mut table, b"k", b"ann", Via::Session(session)), Ok(None));
    assert!(table.begin_reading(session, Some(1), 0, NOW).is_ok());
    table.connection_closed(1, NOW);
    let free = Situation { seen: Observed::Free { stored: None }, ..held(b"k") };
    for (holds, expected) in [
        (None, WaitReply::Block),
        (Some(1), WaitReply::Block),
        (Some(2), WaitReply::Now(AcquireReply::Mismatch)),
    ] {
        assert_eq!(table.wait(&free, &request(b"ann", holds), None).0, expected, "{holds:?}");
    }
}

//! Locks bound to sessions, against a model. After a session has ended, its bound locks are
//! released, but never while the client may still rely on them. The session's grants that were never
//! sent are taken back. The end of a session releases no other lock.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, Change, DueBinding, Holding, KeyRef, Limits, Millis, MonoMillis, Now, Observed,
    Results, SessionId, Share, Sharing, Situation, Table, Token, UnixMillis, Want, Work,
};
use kvlock_core_reference::bound::World;
use kvlock_core_reference::{check, counted};

const LEASE: Millis = Millis(60_000);
const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
const FREE: Situation<'static> = Situation {
    key: KeyRef::lock(0, b"k"),
    seen: Observed::Free { stored: None },
    now: NOW,
    floor: Some(0),
    results: Results::NONE,
};

/// Opens a session, and binds a lock to it.
fn bind(table: &mut Table<()>) -> (SessionId, Situation<'static>) {
    let session = table.open_session([1; 32], b"user", LEASE, NOW).expect("there is room");
    let request = Acquire { owner: b"a", want: Want::Exclusive, lease: LEASE, holds: None };
    let (reply, change) = table.acquire(&FREE, &request);
    table.bind_granted(&FREE, &request, reply, session);
    let (token, until) = (change.issued(), change.until());
    let holding = Holding { owner: b"a", holds: 1, shared: 0, token, until };
    (session, Situation { seen: Observed::Held(holding), ..FREE })
}

/// Returns a lock that is bound to a session that has ended.
fn left_behind(table: &mut Table<()>) -> Situation<'static> {
    let (session, at) = bind(table);
    table.close_session(session);
    while table.work_on_sessions() {}
    at
}

fn later(ms: u64) -> Now {
    Now { mono: NOW.mono.plus(Millis(ms)), ..NOW }
}

/// Also returns the binding to release.
fn orphan(table: &mut Table<()>) -> (Situation<'static>, DueBinding) {
    let at = left_behind(table);
    (at, table.next_bound(NOW).expect("it is to be released"))
}

#[test]
fn a_lock_whose_owner_uses_it_after_the_end_of_its_session_is_not_released() {
    let mut table = Table::new(Limits::UNLIMITED);
    let at = left_behind(&mut table);
    table.renew(&at, b"a", LEASE, None);
    assert!(table.next_bound(NOW).is_none());
}

#[test]
fn releases_by_the_end_of_a_session_are_not_in_hold_times() {
    let mut table = Table::new(Limits::UNLIMITED);
    let (at, bound) = orphan(&mut table);
    let now = Now { unix_us: NOW.unix_us + 5_000, ..NOW };
    assert_eq!(table.release_bound(&Situation { now, ..at }, &bound), Change::Free);
    assert_eq!((table.counters().bound_released, table.hold_times().count()), (1, 0));
}

#[test]
fn a_release_refused_by_one_slot_is_retried_later_than_one_refused_by_all() {
    for (all, pause) in [(true, 100), (false, 1_000)] {
        let mut table = Table::new(Limits::UNLIMITED);
        let (_, bound) = orphan(&mut table);
        table.refused_to_release(&bound, all, NOW);
        assert_eq!(table.next_bound(NOW), None);
        assert_eq!(table.next_due(NOW), Some(Millis(pause)), "of all: {all}");
        assert_eq!(table.next_bound(later(pause - 1)), None, "of all: {all}");
        assert!(table.next_bound(later(pause)).is_some_and(|again| again.is_orphan));
    }
}

/// A server that refuses one write may refuse all, or only those of one slot.
#[test]
fn other_locks_are_released_unless_the_server_refuses_every_write() {
    for all in [true, false] {
        let mut table = Table::new(Limits::UNLIMITED);
        let (session, _) = bind(&mut table);
        let token = Token::from_stored(7).expect("it is valid");
        table.bind((KeyRef::lock(0, b"other"), b"a"), (token, LEASE), session, NOW);
        table.close_session(session);
        while table.work_on_sessions() {}
        let first = table.next_bound(NOW).expect("it is to be released");
        table.refused_to_release(&first, all, NOW);
        assert_eq!(table.next_bound(NOW).is_none(), all);
    }
}

#[test]
fn a_binding_is_checked_again_when_its_lease_may_have_ended() {
    let mut table = Table::new(Limits::UNLIMITED);
    bind(&mut table);
    let end = LEASE.0;
    assert_eq!(table.next_bound(later(end - 1)), None);
    let bound = table.next_bound(later(end)).expect("it is checked");
    assert!(!bound.is_orphan);
    // The owner has renewed the lease.
    table.stays_bound(&bound, NOW.unix().plus(LEASE), later(end));
    assert_eq!(table.next_bound(later(2 * end - 1)), None);
    assert!(table.next_bound(later(2 * end)).is_some());
}

#[test]
fn a_share_stays_bound_only_in_the_same_shared_period() {
    let mut table = Table::new(Limits::UNLIMITED);
    let (at, bound) = orphan(&mut table);
    let Observed::Held(Holding { token, .. }) = at.seen else { unreachable!("it is held") };
    let until = UnixMillis(1_050);
    for (token, expected) in [(token, Some(until)), (Token::from_stored(7), None)] {
        let own = Some(Share { holds: 1, until });
        let sharing =
            Sharing { asked: b"a", own, token, until: Some(until), holders: 1, living: None };
        let at = Situation { seen: Observed::Shared(sharing), ..FREE };
        assert_eq!(table.bound_until(&at, &bound), expected);
    }
}

#[test]
fn a_binding_has_the_token_that_a_renewal_gives_the_lock() {
    let mut table = Table::new(Limits::UNLIMITED);
    let (_, at) = bind(&mut table);
    let token = Token::from_stored(NOW.unix_us + 9_000_000);
    table.renew(&at, b"a", LEASE, token);
    assert!(table.bound_to(at.key, b"a", token).is_some());
}

#[test]
fn forgotten_bindings_are_freed_and_nothing_is_released() {
    let mut table = Table::new(Limits::UNLIMITED);
    let (session, _) = bind(&mut table);
    table.forget_bound(session);
    table.close_session(session);
    while let Some(work) = table.next_work(NOW, true) {
        assert_eq!(work, Work::Done);
    }
    assert_eq!(table.bound(), 0);
}

#[test]
fn bound_locks_follow_the_contract() {
    check::<World>();
}

#[test]
fn a_thousand_walks_meet_every_case_often() {
    let seen = counted(1_000, |world: &World| {
        let counters = world.table.counters();
        let [one, two, three, four] = world.seen;
        [counters.bound_released, counters.sessions_gone, one, two, three, four]
    });
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

//! Locks bound to sessions, against a model. After a session has ended, its bound locks are
//! released, but never while the client may still rely on them. The session's grants that were never
//! sent are taken back. The end of a session releases no other lock.

#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, Bound, Change, Holding, KeyRef, Limits, Millis, MonoMillis, Now, Observed, Results,
    Situation, Table, Want,
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

/// Returns a lock that is bound to a session that has ended.
fn left_behind(table: &mut Table<()>) -> Situation<'static> {
    let session = table.open_session([1; 32], b"user", LEASE, NOW).expect("there is room");
    let request = Acquire { owner: b"a", want: Want::Exclusive, lease: LEASE, holds: None };
    let (reply, change) = table.acquire(&FREE, &request);
    table.bind_granted(&FREE, &request, reply, session);
    table.close_session(session);
    while table.work_on_sessions() {}
    let (token, until) = (change.issued(), change.until());
    let holding = Holding { owner: b"a", holds: 1, shared: 0, token, until };
    Situation { seen: Observed::Held(holding), ..FREE }
}

/// Also returns the binding to release.
fn orphan(table: &mut Table<()>) -> (Situation<'static>, Bound) {
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
        let later = |ms| Now { mono: NOW.mono.plus(Millis(ms)), ..NOW };
        assert_eq!(table.next_bound(later(pause - 1)), None, "of all: {all}");
        assert!(table.next_bound(later(pause)).is_some_and(|again| again.is_orphan));
    }
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

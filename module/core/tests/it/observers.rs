//! Observers of a lock: the changes that they receive and the state kept for them. Random walks are
//! checked against a model that remembers everything.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod world;

use kvlock_core::{
    Acquire, Cause, Change, Ending, HolderState, KeyRef, Limits, LossReason, Millis, Observed,
    RUN_MAX, Reading, Release, Results, SessionId, Share, Sharing, Situation, Table, Token,
    UnixMillis, Want,
};
use kvlock_core_reference::check;

use super::common::{NOW, open};

const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");

fn held(owner: &[u8]) -> HolderState {
    HolderState::Held { owner: owner.into(), token: None, value: None }
}

fn read(table: &mut Table<u32>, session: SessionId, connection: u64, ack: u64) -> Reading {
    let began = table.begin_reading(session, Some(connection), ack, NOW);
    began.ok().and_then(|(reading, _)| reading).expect("the session is there")
}

/// Returns the changes to read, by number, and records them as sent.
fn send(table: &mut Table<u32>, reading: Reading) -> Vec<(u64, HolderState, Option<LossReason>)> {
    let news = table.news(reading).and_then(Result::ok).expect("nobody else reads");
    let changes = news.map(|(number, outcome)| {
        let Ending::Changed(changed) = &outcome.ending else { panic!("{outcome:?}") };
        (number, changed.news.holder_state.clone(), changed.why)
    });
    let changes: Vec<_> = changes.collect();
    table.sent(reading, changes.last().map_or(0, |(number, ..)| *number), NOW);
    assert_eq!(table.check(), Ok(()));
    changes
}

fn observed() -> (Table<u32>, SessionId) {
    let mut table = Table::new(Limits::UNLIMITED);
    let session = open(&mut table, b's');
    let news = table.observe(KEY, NOW, (HolderState::Vacant, None), session);
    assert_eq!(news.expect("there is room").holder_state, HolderState::Vacant);
    (table, session)
}

fn becomes(table: &mut Table<u32>, holder_state: HolderState, cause: Cause) {
    table.notice(KEY, NOW, Some(cause), (holder_state, None));
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn unsent_changes_are_replaced_by_the_newest_in_their_place() {
    let (mut table, session) = observed();
    becomes(&mut table, held(b"a"), Cause::Outside);
    becomes(&mut table, HolderState::Vacant, Cause::Release);
    becomes(&mut table, held(b"b"), Cause::Outside);
    let reading = read(&mut table, session, 1, 0);
    let seen = send(&mut table, reading);
    assert_eq!(seen, [(1, held(b"b"), Some(LossReason::Released))]);
    assert_eq!(table.session_waits(), (1, 1));
}

#[test]
fn an_unacknowledged_change_is_replaced_by_a_newer_one() {
    let (mut table, session) = observed();
    for number in 1..=50 {
        becomes(&mut table, held(&[number]), Cause::Outside);
        let reading = read(&mut table, session, 1, 0);
        assert_eq!(send(&mut table, reading).len(), 1);
        assert_eq!(table.session_waits(), (1, 1), "one is kept");
    }
    // On another connection the client receives only the last change.
    let reading = read(&mut table, session, 2, 0);
    assert_eq!(send(&mut table, reading), [(50, held(&[50]), Some(LossReason::Deleted))]);
    assert_eq!(table.begin_reading(session, Some(2), 50, NOW).map(|_| ()), Ok(()));
    assert_eq!(table.session_waits(), (1, 0));
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn an_observer_is_not_sent_what_it_knows() {
    let (mut table, session) = observed();
    becomes(&mut table, HolderState::Vacant, Cause::Outside);
    becomes(&mut table, held(b"a"), Cause::Outside);
    let news = table.observe(KEY, NOW, (held(b"a"), None), session).expect("there is room");
    assert_eq!((news.holder_state.clone(), news.version), (held(b"a"), 2));
    assert_eq!(table.session_waits(), (1, 0), "it was told in the reply");
    assert!(table.unobserve(KEY, session) && !table.unobserve(KEY, session));
    becomes(&mut table, HolderState::Vacant, Cause::Release);
    assert_eq!(table.observers(), (0, 0));
    let again = table.observe(KEY, NOW, (HolderState::Vacant, None), session);
    assert!(again.expect("there is room").version > news.version);
}

#[test]
fn a_thousand_observers_are_notified_in_batches_of_the_newest_change() {
    let (mut table, _) = observed();
    let many: Vec<_> = (0..1_000_u32)
        .map(|number| {
            let mut name = [b'x'; 32];
            name[..4].copy_from_slice(&number.to_be_bytes());
            let opened = table.open_session(name, b"user", Millis(60_000), NOW);
            let session = opened.expect("there is room");
            let reading = read(&mut table, session, 0, 0);
            table.block_reader(reading, number, Millis(60_000), NOW);
            let observed = table.observe(KEY, NOW, (HolderState::Vacant, None), session);
            observed.expect("there is room");
            reading
        })
        .collect();
    becomes(&mut table, held(b"a"), Cause::Outside);
    let mut told = 0;
    let mut turns = 0;
    loop {
        let in_turn = std::iter::from_fn(|| table.next_reader(NOW)).count();
        assert!(in_turn <= RUN_MAX, "{in_turn} are answered at once");
        told += in_turn;
        turns += 1;
        if turns == 5 {
            // Observers that were informed before receive this change as a second one; the others
            // receive only this one.
            becomes(&mut table, HolderState::Vacant, Cause::Forced);
        }
        // The check goes through all observers.
        if turns % 50 == 0 {
            assert_eq!(table.check(), Ok(()));
        }
        if !table.sessions_have_work() {
            break;
        }
        assert_eq!(table.next_due(NOW), Some(Millis(0)));
        table.work_on_sessions();
    }
    assert_eq!(table.check(), Ok(()));
    assert!((1_000..1_500).contains(&told), "{told}");
    for reading in many {
        let last = send(&mut table, reading).pop().expect("there is news");
        assert_eq!((last.1, last.2), (HolderState::Vacant, Some(LossReason::Forced)));
    }
}

#[test]
fn a_change_notifies_a_few_observers_at_once_and_the_others_later() {
    const AT_ONCE: u64 = 16;
    let mut table = Table::new(Limits::UNLIMITED);
    let observers: Vec<_> = (0..100).map(|name| open(&mut table, name)).collect();
    let names: Vec<_> = (0..33_u8).map(|number| [number]).collect();
    for name in &names {
        for observer in &observers {
            let key = KeyRef::lock(0, name);
            let observed = table.observe(key, NOW, (HolderState::Vacant, None), *observer);
            observed.expect("there is room");
        }
    }
    for name in &names {
        let (now_held, before) = ((held(b"a"), None), table.counters().changes_told);
        table.notice(KeyRef::lock(0, name), NOW, Some(Cause::Outside), now_held);
        assert!(table.counters().changes_told <= before + AT_ONCE);
    }
    let mut told = table.counters().changes_told;
    while table.sessions_have_work() {
        assert_eq!(table.next_due(NOW), Some(Millis(0)));
        table.work_on_sessions();
        assert!(table.counters().changes_told <= told + 1);
        told = table.counters().changes_told;
        // The check goes through all observers.
        if told % 100 == 0 {
            assert_eq!(table.check(), Ok(()));
        }
    }
    assert_eq!(told, 3_300);
}

#[test]
fn an_ended_session_leaves_nothing_behind() {
    let (mut table, session) = observed();
    becomes(&mut table, held(b"a"), Cause::Outside);
    assert_eq!(table.close_session(session), None);
    becomes(&mut table, HolderState::Vacant, Cause::Outside);
    while table.sessions_have_work() {
        table.work_on_sessions();
    }
    assert_eq!((table.observers(), table.session_waits()), ((0, 0), (0, 0)));
    assert_eq!((table.capacity(), table.check()), (0, Ok(())));
    assert!(!table.is_observed(KEY));
}

#[test]
fn each_end_of_a_hold_has_its_reason() {
    let early = Some(UnixMillis(900));
    for (until, cause, why) in [
        (None, Cause::Outside, LossReason::Deleted),
        (Some(UnixMillis(1_000)), Cause::Outside, LossReason::Deleted),
        (early, Cause::Outside, LossReason::Expired),
        (early, Cause::Flush, LossReason::Flushed),
        (early, Cause::Release, LossReason::Released),
        (None, Cause::Expiry, LossReason::Expired),
        (None, Cause::Forced, LossReason::Forced),
        (None, Cause::TakenBack, LossReason::TakenBack),
    ] {
        let (mut table, session) = observed();
        table.notice(KEY, NOW, None, (held(b"a"), until));
        becomes(&mut table, HolderState::Shared { token: None }, cause);
        let reading = read(&mut table, session, 1, 0);
        let seen = send(&mut table, reading);
        assert_eq!(seen, [(1, HolderState::Shared { token: None }, Some(why))], "{cause:?}");
    }
}

/// The last live sharer of a lock leaves. The key may still have fields of owners whose leases have
/// expired.
#[test]
fn the_end_of_the_last_share_has_its_reason() {
    for (is_bound, fields, why) in [
        (false, 1, LossReason::Released),
        (false, 2, LossReason::Released),
        (true, 1, LossReason::SessionEnded),
        (true, 2, LossReason::SessionEnded),
    ] {
        let (mut table, observer) = observed();
        let seen = Observed::Free { stored: None };
        let free = Situation { key: KEY, seen, now: NOW, floor: Some(0), results: Results::NONE };
        let lease = Millis(60_000);
        let request = Acquire { owner: b"a", want: Want::Shared, lease, holds: None };
        let (reply, change) = table.acquire(&free, &request);
        let (token, until) = (change.issued(), change.until());
        let own = until.map(|until| Share { holds: 1, until });
        let (asked, holders, living) = (b"a", fields, None);
        let seen = Observed::Shared(Sharing { asked, own, token, until, holders, living });
        let at = Situation { seen, ..free };
        table.notice(KEY, NOW, None, (HolderState::Shared { token }, until));
        let change = if is_bound {
            let holder = open(&mut table, b'h');
            table.bind_granted(&free, &request, reply, holder);
            table.close_session(holder);
            let bound = table.next_bound(NOW).expect("it is to be released");
            table.release_bound(&at, &bound)
        } else {
            table.release(&at, b"a", Want::Shared, Release::One).1
        };
        assert_eq!(change, if fields == 1 { Change::Free } else { Change::Leave });
        table.notice(KEY, NOW, None, (HolderState::Vacant, None));
        let reading = read(&mut table, observer, 1, 0);
        let seen = send(&mut table, reading);
        assert_eq!(
            seen,
            [(1, HolderState::Vacant, Some(why))],
            "{fields} fields, bound: {is_bound}"
        );
    }
}

#[test]
fn adding_a_token_to_a_lock_ends_no_hold() {
    let (mut table, session) = observed();
    becomes(&mut table, HolderState::Shared { token: None }, Cause::Outside);
    let token = Token::from_stored(7);
    becomes(&mut table, HolderState::Shared { token }, Cause::Outside);
    let reading = read(&mut table, session, 1, 0);
    assert_eq!(send(&mut table, reading), [(1, HolderState::Shared { token }, None)]);
}

#[test]
fn observers_follow_the_contract() {
    check::<world::World>();
}

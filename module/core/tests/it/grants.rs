//! Grants in flight: each has its own identifier. A grant is settled when its own reply is written or
//! its own owner uses it, and not by other keys, owners or grants.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use std::collections::HashSet;
use std::rc::Rc;

use kvlock_core::{
    Acquire, AcquireReply, Cause, Change, Dismissal, GrantId, HandOff, Holding, Join, KeyRef,
    Millis, Observed, Permits, PermitsChange, Release, ReleaseReply, RenewReply, Semaphore,
    SemaphoreAt, Served, Share, Sharing, Situation, Table, TakeReply, Token, UnixMillis,
    UnsentGrant, Via, WaitReply, Want,
};

use super::common::{FREE, LEASE, NOW, at, open, table};

fn held(owner: &[u8], shared: u64, token: Token) -> Observed<'_> {
    let until = Some(UnixMillis(1_050));
    Observed::Held(Holding { owner, holds: 1, shared, token: Some(token), until })
}

fn request(owner: &[u8], want: Want) -> Acquire<'_> {
    Acquire { owner, want, lease: LEASE, holds: None }
}

fn take(table: &mut Table<u32>, name: &[u8], owner: &[u8]) -> Token {
    match table.acquire(&at(name, FREE), &request(owner, Want::Exclusive)) {
        (AcquireReply::Granted { token, .. }, _) => token,
        other => panic!("{other:?}"),
    }
}

fn wait(table: &mut Table<u32>, at: &Situation<'_>, owner: &[u8], want: Want) {
    let (reply, _) = table.wait(at, &request(owner, want), None);
    assert_eq!(reply, WaitReply::Block);
    table.enqueue(at, &Join { owner, want, lease: LEASE, timeout: None }, 0);
}

/// Queues a waiter for the lock and hands the lock to it.
fn hand_over(table: &mut Table<u32>, name: &[u8]) -> HandOff<u32> {
    let token = take(table, name, b"first");
    wait(table, &at(name, held(b"first", 0, token)), b"next", Want::Exclusive);
    let first = at(name, held(b"first", 0, token));
    match table.release(&first, b"first", Want::Exclusive, Release::One) {
        (ReleaseReply::Left(0), Change::HandOff(hand_off)) => hand_off,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hundreds_of_grants_in_flight_are_distinguished() {
    let mut table = table();
    let names: Vec<String> = (0..300).map(|n| format!("k{n}")).collect();
    let grants: Vec<_> = names.iter().map(|name| hand_over(&mut table, name.as_bytes())).collect();
    let ids: HashSet<GrantId> = grants.iter().map(|grant| grant.id).collect();
    assert_eq!(ids.len(), grants.len());

    // The owner of the grants and other owners use another lock. This settles no grant.
    for name in &names {
        for owner in [&b"next"[..], name.as_bytes()] {
            let token = take(&mut table, b"other", owner);
            table.renew(&at(b"other", held(owner, 0, token)), owner, LEASE, None);
        }
    }
    for (name, grant) in names.iter().zip(&grants) {
        let seen = at(name.as_bytes(), held(b"next", 0, grant.token));
        let change = table.take_back(&seen, grant.id, b"next", grant.token);
        assert_eq!(change, Change::Free, "{name}");
    }
    assert_eq!(table.counters().grants_taken_back, 300);
}

#[test]
fn a_grant_that_stays_is_not_taken_back() {
    let mut table = table();
    let kept = hand_over(&mut table, b"kept");
    let lost = hand_over(&mut table, b"lost");
    for (name, grant) in [(&b"kept"[..], &kept), (b"lost", &lost)] {
        let (key, owner, token) =
            (KeyRef::lock(0, name).to_lock_key(), Rc::clone(&grant.owner), grant.token);
        // No effect on `lost`, because it is not this grant.
        table.stays_granted(&UnsentGrant { key, owner, id: kept.id, token, permits: 0 });
    }
    let mut take_back =
        |name, id, token| table.take_back(&at(name, held(b"next", 0, token)), id, b"next", token);
    assert_eq!(take_back(b"kept", kept.id, kept.token), Change::None);
    assert_eq!(take_back(b"lost", kept.id, lost.token), Change::None, "it is another grant");
    assert_eq!(take_back(b"lost", lost.id, lost.token), Change::Free);
}

#[test]
fn a_waiter_has_its_value_as_the_holder() {
    // An empty value removes the one that the owner may have already, as a holder of one lock of a set.
    let cases = [
        ([None, Some("v")], Some("v")),
        ([Some("v"), None], None),
        ([Some("v"), Some("")], Some("")),
    ];
    for (values, expected) in cases {
        let mut table = table();
        let token = take(&mut table, b"k", b"first");
        let first = at(b"k", held(b"first", 0, token));
        let join = Join { owner: b"next", want: Want::Exclusive, lease: LEASE, timeout: None };
        let (waiter, _) = table.enqueue(&first, &join, 0);
        for value in values {
            table.set_value(waiter, value.map(str::as_bytes));
        }
        let (_, change) = table.release(&first, b"first", Want::Exclusive, Release::One);
        let Change::HandOff(hand_off) = change else { panic!("{change:?}") };
        assert_eq!(hand_off.value.as_deref(), expected.map(str::as_bytes));
    }
}

#[test]
fn tokens_continue_above_the_token_of_a_deleted_hash() {
    let mut table = table();
    let stored = Token::from_stored(NOW.unix_us + 1_000);
    assert_eq!(table.continue_above(stored), stored);
    assert!(Some(take(&mut table, b"k", b"first")) > stored);
}

/// Before the grant is taken back, the lock is deleted and its owner acquires it again.
#[test]
fn a_new_binding_stays_when_an_earlier_grant_is_taken_back() {
    let mut table = table();
    let lost = hand_over(&mut table, b"k");
    let session = open(&mut table, 1);
    let again = request(b"next", Want::Exclusive);
    let (reply, change) = table.acquire(&at(b"k", FREE), &again);
    table.bind_granted(&at(b"k", FREE), &again, reply, session);
    let token = change.issued().unwrap_or_else(|| panic!("{change:?}"));
    let seen = at(b"k", held(b"next", 0, token));
    assert_eq!(table.take_back(&seen, lost.id, b"next", lost.token), Change::None);
    assert!(table.bound_to(seen.key, b"next", Some(token)).is_some());
}

#[test]
fn a_grant_that_is_taken_back_loses_its_binding() {
    let mut table = table();
    let lost = hand_over(&mut table, b"k");
    let session = open(&mut table, 1);
    let seen = at(b"k", held(b"next", 0, lost.token));
    table.bind((seen.key, b"next"), (lost.token, LEASE), session, NOW);
    assert_eq!(table.take_back(&seen, lost.id, b"next", lost.token), Change::Free);
    assert_eq!(table.bound(), 0);
}

#[test]
fn live_sharers_are_searched_only_for_exclusive_requests() {
    let mut table = table();
    let token = take(&mut table, b"k", b"first");
    let until = UnixMillis(1_050);
    let shared = Observed::Shared(Sharing {
        asked: b"",
        own: None,
        token: Some(token),
        until: Some(until),
        holders: 1,
        living: None,
    });
    assert!(!table.must_find_live_sharers(&at(b"k", shared)), "nobody waits");
    wait(&mut table, &at(b"k", held(b"first", 0, token)), b"next", Want::Exclusive);
    assert!(table.must_find_live_sharers(&at(b"k", shared)));
    assert!(!table.must_find_live_sharers(&at(b"k", FREE)), "nobody shares it");
    assert!(!table.must_find_live_sharers(&at(b"k", held(b"first", 0, token))));
}

#[test]
fn a_repeated_release_of_a_sharing_holder_is_counted_and_changes_nothing() {
    let mut table = table();
    let token = take(&mut table, b"k", b"a");
    let both = at(b"k", held(b"a", 2, token));
    let (reply, change) = table.release(&both, b"a", Want::Shared, Release::DownTo(2));
    assert_eq!((reply, change), (ReleaseReply::Left(2), Change::None));
    assert_eq!(table.counters().repeated, 1);
}

#[test]
fn a_planned_look_keeps_its_cause_when_another_is_planned_for_the_same_time() {
    let mut table = table();
    let token = take(&mut table, b"k", b"a");
    let seen = at(b"k", held(b"a", 0, token));
    wait(&mut table, &seen, b"b", Want::Exclusive);
    table.look_soon(seen.key, Cause::Forced, NOW);
    table.serve_soon(seen.key, Cause::Release, NOW);
    assert_eq!(table.cause_of_freedom(seen.key), Cause::Forced);
}

/// Returns a semaphore with one permit, as an owner sees it.
fn pool(name: &[u8], own: Option<Share>) -> SemaphoreAt<'_> {
    larger_pool(1, name, own)
}

fn larger_pool(limit: u64, name: &[u8], own: Option<Share>) -> SemaphoreAt<'_> {
    let (used, earliest) = (own.map_or(0, |own| own.holds), own.map(|own| own.until));
    let seen = Semaphore::Set(Permits { limit, used, own, earliest });
    SemaphoreAt { key: KeyRef::semaphore(0, name), seen, now: NOW }
}

/// Queues a waiter for the semaphore's permit, and grants the permit.
fn hand_permit(table: &mut Table<u32>, name: &[u8]) -> (GrantId, Share) {
    let join = Join {
        owner: b"next",
        want: Want::Permits { more: 1, holds: None },
        lease: LEASE,
        timeout: None,
    };
    table.enqueue(&pool(name, None), &join, 0);
    let served = table.serve_permits(&pool(name, None), Cause::Release);
    let Served::Granted(hand_off, share, 1) = served else { panic!("{served:?}") };
    (hand_off.id, share)
}

#[test]
fn grants_of_several_semaphores_to_one_owner_are_distinguished() {
    let mut table = table();
    let names: Vec<String> = (0..300).map(|n| format!("k{n}")).collect();
    let grants: Vec<_> =
        names.iter().map(|name| hand_permit(&mut table, name.as_bytes())).collect();

    // The same owner uses another semaphore, and a lock with the name of one of these.
    let request = request(b"next", Want::Permits { more: 1, holds: None });
    let (reply, _) = table.take_permits(&pool(b"other", None), 1, &request);
    assert_eq!(reply, TakeReply::Holds(1));
    let token = take(&mut table, b"k0", b"next");
    table.renew(&at(b"k0", held(b"next", 0, token)), b"next", LEASE, None);

    for (name, (id, share)) in names.iter().zip(&grants) {
        let seen = pool(name.as_bytes(), Some(*share));
        let change = table.take_permits_back(&seen, *id, b"next", 1);
        assert_eq!(change, PermitsChange::Own { share: None, used: 0 }, "{name}");
    }
    assert_eq!(table.counters().grants_taken_back, 300);
}

#[test]
fn permits_whose_owner_is_alive_are_not_taken_back() {
    let mut table = table();
    let (id, share) = hand_permit(&mut table, b"k");
    let seen = pool(b"k", Some(share));
    assert_eq!(table.renew_permits(&seen, b"next", LEASE).0, RenewReply::Lease(LEASE));
    assert_eq!(table.take_permits_back(&seen, id, b"next", 1), PermitsChange::None);
    assert_eq!(table.counters().grants_taken_back, 0);
}

#[test]
fn permits_whose_grant_was_answered_are_not_taken_back() {
    let mut table = table();
    let (id, share) = hand_permit(&mut table, b"k");
    let seen = pool(b"k", Some(share));
    // This call has the identifier of another grant, so it settles neither grant.
    let (other, _) = hand_permit(&mut table, b"other");
    table.delivered(seen.key, other, b"next", Token::NONE);
    table.delivered(seen.key, id, b"next", Token::NONE);
    assert_eq!(table.take_permits_back(&seen, id, b"next", 1), PermitsChange::None);
    let seen = pool(b"other", Some(share));
    let change = table.take_permits_back(&seen, other, b"next", 1);
    assert_eq!(change, PermitsChange::Own { share: None, used: 0 });
}

const OWN: Share = Share { holds: 1, until: UnixMillis(1_050) };

/// An owner without permits can only be bound because its permits have ended.
#[test]
fn first_permits_drop_an_earlier_binding_and_further_permits_keep_it() {
    let take = |table: &mut Table<u32>, seen: &SemaphoreAt<'_>| {
        let want = Want::Permits { more: 1, holds: None };
        let (reply, _) = table.take_permits(seen, 1, &request(b"next", want));
        assert!(matches!(reply, TakeReply::Holds(_)), "{reply:?}");
    };
    let wait = |table: &mut Table<u32>, seen: &SemaphoreAt<'_>| {
        let want = Want::Permits { more: 1, holds: None };
        table.enqueue(seen, &Join { owner: b"next", want, lease: LEASE, timeout: None }, 7);
        let served = table.serve_permits(seen, Cause::Release);
        assert!(matches!(served, Served::Granted(..)), "{served:?}");
    };
    for grant in [take as fn(&mut Table<u32>, &SemaphoreAt<'_>), wait] {
        for (own, is_kept) in [(Some(OWN), true), (None, false)] {
            let mut table = table();
            let session = open(&mut table, 1);
            let seen = larger_pool(2, b"k", own);
            table.bind((seen.key, b"next"), (Token::NONE, LEASE), session, NOW);
            grant(&mut table, &seen);
            let binding = table.bound_to(seen.key, b"next", Some(Token::NONE));
            assert_eq!(binding.is_some(), is_kept);
        }
    }
}

/// While the owner waits, another command gives it the permit.
#[test]
fn a_waiter_that_has_the_permits_it_expects_is_dismissed() {
    let mut table = table();
    let want = Want::Permits { more: 1, holds: Some(1) };
    let join = Join { owner: b"next", want, lease: LEASE, timeout: None };
    table.enqueue(&pool(b"k", None), &join, 7);
    let served = table.serve_permits(&larger_pool(2, b"k", Some(OWN)), Cause::Release);
    let Served::Dismissed(client, why) = served else { panic!("{served:?}") };
    assert_eq!((client, why), (Some(7), Dismissal::Misfit(AcquireReply::Mismatch)));
}

#[test]
fn no_waiter_is_owed_a_grant_in_a_quarantine_or_while_the_lock_is_left_free() {
    let mut table = table();
    let token = take(&mut table, b"k", b"first");
    wait(&mut table, &at(b"k", held(b"first", 0, token)), b"next", Want::Exclusive);
    let free = at(b"k", FREE);
    assert!(table.owes_a_grant(&free));
    table.set_quarantine(Millis(1_000));
    table.begin_quarantine(NOW);
    assert!(!table.owes_a_grant(&free));
    table.lift_quarantine();
    assert!(table.owes_a_grant(&free));
    table.begin_turn(free.key, 1, NOW);
    assert!(!table.owes_a_grant(&free));
}

/// The waits of a session that has ended are removed a few at a time, and the last one is still in line.
#[test]
fn a_downgrade_passes_over_a_waiter_whose_session_has_ended() {
    let mut table = table();
    let (session, token) = (open(&mut table, 1), take(&mut table, b"k", b"first"));
    let seen = at(b"k", held(b"first", 1, token));
    let join = |owner| Join { owner, want: Want::Shared, lease: LEASE, timeout: None };
    table.enqueue(&seen, &join(b"gone"), Via::Session(session));
    table.enqueue(&seen, &join(b"next"), 7);
    assert_eq!(table.close_session(session), None);
    assert_eq!(table.waiters_of(seen.key), 2);
    let (_, change) = table.release(&seen, b"first", Want::Exclusive, Release::All);
    let Change::Share(sharers) = change else { panic!("{change:?}") };
    assert_eq!(sharers.joined.iter().map(|joined| joined.client).collect::<Vec<_>>(), [Some(7)]);
}

/// The wait was passed over, so that the permit was free.
#[test]
fn an_owner_that_takes_permits_does_not_wait_for_them_any_more() {
    let mut table = table();
    let (session, seen) = (open(&mut table, 1), pool(b"k", None));
    let want = Want::Permits { more: 1, holds: None };
    let join = Join { owner: b"next", want, lease: LEASE, timeout: None };
    table.enqueue(&seen, &join, Via::Session(session));
    let reading = table.begin_reading(session, Some(1), 0, NOW);
    let Ok((Some(reading), None)) = reading else { panic!("{reading:?}") };
    assert_eq!(table.reader_gone(reading, NOW), None);
    assert_eq!((table.waiters_of(seen.key), table.is_in_line(seen.key)), (1, false));
    let (reply, _) = table.take_permits(&seen, 1, &request(b"next", want));
    assert_eq!((reply, table.waiters_of(seen.key)), (TakeReply::Holds(1), 0));
}

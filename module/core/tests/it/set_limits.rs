//! Limits of waits for sets: of the server, of a key, and of one user. Those of waits for one lock are in
//! `limits.rs`.

use kvlock_core::{Acquire, Caller, Full, Limits, Member, Quota, Table, Via, WaitReply, Want};

use super::common::{FREE, LEASE, open, table};
use super::sets::{held, members, queue, try_queue};

#[test]
fn a_call_is_refused_at_the_limit_unless_it_ends_another_blocked_call_of_its_owner() {
    let limits = Limits { blocked: 1, waiters: 99, waiters_per_key: 99, ..Limits::UNLIMITED };
    let mut table = Table::<u32>::new(limits);
    let full = Err(WaitReply::QueueFull(Full::Server));
    assert!(try_queue(&mut table, b"ann", None, Via::Client(1)).is_ok());
    assert_eq!(table.blocked_in_all(), 1);
    let (_, ended) = queue(&mut table, None, 2);
    assert_eq!((ended, table.blocked_in_all()), (vec![1], 1));
    assert_eq!(try_queue(&mut table, b"carol", None, Via::Client(3)), full);

    let session = open(&mut table, 1);
    assert!(try_queue(&mut table, b"carol", None, Via::Session(session)).is_ok());
    assert_eq!(table.blocked_in_all(), 1);
    assert_eq!(try_queue(&mut table, b"carol", None, Via::Client(4)), full);
}

#[test]
fn the_names_of_keys_with_waiters_count_as_memory() {
    let mut table = table();
    queue(&mut table, None, 1);
    assert_eq!(table.bytes_kept(), 2, "a and b");

    let kept = |table: &mut Table<u32>, owner: &[u8]| {
        let session = open(table, 1);
        let before = table.bytes_kept();
        assert!(try_queue(table, owner, None, Via::Session(session)).is_ok());
        let waits = table.bytes_kept() - before;
        assert!(table.close_session(session).is_none());
        waits
    };
    // A wait through a session counts with about its size, for each lock.
    let (short, long) = (kept(&mut table, b"x"), kept(&mut table, &[b'x'; 1_001]));
    assert!(short > 600 && long == short + 2_000, "{short} {long}");
}

#[test]
fn a_set_needs_room_for_a_waiter_at_each_lock() {
    let limited = |waiters, waiters_per_key, user_share| {
        Table::<u32>::new(Limits { waiters, waiters_per_key, user_share, ..Limits::UNLIMITED })
    };
    let full = |full| Err(WaitReply::QueueFull(full));
    let wait = |table: &mut Table<u32>, owner: &[u8], via| {
        try_queue(table, owner, None, via).map(|(_, ended)| ended)
    };

    assert_eq!(wait(&mut limited(1, 9, 100), b"ann", Via::Client(1)), full(Full::Server));
    for (waiters, per_key, second) in [(3, 9, false), (4, 9, true), (9, 1, false), (9, 2, true)] {
        let mut table = limited(waiters, per_key, 100);
        assert_eq!(wait(&mut table, b"ann", Via::Client(1)), Ok(vec![]));
        // A wait that takes over the places of another adds none.
        assert_eq!(wait(&mut table, b"ann", Via::Client(2)), Ok(vec![1]));
        let expected = if second { Ok(vec![]) } else { full(Full::Server) };
        assert_eq!(wait(&mut table, b"bill", Via::Client(3)), expected, "{waiters} {per_key}");
    }
    // The outcome for the session whose wait is replaced counts too.
    for (waiters, expected) in [(2, full(Full::Server)), (3, Ok(vec![]))] {
        let mut table = limited(waiters, 9, 100);
        let session = open(&mut table, 1);
        assert_eq!(wait(&mut table, b"ann", Via::Session(session)), Ok(vec![]));
        assert_eq!(wait(&mut table, b"ann", Via::Session(session)), Ok(vec![]));
        assert_eq!(wait(&mut table, b"ann", Via::Client(1)), expected, "{waiters}");
    }
    // If the session waits for another set instead, it is told too; if it has ended, it is not.
    for (waiters, ended, expected) in [
        (2, false, WaitReply::QueueFull(Full::Server)),
        (3, false, WaitReply::Block),
        (2, true, WaitReply::Block),
    ] {
        let mut table = limited(waiters, 9, 100);
        let session = open(&mut table, 1);
        assert_eq!(wait(&mut table, b"ann", Via::Session(session)), Ok(vec![]));
        if ended {
            table.close_session(session);
        }
        let [a, b] = members(FREE, held(b"bob", 1));
        let other = [a, Member { under: true, ..b }];
        let request = Acquire { owner: b"ann", want: Want::Exclusive, lease: LEASE, holds: None };
        let caller = Caller::from(Some(session).filter(|_| !ended));
        assert_eq!(table.wait_set(&other, &request, &caller, None).0, expected, "{waiters}");
    }
    // Half of the limit is one user's.
    for (waiters, expected) in [(3, full(Full::User)), (4, Ok(vec![]))] {
        let mut table = limited(waiters, 9, 50);
        let session = open(&mut table, 1);
        assert_eq!(wait(&mut table, b"ann", Via::Session(session)), expected, "{waiters}");
    }
    for (waiters, expected) in [(7, full(Full::User)), (8, Ok(vec![]))] {
        let mut table = limited(waiters, 9, 50);
        let session = open(&mut table, 1);
        assert_eq!(wait(&mut table, b"ann", Via::Session(session)), Ok(vec![]));
        assert_eq!(wait(&mut table, b"ann", Via::Session(session)), Ok(vec![]));
        assert_eq!(wait(&mut table, b"bill", Via::Session(session)), expected, "{waiters}");
    }
}

#[test]
fn a_wait_is_refused_if_its_user_has_reached_a_limit() {
    let limits =
        Limits { blocked: 4, waiters: 4, waiters_per_key: 9, user_share: 50, ..Limits::UNLIMITED };
    for (quota, kept, single, set) in [
        (Quota::Blocked, 1, true, true),
        (Quota::Blocked, 2, false, false),
        (Quota::Waits, 0, true, true),
        (Quota::Waits, 1, true, false),
        (Quota::Waits, 2, false, false),
        (Quota::Sessions, 9, true, true),
    ] {
        let mut table = Table::<u32>::new(limits);
        let account = table.account(b"user");
        let charges: Vec<_> = (0..kept).map(|_| account.charge(quota, 0)).collect();
        let caller = Caller::Client(account);
        let members = members(FREE, held(b"bob", 1));
        let request = Acquire { owner: b"ann", want: Want::Exclusive, lease: LEASE, holds: None };
        let expected =
            |fits| if fits { WaitReply::Block } else { WaitReply::QueueFull(Full::User) };
        let case = format!("{kept} of {quota:?}");
        let [_, b] = members;
        assert_eq!(table.wait(&b.at, &request, caller.clone()).0, expected(single), "{case}");
        assert_eq!(table.wait_set(&members, &request, &caller, None).0, expected(set), "{case}");
        drop(charges);
        assert_eq!(table.wait_set(&members, &request, &caller, None).0, WaitReply::Block, "{case}");
    }
}

#[test]
fn a_wait_that_adds_no_place_is_allowed_above_a_lowered_limit() {
    for user_share in [100, 50] {
        let mut table = table();
        let account = table.account(b"user");
        let charges: Vec<_> = (0..3).map(|_| account.charge(Quota::Waits, 0)).collect();
        queue(&mut table, None, 1);
        let waiters = if user_share == 50 { 4 } else { 0 };
        table.limits = Limits { waiters, user_share, ..table.limits };
        let members = members(FREE, held(b"bob", 1));
        let asks = |owner| {
            let request = Acquire { owner, want: Want::Exclusive, lease: LEASE, holds: None };
            table.wait_set(&members, &request, &Caller::Client(account.clone()), None).0
        };
        let [again, other] = [&b"ann"[..], b"bill"].map(asks);
        assert_eq!(again, WaitReply::Block, "{user_share}");
        assert!(matches!(other, WaitReply::QueueFull(_)), "{other:?}");
        drop(charges);
    }
}

//! Sets of locks against a model, with random walks and with all short walks. `HOLDS` is tested apart.

#![expect(clippy::panic, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, AcquireReply, Caller, Cause, Dismissal, HandOff, Holding, Join, KeyRef, Member,
    Observed, Results, ServedSet, Situation, Table, Token, UnixMillis, UnsentGrant, Via, WaitReply,
    WaiterId, Want,
};
use kvlock_core_reference::sets::{ALL, Op, Set, World, do_late, exhaust};
use kvlock_core_reference::{check, counted};

use super::common::{FREE, LEASE, NOW, at, later, open, table};

#[test]
fn waits_for_sets_follow_the_contract() {
    check::<World>();
}

#[test]
fn every_short_walk_follows_the_contract() {
    // In optimised builds the walks are longer.
    let steps = if cfg!(debug_assertions) { 4 } else { 5 };
    let walks = exhaust(steps);
    assert!(walks > 30_000, "{walks}");
}

#[test]
fn a_thousand_walks_of_sets_meet_every_case_often() {
    let counted = counted(1_000, |world: &World| {
        let counters = world.table.counters();
        [
            counters.granted,
            counters.granted_shared,
            counters.reentered,
            counters.handed_off,
            counters.timeouts,
            counters.cancelled,
            counters.disconnects,
            counters.grants_taken_back,
            counters.deadlocks,
        ]
    });
    assert!(counted.iter().all(|count| *count > 30), "{counted:?}");
}

#[test]
fn a_sharer_that_arrives_after_a_lease_ended_and_before_the_look_delays_no_set() {
    const LONG: u64 = 100_000;
    let [a, top] = [0, 2];
    let of = |keys: &[(usize, bool)], shared| Set { keys: keys.to_vec(), shared };
    let walk = [
        Op::Acquire("bob", of(&[(top, false)], false), 50),
        Op::Acquire("dave", of(&[(a, false)], false), LONG),
        Op::Wait("ann", of(&[(a, false), (top, true)], false), LONG, None, false),
        Op::Work(ALL),
        Op::Release("dave", of(&[(a, false)], false)),
        Op::Work(ALL),
        Op::Pass(60),
        Op::Acquire("carol", of(&[(top, false)], true), LONG),
        Op::Work(ALL),
    ];
    let done = do_late(&walk);
    assert!(done.is_ok(), "{done:?}");
}

pub(crate) fn held(owner: &[u8], holds: u64) -> Observed<'_> {
    let (token, until) = (Token::from_stored(7), Some(UnixMillis(1_050)));
    Observed::Held(Holding { owner, holds, shared: 0, token, until })
}

/// The locks `a` and `b`.
pub(crate) fn members<'a>(a: Observed<'a>, b: Observed<'a>) -> [Member<'a>; 2] {
    [(&b"a"[..], a), (b"b", b)].map(|(name, seen)| Member { at: at(name, seen), under: false })
}

/// Queues `ann` for `a`, which is free, and `b`, which `bob` holds. Returns the waiter and the replaced
/// clients.
pub(crate) fn queue(
    table: &mut Table<u32>,
    holds: Option<u64>,
    client: u32,
) -> (WaiterId, Vec<u32>) {
    let queued = try_queue(table, b"ann", holds, Via::Client(client));
    queued.unwrap_or_else(|reply| panic!("{reply:?}"))
}

pub(crate) fn try_queue(
    table: &mut Table<u32>,
    owner: &[u8],
    holds: Option<u64>,
    via: Via<u32>,
) -> Result<(WaiterId, Vec<u32>), WaitReply<AcquireReply>> {
    let session = if let Via::Session(session) = via { Some(session) } else { None };
    let (want, caller) = (Want::Exclusive, Caller::from(session));
    let members = members(FREE, held(b"bob", 1));
    let request = Acquire { owner, want, lease: LEASE, holds };
    let (reply, changes) = table.wait_set(&members, &request, &caller, None);
    assert_eq!(changes, Vec::new());
    if reply != WaitReply::Block {
        return Err(reply);
    }
    let join = Join { owner, want, lease: LEASE, timeout: None };
    let queued = table.enqueue_set(&members, &join, holds, via, &caller);
    Ok(queued.unwrap_or_else(|| panic!("a set is queued")))
}

/// While the owner waits, other commands make it the holder of the first lock.
#[test]
fn a_granted_set_has_the_holds_that_its_wait_expects() {
    let cases = [((None, 1), Ok(2)), ((Some(1), 1), Ok(1)), ((Some(1), 2), Err(()))];
    for ((expected, own), holds) in cases {
        let mut table = table();
        let (waiter, _) = queue(&mut table, expected, 1);
        match (table.serve_set(waiter, &members(held(b"ann", own), FREE)), holds) {
            (ServedSet::Granted(granted), Ok(holds)) => assert_eq!(granted.holds, holds),
            (ServedSet::Dismissed(client, why), Err(())) => {
                assert_eq!(client, Some(1));
                assert_eq!(why, Dismissal::Misfit(AcquireReply::Mismatch));
            }
            other => panic!("{expected:?}: {other:?}"),
        }
    }
}

#[test]
fn a_wait_that_takes_over_a_set_brings_its_own_holds() {
    let mut table = table();
    let (waiter, _) = queue(&mut table, None, 1);
    assert_eq!(queue(&mut table, Some(1), 2), (waiter, vec![1]));
    let served = table.serve_set(waiter, &members(held(b"ann", 1), FREE));
    let ServedSet::Granted(granted) = served else { panic!("{served:?}") };
    assert_eq!((granted.holds, granted.hand_off.client), (1, Some(2)));
}

#[test]
fn a_set_is_tried_again_when_its_owner_uses_one_of_the_locks() {
    let mut table = table();
    let (waiter, _) = queue(&mut table, None, 1);
    let seen = members(held(b"ann", 1), held(b"bob", 1));
    assert!(table.set_is_held_up(waiter, &seen));
    while table.next_set(None).is_some() {}
    let held_up_at = |table: &Table<u32>| {
        let key = table.set_is_held_up_at(waiter);
        key.map(|key| key.name.to_vec())
    };
    assert_eq!(held_up_at(&table), Some(b"b".to_vec()));

    table.renew(&seen[0].at, b"ann", LEASE, None);
    assert_eq!(held_up_at(&table), None, "it will be tried again");
    assert_eq!(table.next_set(Some(1)), None, "it is in another database");
    assert_eq!(table.next_set(Some(0)), Some(waiter));
    assert_eq!(table.next_set(None), None);
}

/// One client may be blocked.
#[test]
fn a_drain_dismisses_each_waiter_once() {
    let mut table = table();
    queue(&mut table, None, 1);
    assert_eq!(table.drain_one(), None);
    table.limits.draining = true;
    assert_eq!(table.drain_one(), Some(Some(1)));
    assert_eq!((table.drain_one(), table.waiters()), (None, 0));
}

#[test]
fn a_set_can_be_marked_to_be_tried_again() {
    let mut table = table();
    let (waiter, _) = queue(&mut table, None, 1);
    assert_eq!((table.has_sets_to_look_at(), table.next_set(None)), (false, None));
    table.look_at_set_later(waiter);
    assert_eq!((table.has_sets_to_look_at(), table.next_set(None)), (true, Some(waiter)));
}

/// `dave` waits behind the set for `a`, which is free.
fn wait_behind(table: &mut Table<u32>) {
    let [a, _] = members(FREE, FREE);
    let request = Acquire { owner: b"dave", want: Want::Exclusive, lease: LEASE, holds: None };
    assert_eq!(table.wait(&a.at, &request, None).0, WaitReply::Block);
    let join = Join { owner: b"dave", want: Want::Exclusive, lease: LEASE, timeout: None };
    table.enqueue(&a.at, &join, 9);
}

#[test]
fn nobody_is_owed_a_lock_while_a_set_is_first_in_line() {
    let [a, _] = members(FREE, FREE);
    for want in [Want::Exclusive, Want::Shared] {
        let mut table = table();
        let request = Acquire { owner: b"ann", want, lease: LEASE, holds: None };
        let of_set = members(FREE, held(b"bob", 1));
        let (reply, _) = table.wait_set(&of_set, &request, &Caller::from(None), None);
        assert_eq!(reply, WaitReply::Block);
        let join = Join { owner: b"ann", want, lease: LEASE, timeout: None };
        let queued = table.enqueue_set(&of_set, &join, None, Via::Client(1), &Caller::from(None));
        let Some((set, _)) = queued else { panic!("a set is queued") };
        wait_behind(&mut table);
        assert!(!table.owes_a_grant(&a.at), "{want:?}");
        assert_eq!(table.dismiss_set(set, Dismissal::Draining), Some(1));
        assert!(table.owes_a_grant(&a.at), "{want:?}");
    }
}

#[test]
fn the_queues_of_a_set_are_looked_at_when_its_session_goes_away_and_returns() {
    for others in [false, true] {
        let mut table = table();
        let session = table.open_session([1; 32], b"user", LEASE, NOW);
        let session = session.unwrap_or_else(|why| panic!("{why:?}"));
        let queued = try_queue(&mut table, b"ann", None, Via::Session(session));
        let (set, _) = queued.unwrap_or_else(|reply| panic!("{reply:?}"));
        if others {
            wait_behind(&mut table);
        }
        let read = |table: &mut Table<u32>, connection| {
            assert!(table.begin_reading(session, Some(connection), 0, NOW).is_ok());
        };
        let looks = |table: &mut Table<u32>| {
            let looks =
                std::iter::from_fn(|| table.next_look(NOW)).map(|(key, _)| key.name.to_vec());
            (looks.collect::<Vec<_>>(), table.next_set(None))
        };
        read(&mut table, 1);
        assert_eq!(looks(&mut table), (vec![], Some(set)), "it has just arrived");
        table.connection_closed(1, NOW);
        let expected = if others { vec![b"a".to_vec()] } else { vec![] };
        assert_eq!(looks(&mut table), (expected, None));
        read(&mut table, 2);
        assert_eq!(looks(&mut table), (vec![b"a".to_vec(), b"b".to_vec()], Some(set)));
    }
}

/// Each lock of a set counts as a waiter.
/// One user may have two blocked clients and two waiters.
/// A session that is away keeps its place, but delays nobody.
#[test]
fn an_owner_that_waits_for_a_set_is_not_granted_it_beside_its_place() {
    let mut table = table();
    let session = open(&mut table, 1);
    let queued = try_queue(&mut table, b"ann", None, Via::Session(session));
    let (set, _) = queued.unwrap_or_else(|reply| panic!("{reply:?}"));
    assert_eq!(table.owner_of_set(set), Some(b"ann"[..].into()));
    assert!(table.begin_reading(session, Some(1), 0, NOW).is_ok());
    table.connection_closed(1, NOW);

    let free = members(FREE, FREE);
    let ask = |table: &mut Table<u32>, owner| {
        let request = Acquire { owner, want: Want::Exclusive, lease: LEASE, holds: None };
        table.wait_set(&free, &request, &Caller::from(None), None)
    };
    assert_eq!(ask(&mut table, b"ann"), (WaitReply::Block, vec![]));
    table.close_session(session);
    assert!(matches!(ask(&mut table, b"ann").0, WaitReply::Now(AcquireReply::Granted { .. })));
}

#[test]
fn a_wait_for_a_set_through_an_away_session_ends_only_if_the_owner_acquires_this_set() {
    for (second, left) in [(&b"b"[..], 0), (b"c", 2)] {
        let mut table = table();
        let session = open(&mut table, 1);
        let queued = try_queue(&mut table, b"ann", None, Via::Session(session));
        assert!(queued.is_ok(), "{queued:?}");
        assert!(table.begin_reading(session, Some(1), 0, NOW).is_ok());
        table.connection_closed(1, NOW);
        let set = [&b"a"[..], second].map(|name| Member { at: at(name, FREE), under: false });
        let request = Acquire { owner: b"ann", want: Want::Exclusive, lease: LEASE, holds: None };
        let (reply, _) = table.acquire_set(&set, &request, None);
        assert!(matches!(reply, AcquireReply::Granted { .. }), "{reply:?}");
        assert_eq!((table.waiters(), table.check()), (left, Ok(())));
    }
}

#[test]
fn a_set_is_not_granted_through_a_session_that_is_away() {
    let mut table = table();
    let session = open(&mut table, 1);
    // A session that goes away has some of its waits moved at once: the first ones.
    let join = Join { owner: b"ann", want: Want::Exclusive, lease: LEASE, timeout: None };
    for name in 0..20 {
        table.enqueue(&at(&[name], held(b"bob", 1)), &join, Via::Session(session));
    }
    let queued = try_queue(&mut table, b"ann", None, Via::Session(session));
    let (waiter, _) = queued.unwrap_or_else(|reply| panic!("{reply:?}"));
    let connected = |table: &mut Table<u32>| match table.begin_reading(session, Some(1), 0, NOW) {
        Ok((Some(reading), None)) => reading,
        other => panic!("{other:?}"),
    };
    let reading = connected(&mut table);
    assert_eq!(table.reader_gone(reading, NOW), None);
    let free = members(FREE, FREE);
    assert!(table.is_in_line(free[0].at.key), "it was not moved yet");
    assert!(matches!(table.serve_set(waiter, &free), ServedSet::HeldUp));
    connected(&mut table);
    assert!(matches!(table.serve_set(waiter, &free), ServedSet::Granted(_)));
}

#[test]
fn a_waiter_for_a_set_whose_ready_key_exists_is_answered_ready() {
    let mut table = table();
    let (waiter, _) = queue(&mut table, None, 7);
    table.set_ready_key(waiter, Some(b"result"));
    for (existing, answered) in [(&b"other"[..], false), (b"result", true)] {
        let keys = |name: &[u8]| name == existing;
        let results = Results::among(&keys);
        let members = members(FREE, held(b"bob", 1));
        let free =
            members.map(|it| Member { at: Situation { results, seen: FREE, ..it.at }, ..it });
        let held = members.map(|it| Member { at: Situation { results, ..it.at }, ..it });
        // The ready-key counts when all locks of the set can be granted.
        assert!(matches!(table.serve_set(waiter, &held), ServedSet::HeldUp));
        assert_eq!(table.next_ready_client(), None);
        if answered {
            assert!(matches!(table.serve_set(waiter, &free), ServedSet::HeldUp));
            assert_eq!((table.next_ready_client(), table.waiters()), (Some(7), 0));
        }
    }
}

/// Only the locks that the owner got by this grant are taken back.
#[test]
fn a_lock_that_its_owner_held_before_stays_if_the_set_is_taken_back() {
    let mut table = table();
    let (waiter, _) = queue(&mut table, None, 7);
    let served = table.serve_set(waiter, &members(FREE, held(b"ann", 1)));
    let ServedSet::Granted(granted) = served else { panic!("{served:?}") };
    let HandOff { id, owner, token, .. } = granted.hand_off;
    let key = KeyRef::lock(0, b"a").to_lock_key();
    table.queue_take_back(UnsentGrant { key, owner, id, token, permits: 0 });
    let unsent = std::iter::from_fn(|| table.next_unsent());
    let names: Vec<_> = unsent.map(|unsent| unsent.key.name.to_vec()).collect();
    assert_eq!(names, [b"a"]);
}

/// No event reports that a command of the module has deleted such a key.
#[test]
fn a_lock_of_a_set_that_became_a_key_of_another_kind_is_looked_at_after_a_second() {
    for (seen, is_checked) in
        [(Observed::NotALock { until: None }, true), (held(b"carol", 1), false)]
    {
        let mut table = table();
        let (waiter, _) = queue(&mut table, None, 7);
        let served = table.serve_set(waiter, &members(seen, FREE));
        assert!(matches!(served, ServedSet::HeldUp));
        let looks = std::iter::from_fn(|| table.next_look(later(1_000)));
        let looks: Vec<_> = looks.map(|(key, cause)| (key.name.to_vec(), cause)).collect();
        assert_eq!(looks.contains(&(b"a".to_vec(), Cause::Check)), is_checked, "{looks:?}");
    }
}

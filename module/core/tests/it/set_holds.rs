//! Requests, releases and renewals of sets whose locks the owner may already hold.

#![expect(clippy::panic, clippy::expect_used, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, AcquireReply, Caller, Change, Holding, KeyRef, Limits, Member, Millis, Observed,
    Release, ReleaseReply, RenewReply, Results, Share, Sharing, Situation, Table, Token,
    UnixMillis, WaitReply, Want, mismatches,
};

use super::common::{LEASE, NOW};

const UNTIL: UnixMillis = UnixMillis(1_050);

/// The largest token, far ahead of the clock.
const TOO_FAR: u64 = (1 << 53) - 1;

/// How the set is requested.
#[derive(Clone, Copy, Debug)]
enum Way {
    Acquire,
    Wait,
    WaitThroughSession,
    Held,
}

/// The locks `a` and `b`, and `top` of `UNDER`. `ann` holds them so many times; 0 is a free lock, and
/// for `top` a lock that others share.
fn members(holds: [u64; 3]) -> [Member<'static>; 3] {
    let (token, until) = (Token::from_stored(7), Some(UNTIL));
    let exclusive = |holds| match holds {
        0 => Observed::Free { stored: None },
        _ => Observed::Held(Holding { owner: b"ann", holds, shared: 0, token, until }),
    };
    let own = Some(Share { holds: holds[2], until: UNTIL }).filter(|own| own.holds > 0);
    let top = Sharing { asked: b"ann", own, token, until, holders: 2, living: None };
    let locks = [
        (&b"a"[..], exclusive(holds[0])),
        (b"b", exclusive(holds[1])),
        (b"top", Observed::Shared(top)),
    ];
    locks.map(|(name, seen)| {
        let (key, floor, results) = (KeyRef::lock(0, name), Some(0), Results::NONE);
        Member { at: Situation { key, seen, now: NOW, floor, results }, under: name == b"top" }
    })
}

/// `ann` requests the set. Returns how often it holds each lock then, or the refusal.
fn request(way: Way, before: [u64; 3], holds: Option<u64>) -> Result<[u64; 3], AcquireReply> {
    let mut table = Table::<u32>::new(Limits::UNLIMITED);
    let members = members(before);
    let request = Acquire { owner: b"ann", want: Want::Exclusive, lease: LEASE, holds };
    let wait = |table: &mut Table<u32>, session| match table.wait_set(
        &members,
        &request,
        &Caller::from(session),
        None,
    ) {
        (WaitReply::Now(reply), changes) => (reply, changes),
        other => panic!("{other:?}"),
    };
    let (reply, changes) = match way {
        Way::Acquire => table.acquire_set(&members, &request, None),
        Way::Held => table.acquire_set_held(&members, &request, None),
        Way::Wait => wait(&mut table, None),
        Way::WaitThroughSession => {
            let session = table.open_session([1; 32], b"user", LEASE, NOW).expect("it is opened");
            wait(&mut table, Some(session))
        }
    };
    let AcquireReply::Granted { holds, .. } = reply else {
        assert!(changes.is_empty(), "{changes:?}");
        return Err(reply);
    };
    let after = changes.iter().zip(before).map(|(change, before)| match change {
        Change::Take { .. } => 1,
        Change::Update { holds, .. } => holds.unwrap_or(before),
        Change::Share(sharers) => sharers.own.map_or(before, |own| own.holds),
        Change::None => before,
        Change::Free
        | Change::GiveWay
        | Change::HandOff(_)
        | Change::Leave
        | Change::Beside { .. } => {
            panic!("{change:?}")
        }
    });
    let after = <[u64; 3]>::try_from(after.collect::<Vec<_>>()).expect("a change for each lock");
    assert_eq!(holds, after[0], "the reply has the holds of the first lock");
    Ok(after)
}

#[test]
fn a_request_that_repeats_an_earlier_one_adds_no_hold() {
    let mismatch = Err(AcquireReply::Mismatch);
    let cases = [
        // `HOLDS` is the number of holds of the first lock: a repetition.
        (Some(2), [2, 2, 3], Ok([2, 2, 3])),
        (Some(2), [2, 1, 1], Ok([2, 2, 1])),
        (Some(2), [2, 2, 0], Ok([2, 2, 1])),
        (Some(2), [2, 3, 1], mismatch),
        (Some(1), [1, 0, 0], Ok([1, 1, 1])),
        // It is one more: each lock gets a hold.
        (Some(2), [1, 1, 1], Ok([2, 2, 2])),
        (Some(1), [0, 0, 0], Ok([1, 1, 1])),
        (Some(1), [0, 1, 2], Ok([1, 1, 3])),
        (Some(3), [1, 3, 1], mismatch),
        (Some(2), [0, 2, 1], mismatch),
    ];
    for way in [Way::Acquire, Way::Wait, Way::WaitThroughSession] {
        for (holds, before, after) in cases {
            assert_eq!(request(way, before, holds), after, "{way:?} {before:?} HOLDS {holds:?}");
        }
    }
}

/// A client that got no reply sends its request through a session again.
#[test]
fn without_holds_only_a_request_through_a_session_can_be_a_repetition() {
    let cases = [
        ([2, 1, 3], [3, 2, 4], [2, 1, 3]),
        ([2, 0, 0], [3, 1, 1], [2, 1, 1]),
        ([0, 1, 2], [1, 2, 3], [1, 2, 3]),
        ([0, 0, 0], [1, 1, 1], [1, 1, 1]),
    ];
    for (before, more, repeated) in cases {
        assert_eq!(request(Way::Acquire, before, None), Ok(more), "{before:?}");
        assert_eq!(request(Way::Wait, before, None), Ok(more), "{before:?}");
        assert_eq!(request(Way::WaitThroughSession, before, None), Ok(repeated), "{before:?}");
    }
}

/// Shared holds count, not exclusive ones, if the request is for shared holds.
#[test]
fn a_request_to_share_a_set_whose_first_lock_is_held_exclusively_is_no_repetition() {
    let share = |first: Member<'_>| {
        let mut table = Table::<u32>::new(Limits::UNLIMITED);
        let session = table.open_session([1; 32], b"user", LEASE, NOW).expect("it is opened");
        let request = Acquire { owner: b"ann", want: Want::Shared, lease: LEASE, holds: None };
        let [.., top] = members([0, 0, 1]);
        let members = [first, Member { under: false, ..top }];
        let caller = Caller::from(Some(session));
        let (reply, changes) = table.wait_set(&members, &request, &caller, None);
        assert!(matches!(reply, WaitReply::Now(AcquireReply::Granted { .. })), "{reply:?}");
        match changes.last() {
            Some(Change::Share(sharers)) => sharers.own.map(|own| own.holds),
            Some(Change::None) => None,
            _ => panic!("{changes:?}"),
        }
    };
    let [exclusive, _, shared] = members([1, 0, 1]);
    assert_eq!(share(exclusive), Some(2));
    assert_eq!(share(Member { under: false, ..shared }), None, "nothing changes");
}

#[test]
fn held_renews_a_set_and_adds_no_hold() {
    let refused = Err(AcquireReply::Refused);
    let mismatch = Err(AcquireReply::Mismatch);
    let cases = [
        (None, [2, 1, 3], Ok([2, 1, 3])),
        (None, [0, 1, 3], refused),
        (None, [2, 0, 3], refused),
        (None, [2, 1, 0], refused),
        (Some(2), [2, 2, 3], Ok([2, 2, 3])),
        (Some(2), [1, 2, 3], mismatch),
        (Some(2), [2, 1, 3], mismatch),
        (Some(2), [2, 3, 3], mismatch),
    ];
    for (holds, before, after) in cases {
        assert_eq!(request(Way::Held, before, holds), after, "{before:?} HOLDS {holds:?}");
    }
}

/// `ann` releases the set. Returns the reply, and how often it holds each lock then.
fn release(before: [u64; 3], release: Release) -> (ReleaseReply, [u64; 3]) {
    let mut table = Table::<u32>::new(Limits::UNLIMITED);
    let members = members(before);
    let (reply, changes) = table.release_set(&members, b"ann", Want::Exclusive, release);
    let mut after = before;
    for (after, change) in after.iter_mut().zip(&changes) {
        *after = match change {
            Change::Free | Change::Leave => 0,
            Change::Update { holds, .. } => holds.unwrap_or(*after),
            Change::Share(sharers) => sharers.own.map_or(*after, |own| own.holds),
            Change::None => *after,
            Change::Take { .. } | Change::GiveWay | Change::HandOff(_) | Change::Beside { .. } => {
                panic!("{change:?}")
            }
        };
    }
    let is_mismatch = reply == ReleaseReply::Mismatch;
    assert_eq!(is_mismatch, mismatches(&members, b"ann", Want::Exclusive, release));
    assert_eq!(changes.len(), if is_mismatch { 0 } else { 3 });
    (reply, after)
}

#[test]
fn a_release_that_repeats_an_earlier_one_takes_no_hold() {
    use Release::{All, DownTo, One};
    use ReleaseReply::{Left, Mismatch, NotHeld};
    let cases = [
        (One, [2, 1, 1], (Left(1), [1, 0, 0])),
        (One, [2, 0, 1], (NotHeld, [1, 0, 0])),
        (One, [0, 2, 2], (NotHeld, [0, 1, 1])),
        (All, [2, 3, 2], (Left(0), [0, 0, 0])),
        (DownTo(1), [2, 2, 2], (Left(1), [1, 1, 1])),
        (DownTo(1), [2, 1, 2], (Left(1), [1, 1, 1])),
        (DownTo(1), [2, 2, 0], (NotHeld, [1, 1, 0])),
        (DownTo(1), [3, 2, 2], (Mismatch, [3, 2, 2])),
        (DownTo(1), [2, 3, 2], (Mismatch, [2, 3, 2])),
        (DownTo(0), [1, 1, 4], (Left(0), [0, 0, 3])),
        // The first lock has so many holds already: `top` loses none.
        (DownTo(1), [1, 1, 2], (Left(1), [1, 1, 2])),
        (DownTo(1), [1, 2, 2], (Left(1), [1, 1, 2])),
    ];
    for (how, before, expected) in cases {
        assert_eq!(release(before, how), expected, "{how:?} {before:?}");
    }
}

#[test]
fn a_lock_of_a_set_is_held_if_its_owner_has_a_hold_in_the_right_mode() {
    let held = |before| members(before).map(|it| it.is_held_by(b"ann", Want::Exclusive));
    assert_eq!(held([2, 0, 0]), [true, false, false]);
    assert_eq!(held([0, 1, 1]), [false, true, true]);
    // An owner that holds `top` exclusively does not share it.
    let [a, ..] = members([1, 0, 0]);
    assert!(!Member { under: true, ..a }.is_held_by(b"ann", Want::Exclusive));
}

/// `ann` renews the locks `a` and `top` with a longer lease, and may raise the token or set a value.
/// Returns the reply, and whether each lock gets the token, the end and the value.
fn renew(
    seen: [Observed<'_>; 2],
    at_least: Option<u64>,
    value: bool,
) -> (RenewReply, Vec<(bool, bool, bool)>) {
    let mut table = Table::<u32>::new(Limits::UNLIMITED);
    let at_least = at_least.and_then(Token::from_stored);
    let value = value.then_some(&b"value"[..]);
    let [a, _, top] = members([0; 3]);
    let members = [a, top].into_iter().zip(seen);
    let members: Vec<_> =
        members.map(|(it, seen)| Member { at: Situation { seen, ..it.at }, ..it }).collect();
    let longer = (Millis(LEASE.0 + 1), at_least);
    let (reply, changes) = table.renew_set(&members, b"ann", longer, value);
    let changes = changes.iter().map(|change| {
        let has_value = matches!(change, Change::Update { value: Some(_), .. });
        (change.issued().is_some(), change.until().is_some(), has_value)
    });
    (reply, changes.collect())
}

#[test]
fn a_renewal_renews_the_locks_of_a_set_that_are_held() {
    let [held, lost, shared] = members([1, 0, 1]).map(|it| it.at.seen);
    let [.., others] = members([0; 3]).map(|it| it.at.seen);
    let lease = RenewReply::Lease(Millis(LEASE.0 + 1));
    let (none, renewed) = ((false, false, false), (false, true, false));
    assert_eq!(renew([held, shared], None, false), (lease, vec![renewed, renewed]));
    assert_eq!(renew([held, shared], Some(9), true), (lease, vec![(true, true, true), renewed]));
    assert_eq!(renew([lost, shared], Some(9), true), (RenewReply::NotHeld, vec![none, renewed]));
    assert_eq!(renew([held, others], None, false), (RenewReply::NotHeld, vec![renewed, none]));
    // The first lock is shared, by `ann` or only by others.
    assert_eq!(renew([shared, shared], None, false), (lease, vec![renewed, renewed]));
    assert_eq!(renew([others, shared], Some(9), true), (RenewReply::NotHeld, vec![none, renewed]));
    assert_eq!(renew([others, shared], Some(9), false), (RenewReply::NotHeld, vec![none, renewed]));
}

#[test]
fn a_renewal_with_an_error_changes_no_lock_of_a_set() {
    let [held, _, shared] = members([1, 0, 1]).map(|it| it.at.seen);
    let error = |reply| (reply, Vec::new());
    assert_eq!(renew([shared, shared], Some(9), false), error(RenewReply::Shared));
    assert_eq!(renew([shared, shared], None, true), error(RenewReply::Shared));
    let not_a_lock = Observed::NotALock { until: None };
    assert_eq!(renew([held, not_a_lock], None, false), error(RenewReply::NotALock));
    let too_far = renew([held, shared], Some(TOO_FAR), false);
    assert!(matches!(too_far.0, RenewReply::TooFarAhead(_)), "{too_far:?}");
    assert_eq!(too_far.1, Vec::new());
    // The token is not for locks that `ann` does not hold, or holds under others.
    let Observed::Held(holding) = held else { panic!("{held:?}") };
    let bob = Observed::Held(Holding { owner: b"bob", ..holding });
    let beside = Observed::Held(Holding { shared: 1, ..holding });
    assert_eq!(renew([bob, beside], Some(TOO_FAR), true).0, RenewReply::NotHeld);
}

//! `HOLDS`, `HELD` and repeated requests for sets.

#![expect(clippy::panic, clippy::expect_used, reason = "a panic is how a test fails")]

use kvlock_core::{
    Acquire, AcquireReply, Caller, Change, Holding, KeyRef, Limits, Member, Millis, MonoMillis,
    Now, Observed, Results, Share, Sharing, Situation, Table, Token, UnixMillis, WaitReply, Want,
};

const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
const LEASE: Millis = Millis(50);
const UNTIL: UnixMillis = UnixMillis(1_050);

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
        other => panic!("{other:?}"),
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

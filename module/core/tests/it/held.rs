//! Requests with `HELD`, and limits of the grants that sessions bind.

use kvlock_core::{
    Acquire, AcquireReply, Change, Full, Holding, KeyRef, Limits, Millis, MonoMillis, Now,
    Observed, Permits, Results, Semaphore, SemaphoreAt, SessionId, Share, Sharing, Situation,
    Table, TakeReply, Token, UnixMillis, Want,
};

const LEASE: Millis = Millis(100);
const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
const UNTIL: UnixMillis = UnixMillis(1_050);

fn at(seen: Observed<'_>) -> Situation<'_> {
    let key = KeyRef::lock(0, b"k");
    Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE }
}

fn held(owner: &[u8], shared: u64) -> Observed<'_> {
    let (token, until) = (Token::from_stored(7), Some(UNTIL));
    Observed::Held(Holding { owner, holds: 2, shared, token, until })
}

fn shared(own: Option<Share>) -> Observed<'static> {
    let (token, until) = (Token::from_stored(7), Some(UNTIL));
    Observed::Shared(Sharing { asked: b"ann", own, token, until, holders: 2, living: None })
}

/// Renews a hold of `ann` with `HELD`. Returns the number of its holds, or the refusal.
fn renew_held(seen: Observed<'_>, want: Want, holds: Option<u64>) -> Result<u64, AcquireReply> {
    let mut table = Table::<()>::new(Limits::UNLIMITED);
    let request = Acquire { owner: b"ann", want, lease: LEASE, holds };
    match table.acquire_held(&at(seen), &request) {
        (AcquireReply::Granted { holds, .. }, change) => {
            assert_eq!(change.issued(), None, "it is no new grant");
            assert_eq!(change.until(), Some(UnixMillis(1_100)));
            Ok(holds)
        }
        (refusal, change) => {
            assert_eq!(change, Change::None);
            let refused = u64::from(refusal == AcquireReply::Refused);
            assert_eq!(table.counters().refused, refused);
            Err(refusal)
        }
    }
}

#[test]
fn held_renews_a_hold_of_the_same_kind_and_adds_none() {
    let refused = Err(AcquireReply::Refused);
    let own = Share { holds: 3, until: UNTIL };
    let cases = [
        (held(b"ann", 0), [Ok(2), refused]),
        (held(b"ann", 1), [Ok(2), Ok(1)]),
        (held(b"bob", 1), [refused, refused]),
        (shared(Some(own)), [refused, Ok(3)]),
        (shared(None), [refused, refused]),
        (Observed::Free { stored: None }, [refused, refused]),
        (Observed::NotALock { until: None }, [Err(AcquireReply::NotALock); 2]),
    ];
    for (seen, expected) in cases {
        for (want, expected) in [Want::Exclusive, Want::Shared].into_iter().zip(expected) {
            assert_eq!(renew_held(seen, want, None), expected, "{want:?} {seen:?}");
        }
    }
}

#[test]
fn held_with_holds_is_refused_if_the_owner_has_another_number() {
    let mismatch = Err(AcquireReply::Mismatch);
    for (holds, expected) in [(1, mismatch), (2, Ok(2)), (3, mismatch)] {
        assert_eq!(renew_held(held(b"ann", 0), Want::Exclusive, Some(holds)), expected);
    }
}

fn pool(name: &'static [u8], own: Option<Share>) -> SemaphoreAt<'static> {
    let (used, earliest) = (own.map_or(0, |own| own.holds), own.map(|own| own.until));
    let seen = Semaphore::Set(Permits { limit: 9, used, own, earliest });
    SemaphoreAt { key: KeyRef::semaphore(0, name), seen, now: NOW }
}

fn permits(owner: &'static [u8], holds: Option<u64>) -> Acquire<'static> {
    Acquire { owner, want: Want::Permits { more: 1, holds }, lease: LEASE, holds }
}

#[test]
fn held_renews_all_permits_of_the_owner_and_adds_none() {
    let own = Some(Share { holds: 2, until: UNTIL });
    let mut table = Table::<()>::new(Limits::UNLIMITED);
    for (holds, expected) in [
        (None, TakeReply::Holds(2)),
        (Some(1), TakeReply::Mismatch),
        (Some(2), TakeReply::Holds(2)),
        (Some(3), TakeReply::Mismatch),
    ] {
        let (reply, _) = table.take_held_permits(&pool(b"s", own), &permits(b"ann", holds));
        assert_eq!(reply, expected, "{holds:?}");
    }
    assert_eq!(table.counters().refused, 0);
    let (reply, _) = table.take_held_permits(&pool(b"s", None), &permits(b"ann", None));
    assert_eq!((reply, table.counters().refused), (TakeReply::Refused, 1));
    let unset = SemaphoreAt { seen: Semaphore::Unset, ..pool(b"s", None) };
    assert_eq!(table.take_held_permits(&unset, &permits(b"ann", None)).0, TakeReply::Unset);
}

#[test]
fn permits_are_bound_if_they_were_granted() {
    let (seen, request) = (pool(b"s", None), permits(b"ann", None));
    let mut table = Table::<()>::new(Limits::UNLIMITED);
    let session = table.open_session([1; 32], b"user", LEASE, NOW).expect("there is room");
    for (reply, is_bound) in [(TakeReply::Refused, false), (TakeReply::Holds(1), true)] {
        table.bind_taken(&seen, &request, reply, session);
        let binding = table.bound_to(seen.key, b"ann", Some(Token::NONE));
        assert_eq!(binding.is_some(), is_bound, "{reply:?}");
    }
}

/// Five grants may be bound, and by each user three of them.
#[test]
fn bound_grants_are_limited_for_the_server_and_for_each_user() {
    let limits = Limits { bound: 5, user_share: 60, ..Limits::UNLIMITED };
    let mut table = Table::<()>::new(limits);
    let mut open = |name: u8, user: &[u8]| {
        let session = table.open_session([name; 32], user, LEASE, NOW);
        session.expect("there is room")
    };
    let [first, same_user, other, third] =
        [open(1, b"u"), open(2, b"u"), open(3, b"v"), open(4, b"w")];
    let key = |n: u8| KeyRef::lock(0, [b"a", b"b", b"c", b"d", b"e", b"f"][usize::from(n)]);
    let room = |table: &Table<()>, keys: &[u8], session: SessionId| {
        let one = keys.iter().map(|n| table.room_to_bind(key(*n), b"ann", session));
        let all = table.room_to_bind_all(keys.iter().map(|n| key(*n)), b"ann", session);
        (one.collect::<Result<(), _>>(), all)
    };
    let bind = |table: &mut Table<()>, n, session| {
        table.bind((key(n), b"ann"), (Token::NONE, LEASE), session, NOW);
    };
    bind(&mut table, 0, first);
    assert_eq!(room(&table, &[1, 2], same_user), (Ok(()), Ok(())));
    assert_eq!(room(&table, &[1, 2, 3], same_user), (Ok(()), Err(Full::User)));
    bind(&mut table, 1, same_user);
    bind(&mut table, 2, first);
    let full = Err(Full::User);
    assert_eq!(room(&table, &[3], first), (full, full));
    assert_eq!(room(&table, &[2, 0], same_user), (Ok(()), Ok(())), "they are bound already");
    assert_eq!(room(&table, &[3, 4], other), (Ok(()), Ok(())));
    assert_eq!(room(&table, &[3, 4, 5], other), (Ok(()), Err(Full::Server)));
    bind(&mut table, 3, other);
    bind(&mut table, 4, third);
    let full = Err(Full::Server);
    assert_eq!(room(&table, &[5], third), (full, full));
    assert_eq!(table.bound(), 5);
}

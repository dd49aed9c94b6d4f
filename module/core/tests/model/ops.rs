//! What may happen to a few locks, and how often.

use kvlock_core::HOLDS_MAX;
use proptest::prelude::*;
use proptest::sample::select;

/// Few names, so that everybody meets everybody all the time.
pub(crate) const KEYS: [(i32, &str); 3] = [(0, "a"), (0, "b"), (1, "a")];
/// Some begin like others.
const OWNERS: [&str; 4] = ["ann", "anna", "bob", "bobby"];

/// Which of [`KEYS`].
pub(crate) type Key = usize;
pub(crate) type Owner = &'static str;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) owner: Owner,
    pub(crate) lease: u64,
    pub(crate) holds: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HowMany {
    One,
    All,
    DownTo(u64),
}

/// What somebody else does to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meddling {
    Delete,
    /// `SET` over it.
    Overwrite,
    /// `HDEL` of the owner's field.
    DropHolder,
    /// Another owner's field instead of the holder's, with the same token.
    SwapHolder(Owner),
    Persist,
    Expire(u64),
    /// A token that is believed, this far ahead of the clock.
    TokenAhead(u64),
    /// A token that is not.
    TokenSpoilt(&'static str),
    /// The lock of a script that writes no token, whatever was there before.
    Script(Owner, u64, u64),
    /// A field that no lock of one holder has.
    SecondField(&'static str),
    /// A count that is none.
    CountSpoilt(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Acquire(Key, Request),
    /// With a timeout, or without limit.
    Wait(Key, Request, Option<u64>),
    Release(Key, Owner, HowMany),
    Renew(Key, Owner, u64),
    Cancel(Key, Owner),
    Force(Key),
    /// The client of one of all waiters that ever were goes away.
    Disconnect(usize),
    /// The reply of one of the latest hand-offs is written.
    Delivered(usize),
    /// The client of one of the latest hand-offs was gone before that.
    TakeBack(usize),
    Meddle(Key, Meddling),
    /// A database is emptied, or all are.
    Flush(Option<i32>),
    /// Time goes by: on the clock that only goes forward, and on the wall clock.
    Pass(u64, i64),
    /// The timer runs: waits end first, then due looks are taken.
    Timer,
    /// Looks are taken, but no wait ends.
    Looks,
    /// The head is served before a command, if that is owed.
    Serve(Key),
    Limits(usize, usize),
    Drain(bool),
    /// All waiters of a key must go.
    Dismiss(Key),
    /// What another server may have issued, relative to the clock.
    Floor(u64),
}

/// The owner of that name.
pub(crate) fn owner_named(name: &[u8]) -> Option<Owner> {
    OWNERS.into_iter().find(|owner| owner.as_bytes() == name)
}

/// One key more often than the others, so that there is a crowd.
fn key() -> impl Strategy<Value = Key> {
    prop_oneof![2 => Just(0), 1 => 0..KEYS.len()]
}

fn owner() -> impl Strategy<Value = Owner> {
    select(&OWNERS[..])
}

fn lease() -> impl Strategy<Value = u64> {
    select(&[1, 30, 200, 1_000, 5_000][..])
}

fn request() -> impl Strategy<Value = Request> {
    let holds = prop_oneof![4 => Just(None), 2 => (1..4_u64).prop_map(Some)];
    (owner(), lease(), holds).prop_map(|(owner, lease, holds)| Request { owner, lease, holds })
}

fn how_many() -> impl Strategy<Value = HowMany> {
    prop_oneof![
        2 => Just(HowMany::One),
        2 => Just(HowMany::All),
        2 => (0..4_u64).prop_map(HowMany::DownTo),
    ]
}

fn meddling() -> impl Strategy<Value = Meddling> {
    const SPOILT_TOKENS: [&str; 5] = ["", "x", "-7", "9007199254740993", "18446744073709551615"];
    const SPOILT_COUNTS: [&str; 5] = ["0", "-1", "x", "01", "9223372036854775808"];
    let holds = select(vec![1, 2, HOLDS_MAX, HOLDS_MAX + 1]);
    prop_oneof![
        9 => Just(Meddling::Delete),
        1 => Just(Meddling::Overwrite),
        3 => Just(Meddling::DropHolder),
        2 => owner().prop_map(Meddling::SwapHolder),
        1 => Just(Meddling::Persist),
        3 => select(&[1, 5, 30, 2_000][..]).prop_map(Meddling::Expire),
        1 => select(&[0, 1_000_777][..]).prop_map(Meddling::TokenAhead),
        1 => select(&SPOILT_TOKENS[..]).prop_map(Meddling::TokenSpoilt),
        2 => (owner(), holds, lease()).prop_map(|(o, n, l)| Meddling::Script(o, n, l)),
        1 => select(&["eve", "lock-mode"][..]).prop_map(Meddling::SecondField),
        1 => select(&SPOILT_COUNTS[..]).prop_map(Meddling::CountSpoilt),
    ]
}

fn passing() -> impl Strategy<Value = Op> {
    prop_oneof![
        24 => (1..30_u64).prop_map(|ms| Op::Pass(ms, ms.cast_signed())),
        2 => Just(Op::Pass(1_001, 1_001)),
        1 => Just(Op::Pass(1, -60_000)),
        1 => Just(Op::Pass(1, 60_000)),
    ]
}

/// Anything that may happen.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    let timeout = select(&[None, None, Some(5), Some(30), Some(400)][..]);
    let (which, latest) = (0..1_000_usize, 0..3_usize);
    prop_oneof![
        8 => (key(), request()).prop_map(|(k, r)| Op::Acquire(k, r)),
        36 => (key(), request(), timeout).prop_map(|(k, r, t)| Op::Wait(k, r, t)),
        24 => (key(), owner(), how_many()).prop_map(|(k, o, n)| Op::Release(k, o, n)),
        6 => (key(), owner(), lease()).prop_map(|(k, o, l)| Op::Renew(k, o, l)),
        6 => (key(), owner()).prop_map(|(k, o)| Op::Cancel(k, o)),
        2 => key().prop_map(Op::Force),
        4 => which.prop_map(Op::Disconnect),
        2 => latest.clone().prop_map(Op::Delivered),
        6 => latest.prop_map(Op::TakeBack),
        10 => (key(), meddling()).prop_map(|(k, m)| Op::Meddle(k, m)),
        1 => select(&[Some(0), Some(1), None][..]).prop_map(Op::Flush),
        12 => passing(),
        8 => Just(Op::Timer),
        4 => Just(Op::Looks),
        6 => key().prop_map(Op::Serve),
        1 => (0..14_usize, 0..6_usize).prop_map(|(all, each)| Op::Limits(all, each)),
        1 => Just(Op::Drain(true)),
        8 => Just(Op::Drain(false)),
        1 => key().prop_map(Op::Dismiss),
        1 => select(&[0, 5_000, 60_000_000][..]).prop_map(Op::Floor),
    ]
}

//! What may happen to a few locks, and how often.

use proptest::prelude::*;
use proptest::sample::select;

use super::meddling::{Meddling, meddling};

/// Few names, so that everybody meets everybody all the time.
pub const KEYS: [(i32, &str); 3] = [(0, "a"), (0, "b"), (1, "a")];
/// Some begin like others.
pub const OWNERS: [&str; 4] = ["ann", "anna", "bob", "bobby"];

/// Which of [`KEYS`].
pub type Key = usize;
pub type Owner = &'static str;

#[derive(Clone, Debug)]
pub enum Op {
    Ask(Key, Ask),
    Event(Event),
}

/// What a client asks of a lock.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    Acquire(Request),
    /// With a timeout, or without limit.
    Wait(Request, Option<u64>),
    /// Of exclusive holds, or of shared ones.
    Release(Owner, bool, HowMany),
    /// Perhaps with a token, relative to the clock.
    Renew(Owner, u64, Option<i64>),
    Cancel(Owner),
    Force,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub owner: Owner,
    pub shared: bool,
    pub lease: u64,
    pub holds: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub enum HowMany {
    One,
    All,
    DownTo(u64),
}

/// What else happens.
#[derive(Clone, Copy, Debug)]
pub enum Event {
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
    /// What another server may have issued, relative to the clock; or it is not known.
    Floor(Option<u64>),
    /// A quarantine begins, if there are any.
    Begin,
    /// How long quarantines last is set.
    Quarantine(u64),
    /// The server grants nothing any more.
    Lift,
    /// How often it is Redisson's turn is set, and somebody listens there from now on or nobody.
    Turn(u64, bool),
}

/// The owner of that name.
pub fn owner_named(name: &[u8]) -> Option<Owner> {
    OWNERS.into_iter().find(|owner| owner.as_bytes() == name)
}

/// One key more often than the others, so that there is a crowd.
fn key() -> impl Strategy<Value = Key> {
    prop_oneof![2 => Just(0), 1 => 0..KEYS.len()]
}

pub fn owner() -> impl Strategy<Value = Owner> {
    select(&OWNERS[..])
}

pub fn lease() -> impl Strategy<Value = u64> {
    select(&[1, 30, 200, 1_000, 5_000][..])
}

/// The last one is too far ahead, unless the clock was set back.
/// In microseconds, as tokens are.
pub const DAY: i64 = 24 * 60 * 60 * 1_000_000;

fn token() -> impl Strategy<Value = Option<i64>> {
    select(&[None, None, Some(-5_000), Some(5_000), Some(90_000_000), Some(DAY), Some(DAY + 1)][..])
}

fn request() -> impl Strategy<Value = Request> {
    let holds = prop_oneof![2 => Just(None), 1 => (1..4_u64).prop_map(Some)];
    (owner(), prop::bool::weighted(0.4), lease(), holds)
        .prop_map(|(owner, shared, lease, holds)| Request { owner, shared, lease, holds })
}

fn how_many() -> impl Strategy<Value = HowMany> {
    prop_oneof![Just(HowMany::One), Just(HowMany::All), (0..4_u64).prop_map(HowMany::DownTo),]
}

fn ask() -> impl Strategy<Value = Ask> {
    let timeout = select(&[None, None, Some(5), Some(30), Some(400)][..]);
    prop_oneof![
        10 => request().prop_map(Ask::Acquire),
        18 => (request(), timeout).prop_map(|(request, timeout)| Ask::Wait(request, timeout)),
        20 => (owner(), prop::bool::weighted(0.4), how_many())
            .prop_map(|(owner, shared, n)| Ask::Release(owner, shared, n)),
        3 => (owner(), lease(), token())
            .prop_map(|(owner, lease, token)| Ask::Renew(owner, lease, token)),
        3 => owner().prop_map(Ask::Cancel),
        1 => Just(Ask::Force),
    ]
}

fn passing() -> impl Strategy<Value = Event> {
    prop_oneof![
        24 => (1..30_u64).prop_map(|ms| Event::Pass(ms, ms.cast_signed())),
        2 => Just(Event::Pass(1_001, 1_001)),
        1 => Just(Event::Pass(1, -60_000)),
        1 => Just(Event::Pass(1, 60_000)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..1_000_usize).prop_map(Event::Disconnect),
        2 => (0..3_usize).prop_map(Event::Delivered),
        6 => (0..3_usize).prop_map(Event::TakeBack),
        10 => (key(), meddling()).prop_map(|(key, meddling)| Event::Meddle(key, meddling)),
        1 => select(&[Some(0), Some(1), None][..]).prop_map(Event::Flush),
        12 => passing(),
        8 => Just(Event::Timer),
        4 => Just(Event::Looks),
        6 => key().prop_map(Event::Serve),
        1 => (0..14_usize, 0..6_usize).prop_map(|(all, each)| Event::Limits(all, each)),
        1 => Just(Event::Drain(true)),
        8 => Just(Event::Drain(false)),
        1 => key().prop_map(Event::Dismiss),
        1 => Just(Event::Begin),
        2 => select(&[0, 10, 60][..]).prop_map(Event::Quarantine),
        1 => Just(Event::Lift),
        3 => (select(&[0, 1, 40, 250][..]), prop::bool::weighted(0.7))
            .prop_map(|(every, listens)| Event::Turn(every, listens)),
        1 => Just(Event::Floor(None)),
        5 => select(&[0, 5_000, 60_000_000][..]).prop_map(|us| Event::Floor(Some(us))),
    ]
}

/// Anything that may happen.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (key(), ask()).prop_map(|(key, ask)| Op::Ask(key, ask)),
        4 => event().prop_map(Op::Event),
    ]
}

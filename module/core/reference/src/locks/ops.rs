//! Operations on a few locks, and their frequencies.

use kvlock_core::Release;

use super::meddling::{Meddling, meddling};
use super::names::{Key, OWNERS, Owner, RESULTS, ResultKey, lease};
use crate::Bytes;

#[derive(Clone, Debug)]
pub enum Op {
    Ask(Key, Ask),
    Event(Event),
}

/// Request of a client for a lock.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    Acquire(Request),
    /// Acquires a set of locks: this one, and each of the two others in its role. With `true`, only
    /// if the owner holds all of them already.
    AcquireSet(Request, [Role; 2], bool),
    /// Waits, with a timeout or without.
    Wait(Request, Option<u64>),
    /// Releases exclusive or, with `true`, shared holds. Perhaps stores a result.
    Release(Owner, bool, Release, Option<ResultKey>),
    /// Renews with this lease. Perhaps raises the token to the time plus this number of microseconds.
    Renew(Owner, u64, Option<i64>),
    Cancel(Owner),
    Force,
}

/// Role of a further lock in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The lock is not in the set.
    Out,
    With,
    Under,
}

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub owner: Owner,
    pub shared: bool,
    pub lease: u64,
    pub holds: Option<u64>,
    /// The result that is accepted instead of the lock.
    pub unless: Option<ResultKey>,
}

/// Events other than requests.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Disconnects the client of any past or present waiter.
    Disconnect(usize),
    /// The reply for one of the latest hand-offs is written.
    Delivered(usize),
    /// The client of one of the latest hand-offs disconnected before its reply was written.
    TakeBack(usize),
    Meddle(Key, Meddling),
    /// Empties a database, or all of them.
    Flush(Option<i32>),
    /// Lets time pass: milliseconds on the monotonic clock, and on the wall clock.
    Pass(u64, i64),
    /// Runs the timer: ends the quarantine and the moments for Redisson that are over. Then ends
    /// the waits whose timeout has passed, checks groups of waiters for results, and takes due
    /// looks.
    Timer,
    /// Takes the due looks, but ends no wait.
    Looks,
    /// Grants the lock to the first waiter if it is owed, as the module does before a command.
    Serve(Key),
    Limits(usize, usize),
    Drain(bool),
    /// Dismisses all waiters of a key.
    Dismiss(Key),
    /// Sets the largest token that another server may have issued: the time plus this number of
    /// microseconds, or unknown.
    Floor(Option<u64>),
    /// Begins a quarantine, unless the length of quarantines is zero.
    Begin,
    /// Sets the length of quarantines.
    Quarantine(u64),
    /// Ends the quarantine because the server stops granting.
    Lift,
    /// Sets whether there are turns of Redisson, and the number of its processes that listen.
    Turns(bool, u64),
    /// Another client stores a result in the database of a key, or deletes it.
    Result(Key, ResultKey, bool),
    /// After a lock became free: checks whether a result exists that some of its waiters accept, and
    /// answers those waiters if it does.
    Group,
}

/// A day in microseconds, the unit of tokens.
const DAY: i64 = 24 * 60 * 60 * 1_000_000;

fn request(bytes: &mut Bytes<'_>) -> Request {
    let (owner, lease) = (bytes.pick(&OWNERS), lease(bytes));
    let (shared, holds) = (bytes.below(5) < 2, bytes.below(3) == 0);
    let holds = holds.then(|| bytes.number(1, 3));
    let unless = result(bytes);
    Request { owner, shared, lease, holds, unless }
}

fn result(bytes: &mut Bytes<'_>) -> Option<ResultKey> {
    bytes.pick(&[None, None, None, Some(0), Some(1)])
}

/// Decodes an operation. One key is chosen more often than the others, so that it has many waiters.
pub fn op(bytes: &mut Bytes<'_>) -> Op {
    let key = bytes.pick(&[0, 0, 0, 0, 1, 2]);
    if bytes.below(9) < 5 { Op::Ask(key, ask(bytes)) } else { Op::Event(event(bytes, key)) }
}

fn ask(bytes: &mut Bytes<'_>) -> Ask {
    match bytes.below(65) {
        0..=9 => Ask::Acquire(request(bytes)),
        10..=27 => {
            let request = request(bytes);
            Ask::Wait(request, bytes.pick(&[None, None, Some(5), Some(30), Some(400)]))
        }
        28..=47 => {
            let (owner, shared) = (bytes.pick(&OWNERS), bytes.below(5) < 2);
            let how_many = [Release::One, Release::All, Release::DownTo(bytes.number(0, 4))];
            Ask::Release(owner, shared, bytes.pick(&how_many), result(bytes))
        }
        48..=50 => {
            // The last of these is usually too far ahead of the clock.
            let ahead = [-5_000, 5_000, 90_000_000, DAY, DAY + 1].map(Some);
            let ahead = bytes.pick(&[None, None, ahead[0], ahead[1], ahead[2], ahead[3], ahead[4]]);
            Ask::Renew(bytes.pick(&OWNERS), lease(bytes), ahead)
        }
        51..=53 => Ask::Cancel(bytes.pick(&OWNERS)),
        54 => Ask::Force,
        _ => {
            let mut role = || bytes.pick(&[Role::Out, Role::With, Role::Under]);
            let roles = [role(), role()];
            Ask::AcquireSet(request(bytes), roles, bytes.below(5) == 0)
        }
    }
}

fn event(bytes: &mut Bytes<'_>, key: Key) -> Event {
    match bytes.below(85) {
        0..=3 => Event::Disconnect(bytes.below(256)),
        4 | 5 => Event::Delivered(bytes.below(3)),
        6..=11 => Event::TakeBack(bytes.below(3)),
        12..=21 => Event::Meddle(key, meddling(bytes)),
        22 => Event::Flush(bytes.pick(&[Some(0), Some(1), None])),
        23..=32 => {
            let ms = bytes.number(1, 29);
            Event::Pass(ms, ms.cast_signed())
        }
        33 | 34 => {
            let jump = bytes.pick(&[(1_001, 1_001), (1_001, 1_001), (1, -60_000), (1, 60_000)]);
            Event::Pass(jump.0, jump.1)
        }
        35..=42 => Event::Timer,
        43..=46 => Event::Looks,
        47..=52 => Event::Serve(key),
        53 => Event::Limits(bytes.below(14), bytes.below(6)),
        54..=62 => Event::Drain(bytes.below(9) == 0),
        63 => Event::Dismiss(key),
        64 => Event::Begin,
        65 | 66 => Event::Quarantine(bytes.pick(&[0, 10, 60])),
        67 => Event::Lift,
        68..=72 => {
            let there = bytes.below(3) == 0;
            Event::Result(key, bytes.below(RESULTS.len()), there)
        }
        73..=75 => Event::Group,
        76..=78 => Event::Turns(bytes.below(10) < 9, bytes.pick(&[0, 1, 1, 2, 3, 70])),
        _ => Event::Floor(bytes.pick(&[None, Some(0), Some(0), Some(5_000), Some(60_000_000)])),
    }
}

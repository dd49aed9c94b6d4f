//! What may happen to a few sessions, and how often.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::source::Bytes;

pub const KEYS: usize = 2;
pub const OWNERS: [&str; 5] = ["ann", "bob", "cat", "dan", "eve"];
/// Sessions that are open at one time, and connections that read.
pub const SESSIONS: usize = 3;
pub const CONNECTIONS: u64 = 3;
/// The most that a reader takes.
pub const MOST: usize = 1;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Opens the session of that number, for one of two users, unless it is open.
    Open {
        session: usize,
        user: usize,
        ttl: u64,
    },
    /// Waits through a session, or blocked.
    Wait {
        key: usize,
        owner: usize,
        through: Option<usize>,
        timeout: Option<u64>,
    },
    Cancel {
        key: usize,
        owner: usize,
    },
    Release {
        key: usize,
        owner: usize,
    },
    /// Shows that it knows of its grant.
    Renew {
        key: usize,
        owner: usize,
    },
    /// Reads; `ack` is counted from what was written last.
    Next {
        session: usize,
        user: usize,
        connection: u64,
        ack: isize,
        timeout: Option<u64>,
    },
    /// Readers that have something to hear are answered, or are gone by then.
    Answer {
        lost: bool,
    },
    /// What was sent in this turn is written.
    Turn,
    /// A connection is closed; what was sent to it in this turn may be lost.
    Hangup {
        connection: u64,
        lost: bool,
    },
    Close {
        session: usize,
        user: usize,
    },
    Pass(u64),
    Timer,
}

pub fn walk() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..120)
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    let owner = || 0..OWNERS.len();
    let session = || 0..SESSIONS;
    let user = || select(&[0, 0, 0, 1][..]);
    let timeout = || select(&[None, None, Some(5), Some(40)][..]);
    let through = select(&[None, Some(0), Some(0), Some(1), Some(2)][..]);
    prop_oneof![
        4 => (session(), user(), select(&[20, 100][..]))
            .prop_map(|(session, user, ttl)| Op::Open { session, user, ttl }),
        14 => (key(), owner(), through, timeout())
            .prop_map(|(key, owner, through, timeout)| Op::Wait { key, owner, through, timeout }),
        2 => (key(), owner()).prop_map(|(key, owner)| Op::Cancel { key, owner }),
        8 => (key(), owner()).prop_map(|(key, owner)| Op::Release { key, owner }),
        1 => (key(), owner()).prop_map(|(key, owner)| Op::Renew { key, owner }),
        10 => (session(), user(), 0..CONNECTIONS, select(&[1, 0, 0, -1, -9][..]), timeout())
            .prop_map(|(session, user, connection, ack, timeout)| {
                Op::Next { session, user, connection, ack, timeout }
            }),
        6 => prop::bool::weighted(0.2).prop_map(|lost| Op::Answer { lost }),
        5 => Just(Op::Turn),
        3 => (0..CONNECTIONS, any::<bool>())
            .prop_map(|(connection, lost)| Op::Hangup { connection, lost }),
        1 => (session(), user()).prop_map(|(session, user)| Op::Close { session, user }),
        5 => (1..30_u64).prop_map(Op::Pass),
        4 => Just(Op::Timer),
    ]
}

/// What bytes say.
pub fn walk_of(bytes: &[u8], most: usize) -> Vec<Op> {
    Bytes(bytes).all(most, |bytes| {
        let kind = bytes.below(12);
        let (key, owner) = (bytes.below(KEYS), bytes.below(OWNERS.len()));
        let (session, user) = (bytes.below(SESSIONS), bytes.pick(&[0, 0, 0, 1]));
        let connection = bytes.below(3) as u64;
        match kind {
            0 => Op::Open { session, user, ttl: bytes.pick(&[20, 100]) },
            1 | 2 => {
                let through = bytes.flag().then_some(session);
                Op::Wait { key, owner, through, timeout: bytes.pick(&[None, Some(5)]) }
            }
            3 => Op::Cancel { key, owner },
            4 => Op::Release { key, owner },
            5 => Op::Renew { key, owner },
            6 | 7 => {
                let (ack, timeout) = (bytes.pick(&[1, 0, -1, -9]), bytes.pick(&[None, Some(40)]));
                Op::Next { session, user, connection, ack, timeout }
            }
            8 => Op::Answer { lost: bytes.below(5) == 0 },
            9 => Op::Hangup { connection, lost: bytes.flag() },
            10 => Op::Close { session, user },
            _ => [Op::Turn, Op::Timer, Op::Pass(bytes.below(30) as u64)][bytes.below(3)],
        }
    })
}

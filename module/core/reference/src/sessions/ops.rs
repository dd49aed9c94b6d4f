//! Operations on a few sessions, and their frequencies.

use crate::Bytes;

pub const KEYS: usize = 2;
pub const OWNERS: [&str; 5] = ["ann", "bob", "cat", "dan", "eve"];
/// Largest number of sessions that are open at one time.
pub const SESSIONS: usize = 3;
/// Number of connections that read.
const CONNECTIONS: u8 = 3;
/// Largest number of outcomes in one reply.
pub const MOST: usize = 1;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Opens the session with this number, for one of two users, unless it is open.
    Open {
        session: usize,
        user: usize,
        ttl: u64,
    },
    /// Waits through a session, or as a blocked client.
    Wait {
        key: usize,
        owner: usize,
        through: Option<usize>,
        timeout: Option<u64>,
    },
    /// Acquires the lock if that is possible at once.
    Acquire {
        key: usize,
        owner: usize,
    },
    Cancel {
        key: usize,
        owner: usize,
    },
    Release {
        key: usize,
        owner: usize,
    },
    /// Renews the lease, which shows that the owner has received its grant.
    Renew {
        key: usize,
        owner: usize,
    },
    /// Reads outcomes. `ack` is relative to the latest outcome that was sent.
    Next {
        session: usize,
        user: usize,
        connection: u64,
        ack: isize,
        timeout: Option<u64>,
    },
    /// Answers the readers that have outcomes to read or whose time is over. With `lost`, the
    /// answers do not arrive, because the readers have disconnected.
    Answer {
        lost: bool,
    },
    /// Closes a connection.
    Hangup {
        connection: u64,
    },
    /// Closes a session. Perhaps an owner waits before the session's remains are cleared.
    Close {
        session: usize,
        user: usize,
        then: Option<(usize, usize)>,
    },
    Pass(u64),
    Timer,
}

pub fn op(bytes: &mut Bytes<'_>) -> Op {
    let kind = bytes.below(66);
    let (key, owner) = (bytes.below(KEYS), bytes.below(OWNERS.len()));
    let (session, user) = (bytes.below(SESSIONS), bytes.pick(&[0, 0, 0, 1]));
    let connection = bytes.number(0, CONNECTIONS);
    let timeout = bytes.pick(&[None, None, Some(5), Some(40)]);
    match kind {
        0..=3 => Op::Open { session, user, ttl: bytes.pick(&[20, 100]) },
        4..=17 => {
            let through = bytes.pick(&[None, Some(0), Some(0), Some(1), Some(2)]);
            Op::Wait { key, owner, through, timeout }
        }
        18 | 19 => Op::Cancel { key, owner },
        20..=27 => Op::Release { key, owner },
        28 => Op::Renew { key, owner },
        29..=38 => {
            let ack = bytes.pick(&[1, 0, 0, -1, -9]);
            Op::Next { session, user, connection, ack, timeout }
        }
        39..=46 => Op::Answer { lost: bytes.below(5) == 0 },
        47..=50 => Op::Hangup { connection },
        51..=53 => Op::Close { session, user, then: bytes.flag().then_some((key, owner)) },
        54..=56 => Op::Acquire { key, owner },
        57..=61 => Op::Pass(bytes.number(1, 29)),
        _ => Op::Timer,
    }
}

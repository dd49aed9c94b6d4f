//! Operations on bound locks and their sessions, and their frequencies.

use super::naive::{KEYS, OWNERS, SESSIONS};
use crate::Bytes;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Open {
        session: usize,
        ttl: u64,
    },
    /// Acquires the lock, and perhaps binds it to a session.
    Acquire {
        key: usize,
        owner: usize,
        bound: Option<usize>,
    },
    /// Waits through a session; the grant is bound to it or not.
    Wait {
        key: usize,
        owner: usize,
        session: usize,
        bound: bool,
    },
    Release {
        key: usize,
        owner: usize,
    },
    Renew {
        key: usize,
        owner: usize,
    },
    /// Deletes the key with another client's command.
    Delete {
        key: usize,
    },
    /// Overwrites the key with another client's commands: the owner holds it, with another token.
    Forge {
        key: usize,
        owner: usize,
    },
    /// Reads the outcomes. If there are none, blocks for up to the timeout, if one is given.
    Next {
        session: usize,
        timeout: Option<u64>,
    },
    /// Ends a session. With `forget` the server ends it during a drain, and its bound locks stay
    /// until their leases end. Otherwise the client ends it.
    Close {
        session: usize,
        forget: bool,
    },
    /// Sets whether the server refuses writes.
    Refuse(bool),
    Pass(u64),
    Timer,
}

pub fn op(bytes: &mut Bytes<'_>) -> Op {
    let kind = bytes.below(48);
    let (key, owner) = (bytes.below(KEYS), bytes.below(OWNERS.len()));
    let session = bytes.below(SESSIONS);
    match kind {
        0..=3 => Op::Open { session, ttl: bytes.pick(&[20, 60]) },
        4..=12 => Op::Acquire { key, owner, bound: bytes.pick(&[None, Some(0), Some(0), Some(1)]) },
        13..=19 => Op::Wait { key, owner, session, bound: bytes.flag() },
        20..=22 => Op::Release { key, owner },
        23 => Op::Renew { key, owner },
        24 => Op::Delete { key },
        25 => Op::Forge { key, owner },
        26..=31 => Op::Next { session, timeout: bytes.pick(&[None, Some(5), Some(90)]) },
        32 => Op::Close { session, forget: bytes.below(3) == 0 },
        33 | 34 => Op::Refuse(bytes.flag()),
        35..=40 => Op::Pass(bytes.number(1, 24)),
        _ => Op::Timer,
    }
}

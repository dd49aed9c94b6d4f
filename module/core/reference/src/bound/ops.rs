//! What can happen to what is bound.

use super::naive::{KEYS, OWNERS, SESSIONS};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Open {
        session: usize,
        ttl: u64,
    },
    /// Acquires, bound to a session or not.
    Acquire {
        key: usize,
        owner: usize,
        bound: Option<usize>,
    },
    /// Waits through a session; what it is granted is bound or not.
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
    /// Somebody deletes the key.
    Delete {
        key: usize,
    },
    /// Somebody writes the key anew, as another grant to that owner.
    Forge {
        key: usize,
        owner: usize,
    },
    /// Reads what there is, or blocks for so long.
    Next {
        session: usize,
        timeout: Option<u64>,
    },
    /// The server's own end of a session, for a drain or a change of its role, or the client's.
    Close {
        session: usize,
        forget: bool,
    },
    /// The server writes nothing now, or does again.
    Refuse(bool),
    Pass(u64),
    Timer,
}

pub fn walk() -> impl Strategy<Value = Vec<Op>> {
    let (key, owner, session) = (|| 0..KEYS, || 0..OWNERS.len(), || 0..SESSIONS);
    let bound = select(&[None, Some(0), Some(0), Some(1)][..]);
    let op = prop_oneof![
        4 => (session(), select(&[20, 60][..])).prop_map(|(session, ttl)| Op::Open { session, ttl }),
        9 => (key(), owner(), bound)
            .prop_map(|(key, owner, bound)| Op::Acquire { key, owner, bound }),
        7 => (key(), owner(), session(), any::<bool>())
            .prop_map(|(key, owner, session, bound)| Op::Wait { key, owner, session, bound }),
        3 => (key(), owner()).prop_map(|(key, owner)| Op::Release { key, owner }),
        1 => (key(), owner()).prop_map(|(key, owner)| Op::Renew { key, owner }),
        1 => key().prop_map(|key| Op::Delete { key }),
        1 => (key(), owner()).prop_map(|(key, owner)| Op::Forge { key, owner }),
        6 => (session(), select(&[None, Some(5), Some(90)][..]))
            .prop_map(|(session, timeout)| Op::Next { session, timeout }),
        1 => (session(), prop::bool::weighted(0.3))
            .prop_map(|(session, forget)| Op::Close { session, forget }),
        2 => any::<bool>().prop_map(Op::Refuse),
        6 => (1..25_u64).prop_map(Op::Pass),
        6 => Just(Op::Timer),
    ];
    vec(op, 1..80)
}

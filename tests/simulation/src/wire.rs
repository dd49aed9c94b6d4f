//! What clients and servers say to each other.

use kvlock_core::{Release, SessionName, Want};
use std::fmt;

/// A lock.
pub(crate) type Key = usize;
/// A client, a server.
pub(crate) type ClientId = usize;
pub(crate) type ServerId = usize;
/// A connection, and a question asked over it.
pub(crate) type ConnId = usize;
pub(crate) type CallId = u64;

/// An owner, of one acquisition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner([u8; 8]);

impl Owner {
    pub(crate) fn new(number: u64) -> Self {
        Self(number.to_be_bytes())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self(bytes.try_into().unwrap_or_default())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}", u64::from_be_bytes(self.0))
    }
}

impl Request {
    /// Whether it waits while writes are paused.
    pub(crate) fn writes(&self) -> bool {
        use Request::{Acquire, Cancel, Release, Renew, Wait};
        matches!(self, Acquire(_) | Wait { .. } | Release { .. } | Renew { .. } | Cancel { .. })
    }
}

/// What is wanted of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) want: Want,
    pub(crate) lease_ms: u64,
    pub(crate) holds: Option<u64>,
    /// What it is waited through, or to be bound to.
    pub(crate) session: Option<SessionName>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Acquire(Wish),
    Wait {
        wish: Wish,
        timeout_ms: Option<u64>,
    },
    Release {
        key: Key,
        owner: Owner,
        want: Want,
        amount: Release,
    },
    Renew {
        key: Key,
        owner: Owner,
        lease_ms: u64,
        token: Option<u64>,
    },
    Cancel {
        key: Key,
        owner: Owner,
    },
    Open {
        ttl_ms: u64,
    },
    Next {
        session: SessionName,
        ack: u64,
        timeout_ms: u64,
        most: usize,
    },
    Close {
        session: SessionName,
    },
    /// `ROLE`, and `WAIT`.
    Role,
    Replicas {
        wanted: usize,
        timeout_ms: u64,
    },
    /// A command of the module without arguments: is it there?
    Incomplete,
    Info,
    /// What any server answers.
    Ping,
}

/// How long a UUID is as text.
const UUID: usize = 36;

/// An answer, as the protocol has it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Int(u64),
    Text(Vec<u8>),
    List(Vec<Self>),
    Nil,
    Fine,
    Error(&'static str),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => {
                let text = String::from_utf8_lossy(text);
                // Chance decides how the owners of a client begin, and no seed.
                let is_owner = text.as_bytes().get(UUID - 13) == Some(&b'-');
                write!(f, "{:?}", text.get(UUID..).filter(|_| is_owner).unwrap_or(&text))
            }
            Self::List(all) => f.debug_list().entries(all).finish(),
            Self::Nil => f.write_str("nil"),
            Self::Fine => f.write_str("OK"),
            Self::Error(what) => f.write_str(what),
        }
    }
}

impl Reply {
    pub(crate) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().to_vec())
    }

    pub(crate) fn list(all: impl Into<Vec<Self>>) -> Self {
        Self::List(all.into())
    }
}

pub(crate) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
pub(crate) const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
pub(crate) const MISMATCH: &str = "MISMATCH the number of holds is another";
pub(crate) const TRY_AGAIN: &str = "TRYAGAIN not now";
pub(crate) const UNBLOCKED: &str = "UNBLOCKED somebody else has this place";
pub(crate) const QUEUE_FULL: &str = "QUEUEFULL too many wait";
pub(crate) const TOO_FAR_AHEAD: &str = "ERR invalid TOKEN: too far ahead of the clock";
pub(crate) const NO_SESSION: &str = "NOSESSION there is no such session here";
pub(crate) const ACK_AHEAD: &str = "ERR acknowledges what was never sent";
pub(crate) const INCOMPLETE: &str = "ERR wrong number of arguments";
pub(crate) const OTHER: &str = "ERR something else";

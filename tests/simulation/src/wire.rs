//! What clients and servers say to each other.

use kvlock_core::{Release, Want};
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

/// How many replicas must have a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) at_least: usize,
    /// As many as the primary has, if these are more.
    pub(crate) all: bool,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Acquire {
        key: Key,
        owner: Owner,
        want: Want,
        lease_ms: u64,
        holds: Option<u64>,
    },
    Wait {
        key: Key,
        owner: Owner,
        want: Want,
        lease_ms: u64,
        timeout_ms: Option<u64>,
        holds: Option<u64>,
    },
    Release {
        key: Key,
        owner: Owner,
        want: Want,
        amount: Release,
    },
    /// With `confirm`, `ROLE` and `WAIT` follow it, and hold up what comes after.
    Renew {
        key: Key,
        owner: Owner,
        lease_ms: u64,
        token: Option<u64>,
        confirm: Option<Replicas>,
    },
    Cancel {
        key: Key,
        owner: Owner,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted {
        token: u64,
        holds: u64,
    },
    Nil,
    Left(u64),
    /// The lease that runs; and what the replicas say, if they were asked.
    Lease {
        ms: u64,
        confirmed: Option<Confirmed>,
    },
    Cancelled(bool),
    Error(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    pub(crate) by: usize,
    pub(crate) there: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    ReadOnly,
    NoReplicas,
    Mismatch,
    TryAgain,
    Unblocked,
    QueueFull,
    TooFarAhead,
    Other,
}

/// Why a call came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing was sent.
    Unreachable,
    /// The connection broke: it may have been carried out, or may be yet.
    Broken,
    /// The same.
    Timeout,
    Refused(Refusal),
    /// Too few replicas have it.
    NotReplicated,
}

impl Trouble {
    pub(crate) fn leaves_outcome_unknown(self) -> bool {
        matches!(self, Self::Broken | Self::Timeout)
    }

    /// Whether it may pass by itself.
    pub(crate) fn is_passing(self) -> bool {
        match self {
            Self::Unreachable | Self::Broken | Self::Timeout => true,
            Self::Refused(why) => !matches!(why, Refusal::Mismatch | Refusal::Other),
            Self::NotReplicated => false,
        }
    }
}

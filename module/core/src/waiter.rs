//! A waiter: as its caller asks, as it joins a queue, in it, as it leaves, and as commands show it.

use std::rc::Rc;

use crate::account::{Account, Charge, WAIT_BYTES};
use crate::agenda::Look;
use crate::ids::{QueueId, SessionId, SessionName, WaiterId};
use crate::key::LockKey;
use crate::mode::Want;
use crate::types::{Millis, MonoMillis};
use crate::value::Value;

/// A request to wait.
#[derive(Clone, Copy, Debug)]
pub struct Join<'a> {
    /// Owner that the grant is for.
    pub owner: &'a [u8],
    /// Exclusive or shared.
    pub want: Want,
    /// Lease of the grant.
    pub lease: Millis,
    /// Timeout of the wait; `None` is unlimited.
    pub timeout: Option<Millis>,
}

/// The caller that asks to wait.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A session.
    Session(SessionId),
    /// A client that will be blocked, with the account of its user.
    Client(Account),
}

impl Caller {
    /// The session, if the caller is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session(session) => Some(*session),
            Self::Client(_) => None,
        }
    }
}

impl From<Option<SessionId>> for Caller {
    /// Without a session: a client without a user.
    fn from(session: Option<SessionId>) -> Self {
        session.map_or_else(|| Self::Client(Account::default()), Self::Session)
    }
}

/// Where the outcome of a wait goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Via<P> {
    /// To a blocked client, as its reply.
    Client(P),
    /// To a session, which keeps it for its reader.
    Session(SessionId),
    /// It has none of its own: it is a further place of this waiter for a set.
    Place(WaiterId),
}

impl<P> Via<P> {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Client(_) | Self::Place(_) => None,
            Self::Session(session) => Some(*session),
        }
    }

    pub(crate) fn client(self) -> Option<P> {
        match self {
            Self::Client(client) => Some(client),
            Self::Session(_) | Self::Place(_) => None,
        }
    }
}

impl<P> From<P> for Via<P> {
    fn from(client: P) -> Self {
        Self::Client(client)
    }
}

/// Estimated memory of a wait through a session, in bytes.
pub(crate) fn wait_bytes(owner: &[u8]) -> usize {
    WAIT_BYTES.saturating_add(owner.len())
}

/// A waiter that joins a queue.
pub(crate) struct Newcomer<'a, P> {
    pub(crate) owner: &'a [u8],
    pub(crate) want: Want,
    pub(crate) lease: Millis,
    pub(crate) since: MonoMillis,
    pub(crate) end: Option<MonoMillis>,
    pub(crate) via: Via<P>,
    pub(crate) charge: Option<Charge>,
}

/// A waiter, and the client or session to answer when its wait ends.
#[derive(Debug)]
pub(crate) struct Waiter<P> {
    pub(crate) queue: QueueId,
    pub(crate) owner: Rc<[u8]>,
    pub(crate) want: Want,
    pub(crate) lease: Millis,
    /// When it arrived.
    pub(crate) since: MonoMillis,
    /// When its timeout passes; `None` without a timeout.
    pub(crate) end: Option<MonoMillis>,
    /// Whether its grant will be bound to its session.
    pub(crate) bound: bool,
    pub(crate) via: Via<P>,
    /// Charge of a wait through a session. A blocked client has its own.
    pub(crate) charge: Option<Charge>,
}

/// A waiter that has left, and its key.
#[derive(Debug)]
pub(crate) struct Leaver<P> {
    pub(crate) waiter: Waiter<P>,
    pub(crate) key: LockKey,
    /// Whether it was first in line.
    pub(crate) stood_in_front: bool,
    /// The value that it would have published as the holder.
    pub(crate) value: Value,
    /// The look that was planned, if this was the last waiter and its queue is gone.
    pub(crate) planned: Option<Look>,
}

/// What commands show of a waiter.
#[derive(Clone, Copy, Debug)]
pub struct WaiterView<'a, P> {
    /// Owner that it waits for.
    pub owner: &'a [u8],
    /// What it waits for.
    pub want: Want,
    /// When it arrived.
    pub since: MonoMillis,
    /// The client to answer, if it is a blocked client.
    pub client: Option<&'a P>,
    /// The session to inform, if it waits through one that has not ended.
    pub session: Option<&'a SessionName>,
    /// The waiter for a set of which this is a place.
    pub set: Option<WaiterId>,
}

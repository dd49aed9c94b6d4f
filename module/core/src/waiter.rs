//! Types of a waiter: its request, its entry in a queue, its departure, and its view in reports.

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
    /// What the owner wants: see [`Want`].
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
    /// A client that would be blocked, with the account of its user.
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
    /// `None` becomes a client with an empty account.
    fn from(session: Option<SessionId>) -> Self {
        session.map_or_else(|| Self::Client(Account::default()), Self::Session)
    }
}

/// Destination of the outcome of a wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Via<P> {
    /// To a blocked client, as its reply.
    Client(P),
    /// To a session, which keeps it for its reader.
    Session(SessionId),
    /// Nowhere: this is a further place of the given waiter for a set of locks.
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

/// Estimated memory of a wait through a session, or of a further place of a set, in bytes.
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
    /// Time of arrival.
    pub(crate) since: MonoMillis,
    /// Time at which its timeout passes; `None` without a timeout.
    pub(crate) end: Option<MonoMillis>,
    /// `true` if its grant will be bound to its session.
    pub(crate) bound: bool,
    pub(crate) via: Via<P>,
    /// Charge of a wait through a session, or of a further place of a set. The charge of a blocked
    /// client is kept elsewhere.
    pub(crate) charge: Option<Charge>,
}

/// A waiter that has left, and its key.
#[derive(Debug)]
pub(crate) struct Leaver<P> {
    pub(crate) waiter: Waiter<P>,
    pub(crate) key: LockKey,
    /// `true` if the waiter was first in line.
    pub(crate) stood_in_front: bool,
    /// The value that the waiter publishes if it becomes the holder.
    pub(crate) value: Value,
    /// The planned look at its queue, if it was the last waiter and the queue was removed.
    pub(crate) planned: Option<Look>,
}

/// A waiter, as commands show it.
#[derive(Clone, Copy, Debug)]
pub struct WaiterView<'a, P> {
    /// The owner. For a latch, the name of the waiter.
    pub owner: &'a [u8],
    /// What the waiter requests.
    pub want: Want,
    /// Time of arrival.
    pub since: MonoMillis,
    /// The client to answer, if it is a blocked client.
    pub client: Option<&'a P>,
    /// The session to answer, if the waiter waits through a session that has not ended.
    pub session: Option<&'a SessionName>,
    /// The waiter for the set to which this place belongs; `None` for other waiters.
    pub set: Option<WaiterId>,
}

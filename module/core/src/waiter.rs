//! A waiter: as it joins a queue, in it, as it leaves, and as commands show it.

use std::rc::Rc;

use crate::account::{Charge, WAIT_BYTES};
use crate::agenda::Look;
use crate::ids::{QueueId, WaiterId};
use crate::key::LockKey;
use crate::mode::Want;
use crate::session::{SessionName, Via};
use crate::types::{Millis, MonoMillis};
use crate::value::Value;

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

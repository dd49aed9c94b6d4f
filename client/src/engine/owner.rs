//! Owners that several acquisitions share.

use crate::engine::lease::Lease;
use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};
use tokio::sync::{MutexGuard, Notify};
use uuid::Uuid;

/// Makes acquisitions re-entrant: those with the same owner hold the lock together.
///
/// Without a shared owner, each acquisition is a separate owner, and a task that acquires a lock that it
/// holds already waits for itself. With a shared owner the second acquisition re-enters: it succeeds at
/// once, and has the same token. The lock is free when the guards of both acquisitions are gone. If the owner
/// shares the lock, its exclusive acquisition fails with [`Error::Upgrade`](crate::Error::Upgrade). Give a
/// clone of the owner to each part of one task, one request, or one chain of calls.
///
/// In commands an owner is `<client uuid>:<n>`, with a fresh `n` each time it acquires a lock that it does
/// not hold. So a late command cannot affect a later hold.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let me = client.owner();
/// let lock = client.lock("orders:42").owner(&me);
///
/// let outer = lock.acquire().await?;
/// let inner = lock.acquire().await?; // at once
/// assert_eq!(outer.token(), inner.token());
/// assert_eq!(outer.holds(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner {
    client: Uuid,
    slots: Arc<Mutex<Slots>>,
}

/// Slots by name of the lock; for a set, of its first lock.
type Slots = HashMap<Arc<[u8]>, SharedSlot>;

#[derive(Default)]
struct SharedSlot {
    slot: Arc<Slot>,
    users: usize,
}

/// State of an owner for one lock, in any mode.
#[derive(Default)]
struct Slot {
    /// Held during an acquire, so that acquires of this owner follow each other.
    gate: tokio::sync::Mutex<()>,
    held: Mutex<Held>,
    /// Notified when the acquire that has the gate starts to wait for other owners.
    waits: Notify,
}

#[derive(Default)]
struct Held {
    lease: Weak<Lease>,
    waiting: bool,
}

impl Owner {
    pub(crate) fn of(client: Uuid) -> Self {
        Self { client, slots: Arc::default() }
    }

    /// Returns whether this client made the owner.
    pub(crate) fn is_of(&self, client: Uuid) -> bool {
        self.client == client
    }

    pub(crate) fn slot(&self, key: &Arc<[u8]>) -> OwnerSlot {
        let mut slots = lock(&self.slots);
        let shared = slots.entry(key.clone()).or_default();
        shared.users += 1;
        OwnerSlot { owner: self.clone(), key: key.clone(), slot: shared.slot.clone() }
    }

    /// Returns the leases of this owner. Some may be lost.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        lock(&self.slots).values().filter_map(|shared| shared.slot.lease()).collect()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl Slot {
    fn lease(&self) -> Option<Arc<Lease>> {
        lock(&self.held).lease.upgrade().filter(|lease| lease.is_alive())
    }
}

/// A handle to a slot, held by an acquire or a guard. The slot is removed when its last handle is dropped.
pub(crate) struct OwnerSlot {
    owner: Owner,
    key: Arc<[u8]>,
    slot: Arc<Slot>,
}

impl fmt::Debug for OwnerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerSlot").finish_non_exhaustive()
    }
}

impl OwnerSlot {
    /// Waits for the right to acquire for this owner.
    pub(crate) async fn gate(&self) -> MutexGuard<'_, ()> {
        self.slot.gate.lock().await
    }

    /// Waits until the acquire that has the gate waits for other owners to release.
    pub(crate) async fn until_waiting(&self) {
        loop {
            let mut waits = pin!(self.slot.waits.notified());
            waits.as_mut().enable();
            if lock(&self.slot.held).waiting {
                return;
            }
            waits.await;
        }
    }

    pub(crate) fn lease(&self) -> Option<Arc<Lease>> {
        self.slot.lease()
    }

    /// Returns another handle to the same slot.
    pub(crate) fn again(&self) -> Self {
        self.owner.slot(&self.key)
    }

    pub(crate) fn holds(&self, lease: &Arc<Lease>) {
        lock(&self.slot.held).lease = Arc::downgrade(lease);
    }

    /// Marks this owner as waiting for other owners, until the returned value is dropped.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        lock(&self.slot.held).waiting = true;
        self.slot.waits.notify_waiters();
        Waiting(&self.slot)
    }
}

impl Drop for OwnerSlot {
    fn drop(&mut self) {
        let mut slots = lock(&self.owner.slots);
        if let Some(slot) = slots.get_mut(&self.key) {
            slot.users -= 1;
            if slot.users == 0 {
                slots.remove(&self.key);
            }
        }
    }
}

pub(crate) struct Waiting<'a>(&'a Slot);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.0.held).waiting = false;
    }
}

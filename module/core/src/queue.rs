//! The wait queues: strict first in, first out, one place per owner, O(1) to join and to leave
//! from anywhere.
//!
//! A queue is a doubly linked list whose links are waiter numbers, because a waiter in the middle
//! leaves as often as the one in front (its time is over, its client is gone). Numbers are given
//! out in order of arrival and never again, so a number of someone who left finds nobody.

use std::collections::VecDeque;
use std::hash::{Hash, RandomState};
use std::rc::Rc;

use hashbrown::{Equivalent, HashMap};

use crate::key::{KeyRef, LockKey};
use crate::mode::Want;
use crate::outcome::Cause;
use crate::types::{Millis, MonoMillis, UnixMillis};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Names a waiter; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// Names a queue; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(u64);

/// An owner's place: at most one per queue (I2).
#[derive(Debug, PartialEq, Eq, Hash)]
struct Place {
    queue: QueueId,
    owner: Rc<[u8]>,
}

#[derive(Hash)]
struct PlaceRef<'a> {
    queue: QueueId,
    owner: &'a [u8],
}

impl Equivalent<Place> for PlaceRef<'_> {
    fn equivalent(&self, place: &Place) -> bool {
        self.queue == place.queue && *self.owner == *place.owner
    }
}

/// A waiter, and the client to answer when its wait ends.
#[derive(Debug)]
pub(crate) struct Waiter<P> {
    pub(crate) queue: QueueId,
    pub(crate) owner: Rc<[u8]>,
    pub(crate) want: Want,
    pub(crate) lease: Millis,
    /// When it came.
    pub(crate) since: MonoMillis,
    /// When its wait ends; none if it waits for as long as it takes.
    pub(crate) end: Option<MonoMillis>,
    pub(crate) client: P,
    before: Option<WaiterId>,
    after: Option<WaiterId>,
}

/// Somebody who comes to wait.
pub(crate) struct Newcomer<'a, P> {
    pub(crate) owner: &'a [u8],
    pub(crate) want: Want,
    pub(crate) lease: Millis,
    pub(crate) since: MonoMillis,
    pub(crate) end: Option<MonoMillis>,
    pub(crate) client: P,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) key: LockKey,
    pub(crate) head: WaiterId,
    pub(crate) tail: WaiterId,
    pub(crate) len: usize,
    /// When the lock is looked at next; it is on the agenda then.
    pub(crate) look: Option<UnixMillis>,
    /// What will have freed the lock, should that look find it free.
    pub(crate) cause: Cause,
}

/// What others may see of a waiter.
#[derive(Clone, Copy, Debug)]
pub struct WaiterView<'a, P> {
    /// For whom it waits.
    pub owner: &'a [u8],
    /// What it waits for.
    pub want: Want,
    /// When it came.
    pub since: MonoMillis,
    /// The client that will be answered.
    pub client: &'a P,
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues<P> {
    queues: Map<QueueId, Queue>,
    by_key: Map<LockKey, QueueId>,
    waiters: Map<WaiterId, Waiter<P>>,
    places: Map<Place, WaiterId>,
    /// Queues that are no key's any more: all who stand in them are to be answered.
    released: VecDeque<QueueId>,
    last_number: u64,
}

impl<P> Default for Queues<P> {
    fn default() -> Self {
        Self {
            queues: Map::default(),
            by_key: Map::default(),
            waiters: Map::default(),
            places: Map::default(),
            released: VecDeque::new(),
            last_number: 0,
        }
    }
}

/// Gives memory back when a map has become much emptier than it was. Amortised O(1): after a
/// shrink as many entries must leave again as stayed.
pub(crate) fn give_back<K: Eq + Hash, V>(map: &mut Map<K, V>) {
    if map.capacity() > 64 && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len().saturating_mul(2));
    }
}

impl<P> Queues<P> {
    /// How many wait, over all queues.
    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// How many locks are waited for.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn find(&self, key: KeyRef<'_>) -> Option<QueueId> {
        if self.queues.is_empty() {
            return None;
        }
        self.by_key.get(&key).copied()
    }

    pub(crate) fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(&id)
    }

    pub(crate) fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.queues.get_mut(&id)
    }

    pub(crate) fn waiter_mut(&mut self, id: WaiterId) -> Option<&mut Waiter<P>> {
        self.waiters.get_mut(&id)
    }

    /// The first waiter of a queue, and what it wants.
    pub(crate) fn head(&self, queue: QueueId) -> Option<(WaiterId, Want)> {
        let head = self.queues.get(&queue)?.head;
        self.waiters.get(&head).map(|waiter| (head, waiter.want))
    }

    /// The owner's place in a queue.
    pub(crate) fn place(&self, queue: QueueId, owner: &[u8]) -> Option<WaiterId> {
        self.places.get(&PlaceRef { queue, owner }).copied()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// The queue of a key, made if nobody waits yet. It must get a waiter at once (I1).
    fn open(&mut self, key: KeyRef<'_>, first: WaiterId) -> QueueId {
        if let Some(id) = self.by_key.get(&key) {
            return *id;
        }
        let id = QueueId(self.next_number());
        let key = key.keep();
        self.by_key.insert(key.clone(), id);
        self.queues.insert(
            id,
            Queue { key, head: first, tail: first, len: 0, look: None, cause: Cause::Expiry },
        );
        id
    }

    /// Puts a new waiter at the end of the key's queue. Its owner must not have a place there.
    pub(crate) fn push(&mut self, key: KeyRef<'_>, newcomer: Newcomer<'_, P>) -> WaiterId {
        let id = WaiterId(self.next_number());
        let queue_id = self.open(key, id);
        let mut before = None;
        if let Some(queue) = self.queues.get_mut(&queue_id) {
            if queue.len > 0 {
                before = Some(queue.tail);
            }
            queue.tail = id;
            queue.len = queue.len.saturating_add(1);
        }
        self.link(before, |waiter| waiter.after = Some(id));
        let Newcomer { owner, want, lease, since, end, client } = newcomer;
        let owner: Rc<[u8]> = owner.into();
        self.places.insert(Place { queue: queue_id, owner: Rc::clone(&owner) }, id);
        let queue = queue_id;
        let waiter = Waiter { queue, owner, want, lease, since, end, client, before, after: None };
        self.waiters.insert(id, waiter);
        id
    }

    /// Takes a waiter out, wherever it stands. A queue without waiters is gone (I1); the second
    /// value is then the look that was planned for it.
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<(Waiter<P>, Option<UnixMillis>)> {
        let waiter = self.waiters.remove(&id)?;
        self.places.remove(&PlaceRef { queue: waiter.queue, owner: &waiter.owner });
        self.link(waiter.before, |before| before.after = waiter.after);
        self.link(waiter.after, |after| after.before = waiter.before);
        let mut planned = None;
        if let Some(queue) = self.queues.get_mut(&waiter.queue) {
            queue.len = queue.len.saturating_sub(1);
            match (waiter.before, waiter.after) {
                (None, Some(after)) => queue.head = after,
                (Some(before), None) => queue.tail = before,
                (None, None) | (Some(_), Some(_)) => {}
            }
            if queue.len == 0 {
                planned = queue.look;
                let key = queue.key.clone();
                self.queues.remove(&waiter.queue);
                // If its waiters were released, there may be a new queue for the key.
                if self.by_key.get(&key) == Some(&waiter.queue) {
                    self.by_key.remove(&key);
                }
                give_back(&mut self.queues);
                give_back(&mut self.by_key);
            }
        }
        give_back(&mut self.waiters);
        give_back(&mut self.places);
        Some((waiter, planned))
    }

    fn link(&mut self, id: Option<WaiterId>, change: impl FnOnce(&mut Waiter<P>)) {
        if let Some(waiter) = id.and_then(|id| self.waiters.get_mut(&id)) {
            change(waiter);
        }
    }

    /// Releases all who wait for a key: whoever comes from now on stands in a new queue. Takes no
    /// longer for many than for one. Returns the look that was planned.
    pub(crate) fn release(&mut self, id: QueueId) -> Option<UnixMillis> {
        let queue = self.queues.get_mut(&id)?;
        self.by_key.remove(&queue.key);
        self.released.push_back(id);
        queue.look.take()
    }

    /// One of those who were released and are not answered yet.
    pub(crate) fn first_released(&mut self) -> Option<WaiterId> {
        while let Some(id) = self.released.front() {
            if let Some(queue) = self.queues.get(id) {
                return Some(queue.head);
            }
            self.released.pop_front();
        }
        None
    }

    /// Says whether there may be some who were released and are not answered yet.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// The waiters of a queue from the head on.
    pub(crate) fn walk(&self, queue: QueueId) -> impl Iterator<Item = (WaiterId, &Waiter<P>)> {
        let mut next = self.queues.get(&queue).map(|queue| queue.head);
        std::iter::from_fn(move || {
            let id = next?;
            let waiter = self.waiters.get(&id)?;
            next = waiter.after;
            Some((id, waiter))
        })
    }

    /// All queues, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter().map(|(id, queue)| (*id, queue))
    }

    /// Takes out all waiters, in order of arrival, and gives all memory back.
    pub(crate) fn drain(&mut self) -> Vec<P> {
        let emptied =
            std::mem::replace(self, Self { last_number: self.last_number, ..Self::default() });
        let mut waiters: Vec<_> = emptied.waiters.into_iter().collect();
        waiters.sort_unstable_by_key(|(id, _)| *id);
        waiters.into_iter().map(|(_, waiter)| waiter.client).collect()
    }

    /// How many entries there is room for: what memory is kept.
    pub(crate) fn capacity(&self) -> usize {
        let keys = self.queues.capacity().saturating_add(self.by_key.capacity());
        keys.saturating_add(self.waiters.capacity()).saturating_add(self.places.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Limits;
    use crate::table::Table;
    use crate::types::Now;
    use crate::waiting::Join;

    const KEY: KeyRef<'static> = KeyRef::lock(0, b"k");

    fn table() -> Table<u32> {
        Table::new(Limits { waiters: 9, waiters_per_key: 9, draining: false })
    }

    fn wait(table: &mut Table<u32>, owner: &[u8]) -> WaiterId {
        let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
        let join = Join { owner, want: Want::Exclusive, lease: Millis(9), timeout: None };
        table.enqueue_at(KEY, now, None, &join, 0).0
    }

    #[test]
    fn the_check_sees_a_waiter_that_stands_behind_a_later_one() {
        let mut table = table();
        let (first, second) = (wait(&mut table, b"a"), wait(&mut table, b"b"));
        assert_eq!(table.check(), Ok(()));
        let queue = table.queues.find(KEY).and_then(|id| table.queues.queue_mut(id));
        let queue = queue.expect("somebody waits");
        (queue.head, queue.tail) = (second, first);
        table.queues.link(Some(second), |waiter| waiter.after = Some(first));
        table.queues.link(Some(first), |waiter| waiter.after = None);
        assert!(table.check().is_err_and(|why| why.starts_with("I3")));
    }

    #[test]
    fn hundreds_of_locks_and_of_places_are_told_apart() {
        let mut table = Table::new(Limits { waiters: 999, waiters_per_key: 9, draining: false });
        let names: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
        let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
        let mut ids = Vec::new();
        for (client, name) in names.iter().enumerate() {
            let (owner, key) = (name.as_bytes(), KeyRef::lock(0, name.as_bytes()));
            let join = Join { owner, want: Want::Shared, lease: Millis(9), timeout: None };
            ids.push(table.enqueue_at(key, now, None, &join, client).0);
        }
        for (name, id) in names.iter().zip(&ids) {
            let queue = table.queues.find(KeyRef::lock(0, name.as_bytes())).expect("it is there");
            assert_eq!(table.queues.place(queue, name.as_bytes()), Some(*id));
            assert_eq!(table.queues.place(queue, b"k"), None);
            assert_eq!(table.queues.find(KeyRef::latch(0, name.as_bytes())), None);
        }
        for (client, name) in names.iter().enumerate() {
            let key = KeyRef::lock(0, name.as_bytes());
            assert_eq!(table.cancel(key, b"k"), None);
            assert_eq!(table.cancel(key, name.as_bytes()), Some(client));
        }
        assert_eq!((table.waiters(), table.waiting_keys()), (0, 0));
    }

    #[test]
    fn a_number_of_somebody_who_was_dismissed_finds_nobody() {
        let mut table = table();
        let (first, second) = (wait(&mut table, b"a"), wait(&mut table, b"b"));
        assert_eq!(table.dismiss_all().len(), 2);
        let again = wait(&mut table, b"a");
        assert!(again > second && second > first);
        assert_eq!(table.disconnected(first), None);
        assert_eq!(table.disconnected(again), Some(0));
    }

    #[test]
    fn those_who_come_after_a_release_stand_in_a_line_of_their_own() {
        let mut table = table();
        let first = wait(&mut table, b"a");
        let old = table.queues.find(KEY).expect("somebody waits");
        table.queues.release(old);
        assert_eq!(table.queues.find(KEY), None);
        let second = wait(&mut table, b"a");
        let new = table.queues.find(KEY).expect("somebody waits");
        assert_eq!(table.queues.head(new), Some((second, Want::Exclusive)));
        // The last of the released takes nothing of the others with it.
        assert_eq!(table.queues.first_released(), Some(first));
        assert!(table.queues.remove(first).is_some());
        assert_eq!(table.queues.find(KEY), Some(new));
        assert_eq!((table.queues.first_released(), table.queues.has_released()), (None, false));
    }
}

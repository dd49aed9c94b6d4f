//! The wait queues: strict first in, first out, one place per owner, O(log n) to join and to leave
//! from anywhere.
//!
//! Waiters are numbered in order of arrival, and never is a number given out again, so a number of
//! someone who left finds nobody. The line of a queue is an ordered set of numbers: whoever steps
//! aside and comes back stands where its number says. All is kept in ordered maps: they grow and
//! shrink by a node at a time, so no single wait pays for a table that has become too small.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;

use foldhash::quality::RandomState;

use crate::account::{Charge, WAIT_BYTES};
use crate::agenda::Look;
use crate::forget::Free as _;
use crate::key::{KeyRef, LockKey};
use crate::mode::Want;
use crate::outcome::Cause;
use crate::ready::ReadyKeys;
use crate::session::{SessionId, SessionName, Via};
use crate::types::{Millis, MonoMillis};
use crate::value::Value;

/// Names a waiter; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// Names a queue; never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(u64);

impl WaiterId {
    const ALL: RangeInclusive<Self> = Self(0)..=Self(u64::MAX);
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
    /// Whether what it is granted is bound to its session.
    pub(crate) bound: bool,
    pub(crate) via: Via<P>,
    /// Counts a wait through a session. A client that is blocked brings its own.
    pub(crate) charge: Option<Charge>,
}

/// A waiter that has left, and for what it waited.
#[derive(Debug)]
pub(crate) struct Leaver<P> {
    pub(crate) waiter: Waiter<P>,
    pub(crate) key: LockKey,
    /// Whether it stood in front of all who are in line.
    pub(crate) stood_in_front: bool,
    /// What it would have said of itself as the holder.
    pub(crate) value: Value,
    /// If it was the last of its queue, which is gone: the look that was planned.
    pub(crate) planned: Option<Look>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) key: LockKey,
    /// How many wait, in line or not.
    pub(crate) len: usize,
    /// When the lock is looked at next; it is on the agenda then.
    pub(crate) look: Option<Look>,
    /// What will have freed the lock, should that look find it free.
    pub(crate) cause: Cause,
    /// Whether its latch has opened: all who wait here are to be answered.
    pub(crate) is_released: bool,
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
    /// The client that will be answered, if it is one.
    pub client: Option<&'a P>,
    /// The session that will be told, if it is one and not gone.
    pub session: Option<&'a SessionName>,
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Queues<P> {
    queues: BTreeMap<QueueId, Queue>,
    /// Each queue under the hash of its key's name, unless it was released.
    by_key: BTreeSet<(u64, QueueId)>,
    /// Boxed, because the nodes of a map that grows at its end are half empty.
    waiters: BTreeMap<WaiterId, Box<Waiter<P>>>,
    /// Who is in line in each queue, the next one first.
    line: BTreeSet<(QueueId, WaiterId)>,
    /// Each waiter under the hash of its queue and owner (I2).
    places: BTreeSet<(u64, WaiterId)>,
    /// What those who want to say something of themselves as holders will say.
    values: BTreeMap<WaiterId, Rc<[u8]>>,
    /// The ready-keys of waiters that have one.
    pub(crate) ready: ReadyKeys,
    /// Those who are blocked clients.
    blocked: BTreeSet<WaiterId>,
    hashes: RandomState,
    /// The queue that was asked for last, which most often is the next one too.
    recent: Cell<Option<QueueId>>,
    /// Queues that are no key's any more: all who stand in them are to be answered.
    released: VecDeque<QueueId>,
    last_number: u64,
    /// Number of bytes in the names of all keys.
    name_bytes: usize,
}

impl<P> Default for Queues<P> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            by_key: BTreeSet::new(),
            waiters: BTreeMap::new(),
            line: BTreeSet::new(),
            places: BTreeSet::new(),
            values: BTreeMap::new(),
            ready: ReadyKeys::default(),
            blocked: BTreeSet::new(),
            hashes: RandomState::default(),
            recent: Cell::new(None),
            released: VecDeque::new(),
            last_number: 0,
            name_bytes: 0,
        }
    }
}

impl<P> Queues<P> {
    /// Begins anew without queues and waiters; returns what there was. Numbers continue.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let anew = Self { last_number: self.last_number, ..Self::default() };
        std::mem::replace(self, anew)
    }

    /// Frees an entry. Returns false if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        self.waiters.free_one()
            || self.line.free_one()
            || self.places.free_one()
            || self.values.free_one()
            || self.ready.free_one()
            || self.blocked.free_one()
            || self.queues.free_one()
            || self.by_key.free_one()
            || self.released.free_one()
    }

    /// How many wait, over all queues.
    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// Number of bytes in the names of all keys.
    pub(crate) fn name_bytes(&self) -> usize {
        self.name_bytes.saturating_add(self.ready.name_bytes())
    }

    /// How many of them are blocked clients.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Whether that one is a blocked client.
    pub(crate) fn is_blocked(&self, id: WaiterId) -> bool {
        self.blocked.contains(&id)
    }

    /// The blocked client that came first.
    pub(crate) fn first_blocked(&self) -> Option<WaiterId> {
        self.blocked.first().copied()
    }

    /// Whoever came first, over all queues.
    pub(crate) fn first(&self) -> Option<WaiterId> {
        self.waiters.first_key_value().map(|(id, _)| *id)
    }

    /// How many locks are waited for.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    /// The queue of a key, if somebody waits for it.
    #[inline]
    pub(crate) fn find(&self, key: KeyRef<'_>) -> Option<QueueId> {
        if self.queues.is_empty() { None } else { self.find_among(key) }
    }

    fn find_among(&self, key: KeyRef<'_>) -> Option<QueueId> {
        let is_it = |id: &QueueId| self.queue(*id).is_some_and(|queue| queue.key.borrow() == key);
        if let Some(recent) = self.recent.get().filter(is_it) {
            return Some(recent);
        }
        let found = self.of_name(key.db, key.name).find(is_it);
        if found.is_some() {
            self.recent.set(found);
        }
        found
    }

    /// The hash of a key's name. All kinds of queues of one key have the same.
    fn hash_of(&self, db: i32, name: &[u8]) -> u64 {
        self.hashes.hash_one((db, name))
    }

    /// The queues of a key: at most one of each kind.
    pub(crate) fn of_name<'q>(
        &'q self,
        db: i32,
        name: &'q [u8],
    ) -> impl Iterator<Item = QueueId> + use<'q, P> {
        let hash = self.hash_of(db, name);
        let found = self.by_key.range((hash, QueueId(0))..=(hash, QueueId(u64::MAX)));
        found.map(|(_, id)| *id).filter(move |id| {
            self.queue(*id).is_some_and(|queue| queue.key.db == db && *queue.key.name == *name)
        })
    }

    pub(crate) fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(&id)
    }

    pub(crate) fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.queues.get_mut(&id)
    }

    pub(crate) fn waiter(&self, id: WaiterId) -> Option<&Waiter<P>> {
        self.waiters.get(&id).map(Box::as_ref)
    }

    pub(crate) fn waiter_mut(&mut self, id: WaiterId) -> Option<&mut Waiter<P>> {
        self.waiters.get_mut(&id).map(Box::as_mut)
    }

    /// The first in line in a queue, and what it wants.
    pub(crate) fn head(&self, queue: QueueId) -> Option<(WaiterId, Want)> {
        let (_, head) = self.line_of(queue).next()?;
        self.waiters.get(head).map(|waiter| (*head, waiter.want))
    }

    fn line_of(
        &self,
        queue: QueueId,
    ) -> impl DoubleEndedIterator<Item = &(QueueId, WaiterId)> + use<'_, P> {
        self.line.range((queue, *WaiterId::ALL.start())..=(queue, *WaiterId::ALL.end()))
    }

    /// The next in line in a queue from there on.
    pub(crate) fn next_in_line(&self, queue: QueueId, from: Bound<WaiterId>) -> Option<WaiterId> {
        let from = from.map(|id| (queue, id));
        let from = if from == Bound::Unbounded {
            Bound::Included((queue, *WaiterId::ALL.start()))
        } else {
            from
        };
        let to = Bound::Included((queue, *WaiterId::ALL.end()));
        self.line.range((from, to)).next().map(|(_, id)| *id)
    }

    /// What an observer knows, and through which session.
    pub(crate) fn observer(&self, id: WaiterId) -> Option<(u64, SessionId)> {
        let waiter = self.waiter(id)?;
        let Want::Changes(knows) = waiter.want else { return None };
        Some((knows, waiter.via.session()?))
    }

    /// An observer is told of this version.
    pub(crate) fn now_knows(&mut self, id: WaiterId, version: u64) {
        if let Some(waiter) = self.waiter_mut(id) {
            waiter.want = Want::Changes(version);
        }
    }

    /// The last in line in a queue.
    pub(crate) fn tail(&self, queue: QueueId) -> Option<WaiterId> {
        self.line_of(queue).next_back().map(|(_, id)| *id)
    }

    /// The owner's place in a queue.
    pub(crate) fn place(&self, queue: QueueId, owner: &[u8]) -> Option<WaiterId> {
        let hash = self.hashes.hash_one((queue, owner));
        let found =
            self.places.range((hash, *WaiterId::ALL.start())..=(hash, *WaiterId::ALL.end()));
        let is_it = |id: &WaiterId| {
            self.waiter(*id).is_some_and(|waiter| waiter.queue == queue && *waiter.owner == *owner)
        };
        found.map(|(_, id)| *id).find(is_it)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// The queue of a key, made if nobody waits yet. It must get a waiter at once (I1).
    fn open(&mut self, key: KeyRef<'_>) -> QueueId {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = QueueId(self.next_number());
        self.by_key.insert((self.hash_of(key.db, key.name), id));
        let queue =
            Queue { key: key.keep(), len: 0, look: None, cause: Cause::Expiry, is_released: false };
        self.queues.insert(id, queue);
        self.name_bytes = self.name_bytes.saturating_add(key.name.len());
        id
    }

    /// Puts a new waiter at the end of the key's queue. Its owner must not have a place there.
    pub(crate) fn push(&mut self, key: KeyRef<'_>, newcomer: Newcomer<'_, P>) -> WaiterId {
        let queue = self.open(key);
        let id = WaiterId(self.next_number());
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.len = queue.len.saturating_add(1);
        }
        let Newcomer { owner, want, lease, since, end, via, charge } = newcomer;
        self.note_blocked(id, &via);
        self.places.insert((self.hashes.hash_one((queue, owner)), id));
        self.line.insert((queue, id));
        let owner = owner.into();
        let waiter = Waiter { queue, owner, want, lease, since, end, bound: false, via, charge };
        self.waiters.insert(id, Box::new(waiter));
        id
    }

    fn note_blocked(&mut self, id: WaiterId, via: &Via<P>) {
        match via {
            Via::Client(_) => self.blocked.insert(id),
            Via::Session(_) => self.blocked.remove(&id),
        };
    }

    /// Keeps what a waiter will say of itself as the holder.
    pub(crate) fn set_value(&mut self, id: WaiterId, value: Value) {
        self.values.remove(&id);
        if let Some(waiter) = self.waiters.get_mut(&id) {
            let says = value.as_ref().map_or(0, |value| value.len());
            if let Some(charge) = &mut waiter.charge {
                charge.resize(wait_bytes(&waiter.owner).saturating_add(says));
            }
            self.values.extend(value.map(|value| (id, value)));
        }
    }

    /// From now on somebody else is told of the end of a wait; gives back who was until now.
    pub(crate) fn replace_via(&mut self, id: WaiterId, via: Via<P>) -> Option<Via<P>> {
        self.note_blocked(id, &via);
        self.waiter_mut(id).map(|waiter| std::mem::replace(&mut waiter.via, via))
    }

    /// Takes a waiter out, wherever it stands. A queue without waiters is gone (I1).
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Leaver<P>> {
        let queue = self.waiter(id)?.queue;
        let stood_in_front = self.line_of(queue).next().is_some_and(|(_, head)| *head == id);
        let waiter = *self.waiters.remove(&id)?;
        self.blocked.remove(&id);
        self.ready.remove(id);
        self.places.remove(&(self.hashes.hash_one((queue, &*waiter.owner)), id));
        self.line.remove(&(queue, id));
        let entry = self.queues.get_mut(&queue)?;
        entry.len = entry.len.saturating_sub(1);
        let key = entry.key.clone();
        let mut planned = None;
        if entry.len == 0 {
            planned = entry.look;
            // If its waiters were released, it is not there.
            self.by_key.remove(&(self.hash_of(key.db, &key.name), queue));
            self.queues.remove(&queue);
            self.name_bytes = self.name_bytes.saturating_sub(key.name.len());
        }
        let value = self.values.remove(&id);
        Some(Leaver { waiter, key, stood_in_front, value, planned })
    }

    /// A waiter keeps its place and is passed over. Says whether it was in line.
    pub(crate) fn step_out(&mut self, id: WaiterId) -> bool {
        self.waiter(id)
            .map(|waiter| waiter.queue)
            .is_some_and(|queue| self.line.remove(&(queue, id)))
    }

    /// A waiter takes its place in line. Says whether it was not in line.
    pub(crate) fn step_in(&mut self, id: WaiterId) -> bool {
        self.waiter(id)
            .map(|waiter| waiter.queue)
            .is_some_and(|queue| self.line.insert((queue, id)))
    }

    /// Releases all who wait for a key: whoever comes from now on stands in a new queue. Takes no
    /// longer for many than for one. Returns the look that was planned.
    pub(crate) fn release(&mut self, id: QueueId) -> Option<Look> {
        let queue = self.queues.get_mut(&id)?;
        let hash = self.hashes.hash_one((queue.key.db, &*queue.key.name));
        self.by_key.remove(&(hash, id));
        self.recent.set(None);
        self.released.push_back(id);
        queue.is_released = true;
        queue.look.take()
    }

    /// One of those who were released and are not answered yet. Latches take turns.
    pub(crate) fn first_released(&mut self) -> Option<WaiterId> {
        while let Some(id) = self.released.pop_front() {
            if let Some((head, _)) = self.head(id) {
                self.released.push_back(id);
                return Some(head);
            }
        }
        None
    }

    /// Says whether there may be some who were released and are not answered yet.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Those in line in a queue from the head on.
    pub(crate) fn walk(&self, queue: QueueId) -> impl Iterator<Item = (WaiterId, &Waiter<P>)> {
        let line = self.line_of(queue).map(|(_, id)| *id);
        line.filter_map(|id| self.waiter(id).map(|waiter| (id, waiter)))
    }

    /// Whether a waiter is in line.
    pub(crate) fn is_in_line(&self, id: WaiterId) -> bool {
        self.waiter(id).is_some_and(|waiter| self.line.contains(&(waiter.queue, id)))
    }

    /// All waiters, in order of arrival.
    pub(crate) fn each(&self) -> impl Iterator<Item = (WaiterId, &Waiter<P>)> {
        self.waiters.iter().map(|(id, waiter)| (*id, &**waiter))
    }

    /// All queues, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter().map(|(id, queue)| (*id, queue))
    }

    /// The queue that was made last.
    pub(crate) fn last(&self) -> Option<QueueId> {
        self.queues.last_key_value().map(|(id, _)| *id)
    }

    /// Queues in the order in which they were made.
    pub(crate) fn between(
        &self,
        from: Bound<QueueId>,
        to: Bound<QueueId>,
    ) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.range((from, to)).map(|(id, queue)| (*id, queue))
    }

    /// How many entries are kept.
    pub(crate) fn entries(&self) -> usize {
        let keys = self.queues.len().saturating_add(self.by_key.len());
        let waiters = self.waiters.len().saturating_add(self.line.len());
        let places = self.places.len().saturating_add(self.blocked.len());
        keys.saturating_add(waiters).saturating_add(places).saturating_add(self.ready.entries())
    }
}

/// Estimated memory of a wait through a session, in bytes.
pub(crate) fn wait_bytes(owner: &[u8]) -> usize {
    WAIT_BYTES.saturating_add(owner.len())
}

/// Somebody who comes to wait.
pub(crate) struct Newcomer<'a, P> {
    pub(crate) owner: &'a [u8],
    pub(crate) want: Want,
    pub(crate) lease: Millis,
    pub(crate) since: MonoMillis,
    pub(crate) end: Option<MonoMillis>,
    pub(crate) via: Via<P>,
    pub(crate) charge: Option<Charge>,
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
        Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED })
    }

    fn wait(table: &mut Table<u32>, owner: &[u8]) -> WaiterId {
        let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
        let join = Join { owner, want: Want::Exclusive, lease: Millis(9), timeout: None };
        table.enqueue_at(KEY, now, None, &join, 0.into()).0
    }

    #[test]
    fn whoever_steps_out_of_the_line_and_in_again_stands_where_it_stood() {
        let mut table = table();
        let [first, second, third] = [b"a", b"b", b"c"].map(|owner| wait(&mut table, owner));
        let queue = table.queues.find(KEY).expect("somebody waits");
        let line =
            |table: &Table<u32>| Vec::from_iter(table.queues.walk(queue).map(|(waiter, _)| waiter));
        assert!(table.queues.step_out(second) && !table.queues.step_out(second));
        assert!(table.queues.step_out(first));
        assert_eq!(line(&table), [third]);
        assert_eq!(table.queues.head(queue), Some((third, Want::Exclusive)));
        assert!(table.queues.step_in(second) && !table.queues.step_in(second));
        assert_eq!(line(&table), [second, third]);
        assert!(table.queues.step_in(first));
        assert_eq!(line(&table), [first, second, third]);
        assert_eq!(table.check(), Ok(()));
    }

    #[test]
    fn hundreds_of_locks_and_of_places_are_told_apart() {
        let mut table =
            Table::new(Limits { waiters: 999, waiters_per_key: 9, ..Limits::UNLIMITED });
        let names: Vec<String> = (0..400).map(|n| format!("k{n}")).collect();
        let now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
        let mut ids = Vec::new();
        for (client, name) in names.iter().enumerate() {
            let (owner, key) = (name.as_bytes(), KeyRef::lock(0, name.as_bytes()));
            let join = Join { owner, want: Want::Shared, lease: Millis(9), timeout: None };
            ids.push(table.enqueue_at(key, now, None, &join, client.into()).0);
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
            assert_eq!(table.cancel(key, name.as_bytes()), Some(Some(client)));
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

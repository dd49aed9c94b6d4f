//! The wait queues: first in, first out, one place per owner. Joining a queue, and leaving it from
//! any position, take O(log n).
//!
//! Waiters are numbered in order of arrival. Numbers are never reused, so the number of a waiter
//! that has left finds nothing. The line of a queue is an ordered set of these numbers, so a waiter
//! that leaves the line and returns gets its old place. `places.rs` describes the places beside the
//! line. All sets and maps are ordered trees. They grow and shrink by one node at a time, so no
//! single wait pays for copying a large table.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::rc::Rc;

use foldhash::quality::RandomState;

use crate::agenda::Look;
use crate::free::{Free, free_one_of};
use crate::ids::{QueueId, SessionId, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::mode::Want;
use crate::outcome::Cause;
use crate::ready_keys::ReadyKeys;
use crate::sets::Sets;
use crate::value::Value;
use crate::waiter::{Leaver, Newcomer, Via, Waiter, wait_bytes};

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) key: LockKey,
    /// Number of waiters, including those that are passed over.
    pub(crate) len: usize,
    /// The next look at the lock, as planned on the agenda.
    pub(crate) look: Option<Look>,
    /// The cause to report if that look or a command next finds the lock free. In a queue of
    /// observers: the cause of the next change.
    pub(crate) cause: Cause,
    /// `true` if the latch of this queue has opened, so that all its waiters must be answered.
    pub(crate) is_opened: bool,
}

#[derive(Debug)]
pub(crate) struct Queues<P> {
    queues: BTreeMap<QueueId, Queue>,
    /// Each queue whose latch has not opened, by the hash of its database and key.
    by_key: BTreeSet<(u64, QueueId)>,
    /// Boxed, because the nodes of a map that grows at its end are half empty.
    waiters: BTreeMap<WaiterId, Box<Waiter<P>>>,
    /// The waiters in line of each queue, in order.
    line: BTreeSet<(QueueId, WaiterId)>,
    /// The place of each waiter: hash of its owner, queue, and number (I2).
    places: BTreeSet<(u64, QueueId, WaiterId)>,
    /// The values that waiters will publish as holders, if any.
    values: BTreeMap<WaiterId, Rc<[u8]>>,
    /// The ready-keys of waiters that have one.
    pub(crate) ready: ReadyKeys,
    /// The waits for sets of locks.
    pub(crate) sets: Sets,
    /// Waiters that are blocked clients.
    blocked: BTreeSet<WaiterId>,
    hashes: RandomState,
    /// The queue found by the last search. The next search is usually for the same queue.
    recent: Cell<Option<QueueId>>,
    /// Queues whose latch has opened: they no longer belong to a key, and all their waiters must be
    /// answered.
    released: VecDeque<QueueId>,
    last_number: u64,
    /// Total length of the keys of all queues, in bytes. Ready-keys are counted in `ready`.
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
            sets: Sets::default(),
            blocked: BTreeSet::new(),
            hashes: RandomState::default(),
            recent: Cell::new(None),
            released: VecDeque::new(),
            last_number: 0,
            name_bytes: 0,
        }
    }
}

impl<P> Free for Queues<P> {
    fn free_one(&mut self) -> bool {
        let Self {
            waiters,
            line,
            places,
            values,
            ready,
            sets,
            blocked,
            queues,
            by_key,
            released,
            ..
        } = self;
        free_one_of(&mut [
            waiters, line, places, values, ready, sets, blocked, queues, by_key, released,
        ])
    }
}

impl<P> Queues<P> {
    /// Removes all queues and waiters and returns them. Numbering continues.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let anew = Self { last_number: self.last_number, ..Self::default() };
        std::mem::replace(self, anew)
    }

    /// Number of waiters in all queues.
    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    /// Total length of the keys of all queues and of all ready-keys, in bytes.
    pub(crate) fn name_bytes(&self) -> usize {
        self.name_bytes.saturating_add(self.ready.name_bytes())
    }

    /// Number of waiters that are blocked clients.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Returns whether a waiter is a blocked client.
    pub(crate) fn is_blocked(&self, id: WaiterId) -> bool {
        self.blocked.contains(&id)
    }

    /// The blocked client that arrived first.
    pub(crate) fn first_blocked(&self) -> Option<WaiterId> {
        self.blocked.first().copied()
    }

    /// The waiter that arrived first, over all queues.
    pub(crate) fn first(&self) -> Option<WaiterId> {
        self.waiters.first_key_value().map(|(id, _)| *id)
    }

    /// The queue of a key, if it has waiters.
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

    /// Returns the hash of a database and a key. All kinds of queues of one key have the same hash.
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

    /// The first waiter in line, and what it wants.
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

    /// The next waiter in line, starting at `from`.
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

    /// The version that an observer knows, and its session.
    pub(crate) fn observer(&self, id: WaiterId) -> Option<(u64, SessionId)> {
        let waiter = self.waiter(id)?;
        let Want::Changes(knows) = waiter.want else { return None };
        Some((knows, waiter.via.session()?))
    }

    /// Records that an observer knows this version.
    pub(crate) fn now_knows(&mut self, id: WaiterId, version: u64) {
        if let Some(waiter) = self.waiter_mut(id) {
            waiter.want = Want::Changes(version);
        }
    }

    /// The place of an owner in a queue.
    pub(crate) fn place(&self, queue: QueueId, owner: &[u8]) -> Option<WaiterId> {
        self.places_in(owner, queue, queue).next()
    }

    /// The places of an owner in all queues.
    pub(crate) fn places_of_owner<'q>(
        &'q self,
        owner: &'q [u8],
    ) -> impl Iterator<Item = WaiterId> + use<'q, P> {
        self.places_in(owner, QueueId(0), QueueId(u64::MAX))
    }

    /// Returns the places of an owner in the queues `first` to `last`.
    fn places_in<'q>(
        &'q self,
        owner: &'q [u8],
        first: QueueId,
        last: QueueId,
    ) -> impl Iterator<Item = WaiterId> + use<'q, P> {
        let hash = self.hashes.hash_one(owner);
        let all = (hash, first, *WaiterId::ALL.start())..=(hash, last, *WaiterId::ALL.end());
        let found = self.places.range(all).map(|(_, _, id)| *id);
        found.filter(move |id| self.waiter(*id).is_some_and(|waiter| *waiter.owner == *owner))
    }

    /// Number of queues.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Returns the queue of a key, creating it if needed. A new queue must get a waiter at once
    /// (I1).
    fn open(&mut self, key: KeyRef<'_>) -> QueueId {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = QueueId(self.next_number());
        self.by_key.insert((self.hash_of(key.db, key.name), id));
        let queue = Queue {
            key: key.to_lock_key(),
            len: 0,
            look: None,
            cause: Cause::Expiry,
            is_opened: false,
        };
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
        self.places.insert((self.hashes.hash_one(owner), queue, id));
        self.line.insert((queue, id));
        let owner = owner.into();
        let waiter = Waiter { queue, owner, want, lease, since, end, bound: false, via, charge };
        self.waiters.insert(id, Box::new(waiter));
        id
    }

    fn note_blocked(&mut self, id: WaiterId, via: &Via<P>) {
        match via {
            Via::Client(_) => self.blocked.insert(id),
            Via::Session(_) | Via::Place(_) => self.blocked.remove(&id),
        };
    }

    /// Sets the value that a waiter will publish as the holder.
    pub(crate) fn set_value(&mut self, id: WaiterId, value: Value) {
        self.values.remove(&id);
        if let Some(waiter) = self.waiters.get_mut(&id) {
            let bytes = value.as_ref().map_or(0, |value| value.len());
            if let Some(charge) = &mut waiter.charge {
                charge.resize(wait_bytes(&waiter.owner).saturating_add(bytes));
            }
            self.values.extend(value.map(|value| (id, value)));
        }
    }

    /// Changes the client or session that gets the outcome of a wait. Returns the previous one.
    pub(crate) fn replace_via(&mut self, id: WaiterId, via: Via<P>) -> Option<Via<P>> {
        self.note_blocked(id, &via);
        self.waiter_mut(id).map(|waiter| std::mem::replace(&mut waiter.via, via))
    }

    /// Removes a waiter from anywhere in its queue. A queue without waiters is removed too (I1).
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Leaver<P>> {
        let queue = self.waiter(id)?.queue;
        let stood_in_front = self.line_of(queue).next().is_some_and(|(_, head)| *head == id);
        let waiter = *self.waiters.remove(&id)?;
        self.blocked.remove(&id);
        self.ready.remove(id);
        self.places.remove(&(self.hashes.hash_one(&*waiter.owner), queue, id));
        self.line.remove(&(queue, id));
        self.sets.beside.remove(&(queue, id));
        self.sets.in_line.remove(&(queue, id));
        self.sets.held_up.remove(&(queue, id));
        let entry = self.queues.get_mut(&queue)?;
        entry.len = entry.len.saturating_sub(1);
        let key = entry.key.clone();
        let mut planned = None;
        if entry.len == 0 {
            planned = entry.look;
            // A released queue has no entry in `by_key`.
            self.by_key.remove(&(self.hash_of(key.db, &key.name), queue));
            self.queues.remove(&queue);
            self.name_bytes = self.name_bytes.saturating_sub(key.name.len());
        }
        let value = self.values.remove(&id);
        Some(Leaver { waiter, key, stood_in_front, value, planned })
    }

    /// Removes a waiter from the line, or from the places beside it (see `places.rs`), so that it is
    /// passed over. The waiter keeps its place. Returns whether it was there.
    pub(crate) fn step_out(&mut self, id: WaiterId) -> bool {
        self.waiter(id).map(|waiter| waiter.queue).is_some_and(|queue| {
            self.sets.in_line.remove(&(queue, id));
            self.line.remove(&(queue, id)) || self.sets.beside.remove(&(queue, id))
        })
    }

    /// Puts a waiter back at its place, in the line or beside the line. Returns false if it is there
    /// already.
    pub(crate) fn step_in(&mut self, id: WaiterId) -> bool {
        let Some((queue, want)) = self.waiter(id).map(|waiter| (waiter.queue, waiter.want)) else {
            return false;
        };
        if !self.is_of_set(id) {
            return self.line.insert((queue, id));
        }
        if want == Want::Shared {
            return self.sets.beside.insert((queue, id));
        }
        self.sets.in_line.insert((queue, id));
        self.line.insert((queue, id))
    }

    /// Moves a place from the line to the places beside it.
    pub(crate) fn move_beside(&mut self, queue: QueueId, id: WaiterId) {
        self.line.remove(&(queue, id));
        self.sets.beside.insert((queue, id));
    }

    /// Returns the waiter that wants the lock exclusively and is nearest before `place` in line.
    /// Checks at most `most` waiters.
    pub(crate) fn last_alone_before(
        &self,
        queue: QueueId,
        place: WaiterId,
        most: usize,
    ) -> Option<WaiterId> {
        let before = (queue, *WaiterId::ALL.start())..(queue, place);
        let mut nearest = self.line.range(before).rev().take(most).map(|(_, id)| *id);
        nearest.find(|id| self.waiter(*id).is_some_and(|waiter| waiter.want != Want::Shared))
    }

    /// The waiters in the line of a queue, in order.
    pub(crate) fn line_ids(&self, queue: QueueId) -> impl Iterator<Item = WaiterId> + use<'_, P> {
        self.line_of(queue).map(|(_, id)| *id)
    }

    /// Releases all waiters of a queue; later waiters of its key get a new queue. Takes the same time
    /// for any number of waiters. Returns the look that was planned.
    pub(crate) fn release(&mut self, id: QueueId) -> Option<Look> {
        let queue = self.queues.get_mut(&id)?;
        let hash = self.hashes.hash_one((queue.key.db, &*queue.key.name));
        self.by_key.remove(&(hash, id));
        self.recent.set(None);
        self.released.push_back(id);
        queue.is_opened = true;
        queue.look.take()
    }

    /// Returns the first unanswered waiter of a queue whose latch has opened. Such queues take
    /// turns.
    pub(crate) fn first_opened(&mut self) -> Option<WaiterId> {
        while let Some(id) = self.released.pop_front() {
            if let Some((head, _)) = self.head(id) {
                self.released.push_back(id);
                return Some(head);
            }
        }
        None
    }

    /// Returns whether there may be released waiters to answer.
    pub(crate) fn has_opened(&self) -> bool {
        !self.released.is_empty()
    }

    /// Returns the waiters in line of a queue and beside it, in order.
    pub(crate) fn walk(&self, queue: QueueId) -> impl Iterator<Item = (WaiterId, &Waiter<P>)> {
        let line = self.with_beside(queue);
        line.filter_map(|id| self.waiter(id).map(|waiter| (id, waiter)))
    }

    /// Returns whether a waiter is in line or beside the line.
    pub(crate) fn is_in_line(&self, id: WaiterId) -> bool {
        self.waiter(id).is_some_and(|waiter| {
            let place = (waiter.queue, id);
            self.line.contains(&place) || self.sets.beside.contains(&place)
        })
    }

    /// All waiters, in order of arrival.
    pub(crate) fn each(&self) -> impl Iterator<Item = (WaiterId, &Waiter<P>)> {
        self.waiters.iter().map(|(id, waiter)| (*id, &**waiter))
    }

    /// All queues, in order of creation.
    pub(crate) fn all(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.iter().map(|(id, queue)| (*id, queue))
    }

    /// The queue that was created last.
    pub(crate) fn last(&self) -> Option<QueueId> {
        self.queues.last_key_value().map(|(id, _)| *id)
    }

    /// Queues between two bounds, in order of creation.
    pub(crate) fn between(
        &self,
        from: Bound<QueueId>,
        to: Bound<QueueId>,
    ) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.queues.range((from, to)).map(|(id, queue)| (*id, queue))
    }

    /// Number of entries in most of the maps and sets, as a measure of memory.
    pub(crate) fn entries(&self) -> usize {
        let keys = self.queues.len().saturating_add(self.by_key.len());
        let waiters = self.waiters.len().saturating_add(self.line.len());
        let places = self.places.len().saturating_add(self.blocked.len());
        let more = self.ready.entries().saturating_add(self.sets.entries());
        keys.saturating_add(waiters).saturating_add(places).saturating_add(more)
    }
}

#[cfg(test)]
mod tests;

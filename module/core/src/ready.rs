//! Waiters with `UNLESS ready-key`: they want the lock only while there is no result.
//!
//! ```text
//! LOCK.WAIT k bob … UNLESS r ─► r exists: "ready", bob does not wait
//!                            └► r does not exist: bob waits, in the group of r
//! the lock comes free ─► front of the line: is there a result? ─► "ready", the next one is looked at
//!                     │                                        └► granted
//!                     └► each group, once: is there a result? ─► "ready" for all of the group
//! ```
//!
//! The caller knows whether a key exists. Before a grant the ready-key of the first waiter is checked. The groups
//! are checked afterwards, one piece of work at a time, so that a long line delays nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::rc::Rc;

use crate::ids::{QueueId, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::outbox::Ending;
use crate::outcome::{Cause, count};
use crate::table::{Situation, Table};
use crate::waiting::AT_ONCE;

/// Waiters in front of a line that are told before the others in one call, and of a group.
const STEPS: usize = 32;

/// The keys in the database of a lock.
pub trait Keys {
    /// Returns whether a key exists.
    fn exists(&self, name: &[u8]) -> bool;

    /// Returns the owners that hold a lock, if there are at most `most` of them. In a cluster, only locks in the slot of
    /// the lock `asked` can be read.
    fn holders(&self, name: &[u8], asked: &[u8], most: usize) -> HeldBy {
        let _ = (name, asked, most);
        HeldBy::default()
    }
}

/// Who holds a lock.
#[derive(Debug, Default)]
pub struct HeldBy {
    /// The owners.
    pub owners: Vec<Box<[u8]>>,
    /// Whether they share it.
    pub is_shared: bool,
}

impl<F: Fn(&[u8]) -> bool> Keys for F {
    fn exists(&self, name: &[u8]) -> bool {
        self(name)
    }
}

/// Access to the keys of a database: the results that exist now, and the holders of locks.
#[derive(Clone, Copy, Default)]
pub struct Results<'a>(Option<&'a dyn Keys>);

impl<'a> Results<'a> {
    /// There are no results.
    pub const NONE: Self = Self(None);

    /// The results among these keys.
    #[must_use]
    pub fn among(keys: &'a dyn Keys) -> Self {
        Self(Some(keys))
    }

    fn has(self, ready_key: &[u8]) -> bool {
        self.0.is_some_and(|keys| keys.exists(ready_key))
    }

    /// Who holds a lock: see [`Keys::holders`].
    pub(crate) fn holders(self, name: &[u8], asked: &[u8], most: usize) -> HeldBy {
        self.0.map(|keys| keys.holders(name, asked, most)).unwrap_or_default()
    }
}

impl fmt::Debug for Results<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Results")
    }
}

/// A group of waiters whose ready-key has to be checked: see [`Table::next_group`].
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    queue: QueueId,
    /// The lock that the group waits for.
    pub key: LockKey,
    /// The ready-key.
    pub ready_key: Rc<[u8]>,
}

/// The ready-keys of waiters.
#[derive(Debug, Default)]
pub(crate) struct ReadyKeys {
    by_waiter: BTreeMap<WaiterId, (QueueId, Rc<[u8]>)>,
    groups: BTreeMap<(QueueId, Rc<[u8]>), BTreeSet<WaiterId>>,
    /// Queues of locks that came free, each with the group that was checked last.
    rounds: BTreeMap<QueueId, Round>,
    /// The queue that had the last turn.
    served: QueueId,
    /// Size of the names of all groups.
    bytes: usize,
}

/// A round over the groups of a queue.
#[derive(Debug, Default)]
struct Round {
    /// The group that was looked at last.
    last: Option<Rc<[u8]>>,
    /// Whether the lock came free again: a further round follows this one.
    again: bool,
}

impl ReadyKeys {
    pub(crate) fn insert(&mut self, queue: QueueId, waiter: WaiterId, ready_key: &[u8]) {
        let known = self.groups.range((queue, Rc::from(ready_key))..).next();
        let known = known.filter(|((of, name), _)| *of == queue && **name == *ready_key);
        let name = known.map_or_else(|| Rc::from(ready_key), |((_, name), _)| Rc::clone(name));
        self.by_waiter.insert(waiter, (queue, Rc::clone(&name)));
        let group = self.groups.entry((queue, name)).or_default();
        if group.is_empty() {
            self.bytes = self.bytes.saturating_add(ready_key.len());
        }
        group.insert(waiter);
    }

    pub(crate) fn remove(&mut self, waiter: WaiterId) {
        if let Some(place) = self.by_waiter.remove(&waiter) {
            self.leave_group(place, waiter);
        }
    }

    /// Frees an entry. Returns false if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        let first = self.by_waiter.pop_first();
        first.map(|(waiter, place)| self.leave_group(place, waiter)).is_some()
    }

    fn leave_group(&mut self, place: (QueueId, Rc<[u8]>), waiter: WaiterId) {
        if let Some(group) = self.groups.get_mut(&place) {
            group.remove(&waiter);
            if group.is_empty() {
                self.groups.remove(&place);
                self.bytes = self.bytes.saturating_sub(place.1.len());
            }
        }
    }

    fn of(&self, waiter: WaiterId) -> Option<&Rc<[u8]>> {
        self.by_waiter.get(&waiter).map(|(_, name)| name)
    }

    /// The group of a queue that follows another, or the first one.
    fn group_after(&self, queue: QueueId, last: Option<&Rc<[u8]>>) -> Option<&Rc<[u8]>> {
        let from = match last {
            Some(last) => Bound::Excluded((queue, Rc::clone(last))),
            None => Bound::Included((queue, Rc::default())),
        };
        let found = self.groups.range((from, Bound::Unbounded)).next();
        found.filter(|((of, _), _)| *of == queue).map(|((_, name), _)| name)
    }

    /// The lock of a queue came free: all its groups are looked at, once.
    fn begin_round(&mut self, queue: QueueId) {
        if self.group_after(queue, None).is_none() {
            return;
        }
        self.rounds.entry(queue).and_modify(|round| round.again = true).or_default();
    }

    fn next_group(&mut self) -> Option<(QueueId, Rc<[u8]>)> {
        loop {
            let others = (Bound::Excluded(self.served), Bound::Unbounded);
            let next = self.rounds.range(others).next().or_else(|| self.rounds.first_key_value());
            let (queue, round) = next?;
            let queue = *queue;
            self.served = queue;
            if let Some(group) = self.group_after(queue, round.last.as_ref()) {
                return Some((queue, Rc::clone(group)));
            }
            // All its groups had their turn.
            let again = self.rounds.remove(&queue).is_some_and(|round| round.again);
            if again {
                self.begin_round(queue);
            }
        }
    }

    /// Size of the names of all groups.
    pub(crate) fn name_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn entries(&self) -> usize {
        self.by_waiter.len().saturating_add(self.rounds.len())
    }
}

impl<P> Table<P> {
    /// Sets or clears the ready-key of a waiter.
    pub fn set_ready_key(&mut self, waiter: WaiterId, ready_key: Option<&[u8]>) {
        for (place, _) in self.queues.places_of(waiter) {
            let Some(queue) = self.queues.waiter(place).map(|place| place.queue) else { continue };
            self.queues.ready.remove(place);
            if let Some(ready_key) = ready_key {
                self.queues.ready.insert(queue, place, ready_key);
            }
        }
    }

    /// An owner asked and was answered `ready`: if it has a place in the queue, that place is told the same.
    pub fn is_ready(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        count(&mut self.counters.told_ready);
        if let Some(place) = self.place_of(key, owner) {
            self.tell_ready(place);
        }
    }

    /// Tells a waiter for a set that its result exists. Returns false if it does not.
    pub(crate) fn tell_ready_to(&mut self, waiter: WaiterId, at: &Situation<'_>) -> bool {
        let ready = self.queues.ready.of(waiter).is_some_and(|key| at.results.has(key));
        if ready {
            self.tell_ready(waiter);
        }
        ready
    }

    fn tell_ready(&mut self, waiter: WaiterId) {
        if let Some(leaver) = self.withdraw(waiter) {
            if leaver.stood_in_front {
                // The lock may be free: the next one in line may have it.
                self.plan_look(leaver.waiter.queue, Some(AT_ONCE), Cause::Outside);
            }
            count(&mut self.counters.told_ready);
            let client = self.tell(leaver, Ending::Ready);
            self.ready_clients.extend(client);
        }
    }

    /// Takes the next blocked client that has to be answered `ready`.
    pub fn next_ready_client(&mut self) -> Option<P> {
        self.ready_clients.pop_front()
    }

    /// Removes waiters at the front whose ready-key exists, until the first one may be granted the lock. Returns
    /// `false` if there may be more of them; then a look follows.
    pub(crate) fn tell_ready_in_front(&mut self, at: &Situation<'_>, queue: QueueId) -> bool {
        for _ in 0..STEPS {
            let front = self.front(queue).map(|(front, _)| front);
            let ready = front.filter(|front| {
                self.queues.ready.of(*front).is_some_and(|key| at.results.has(key))
            });
            match ready {
                Some(front) => self.tell_ready(front),
                None => return true,
            }
        }
        false
    }

    /// Begins a check of all groups of a queue whose lock came free.
    pub(crate) fn look_at_groups(&mut self, queue: QueueId) {
        self.queues.ready.begin_round(queue);
    }

    /// Returns whether groups of waiters have to be looked at.
    #[must_use]
    pub fn has_groups_to_look_at(&self) -> bool {
        !self.queues.ready.rounds.is_empty()
    }

    /// Returns a group whose ready-key has to be checked. Call [`Self::looked_at_group`] next.
    pub fn next_group(&mut self) -> Option<Group> {
        let (queue, ready_key) = self.queues.ready.next_group()?;
        let key = self.queues.queue(queue)?.key.clone();
        Some(Group { queue, key, ready_key })
    }

    /// Answers some waiters of a group whose result exists, or continues with the next group.
    pub fn looked_at_group(&mut self, group: &Group, exists: bool) {
        let place = (group.queue, Rc::clone(&group.ready_key));
        let members = self.queues.ready.groups.get(&place).filter(|_| exists);
        let some: Vec<_> = members.into_iter().flatten().take(STEPS).copied().collect();
        if some.len() < STEPS
            && let Some(round) = self.queues.ready.rounds.get_mut(&group.queue)
        {
            round.last = Some(Rc::clone(&group.ready_key));
        }
        some.into_iter().for_each(|waiter| self.tell_ready(waiter));
    }
}

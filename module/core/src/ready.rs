//! Waiters with `UNLESS ready-key`. The ready-key holds the result of work that is done under the
//! lock. A waiter needs the lock only while this key does not exist.
//!
//! ```text
//! LOCK.WAIT k bob … UNLESS r ─► r exists: "ready", bob does not wait
//!                            └► r does not exist: bob waits, in the group of r
//! the lock comes free ─► front of the line: is there a result? ─► "ready", the next one is looked at
//!                     │                                        └► granted
//!                     └► each group, once: is there a result? ─► "ready" for all of the group
//! ```
//!
//! Before a grant, the ready-key of the first waiter is checked. The groups are checked afterwards,
//! one piece of work at a time, so that a long queue does not delay the grant.

use std::rc::Rc;

use crate::agenda::AT_ONCE;
use crate::ids::{QueueId, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::outbox::Ending;
use crate::outcome::{Cause, count};
use crate::situation::Situation;
use crate::table::Table;

/// Largest number of waiters at the head, or of one group, that one call answers.
const STEPS: usize = 32;

/// The waiters for one lock that have the same ready-key: see [`Table::next_group`].
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    queue: QueueId,
    /// The lock that the group waits for.
    pub key: LockKey,
    /// The ready-key.
    pub ready_key: Rc<[u8]>,
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

    /// Records that an owner was answered `ready`. If the owner has a place in the queue, the wait
    /// there is answered `ready` too.
    pub fn record_ready(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        count(&mut self.counters.told_ready);
        if let Some(place) = self.place_of(key, owner) {
            self.answer_ready(place);
        }
    }

    /// If the ready-key of a waiter for a set of locks exists, answers `ready`. Then the waiter has
    /// left its queues.
    pub(crate) fn answer_if_ready(&mut self, waiter: WaiterId, at: &Situation<'_>) {
        if self.queues.ready.of(waiter).is_some_and(|key| at.results.has(key)) {
            self.answer_ready(waiter);
        }
    }

    fn answer_ready(&mut self, waiter: WaiterId) {
        if let Some(leaver) = self.withdraw(waiter) {
            if leaver.stood_in_front {
                // The lock may be free: the next one in line may have it.
                self.plan_look(leaver.waiter.queue, Some(AT_ONCE), Cause::Outside);
            }
            count(&mut self.counters.told_ready);
            let client = self.deliver(leaver, Ending::Ready);
            self.ready_clients.extend(client);
        }
    }

    /// Takes the next blocked client that has to be answered `ready`.
    pub fn next_ready_client(&mut self) -> Option<P> {
        self.ready_clients.pop_front()
    }

    /// Answers `ready` to waiters at the head whose ready-key exists, up to a limit. Returns false
    /// if there may be more; then another look follows.
    pub(crate) fn answer_ready_at_head(&mut self, at: &Situation<'_>, queue: QueueId) -> bool {
        for _ in 0..STEPS {
            let front = self.front(queue).map(|(front, _)| front);
            let ready = front.filter(|front| {
                self.queues.ready.of(*front).is_some_and(|key| at.results.has(key))
            });
            match ready {
                Some(front) => self.answer_ready(front),
                None => return true,
            }
        }
        false
    }

    /// Begins a check of all groups of a queue, because its lock became free.
    pub(crate) fn look_at_groups(&mut self, queue: QueueId) {
        self.queues.ready.begin_round(queue);
    }

    /// Returns whether groups of waiters have to be checked.
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

    /// If the ready-key of a group exists, answers some of its waiters. Continues with the next
    /// group, unless more waiters of this one are left.
    pub fn looked_at_group(&mut self, group: &Group, exists: bool) {
        let place = (group.queue, Rc::clone(&group.ready_key));
        let members = self.queues.ready.groups.get(&place).filter(|_| exists);
        let some: Vec<_> = members.into_iter().flatten().take(STEPS).copied().collect();
        if some.len() < STEPS
            && let Some(round) = self.queues.ready.rounds.get_mut(&group.queue)
        {
            round.last = Some(Rc::clone(&group.ready_key));
        }
        some.into_iter().for_each(|waiter| self.answer_ready(waiter));
    }
}

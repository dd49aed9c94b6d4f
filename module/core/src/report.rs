//! The lock table: what operators may see of it, and the check of its invariants.

use std::cmp::Reverse;

use crate::key::{KeyRef, Kind};
use crate::outcome::{Counters, KeySummary};
use crate::queue::WaiterView;
use crate::table::Table;

impl<P> Table<P> {
    /// What happened since the module was loaded.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many wait, over all locks.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.queues.waiters()
    }

    /// How many locks are waited for.
    #[must_use]
    pub fn waiting_keys(&self) -> usize {
        self.queues.count()
    }

    /// How many wait for one lock.
    #[must_use]
    pub fn waiters_of(&self, key: KeyRef<'_>) -> usize {
        let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
        queue.map_or(0, |queue| queue.len)
    }

    /// Those who wait for one lock, the next one first.
    pub fn queue_of(&self, key: KeyRef<'_>) -> impl Iterator<Item = WaiterView<'_, P>> {
        let id = self.queues.find(key);
        id.into_iter().flat_map(|id| self.queues.walk(id)).map(|(_, waiter)| WaiterView {
            owner: &waiter.owner,
            want: waiter.want,
            since: waiter.since,
            client: &waiter.client,
        })
    }

    /// The `count` locks of a database that most wait for, the most first. Takes time in
    /// proportion to the number of locks that are waited for.
    #[must_use]
    pub fn most_waited_for(&self, db: i32, count: usize) -> Vec<KeySummary<'_>> {
        let mut found: Vec<_> = self
            .queues
            .all()
            .filter(|(_, queue)| queue.key.db == db && queue.key.kind == Kind::Lock)
            .filter_map(|(id, queue)| {
                let (_, first) = self.queues.walk(id).next()?;
                Some(KeySummary { key: &queue.key, waiters: queue.len, since: first.since })
            })
            .collect();
        found.sort_unstable_by_key(|lock| (Reverse(lock.waiters), lock.since));
        found.truncate(count);
        found
    }

    /// How many entries the table keeps room for: what it holds on to of its memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.queues.capacity().saturating_add(self.in_flight.capacity())
    }

    /// Checks the invariants that the table can see by itself; the first broken one is named.
    ///
    /// # Errors
    ///
    /// A sentence that begins with the number of the invariant.
    pub fn check(&self) -> Result<(), String> {
        let (mut waiting, mut timed, mut planned) = (0_usize, 0_usize, 0_usize);
        for (id, queue) in self.queues.all() {
            let key = String::from_utf8_lossy(&queue.key.name);
            let mut last = None;
            let mut length = 0_usize;
            for (waiter_id, waiter) in self.queues.walk(id) {
                length = length.saturating_add(1);
                if waiter.queue != id {
                    return Err(format!("I1: {waiter_id:?} stands in {key} but says otherwise"));
                }
                if self.queues.place(id, &waiter.owner) != Some(waiter_id) {
                    return Err(format!("I2: {waiter_id:?} has no place of its own in {key}"));
                }
                if last.is_some_and(|last| last >= waiter_id) {
                    return Err(format!("I3: {waiter_id:?} in {key} stands behind a later one"));
                }
                if let Some(end) = waiter.end {
                    timed = timed.saturating_add(1);
                    if !self.agenda.has_wait(end, waiter_id) {
                        return Err(format!("I5: the end of {waiter_id:?} is not planned"));
                    }
                }
                last = Some(waiter_id);
            }
            if length == 0 || length != queue.len {
                return Err(format!("I1: {key} has {length} waiters and counts {}", queue.len));
            }
            if length > self.limits.waiters_per_key.max(self.counters.waiters_peak) {
                return Err(format!("I7: {length} wait for {key}"));
            }
            if let Some(due) = queue.look {
                planned = planned.saturating_add(1);
                if !self.agenda.has_look(due, id) {
                    return Err(format!("I5: the look at {key} is not planned"));
                }
            }
            waiting = waiting.saturating_add(length);
        }
        if waiting != self.queues.waiters() {
            return Err(format!("I1: {waiting} of {} stand in a queue", self.queues.waiters()));
        }
        if self.agenda.len() != (timed, planned) {
            return Err(format!(
                "I5: {:?} planned, {timed} and {planned} needed",
                self.agenda.len()
            ));
        }
        Ok(())
    }
}

//! Operations of the table on the places of waits for sets of locks: see `places.rs`.

use crate::agenda::AT_ONCE;
use crate::ids::{QueueId, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::mode::Want;
use crate::outcome::Cause;
use crate::table::Table;

/// One key of a set that a waiter waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetKey {
    /// The lock.
    pub key: LockKey,
    /// `true` for a key of `UNDER`.
    pub under: bool,
}

impl<P> Table<P> {
    /// Returns whether a set may be granted to a waiter now: see [`Self::next_set`].
    #[must_use]
    pub fn has_sets_to_look_at(&self) -> bool {
        let sets = &self.queues.sets;
        !sets.due.is_empty() || !sets.walks.is_empty()
    }

    /// Takes a waiter that may be granted its set now, for example because one of its keys has
    /// changed or a waiter before it has left. With `db`, only a waiter for keys of that database.
    /// The caller reads all keys of [`Self::set_of`] and then calls [`Self::serve_set`].
    pub fn next_set(&mut self, db: Option<i32>) -> Option<WaiterId> {
        self.queues.next_noted(db)
    }

    /// Marks a waiter from [`Self::next_set`] to be tried again.
    pub fn look_at_set_later(&mut self, waiter: WaiterId) {
        self.queues.note_set(waiter);
    }

    /// Returns the keys of a waiter for a set.
    #[must_use]
    pub fn set_of(&self, waiter: WaiterId) -> Vec<SetKey> {
        let places = self.queues.places_of(waiter).into_iter();
        let keys = places.filter_map(|(id, under)| {
            let queue = self.queues.queue(self.queues.waiter(id)?.queue)?;
            Some(SetKey { key: queue.key.clone(), under })
        });
        keys.collect()
    }

    /// Returns whether a new request for this lock has to wait behind earlier waiters.
    pub(crate) fn is_barred(&self, key: KeyRef<'_>, want: Want) -> bool {
        let Some(queue) = self.queues.find(key) else { return false };
        self.queues.head(queue).is_some() || want != Want::Shared && self.queues.has_beside(queue)
    }

    /// Returns whether the first waiter in line waits for a set, or is held up by an earlier place
    /// beside the line.
    pub(crate) fn first_is_held_up(&self, key: KeyRef<'_>) -> bool {
        if self.queues.sets.is_empty() {
            return false;
        }
        let queue = self.queues.find(key);
        let head = queue.and_then(|queue| Some((queue, self.queues.head(queue)?)));
        head.is_some_and(|(queue, (id, want))| {
            self.queues.is_of_set(id) || self.queues.is_held_up_beside(queue, id, want)
        })
    }

    /// Removes the further places of a waiter for a set that has left. Plans looks at its queues,
    /// because waiters behind it may be served now.
    pub(crate) fn leave_further_places(&mut self, main: WaiterId, queue: QueueId) {
        for (place, _) in self.queues.sets.dissolve(main) {
            if let Some(leaver) = self.queues.remove(place) {
                self.agenda.move_look(leaver.waiter.queue, leaver.planned, None);
                self.plan_look(leaver.waiter.queue, Some(AT_ONCE), Cause::Outside);
            }
        }
        self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
    }

    /// Moves all places of a waiter for a set in or out of their lines.
    pub(crate) fn settle_set(&mut self, main: WaiterId, passed_over: bool) {
        for (place, _) in self.queues.places_of(main) {
            let moved =
                if passed_over { self.queues.step_out(place) } else { self.queues.step_in(place) };
            let Some(queue) = self.queues.waiter(place).map(|waiter| waiter.queue) else {
                continue;
            };
            // The move may change which place is first. If no place is in the line or beside it, no
            // look is needed.
            let has_line = self.queues.head(queue).is_some() || self.queues.has_beside(queue);
            if moved && has_line {
                self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
            }
        }
        if !passed_over {
            // The waiter's turn may have come while its places were out of the line.
            self.queues.note_set(main);
        }
    }
}

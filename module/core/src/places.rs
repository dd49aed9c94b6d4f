//! Waits for a set of locks: one waiter, with a place in the queue of each of its keys.
//!
//! ```text
//! queue of a      ann*  bob            ann* is the waiter for the set; its further places lead to it
//! queue of b      carol ann
//! queue of top    ann ‖ dave           ‖ places of sets that want to share are beside the line
//! ```
//!
//! All places are taken in one call, so no other waiter comes between them, and sets have the same
//! order in all queues. The waiter is granted none of the locks until all can be granted together.
//! This requires that each lock is available, and that no conflicting waiter that came earlier is
//! still in the queue, unless it is passed over.
//!
//! A place that wants a lock exclusively is in the line and holds up everything behind it. A place
//! that wants to share is beside the line: it holds up only requests to hold the lock exclusively,
//! because sharers may pass each other.
//!
//! A grant of a set depends on the keys of all its places. So the table cannot decide on the grant
//! while it looks at one key. The caller reads all keys and calls `Table::serve_set`. If the set is
//! not granted, the first place at which it is **held up** is recorded. The set is tried again when
//! that queue is looked at, or when its owner has acquired or used one of the locks. A look at a key
//! costs nothing for sets that are held up at other keys.

use crate::ids::{QueueId, SessionId, WaiterId};
use crate::mode::Want;
use crate::queue::Queues;
use crate::sets::Wait;
use crate::waiter::Via;
use std::collections::BTreeSet;

impl<P> Queues<P> {
    /// Returns the waiter to which a place belongs: the place itself, unless it is a further place
    /// of a set.
    pub(crate) fn main_of(&self, id: WaiterId) -> WaiterId {
        match self.waiter(id).map(|waiter| &waiter.via) {
            Some(Via::Place(main)) => *main,
            Some(Via::Client(_) | Via::Session(_)) | None => id,
        }
    }

    /// Returns whether a place belongs to a wait for a set.
    pub(crate) fn is_of_set(&self, id: WaiterId) -> bool {
        !self.sets.is_empty() && self.sets.waits.contains_key(&self.main_of(id))
    }

    /// The session through which a place waits.
    pub(crate) fn session_of(&self, id: WaiterId) -> Option<SessionId> {
        match &self.waiter(id)?.via {
            Via::Client(_) => None,
            Via::Session(session) => Some(*session),
            Via::Place(main) => self.waiter(*main)?.via.session(),
        }
    }

    /// Records the further places of a new waiter, and the hold count that its owner expects of the
    /// first lock. All places that want to share move beside the line.
    pub(crate) fn make_set(
        &mut self,
        main: WaiterId,
        places: Vec<(WaiterId, bool)>,
        holds: Option<u64>,
    ) {
        for id in std::iter::once(main).chain(places.iter().map(|(id, _)| *id)) {
            let place = self.waiter(id).map(|waiter| (waiter.queue, waiter.want));
            match place {
                Some((queue, Want::Shared)) => self.move_beside(queue, id),
                Some((queue, _)) => drop(self.sets.in_line.insert((queue, id))),
                None => {}
            }
        }
        self.sets.waits.insert(main, Wait { further: places.into_boxed_slice(), holds });
        self.hold_up(main, main);
    }

    /// Number of holds of the first lock that the owner of a set expects after the grant: see
    /// `Acquire::holds`.
    pub(crate) fn holds_of_set(&self, main: WaiterId) -> Option<u64> {
        self.sets.waits.get(&main)?.holds
    }

    /// Sets the expected number of holds of the first lock, when another call takes over the wait.
    pub(crate) fn set_holds_of_set(&mut self, main: WaiterId, holds: Option<u64>) {
        if let Some(wait) = self.sets.waits.get_mut(&main) {
            wait.holds = holds;
        }
    }

    /// The queue and the place at which a set was held up when it was tried last.
    pub(crate) fn held_up_at(&self, main: WaiterId) -> Option<(QueueId, WaiterId)> {
        let places = self.places_of(main).into_iter();
        let mut places = places.filter_map(|(id, _)| Some((self.waiter(id)?.queue, id)));
        places.find(|place| self.sets.held_up.contains(place))
    }

    /// Records the place at which a set is held up.
    pub(crate) fn hold_up(&mut self, main: WaiterId, at: WaiterId) {
        if let Some(before) = self.held_up_at(main) {
            self.sets.held_up.remove(&before);
        }
        let queue = self.waiter(at).map(|waiter| waiter.queue);
        self.sets.held_up.extend(queue.map(|queue| (queue, at)));
    }

    /// All places of a waiter, in the order of its keys. The flag marks a key of `UNDER`.
    pub(crate) fn places_of(&self, main: WaiterId) -> Vec<(WaiterId, bool)> {
        let wait = self.sets.waits.get(&main);
        let further = wait.into_iter().flat_map(|wait| &wait.further).copied();
        std::iter::once((main, false)).chain(further).collect()
    }

    /// The first place beside the line of a queue.
    pub(crate) fn first_beside(&self, queue: QueueId) -> Option<WaiterId> {
        if self.sets.beside.is_empty() {
            return None;
        }
        let all = (queue, *WaiterId::ALL.start())..=(queue, *WaiterId::ALL.end());
        self.sets.beside.range(all).next().map(|(_, id)| *id)
    }

    /// The places of sets beside the line of a queue that come before another place.
    pub(crate) fn sets_beside_before(
        &self,
        queue: QueueId,
        place: WaiterId,
    ) -> impl Iterator<Item = WaiterId> + use<'_, P> {
        before(&self.sets.beside, queue, place)
    }

    /// The places of sets in the line of a queue that come before another place.
    pub(crate) fn sets_in_line_before(
        &self,
        queue: QueueId,
        place: WaiterId,
    ) -> impl Iterator<Item = WaiterId> + use<'_, P> {
        before(&self.sets.in_line, queue, place)
    }

    /// The next place from `from` on at which a set is held up, if it comes before all waiters in line.
    fn next_held_up(&self, queue: QueueId, from: WaiterId) -> Option<WaiterId> {
        let all = (queue, from)..=(queue, *WaiterId::ALL.end());
        let next = self.sets.held_up.range(all).next().map(|(_, id)| *id);
        let head = self.head(queue).map(|(head, _)| head);
        next.filter(|next| head.is_none_or(|head| *next < head))
    }

    /// Returns whether a queue has places beside its line.
    pub(crate) fn has_beside(&self, queue: QueueId) -> bool {
        self.first_beside(queue).is_some()
    }

    /// Returns whether an earlier place beside the line holds up this place. Always false for a
    /// place that wants to share the lock.
    pub(crate) fn is_held_up_beside(&self, queue: QueueId, id: WaiterId, want: Want) -> bool {
        want != Want::Shared && self.first_beside(queue).is_some_and(|first| first < id)
    }

    /// Returns whether no waiter in line came before a place and, if the place wants the lock
    /// exclusively, no place beside the line either.
    pub(crate) fn is_in_turn(&self, id: WaiterId) -> bool {
        let Some(waiter) = self.waiter(id) else { return false };
        let head = self.head(waiter.queue).map(|(head, _)| head);
        if waiter.want == Want::Shared {
            head.is_none_or(|head| id < head)
        } else {
            head == Some(id) && !self.is_held_up_beside(waiter.queue, id, waiter.want)
        }
    }

    /// Marks the sets that are held up in this queue and whose turn may have come, so that they are
    /// tried again: those beside the line that come before its head, and the head.
    pub(crate) fn note_sets(&mut self, queue: QueueId) {
        if self.sets.is_empty() {
            return;
        }
        if let Some(first) = self.next_held_up(queue, *WaiterId::ALL.start()) {
            self.sets.walks.insert(queue, first);
        }
        self.note_head(queue);
    }

    /// Marks the head of the line to be tried again, if it waits for a set that is held up here.
    pub(crate) fn note_head(&mut self, queue: QueueId) {
        if let Some((head, _)) = self.head(queue)
            && self.sets.held_up.contains(&(queue, head))
        {
            self.sets.due.insert(self.main_of(head));
        }
    }

    /// Marks the set of an owner that waits in this queue, to be tried again.
    pub(crate) fn note_set_of(&mut self, queue: QueueId, owner: &[u8]) {
        if !self.sets.is_empty()
            && let Some(place) = self.place(queue, owner)
            && self.is_of_set(place)
        {
            self.sets.due.insert(self.main_of(place));
        }
    }

    /// Returns whether a waiter for a set is marked to be tried again.
    pub(crate) fn is_noted(&self, main: WaiterId) -> bool {
        self.sets.due.contains(&main)
    }

    /// Marks a waiter for a set to be tried again.
    pub(crate) fn note_set(&mut self, main: WaiterId) {
        self.sets.due.insert(main);
    }

    /// Takes a waiter that is marked to be tried again. With `db`, only if the next one is in that
    /// database.
    pub(crate) fn next_noted(&mut self, db: Option<i32>) -> Option<WaiterId> {
        let is_there = |queues: &Self, queue| {
            let found = queues.queue(queue).map(|queue| queue.key.db);
            db.is_none_or(|db| found == Some(db))
        };
        while let Some(main) = self.sets.due.first().copied() {
            if let Some(queue) = self.waiter(main).map(|waiter| waiter.queue) {
                if is_there(self, queue) {
                    self.sets.due.remove(&main);
                    return Some(main);
                }
                break;
            }
            self.sets.due.remove(&main);
        }
        while let Some((queue, from)) = self.sets.walks.first_key_value().map(|(q, f)| (*q, *f)) {
            if self.queue(queue).is_some() && !is_there(self, queue) {
                return None;
            }
            if let Some(next) = self.next_held_up(queue, from) {
                self.sets.walks.insert(queue, next.after());
                return Some(self.main_of(next));
            }
            self.sets.walks.remove(&queue);
        }
        None
    }

    /// Returns the places in line of a queue and beside it, in order.
    pub(crate) fn with_beside(
        &self,
        queue: QueueId,
    ) -> impl Iterator<Item = WaiterId> + use<'_, P> {
        let beside = if self.sets.beside.is_empty() {
            None
        } else {
            let all = (queue, *WaiterId::ALL.start())..=(queue, *WaiterId::ALL.end());
            Some(self.sets.beside.range(all).map(|(_, id)| *id))
        };
        let (mut line, mut beside) =
            (self.line_ids(queue).peekable(), beside.into_iter().flatten().peekable());
        std::iter::from_fn(move || match (line.peek(), beside.peek()) {
            (Some(first), Some(other)) if other < first => beside.next(),
            (Some(_), _) => line.next(),
            (None, _) => beside.next(),
        })
    }

    /// Checks the records of sets. The error names the first wrong record.
    pub(crate) fn check_sets(&self) -> Result<(), String> {
        for (main, wait) in &self.sets.waits {
            if self.waiter(*main).is_none() || wait.further.is_empty() {
                return Err(format!("I21: {main:?} is no waiter for a set"));
            }
            let wrong = wait.further.iter().find(|(place, _)| self.main_of(*place) != *main);
            if let Some(place) = wrong {
                return Err(format!("I21: {place:?} is no place of {main:?}"));
            }
            if self.held_up_at(*main).is_none() {
                return Err(format!("I22: {main:?} is held up nowhere"));
            }
        }
        let (held_up, waits) = (self.sets.held_up.len(), self.sets.waits.len());
        if held_up != waits {
            return Err(format!("I22: {waits} wait for sets, {held_up} are held up"));
        }
        for place in &self.sets.in_line {
            if !self.is_in_line(place.1)
                || self.sets.beside.contains(place)
                || !self.is_of_set(place.1)
            {
                return Err(format!("I21: {place:?} is not in line"));
            }
        }
        for (queue, id) in &self.sets.beside {
            let place = self.waiter(*id).filter(|waiter| waiter.queue == *queue);
            if place.is_none_or(|place| place.want != Want::Shared) || !self.is_of_set(*id) {
                return Err(format!("I21: {id:?} stands beside a line"));
            }
        }
        Ok(())
    }
}

/// The places in a queue that come before another place.
fn before(
    places: &BTreeSet<(QueueId, WaiterId)>,
    queue: QueueId,
    place: WaiterId,
) -> impl Iterator<Item = WaiterId> {
    places.range((queue, *WaiterId::ALL.start())..(queue, place)).map(|(_, id)| *id)
}

#[cfg(test)]
mod tests;

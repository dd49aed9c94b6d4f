//! The ready-keys of waiters, in groups: see `ready.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use crate::free::Free;
use crate::ids::{QueueId, WaiterId};

#[derive(Debug, Default)]
pub(crate) struct ReadyKeys {
    by_waiter: BTreeMap<WaiterId, (QueueId, Rc<[u8]>)>,
    pub(crate) groups: BTreeMap<(QueueId, Rc<[u8]>), BTreeSet<WaiterId>>,
    /// Queues of locks that became free, each with its round.
    pub(crate) rounds: BTreeMap<QueueId, Round>,
    /// The queue that [`Self::next_group`] visited last.
    served: QueueId,
    /// Total length of the ready-keys of all groups, in bytes.
    bytes: usize,
}

/// A round of checks of all groups of a queue.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The last group whose check is finished.
    pub(crate) last: Option<Rc<[u8]>>,
    /// `true` if the lock became free again, so that another round follows.
    again: bool,
}

impl Free for ReadyKeys {
    fn free_one(&mut self) -> bool {
        let first = self.by_waiter.pop_first();
        first.map(|(waiter, place)| self.leave_group(place, waiter)).is_some()
    }
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

    fn leave_group(&mut self, place: (QueueId, Rc<[u8]>), waiter: WaiterId) {
        if let Some(group) = self.groups.get_mut(&place) {
            group.remove(&waiter);
            if group.is_empty() {
                self.groups.remove(&place);
                self.bytes = self.bytes.saturating_sub(place.1.len());
            }
        }
    }

    pub(crate) fn of(&self, waiter: WaiterId) -> Option<&Rc<[u8]>> {
        self.by_waiter.get(&waiter).map(|(_, name)| name)
    }

    /// Returns the ready-key of the group after `last` in a queue; without `last`, of the first
    /// group.
    fn group_after(&self, queue: QueueId, last: Option<&Rc<[u8]>>) -> Option<&Rc<[u8]>> {
        let from = match last {
            Some(last) => Bound::Excluded((queue, Rc::clone(last))),
            None => Bound::Included((queue, Rc::default())),
        };
        let found = self.groups.range((from, Bound::Unbounded)).next();
        found.filter(|((of, _), _)| *of == queue).map(|((_, name), _)| name)
    }

    /// Begins a round over all groups of a queue, because its lock became free. If a round is in
    /// progress, another one follows it.
    pub(crate) fn begin_round(&mut self, queue: QueueId) {
        if self.group_after(queue, None).is_none() {
            return;
        }
        self.rounds.entry(queue).and_modify(|round| round.again = true).or_default();
    }

    pub(crate) fn next_group(&mut self) -> Option<(QueueId, Rc<[u8]>)> {
        loop {
            let others = (Bound::Excluded(self.served), Bound::Unbounded);
            let next = self.rounds.range(others).next().or_else(|| self.rounds.first_key_value());
            let (queue, round) = next?;
            let queue = *queue;
            self.served = queue;
            if let Some(group) = self.group_after(queue, round.last.as_ref()) {
                return Some((queue, Rc::clone(group)));
            }
            // The round has no further group.
            let again = self.rounds.remove(&queue).is_some_and(|round| round.again);
            if again {
                self.begin_round(queue);
            }
        }
    }

    pub(crate) fn name_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn entries(&self) -> usize {
        self.by_waiter.len().saturating_add(self.rounds.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_keys() -> ReadyKeys {
        let mut keys = ReadyKeys::default();
        let queue = QueueId::default();
        for (waiter, name) in [(1, "result"), (2, "other"), (3, "result")] {
            keys.insert(queue, WaiterId(waiter), name.as_bytes());
        }
        keys
    }

    #[test]
    fn waiters_with_one_ready_key_share_its_memory() {
        let mut keys = ready_keys();
        assert_eq!((keys.entries(), keys.name_bytes(), keys.groups.len()), (3, 11, 2));
        let same = [1, 3].map(|waiter| keys.of(WaiterId(waiter)).cloned());
        let [Some(one), Some(three)] = same else { panic!("both have it: {same:?}") };
        assert!(Rc::ptr_eq(&one, &three));
        keys.begin_round(QueueId::default());
        assert_eq!(keys.entries(), 4);
        keys.remove(WaiterId(1));
        assert_eq!((keys.entries(), keys.name_bytes(), keys.groups.len()), (3, 11, 2));
        keys.remove(WaiterId(3));
        assert_eq!((keys.entries(), keys.name_bytes(), keys.groups.len()), (2, 5, 1));
    }

    #[test]
    fn each_waiter_is_freed_in_a_step_of_its_own() {
        let mut keys = ready_keys();
        for left in [2, 1, 0] {
            assert!(keys.free_one());
            assert_eq!(keys.entries(), left);
        }
        assert!(!keys.free_one());
        assert_eq!((keys.name_bytes(), keys.groups.len()), (0, 0));
    }
}

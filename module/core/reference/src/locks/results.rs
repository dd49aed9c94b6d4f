//! Results: requests with `UNLESS`, releases with `STORE`, and results that other clients store and
//! delete.

use kvlock_core::Keys as _;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::naive::{Naive, Sent, Wait};
use super::names::{KEYS, Key, Owner, RESULTS, ResultKey};
use super::ops::Ask;
use super::world::World;
use crate::sim::key_ref;

impl Ask {
    /// Returns the caller, and the result that it accepts instead of the lock.
    fn wants_result(&self) -> Option<(Owner, ResultKey)> {
        match self {
            Self::Acquire(request) | Self::AcquireSet(request, ..) | Self::Wait(request, _) => {
                request.unless.map(|result| (request.owner, result))
            }
            Self::Release(..) | Self::Renew(..) | Self::Cancel(_) | Self::Force => None,
        }
    }
}

impl World {
    /// Answers a request `ready` if the result that it accepts exists. Returns whether it does.
    pub fn is_ready(&mut self, key: Key, ask: &Ask) -> Result<bool, TestCaseError> {
        let Some((owner, result)) = ask.wants_result() else { return Ok(false) };
        let there = self.space.results(KEYS[key].0).exists(RESULTS[result].as_bytes());
        prop_assert_eq!(there, self.model.has_result(key, result));
        if there {
            self.table.record_ready(key_ref(&self.names[key]), owner.as_bytes());
            self.model.is_ready(key, owner);
        }
        Ok(there)
    }

    /// Stores or deletes a result, as another client. This alone answers no waiter.
    pub fn change_result(&mut self, key: Key, result: ResultKey, there: bool) {
        self.space.set_result(KEYS[key].0, RESULTS[result], there);
        self.model.set_result(key, result, there);
    }

    /// Checks one group: waiters that accept the same result, and whose lock became free. Answers them
    /// if the result exists. Returns `false` if there was no group.
    pub fn look_at_group(&mut self) -> Result<bool, TestCaseError> {
        let Some(group) = self.table.next_group() else { return Ok(false) };
        let exists = self.space.results(group.key.db).exists(&group.ready_key);
        self.table.looked_at_group(&group, exists);
        let key = self.names.iter().position(|name| key_ref(name) == group.key.borrow());
        let result = RESULTS.iter().position(|name| name.as_bytes() == &*group.ready_key);
        let (key, result) = (key.expect("a key of ours"), result.expect("a result of ours"));
        prop_assert_eq!(exists, self.model.has_result(key, result));
        self.model.look_at_group(key, result);
        self.compare_ready()?;
        Ok(true)
    }

    /// Checks that table and model answered the same clients `ready`, and that no group was forgotten.
    pub fn compare_ready(&mut self) -> TestCaseResult {
        let ready = std::iter::from_fn(|| self.table.next_ready_client());
        let mut ready: Vec<_> = ready.map(|client| client.0).collect();
        let mut expected = std::mem::take(&mut self.model.ready);
        // The order of the clients does not matter.
        ready.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(ready, expected);
        let forgotten = self.model.has_groups_to_look_at() && !self.table.has_groups_to_look_at();
        prop_assert!(!forgotten, "nobody looks for their result");
        Ok(())
    }
}

impl Naive {
    pub fn has_result(&self, key: Key, result: ResultKey) -> bool {
        self.results.contains(&(KEYS[key].0, result))
    }

    pub fn set_result(&mut self, key: Key, result: ResultKey, there: bool) {
        let place = (KEYS[key].0, result);
        if there {
            self.results.insert(place)
        } else {
            self.results.remove(&place)
        };
    }

    fn wants_what_is_there(&self, key: Key, wait: &Wait) -> bool {
        wait.unless.is_some_and(|result| self.has_result(key, result))
    }

    /// Answers an owner `ready`, and also its wait in this queue.
    fn is_ready(&mut self, key: Key, owner: Owner) {
        self.counters.told_ready += 1;
        let place = self.locks[key].queue.iter().position(|wait| wait.owner == owner);
        if let Some(place) = place {
            self.answer_ready(key, place);
        }
    }

    fn answer_ready(&mut self, key: Key, place: usize) {
        let wait = self.locks[key].queue.remove(place);
        self.counters.told_ready += 1;
        self.ready.push(wait.client);
    }

    /// Answers the waiters at the head whose result exists. Returns whether a waiter is left.
    pub fn answer_ready_at_head(&mut self, key: Key) -> bool {
        while let Some(head) = self.locks[key].queue.first() {
            if !self.wants_what_is_there(key, head) {
                return true;
            }
            self.answer_ready(key, 0);
        }
        false
    }

    /// Marks all waiters that accept a result to be checked, because the lock became free.
    pub fn begin_round(&mut self, key: Key) {
        for wait in &mut self.locks[key].queue {
            wait.looks_for_result = wait.unless.is_some();
        }
    }

    fn look_at_group(&mut self, key: Key, result: ResultKey) {
        let of_group = |wait: &Wait| wait.unless == Some(result);
        if !self.has_result(key, result) {
            let group = self.locks[key].queue.iter_mut().filter(|wait| of_group(wait));
            return group.for_each(|wait| wait.looks_for_result = false);
        }
        while let Some(place) = self.locks[key].queue.iter().position(of_group) {
            self.answer_ready(key, place);
        }
    }

    fn has_groups_to_look_at(&self) -> bool {
        self.locks.iter().flat_map(|lock| &lock.queue).any(|wait| wait.looks_for_result)
    }

    /// Grants a lock to the first waiter whose result does not exist, or to several that share it.
    /// Returns `None` if no waiter is left.
    pub fn hand_to_head(&mut self, key: Key, stored: Option<u64>) -> Option<Vec<Sent>> {
        self.begin_round(key);
        if !self.answer_ready_at_head(key) {
            return None;
        }
        self.end_turn(key);
        if self.locks[key].queue[0].shared {
            let token = self.next_token(stored);
            self.begin_sharing(key, Some(token), None);
            return Some(self.let_in(key, token));
        }
        let head = self.locks[key].queue.remove(0);
        let token = self.grant(key, head.owner, head.lease, stored);
        self.counters.handed_off += 1;
        self.note_grant(key, head.owner, token);
        let until = self.locks[key].until.unwrap();
        Some(vec![Sent::Granted(head.client, head.owner.into(), token, until)])
    }
}

//! What the contract says of the turn of those who wait with Redisson.

use kvlock_core::MOMENT;

use super::naive::{Naive, Told};
use super::ops::Key;

impl Naive {
    /// Nobody here may have it, for a moment.
    pub fn is_left_to_redisson(&self, key: Key) -> bool {
        let lock = &self.locks[key];
        lock.moment.is_some_and(|until| until > self.now.mono.0)
    }

    /// The lock is released: to Redisson if it is its turn, else to the head of the queue.
    pub fn released(&mut self, key: Key, stored: Option<u64>) -> Vec<Told> {
        let (every, listens) = self.turns;
        let now = self.now.mono.0;
        let nobody = self.locks[key].queue.is_empty() || self.in_quarantine();
        let was_long_ago = self.locks[key].turn.is_none_or(|turn| now - turn >= every);
        if every > 0 && was_long_ago && !nobody && !self.must_guess(stored) {
            self.locks[key].turn = Some(now);
            if listens {
                self.moments.push(now + MOMENT.0);
                self.locks[key].moment = Some(now + MOMENT.0);
                self.counters.redisson_turns += 1;
            }
        }
        self.pass_on(key, stored)
    }

    /// Those who waited for moments that are over are not forgotten.
    pub fn end_moments(&mut self) {
        let now = self.now.mono.0;
        self.moments.retain(|until| *until > now);
        for lock in &mut self.locks {
            if lock.moment.take_if(|until| *until <= now).is_some() {
                lock.put_off = false;
            }
        }
    }

    /// A moment is nobody's when nobody waits.
    pub fn forget_moments(&mut self) {
        self.locks
            .iter_mut()
            .filter(|lock| lock.queue.is_empty())
            .for_each(|lock| lock.moment = None);
    }
}

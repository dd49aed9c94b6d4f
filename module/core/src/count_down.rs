//! Operations on a latch, and the release of its waiters.

use crate::key::KeyRef;
use crate::latch::{CountDownReply, Latch, LatchAt, LatchChange, SetReply};
use crate::outbox::Ending;
use crate::outcome::{Cause, WaitReply, count};
use crate::table::Table;
use crate::types::{UnixMillis, after};
use crate::waiter::Caller;

impl<P> Table<P> {
    /// Sets a latch. A latch that is not open yet is replaced only with `replace`.
    pub fn set_latch(
        &mut self,
        at: &LatchAt<'_>,
        count: u64,
        replace: bool,
        until: Option<UnixMillis>,
    ) -> (SetReply, LatchChange) {
        match at.seen {
            Latch::NotALatch { .. } => (SetReply::NotALatch, LatchChange::None),
            Latch::Counting { .. } if !replace => (SetReply::Counting, LatchChange::None),
            Latch::Counting { .. } | Latch::Open => {
                if at.seen == Latch::Open && self.queues.find(at.key).is_some() {
                    // These waiters waited for the previous latch, whose end was not noticed yet.
                    self.open(at.key);
                }
                if let Some(until) = until {
                    let due = after(until);
                    self.look_no_later_than(at.key, due, Cause::Expiry);
                }
                (SetReply::Set, LatchChange::Begin { count, until })
            }
        }
    }

    /// Counts down by one, unless the participant has counted already. At zero all waiters are
    /// released.
    pub fn count_down(&mut self, at: &LatchAt<'_>) -> (CountDownReply, LatchChange) {
        match at.seen {
            Latch::NotALatch { .. } => (CountDownReply::NotALatch, LatchChange::None),
            Latch::Open => (CountDownReply::Open, LatchChange::None),
            Latch::Counting { left, counted: true, .. } => {
                count(&mut self.counters.repeated);
                (CountDownReply::Left(left), LatchChange::None)
            }
            Latch::Counting { left: 1, .. } => {
                self.open(at.key);
                (CountDownReply::Left(0), LatchChange::Open)
            }
            Latch::Counting { left, .. } => {
                let left = left.saturating_sub(1);
                (CountDownReply::Left(left), LatchChange::Count { left })
            }
        }
    }

    /// Returns whether a latch is open. `None` while it counts down, false if the key is not a latch.
    #[must_use]
    pub fn ask_for_latch(&self, at: &LatchAt<'_>) -> Option<bool> {
        match at.seen {
            Latch::Open => Some(true),
            Latch::NotALatch { .. } => Some(false),
            Latch::Counting { .. } => None,
        }
    }

    /// Answers a wait at once if the latch is open or the key is not a latch. Otherwise decides
    /// whether the caller may wait.
    pub fn wait_for_latch(
        &self,
        at: &LatchAt<'_>,
        waiter: &[u8],
        caller: impl Into<Caller>,
    ) -> WaitReply<bool> {
        match self.ask_for_latch(at) {
            Some(is_open) => WaitReply::Now(is_open),
            None => self.room_for(at.key, waiter, &caller.into()),
        }
    }

    /// Called outside commands: releases the waiters if the latch is open, otherwise plans the next
    /// call.
    pub fn look_at_latch(&mut self, at: &LatchAt<'_>) {
        match at.seen {
            Latch::Open => self.open(at.key),
            Latch::Counting { .. } | Latch::NotALatch { .. } => {
                if let Some(id) = self.queues.find(at.key) {
                    self.plan_next_look(id, at.seen.until(), at.now);
                }
            }
        }
        if let Latch::NotALatch { .. } = at.seen {
            self.check_other_kind(at.key, at.now);
        }
    }

    /// Releases all waiters of a latch. They are answered one after the other: see
    /// [`Self::next_opened`].
    fn open(&mut self, key: KeyRef<'_>) {
        count(&mut self.counters.latches_opened);
        if let Some(id) = self.queues.find(key) {
            let planned = self.queues.release(id);
            self.agenda.move_look(id, planned, None);
        }
    }

    /// Removes one waiter of a latch that has opened. Returns `None` if no waiter is left, otherwise
    /// the client to answer, if any.
    pub fn next_opened(&mut self) -> Option<Option<P>> {
        let id = self.queues.first_opened()?;
        let leaver = self.take_out(id)?;
        count(&mut self.counters.released_by_latches);
        Some(self.deliver(leaver, Ending::Open))
    }

    /// Returns whether there may be waiters of an opened latch to answer.
    #[must_use]
    pub fn has_opened(&self) -> bool {
        self.queues.has_opened()
    }
}

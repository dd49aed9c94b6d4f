//! What is due when: the ends of timed waits and of sessions, and the moments at which a waited-for lock should be
//! looked at because its lease ends.
//!
//! They are ordered sets without tombstones: what is taken off is gone, and its memory with it. An
//! entry costs O(log n) of the entries; everything else about a waiter is O(1).

use std::collections::BTreeSet;

use crate::forget::Free as _;
use crate::queue::{QueueId, WaiterId};
use crate::session::SessionId;
use crate::types::{Millis, MonoMillis, Now, UnixMillis, sooner};

/// The ordered ends of waits, leases and sessions.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// By a clock that only goes forward: a wait is as long as the client asked.
    waits: BTreeSet<(MonoMillis, WaiterId)>,
    /// By the wall clock, because that is what a TTL counts in.
    looks: BTreeSet<(UnixMillis, QueueId)>,
    /// When a reader's time is over, or a session's.
    alarms: BTreeSet<(MonoMillis, SessionId)>,
    /// When somebody asked last what is due: what is due at once stands behind what was then.
    pub(crate) asked: UnixMillis,
}

impl Agenda {
    /// Frees an entry. Returns false if there was none.
    pub(crate) fn free_one(&mut self) -> bool {
        self.waits.free_one() || self.looks.free_one() || self.alarms.free_one()
    }

    pub(crate) fn add_wait(&mut self, end: Option<MonoMillis>, waiter: WaiterId) {
        self.waits.extend(end.map(|end| (end, waiter)));
    }

    pub(crate) fn drop_wait(&mut self, end: Option<MonoMillis>, waiter: WaiterId) {
        if let Some(end) = end {
            self.waits.remove(&(end, waiter));
        }
    }

    /// Moves the look at a queue from one moment to another; `None` is never.
    pub(crate) fn move_look(
        &mut self,
        queue: QueueId,
        from: Option<UnixMillis>,
        to: Option<UnixMillis>,
    ) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.looks.remove(&(from, queue));
        }
        self.looks.extend(to.map(|to| (to, queue)));
    }

    pub(crate) fn first_wait_over(&self, now: Now) -> Option<WaiterId> {
        let (end, waiter) = self.waits.first()?;
        (*end <= now.mono).then_some(*waiter)
    }

    pub(crate) fn first_look_due(&self, now: Now) -> Option<QueueId> {
        let (due, queue) = self.looks.first()?;
        (*due <= now.unix()).then_some(*queue)
    }

    pub(crate) fn add_alarm(&mut self, due: MonoMillis, session: SessionId) {
        self.alarms.insert((due, session));
    }

    pub(crate) fn drop_alarm(&mut self, due: MonoMillis, session: SessionId) {
        self.alarms.remove(&(due, session));
    }

    pub(crate) fn first_alarm(&self, now: Now) -> Option<SessionId> {
        let (due, session) = self.alarms.first()?;
        (*due <= now.mono).then_some(*session)
    }

    /// How long it is until something is due; `None` if nothing ever is.
    pub(crate) fn next_due(&self, now: Now) -> Option<Millis> {
        let wait = self.waits.first().map(|(end, _)| end.since(now.mono));
        let look = self.looks.first().map(|(due, _)| due.since(now.unix()));
        let alarm = self.alarms.first().map(|(due, _)| due.since(now.mono));
        sooner(wait, sooner(look, alarm))
    }

    pub(crate) fn has_alarm(&self, due: MonoMillis, session: SessionId) -> bool {
        self.alarms.contains(&(due, session))
    }

    /// How many alarms are on it.
    pub(crate) fn alarms(&self) -> usize {
        self.alarms.len()
    }

    pub(crate) fn has_wait(&self, end: MonoMillis, waiter: WaiterId) -> bool {
        self.waits.contains(&(end, waiter))
    }

    pub(crate) fn has_look(&self, due: UnixMillis, queue: QueueId) -> bool {
        self.looks.contains(&(due, queue))
    }

    /// How many waits and how many looks are on it.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.waits.len(), self.looks.len())
    }
}

//! Reports for operators, and the check of the invariants.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::histogram::Histogram;
use crate::key::{KeyRef, Kind, LockKey};
use crate::outcome::{Counters, KeySummary};
use crate::profile::Cost;
use crate::table::Table;
use crate::waiter::{Via, WaiterView};

impl<P> Table<P> {
    /// Returns the counts of events since the module was loaded.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the waiting times of all waiters that were granted a lock, a set of locks or
    /// permits.
    #[must_use]
    pub fn wait_times(&self) -> &Histogram {
        &self.wait_times
    }

    /// Returns the times from an exclusive grant to the release by the owner. While there are no
    /// waiters, one release in eight is measured, and counts eight times.
    #[must_use]
    pub fn hold_times(&self) -> &Histogram {
        &self.hold_times
    }

    /// Returns the locks and semaphores of a database with the longest total waiting time since the
    /// module was loaded or [`Self::reset_profile`] was called, longest first. If there are very many,
    /// times may be missing: see [`Cost::missed`].
    #[must_use]
    pub fn profile(&self, db: i32, count: usize) -> Vec<(&LockKey, Cost)> {
        self.profile.top(db, count)
    }

    /// Resets the profile of all databases.
    pub fn reset_profile(&mut self) {
        self.profile.reset();
    }

    /// Number of places in all queues, including observers. A waiter for a set counts once for each
    /// of its keys.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.queues.waiters()
    }

    /// Number of waiters that are blocked clients.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.queues.blocked()
    }

    /// Number of sessions, and of those that are [away](crate::SessionView::away).
    #[must_use]
    pub fn session_count(&self) -> (usize, usize) {
        (self.sessions.len(), self.sessions.away)
    }

    /// Number of waits through sessions, and of outcomes that are kept. The outcomes include those of
    /// sessions that have ended.
    #[must_use]
    pub fn session_waits(&self) -> (usize, usize) {
        (self.sessions.waits, self.sessions.outcomes)
    }

    /// Number of queues. A key with several kinds of waiters counts several times.
    #[must_use]
    pub fn waiting_keys(&self) -> usize {
        self.queues.count()
    }

    /// Number of waiters of one lock, semaphore or latch. Includes waiters that were taken out of
    /// the line because their sessions are away.
    #[must_use]
    pub fn waiters_of(&self, key: KeyRef<'_>) -> usize {
        let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
        queue.map_or(0, |queue| queue.len)
    }

    /// Returns whether an owner has a place in the queue of this key, in line or not.
    #[must_use]
    pub fn waits_for(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        self.queues.find(key).is_some_and(|queue| self.queues.place(queue, owner).is_some())
    }

    /// Returns the waiters of one key, in order of arrival. Leaves out waiters that were taken out of
    /// the line because their sessions are away.
    pub fn queue_of(&self, key: KeyRef<'_>) -> impl Iterator<Item = WaiterView<'_, P>> {
        let id = self.queues.find(key);
        id.into_iter().flat_map(|id| self.queues.walk(id)).map(|(id, waiter)| WaiterView {
            owner: &waiter.owner,
            want: waiter.want,
            since: waiter.since,
            client: match self.queues.waiter(self.queues.main_of(id)).map(|main| &main.via) {
                Some(Via::Client(client)) => Some(client),
                Some(Via::Session(_) | Via::Place(_)) | None => None,
            },
            session: self.queues.session_of(id).and_then(|id| Some(self.view_session(id)?.name)),
            set: self.queues.is_of_set(id).then(|| self.queues.main_of(id)),
        })
    }

    /// Returns up to `count` locks of a database with the most waiters, most first. Visits the
    /// queues of all databases.
    #[must_use]
    pub fn most_waited_for(&self, db: i32, count: usize) -> Vec<KeySummary<'_>> {
        let mut found: Vec<_> = self
            .queues
            .all()
            .filter(|(_, queue)| queue.key.db == db && queue.key.kind == Kind::Lock)
            .map(|(id, queue)| {
                let first = self.queues.walk(id).next();
                let since = first.map(|(_, first)| first.since);
                let set = first.filter(|(id, _)| self.queues.is_of_set(*id));
                let set = set.map(|(id, _)| self.queues.main_of(id));
                KeySummary { key: &queue.key, waiters: queue.len, since, set }
            })
            .collect();
        found.sort_unstable_by_key(|lock| (Reverse(lock.waiters), lock.since));
        found.truncate(count);
        found
    }

    /// Number of entries in the table, as a measure of its memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let kept = self.sessions.outcomes.saturating_add(self.sessions.waits);
        let kept = kept.saturating_add(self.bindings.len());
        self.queues.entries().saturating_add(self.in_flight.len()).saturating_add(kept)
    }

    /// Checks the invariants that concern the table alone. Reports the first one that is broken.
    ///
    /// # Errors
    ///
    /// A sentence that begins with the number of the invariant.
    pub fn check(&self) -> Result<(), String> {
        let planned = self.check_queues()?;
        let timed = self.check_waiters()?;
        if self.agenda.len() != (timed, planned) {
            return Err(format!(
                "I5: {:?} planned, {timed} and {planned} needed",
                self.agenda.len()
            ));
        }
        self.queues.check_sets()?;
        self.check_sessions()?;
        self.check_bound()?;
        self.check_observers()
    }

    /// Checks all waiters. Returns the number of waits with a timeout.
    fn check_waiters(&self) -> Result<usize, String> {
        let mut timed = 0_usize;
        for (id, waiter) in self.queues.each() {
            if self.queues.queue(waiter.queue).is_none() {
                return Err(format!("I1: {id:?} stands in no queue"));
            }
            if self.queues.place(waiter.queue, &waiter.owner) != Some(id) {
                return Err(format!("I2: {id:?} has no place of its own"));
            }
            if let Some(end) = waiter.end {
                timed = timed.saturating_add(1);
                if !self.agenda.has_wait(waiter.via.session(), end, id) {
                    return Err(format!("I5: the end of {id:?} is not planned"));
                }
            }
            let in_line = self.queues.is_in_line(id);
            let session = self.queues.session_of(id);
            if !in_line && session.is_none() {
                return Err(format!("I1: {id:?} is not in line"));
            }
            let Some(session) = session.and_then(|id| self.sessions.get(id)) else { continue };
            if !session.waits.contains(&self.queues.main_of(id)) {
                return Err(format!("I14: {id:?} is not on its session's list"));
            }
            let is_settled = session.settling.is_none();
            let passed_over = session.away && !waiter.want.is_for_all();
            if is_settled && in_line == passed_over {
                return Err(format!("I15: {id:?} is in line: {in_line}, away: {}", session.away));
            }
        }
        Ok(timed)
    }

    /// Checks all queues. Returns the number of planned looks.
    fn check_queues(&self) -> Result<usize, String> {
        let (mut waiting, mut planned) = (0_usize, 0_usize);
        let mut of = BTreeMap::<_, usize>::new();
        for (_, waiter) in self.queues.each() {
            let members = of.entry(waiter.queue).or_default();
            *members = members.saturating_add(1);
        }
        for (id, queue) in self.queues.all() {
            let key = String::from_utf8_lossy(&queue.key.name);
            let members = of.get(&id).copied().unwrap_or_default();
            if members == 0 || members != queue.len {
                return Err(format!("I1: {key} has {members} waiters and counts {}", queue.len));
            }
            if members > self.limits.waiters_per_key.max(self.counters.waiters_peak) {
                return Err(format!("I7: {members} wait for {key}"));
            }
            if let Some(look) = queue.look {
                planned = planned.saturating_add(1);
                if !self.agenda.has_look(look, id) {
                    return Err(format!("I5: the look at {key} is not planned"));
                }
            }
            waiting = waiting.saturating_add(members);
        }
        if waiting != self.queues.waiters() {
            return Err(format!("I1: {waiting} of {} stand in a queue", self.queues.waiters()));
        }
        self.turns.check()?;
        Ok(planned)
    }

    fn check_sessions(&self) -> Result<(), String> {
        let (mut waits, mut outcomes) = (0_usize, 0_usize);
        for (id, session) in self.sessions.iter() {
            for waiter in &session.waits {
                let via = self.queues.waiter(*waiter).and_then(|waiter| waiter.via.session());
                if via != Some(id) {
                    return Err(format!("I14: {waiter:?} is on the list of {id:?} and elsewhere"));
                }
            }
            session.outbox.check()?;
            if !self.agenda.has_alarm(session.due, id) {
                return Err(format!("I17: the end of {id:?} is not planned"));
            }
            waits = waits.saturating_add(session.waits.len());
            outcomes = outcomes.saturating_add(session.outbox.len());
        }
        for (_, outbox) in &self.sessions.remains {
            outcomes = outcomes.saturating_add(outbox.len());
        }
        if waits != self.sessions.waits {
            return Err(format!("I14: {waits} waits, {} counted", self.sessions.waits));
        }
        if outcomes != self.sessions.outcomes {
            return Err(format!("I16: {outcomes} outcomes, {} counted", self.sessions.outcomes));
        }
        if self.agenda.alarms() != self.sessions.len() {
            return Err(format!("I17: {} alarms are planned", self.agenda.alarms()));
        }
        let away = self.sessions.iter().filter(|(_, session)| session.away).count();
        if away != self.sessions.away {
            return Err(format!("I15: {away} are away, {} counted", self.sessions.away));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

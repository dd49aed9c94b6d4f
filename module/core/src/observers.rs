//! Observers: sessions that get an outcome when the holder of a lock, its token or its value changes.
//! If several changes follow each other quickly, an observer may get only the last one.
//!
//! ```text
//! LOCK.OBSERVE k SESSION id ─► state now, version 7
//!        k changes ─► notice: version 8 ─► each observer's outbox, some at a time
//!                                          8 not sent yet, 9 comes: 9 replaces it
//! ```
//!
//! Observers have queues of their own kind. An observer is never passed over, even while its
//! session is away, and it stays after an outcome. Changes are found by comparing the content of
//! the key with its last known state, whatever caused them.

use std::ops::Bound;
use std::rc::Rc;

use crate::ids::{QueueId, SessionId};
use crate::key::{KeyRef, Kind};
use crate::mode::Want;
use crate::news::{HolderState, LossReason, VersionedState};
use crate::outbox::Changed;
use crate::outcome::{Cause, Full, WaitReply, count};
use crate::table::Table;
use crate::types::{Millis, Now, UnixMillis, after};
use crate::waiter::{Caller, Join, Via};
use crate::watches::{Round, Watched};

/// Reason for which a lock cannot be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotObserved {
    /// A limit of waiters is reached; observers count as waiters.
    Full(Full),
    /// The module is being drained.
    Draining,
}

/// Longest time between two regular looks at an observed lock, unless there are very many queues.
/// Needed because no event reports that a string replaced a hash, or that a slot was migrated.
const REGULARLY: Millis = Millis(1_000);

/// Largest number of observers that one command or look informs. The others follow.
const TOLD_AT_ONCE: usize = 16;

impl<P> Table<P> {
    /// Number of observers, and number of locks that they observe.
    #[must_use]
    pub fn observers(&self) -> (usize, usize) {
        (self.watches.observers, self.watches.all.len())
    }

    /// Number of observers of one lock.
    #[must_use]
    pub fn observers_of(&self, key: KeyRef<'_>) -> usize {
        self.waiters_of(key.of_kind(Kind::Changes))
    }

    /// Returns whether a lock has observers.
    #[must_use]
    pub fn is_observed(&self, key: KeyRef<'_>) -> bool {
        !self.watches.all.is_empty() && self.queues.find(key.of_kind(Kind::Changes)).is_some()
    }

    /// Makes a session an observer of a lock. `holder_state` and `until` are the state of the lock and
    /// the expiry time of its key. If the session already is an observer, the change that is kept for
    /// it is dropped, because the reply contains the state.
    ///
    /// # Errors
    ///
    /// If a limit is reached, or the module is being drained.
    pub fn observe(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        (holder_state, until): (HolderState, Option<UnixMillis>),
        session: SessionId,
    ) -> Result<Rc<VersionedState>, NotObserved> {
        let key = key.of_kind(Kind::Changes);
        let observer = session.0.to_be_bytes();
        match self.room_for::<()>(key, &observer, &Caller::Session(session)) {
            WaitReply::QueueFull(full) => return Err(NotObserved::Full(full)),
            WaitReply::Draining => return Err(NotObserved::Draining),
            WaitReply::Now(()) | WaitReply::Block | WaitReply::Deadlock(_) => {}
        }
        self.notice(key, now, None, (holder_state.clone(), until));
        let is_new = self.place_of(key, &observer).is_none();
        let (owner, want) = (&observer[..], Want::Changes(0));
        let join = Join { owner, want, lease: Millis(0), timeout: None };
        let (id, _) = self.enqueue_at(key, now, until, &join, Via::Session(session));
        self.sessions.forget_change(session, id);
        if is_new {
            self.watches.observers = self.watches.observers.saturating_add(1);
        }
        let queue = self.queues.find(key).unwrap_or_default();
        let version = self.watches.next_version();
        let watched = self.watches.all.entry(queue).or_insert_with(|| {
            let news = Rc::new(VersionedState { holder_state, version });
            Watched { news, until, gone: None, round: None }
        });
        let news = Rc::clone(&watched.news);
        self.queues.now_knows(id, news.version);
        self.plan_regular_look(queue, until, now);
        Ok(news)
    }

    /// Ends the observation of a lock by a session and drops the change that is kept for it. Returns
    /// whether the session was an observer.
    pub fn unobserve(&mut self, key: KeyRef<'_>, session: SessionId) -> bool {
        let place = self.place_of(key.of_kind(Kind::Changes), &session.0.to_be_bytes());
        let Some(id) = place else { return false };
        self.sessions.forget_change(session, id);
        drop(self.take_out(id));
        true
    }

    /// Records the reason for a loss of the lock. [`Self::notice`] reports it to the observers.
    pub fn record_loss(&mut self, key: KeyRef<'_>, cause: Cause) {
        if self.watches.all.is_empty() {
            return;
        }
        let queue = self.queues.find(key.of_kind(Kind::Changes));
        if let Some(queue) = queue.and_then(|queue| self.queues.queue_mut(queue)) {
            queue.cause = cause;
        }
    }

    /// Compares the state of a lock with its last known state. If it differs, informs some
    /// observers now and the others later. Plans the next look. `cause` is the cause of a planned
    /// look. It is `None` if a command found or made the change.
    pub fn notice(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        cause: Option<Cause>,
        (holder_state, until): (HolderState, Option<UnixMillis>),
    ) {
        let Some(id) = self.queues.find(key.of_kind(Kind::Changes)) else { return };
        let planned = self.queues.queue(id).map_or(Cause::Outside, |queue| queue.cause);
        let cause = cause.unwrap_or(planned);
        let Some(watched) = self.watches.all.get_mut(&id) else { return };
        let was_until = std::mem::replace(&mut watched.until, until);
        if watched.news.holder_state != holder_state {
            self.watches.last_version = self.watches.last_version.saturating_add(1);
            let version = self.watches.last_version;
            if watched.news.holder_state.is_lost_to(&holder_state) {
                let was_over = was_until.is_some_and(|until| until < now.unix());
                watched.gone = Some((version, LossReason::by(cause, was_over)));
            }
            watched.news = Rc::new(VersionedState { holder_state, version });
            match &mut watched.round {
                Some(round) => round.again = true,
                None => {
                    watched.round = Some(Round::default());
                    self.watches.telling.push_back(id);
                }
            }
            count(&mut self.counters.changes);
        }
        self.plan_regular_look(id, until, now);
        self.inform_observers();
    }

    fn plan_regular_look(&mut self, id: QueueId, until: Option<UnixMillis>, now: Now) {
        let every = self.look_every.map_or(REGULARLY, |every| every.min(REGULARLY));
        let regular = now.unix().plus(self.stretched(every));
        let end = until.map(|until| after(until.max(now.unix())));
        match end.filter(|end| *end <= regular) {
            Some(end) => self.plan_look(id, Some(end), Cause::Expiry),
            None => self.plan_look(id, Some(regular), Cause::Check),
        }
    }

    /// Informs some observers of the newest states of their locks.
    fn inform_observers(&mut self) {
        for _ in 0..TOLD_AT_ONCE {
            if !self.inform_next() {
                return;
            }
        }
    }

    /// Informs one observer, unless it knows the newest state. Locks with observers to inform take
    /// turns. Returns false if there is no such lock.
    pub(crate) fn inform_next(&mut self) -> bool {
        let Some(queue) = self.watches.telling.pop_front() else { return false };
        if self.inform_next_of(queue) {
            self.watches.telling.push_back(queue);
        }
        true
    }

    /// Informs the next observer of one lock, unless it knows the newest state. Returns false if no
    /// observer is left to inform.
    fn inform_next_of(&mut self, queue: QueueId) -> bool {
        let Some(watched) = self.watches.all.get_mut(&queue) else { return false };
        let Some(round) = &mut watched.round else { return false };
        let from = round.after.map_or(Bound::Unbounded, Bound::Excluded);
        let Some(id) = self.queues.next_in_line(queue, from) else {
            watched.round = round.again.then(Round::default);
            return watched.round.is_some();
        };
        round.after = Some(id);
        let (news, gone) = (Rc::clone(&watched.news), watched.gone);
        let Some((knows, session)) = self.queues.observer(id).filter(|it| it.0 < news.version)
        else {
            return true;
        };
        let why = gone.filter(|(version, _)| *version > knows).map(|(_, gone)| gone);
        let Some(key) = self.queues.queue(queue).map(|queue| queue.key.clone()) else {
            return true;
        };
        self.queues.now_knows(id, news.version);
        count(&mut self.counters.changes_told);
        self.sessions.post_change(session, key, Changed { observer: id, news, why });
        true
    }

    /// Checks what observers know (I20).
    pub(crate) fn check_observers(&self) -> Result<(), String> {
        let mut observers = 0_usize;
        for (queue, watched) in &self.watches.all {
            let kind = self.queues.queue(*queue).map(|queue| queue.key.kind);
            if kind != Some(Kind::Changes) {
                return Err(format!("I20: {queue:?} is observed by nobody"));
            }
            let version = watched.news.version;
            for (id, _) in self.queues.walk(*queue) {
                observers = observers.saturating_add(1);
                let Some((knows, session)) = self.queues.observer(id) else {
                    return Err(format!("I20: {id:?} is no observer"));
                };
                let is_behind = |round: Round| !round.again && round.after >= Some(id);
                let must_know = watched.round.is_none_or(is_behind);
                if knows > version || must_know && knows != version {
                    return Err(format!("I20: {id:?} knows {knows} of {version}"));
                }
                let kept = self.sessions.get(session).and_then(|it| it.outbox.change_of(id));
                if let Some(kept) = kept.filter(|kept| kept.version != knows) {
                    return Err(format!("I20: {id:?} is to hear of {}: {knows}", kept.version));
                }
            }
            if watched.round.is_some() != self.watches.telling.contains(queue) {
                return Err(format!("I20: {queue:?} is not told of"));
            }
        }
        if observers != self.watches.observers {
            return Err(format!("I20: {observers} observe, {} counted", self.watches.observers));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Observers: sessions that get an outcome whenever the holder of a lock changes.
//!
//! ```text
//! LOCK.OBSERVE k SESSION id ─► state now, version 7
//!        k changes ─► notice: version 8 ─► each observer's outbox, some at a time
//!                                          8 not sent yet, 9 comes: 9 replaces it
//! ```
//!
//! An observer is in a queue of a kind of its own, like a waiter for a latch: it is never passed
//! over, even while its session is away. Unlike a waiter it stays after an outcome. Changes are
//! found by comparing the content of the key with its last known state, so every change is noticed,
//! whatever made it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use crate::grant::after;
use crate::ids::{QueueId, WaiterId};
use crate::key::{KeyRef, Kind};
use crate::mode::Want;
use crate::outbox::Changed;
use crate::outcome::{Cause, Full, WaitReply, count};
use crate::session::{SessionId, Via};
use crate::table::Table;
use crate::token::Token;
use crate::types::{Millis, Now, UnixMillis};
use crate::value::Value;
use crate::waiter::Leaver;
use crate::waiting::{Caller, Join};

/// State of a lock, as sent to observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The lock is free.
    Vacant,
    /// It is shared; the sharers are not named.
    Shared {
        /// The token of the period.
        token: Option<Token>,
    },
    /// One owner holds it exclusively.
    Held {
        /// The owner.
        owner: Rc<[u8]>,
        /// The token of the grant; `None` if a foreign script took the lock.
        token: Option<Token>,
        /// The value that the holder has published.
        value: Value,
    },
}

/// State of a lock, and its version.
#[derive(Debug, PartialEq, Eq)]
pub struct News {
    /// The state.
    pub standing: Standing,
    /// Version of this state. Newer states have larger versions, across all locks.
    pub version: u64,
}

impl News {
    /// Length of the holder's name and value, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let Standing::Held { owner, value, .. } = &self.standing else { return 0 };
        owner.len().saturating_add(value.as_ref().map_or(0, |value| value.len()))
    }
}

/// How the last holder lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It released the lock.
    Released,
    /// Its lease ended.
    Expired,
    /// It was released by force.
    Forced,
    /// The key was deleted or overwritten.
    Deleted,
    /// The database was flushed.
    Flushed,
    /// Its client disconnected before the grant was sent.
    TakenBack,
    /// The lock was bound to a session that has ended.
    Gone,
}

/// Why a lock cannot be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotObserved {
    /// A limit of waiters is reached; observers count as waiters.
    Full(Full),
    /// The module is being drained.
    Draining,
}

/// A lock with observers.
#[derive(Debug)]
struct Watched {
    news: Rc<News>,
    /// When its key expires, as last seen.
    until: Option<UnixMillis>,
    /// How a holder last lost the lock, and the version of that change.
    gone: Option<(u64, Gone)>,
    round: Option<Round>,
}

/// A round of informing the observers of a lock. Those up to `after` have the newest state. With
/// `again`, the state has changed during this round and another round follows.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    after: Option<WaiterId>,
    again: bool,
}

/// All locks with observers.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: BTreeMap<QueueId, Watched>,
    /// Locks whose observers are being informed.
    telling: VecDeque<QueueId>,
    observers: usize,
    last_version: u64,
}

/// Longest time between two looks at an observed lock: no event reports that a string replaced a
/// hash, or that a slot has left.
const REGULARLY: Millis = Millis(1_000);

/// Number of observers informed by the command or look that notices a change. The others follow.
const TOLD_AT_ONCE: usize = 16;

impl Standing {
    /// Whether the holder in `self` no longer holds the lock in `now`.
    fn went(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::Vacant, _) => false,
            (Self::Held { owner: before, .. }, Self::Held { owner, .. }) => before != owner,
            (Self::Shared { token: before }, Self::Shared { token }) => {
                before.is_some() && before != token
            }
            (Self::Held { .. } | Self::Shared { .. }, _) => true,
        }
    }
}

impl Watches {
    /// Removes all observers. Versions continue.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { last_version: self.last_version, ..Self::default() };
    }

    fn next_version(&mut self) -> u64 {
        self.last_version = self.last_version.saturating_add(1);
        self.last_version
    }

    /// Updates the counts after a waiter has left; `is_last` if its queue is gone.
    pub(crate) fn left<P>(&mut self, leaver: &Leaver<P>, is_last: bool) {
        if leaver.key.kind == Kind::Changes {
            self.observers = self.observers.saturating_sub(1);
            if is_last {
                self.all.remove(&leaver.waiter.queue);
            }
        }
    }

    pub(crate) fn is_telling(&self) -> bool {
        !self.telling.is_empty()
    }
}

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

    /// Whether a lock has observers.
    #[must_use]
    pub fn is_observed(&self, key: KeyRef<'_>) -> bool {
        !self.watches.all.is_empty() && self.queues.find(key.of_kind(Kind::Changes)).is_some()
    }

    /// Makes a session an observer of a lock, whose state and key expiry are given. If it already
    /// is one, its unread change is dropped, because the reply contains the state.
    ///
    /// # Errors
    ///
    /// If a limit is reached, or the module is being drained.
    pub fn observe(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        (standing, until): (Standing, Option<UnixMillis>),
        session: SessionId,
    ) -> Result<Rc<News>, NotObserved> {
        let key = key.of_kind(Kind::Changes);
        let observer = session.0.to_be_bytes();
        match self.room_for::<()>(key, &observer, &Caller::Session(session)) {
            WaitReply::QueueFull(full) => return Err(NotObserved::Full(full)),
            WaitReply::Draining => return Err(NotObserved::Draining),
            WaitReply::Now(()) | WaitReply::Block | WaitReply::Deadlock(_) => {}
        }
        self.notice(key, now, None, (standing.clone(), until));
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
            let news = Rc::new(News { standing, version });
            Watched { news, until, gone: None, round: None }
        });
        let news = Rc::clone(&watched.news);
        self.queues.now_knows(id, news.version);
        self.plan_regular_look(queue, until, now);
        Ok(news)
    }

    /// Ends the observation of a lock by a session and drops its unread change. Returns whether it
    /// was an observer.
    pub fn unobserve(&mut self, key: KeyRef<'_>, session: SessionId) -> bool {
        let place = self.place_of(key.of_kind(Kind::Changes), &session.0.to_be_bytes());
        let Some(id) = place else { return false };
        self.sessions.forget_change(session, id);
        drop(self.take_out(id));
        true
    }

    /// Sets the reason for the change of holder that [`Self::notice`] will find next.
    pub fn goes(&mut self, key: KeyRef<'_>, cause: Cause) {
        if self.watches.all.is_empty() {
            return;
        }
        let queue = self.queues.find(key.of_kind(Kind::Changes));
        if let Some(queue) = queue.and_then(|queue| self.queues.queue_mut(queue)) {
            queue.cause = cause;
        }
    }

    /// Compares the state of a lock with its last known state. If it differs, informs some
    /// observers; the others follow. Plans the next look. `cause` comes from a planned look; `None`
    /// means that a command has seen or made the change.
    pub fn notice(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        cause: Option<Cause>,
        (standing, until): (Standing, Option<UnixMillis>),
    ) {
        let Some(id) = self.queues.find(key.of_kind(Kind::Changes)) else { return };
        let planned = self.queues.queue(id).map_or(Cause::Outside, |queue| queue.cause);
        let cause = cause.unwrap_or(planned);
        let Some(watched) = self.watches.all.get_mut(&id) else { return };
        let was_until = std::mem::replace(&mut watched.until, until);
        if watched.news.standing != standing {
            self.watches.last_version = self.watches.last_version.saturating_add(1);
            let version = self.watches.last_version;
            if watched.news.standing.went(&standing) {
                let was_over = was_until.is_some_and(|until| until < now.unix());
                watched.gone = Some((version, Gone::by(cause, was_over)));
            }
            watched.news = Rc::new(News { standing, version });
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
        self.tell_observers();
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

    /// Informs some observers of the newest states.
    fn tell_observers(&mut self) {
        for _ in 0..TOLD_AT_ONCE {
            if !self.tell_next() {
                return;
            }
        }
    }

    /// Informs one observer. Locks with observers to inform take turns. Returns false if all know
    /// the newest state.
    pub(crate) fn tell_next(&mut self) -> bool {
        let Some(queue) = self.watches.telling.pop_front() else { return false };
        if self.tell_next_of(queue) {
            self.watches.telling.push_back(queue);
        }
        true
    }

    /// Informs the next observer of one lock. Returns false if all know the newest state.
    fn tell_next_of(&mut self, queue: QueueId) -> bool {
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

impl Gone {
    /// The reason to report for a cause. `was_over` if the lease had ended by then.
    fn by(cause: Cause, was_over: bool) -> Self {
        match cause {
            Cause::Release => Self::Released,
            Cause::Forced => Self::Forced,
            Cause::TakenBack => Self::TakenBack,
            Cause::SessionGone => Self::Gone,
            Cause::Flush => Self::Flushed,
            Cause::Expiry => Self::Expired,
            Cause::Outside | Cause::Check if was_over => Self::Expired,
            Cause::Outside | Cause::Check => Self::Deleted,
        }
    }
}

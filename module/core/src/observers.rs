//! Observers: sessions that are told whenever the holder of a lock changes.
//!
//! ```text
//! LOCK.OBSERVE k SESSION id ─► state now, version 7
//!        k changes ─► notice: version 8 ─► each observer's outbox, some at a time
//!                                          8 not sent yet, 9 comes: 9 takes its place
//! ```
//!
//! An observer stands in a queue of its own kind as one who waits for a latch does: it is passed over
//! by nobody, and told where its session is. But it stays. What there is to tell is found by comparing
//! what the key says with what it said before, so whoever changed it, and however, it is noticed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use crate::grant::after;
use crate::key::{KeyRef, Kind};
use crate::mode::Want;
use crate::outbox::Changed;
use crate::outcome::{Cause, Full, WaitReply, count};
use crate::planted::Bug;
use crate::queue::{Leaver, QueueId, WaiterId};
use crate::session::{SessionId, Via};
use crate::table::Table;
use crate::token::Token;
use crate::types::{Millis, Now, UnixMillis};
use crate::value::Value;
use crate::waiting::{Caller, Join};

/// Who holds a lock, as observers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody.
    Vacant,
    /// Those who share it; who they are is not told.
    Shared {
        /// The token of the period.
        token: Option<Token>,
    },
    /// One holds it alone.
    Held {
        /// Who.
        owner: Rc<[u8]>,
        /// The token of the grant; none if somebody else's script took the lock.
        token: Option<Token>,
        /// What the holder says of itself.
        value: Value,
    },
}

/// How a lock stands since when.
#[derive(Debug, PartialEq, Eq)]
pub struct News {
    /// Who holds it.
    pub standing: Standing,
    /// Larger for what is newer, of any lock.
    pub version: u64,
}

impl News {
    /// Number of bytes that the holder has said of itself, with its name.
    pub(crate) fn bytes(&self) -> usize {
        let Standing::Held { owner, value, .. } = &self.standing else { return 0 };
        owner.len().saturating_add(value.as_ref().map_or(0, |value| value.len()))
    }
}

/// How the last holder of a lock went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It released the lock.
    Released,
    /// Its lease ended.
    Expired,
    /// Somebody released the lock for it.
    Forced,
    /// Somebody deleted or overwrote the key.
    Deleted,
    /// The database was emptied.
    Flushed,
    /// Its client was gone before it heard of the grant.
    TakenBack,
    /// It had bound the lock to its session, which is gone.
    Gone,
}

/// Why nobody may observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotObserved {
    /// A limit of waiters is reached: observers count as such.
    Full(Full),
    /// The module is being drained.
    Draining,
}

/// A lock that somebody observes.
#[derive(Debug)]
struct Watched {
    news: Rc<News>,
    /// When it ends by itself, as was seen last.
    until: Option<UnixMillis>,
    /// How a holder went last, and by which version.
    gone: Option<(u64, Gone)>,
    round: Option<Round>,
}

/// Observers are being told. Those up to `after` know the newest, unless they must be told `again`.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    after: Option<WaiterId>,
    again: bool,
}

/// All locks that somebody observes.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: BTreeMap<QueueId, Watched>,
    /// Those whose observers are being told.
    telling: VecDeque<QueueId>,
    observers: usize,
    last_version: u64,
}

/// How often a lock is looked at for its observers though nothing was heard of it: no event tells
/// that a string took the place of a hash, or that a slot has left.
const REGULARLY: Millis = Millis(1_000);

/// How many observers are told by the command or look that notices a change. The others follow.
const TOLD_AT_ONCE: usize = 16;

impl Standing {
    /// Whether this holder went, if so the lock stands from now on.
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
    /// Begins anew without observers. Versions continue.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { last_version: self.last_version, ..Self::default() };
    }

    fn next_version(&mut self) -> u64 {
        self.last_version = self.last_version.saturating_add(1);
        self.last_version
    }

    /// Somebody has left a queue; `is_last` if it is gone.
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
    /// How many observers there are, and of how many locks.
    #[must_use]
    pub fn observers(&self) -> (usize, usize) {
        (self.watches.observers, self.watches.all.len())
    }

    /// How many observe one lock.
    #[must_use]
    pub fn observers_of(&self, key: KeyRef<'_>) -> usize {
        self.waiters_of(key.of_kind(Kind::Changes))
    }

    /// Whether somebody observes a lock.
    #[must_use]
    pub fn is_observed(&self, key: KeyRef<'_>) -> bool {
        !self.watches.all.is_empty() && self.queues.find(key.of_kind(Kind::Changes)).is_some()
    }

    /// A session observes a lock that stands so, until `until` at most if nobody changes it. If it
    /// does already, what was not read yet is dropped: it is told all of it now.
    ///
    /// # Errors
    ///
    /// If there is no room, or the module is being drained.
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
            WaitReply::Now(()) | WaitReply::Block => {}
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

    /// A session observes a lock no more, and is told nothing from now on. Says whether it did.
    pub fn unobserve(&mut self, key: KeyRef<'_>, session: SessionId) -> bool {
        let place = self.place_of(key.of_kind(Kind::Changes), &session.0.to_be_bytes());
        let Some(id) = place else { return false };
        self.sessions.forget_change(session, id);
        drop(self.take_out(id));
        true
    }

    /// The holder of a lock goes, and why: what its key says is noticed next.
    pub fn goes(&mut self, key: KeyRef<'_>, cause: Cause) {
        if self.watches.all.is_empty() {
            return;
        }
        let queue = self.queues.find(key.of_kind(Kind::Changes));
        if let Some(queue) = queue.and_then(|queue| self.queues.queue_mut(queue)) {
            queue.cause = cause;
        }
    }

    /// Compares how a lock stands now with how it stood, and tells some of those who observe it if
    /// that differs; the others follow. Plans the next look. `cause` is what a planned look said; without
    /// one, a command has seen or done it.
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
        let untold = standing == Standing::Vacant && Bug::VacantUntold.is_planted();
        if watched.news.standing != standing && !untold {
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

    /// Tells some observers what they do not know yet.
    fn tell_observers(&mut self) {
        for _ in 0..TOLD_AT_ONCE {
            if !self.tell_next() {
                return;
            }
        }
    }

    /// Tells one observer; locks with observers to be told take turns. Returns false if all know.
    pub(crate) fn tell_next(&mut self) -> bool {
        let Some(queue) = self.watches.telling.pop_front() else { return false };
        if self.tell_next_of(queue) {
            self.watches.telling.push_back(queue);
        }
        true
    }

    /// Continues with the observers of one lock. Returns false if all know.
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

    /// Checks what is known to observers (I20).
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
    /// What is told of a holder that went by this cause; its lease may have been over by then.
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

//! The lock table: those who wait. How they join, how each of the ways out works, and how the
//! lock is looked at for the first of them.

use std::rc::Rc;

use crate::account::{Account, Charge, Kept};
use crate::agenda::Look;
use crate::grant::after;
use crate::key::{KeyRef, Kind, LockKey};
use crate::lock::{Acquire, AcquireReply};
use crate::mode::Want;
use crate::observed::Observed;
use crate::outbox::{Dismissal, Ending, Outcome};
use crate::outcome::{Cause, Change, Full, WaitReply, count};
use crate::planted::Bug;
use crate::queue::{Leaver, Newcomer, QueueId, WaiterId, wait_bytes};
use crate::session::{SessionId, Via};
use crate::table::{Situation, Table};
use crate::types::{Millis, MonoMillis, Now, UnixMillis, sooner};

/// Who is put in line, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Join<'a> {
    /// For whom.
    pub owner: &'a [u8],
    /// To hold the lock alone, or to share it.
    pub want: Want,
    /// How long the grant will last.
    pub lease: Millis,
    /// How long the wait may last; none is without limit.
    pub timeout: Option<Millis>,
}

/// What asks to wait.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A session.
    Session(SessionId),
    /// A client that will be blocked, of this user.
    Client(Account),
}

impl Caller {
    /// The session, if it is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session(session) => Some(*session),
            Self::Client(_) => None,
        }
    }
}

impl From<Option<SessionId>> for Caller {
    /// Without a session, a client of no user.
    fn from(session: Option<SessionId>) -> Self {
        session.map_or_else(|| Self::Client(Account::default()), Self::Session)
    }
}

/// Everything known about a latch or a semaphore at one moment.
#[derive(Clone, Copy, Debug)]
pub struct At<'a, S> {
    /// Which key.
    pub key: KeyRef<'a>,
    /// What is there.
    pub seen: S,
    /// What time it is.
    pub now: Now,
}

/// What can be waited for, as it is at a moment.
pub trait WaitedFor {
    /// Its key, the moment, and when it is to be looked at next if nobody says otherwise.
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>);
}

impl WaitedFor for Situation<'_> {
    fn moment(&self) -> (KeyRef<'_>, Now, Option<UnixMillis>) {
        (self.key, self.now, self.seen.until())
    }
}

/// A moment that is always over: as soon as it is the turn of what was due before.
pub(crate) const AT_ONCE: UnixMillis = UnixMillis(0);

impl<P> Table<P> {
    /// Takes the lock if it can be had, else says whether the client may wait for it: blocked, or
    /// through a session.
    pub fn wait(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
        caller: impl Into<Caller>,
    ) -> (WaitReply<AcquireReply>, Change<P>) {
        let (caller, held) = (caller.into(), at.held_by(request));
        if held.is_none() && self.has_place_aside(at.key, request.owner) {
            let reply = match at.seen {
                Observed::NotALock { .. } => WaitReply::Now(AcquireReply::NotALock),
                _ if request.holds.is_some_and(|holds| holds > 1) => {
                    WaitReply::Now(AcquireReply::Mismatch)
                }
                Observed::Free { .. } | Observed::Held(_) | Observed::Shared(_) => {
                    self.room_for(at.key, request.owner, &caller)
                }
            };
            return (reply, Change::None);
        }
        let (reply, change) = self.try_acquire(at, &request.through(caller.session(), held));
        if reply != AcquireReply::Refused {
            return (WaitReply::Now(reply), change);
        }
        (self.room_for(at.key, request.owner, &caller), Change::None)
    }

    /// Whether the owner has a place in this queue and is passed over: it gets its turn by waiting
    /// again, and no second one.
    pub(crate) fn has_place_aside(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        self.place_aside(key, owner).is_some()
    }

    fn place_aside(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<WaiterId> {
        let place = self.place_of(key, owner);
        place.filter(|id| !self.queues.is_in_line(*id) && !self.is_left_behind(*id))
    }

    /// The place of an owner in this queue.
    pub(crate) fn place_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<WaiterId> {
        self.queues.find(key).and_then(|queue| self.queues.place(queue, owner))
    }

    /// Whether a place is about to go because its session is gone.
    fn is_left_behind(&self, id: WaiterId) -> bool {
        let session = self.queues.waiter(id).and_then(|waiter| waiter.via.session());
        session.is_some_and(|session| self.sessions.is_gone(session))
    }

    /// An owner that has the lock waits for it no more: its place aside goes, and its session hears that.
    pub(crate) fn leave_place_aside(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.sessions.waits > 0
            && let Some(id) = self.place_aside(key, owner)
            && let Some(leaver) = self.take_out(id)
        {
            drop(self.tell(leaver, Ending::Replaced));
        }
    }

    /// Returns whether a caller may wait for an owner. The limit of waiters counts places in line and
    /// outcomes. A wait that takes over a place needs no room, unless the session before gets an outcome by that.
    pub(crate) fn room_for<R>(
        &self,
        key: KeyRef<'_>,
        owner: &[u8],
        caller: &Caller,
    ) -> WaitReply<R> {
        if self.limits.draining {
            return WaitReply::Draining;
        }
        let queue = self.queues.find(key);
        let place = queue.and_then(|id| self.queues.place(id, owner));
        let in_line = queue.and_then(|id| self.queues.queue(id)).map_or(0, |queue| queue.len);
        let before = place.and_then(|id| self.queues.waiter(id)?.via.session());
        let replaced = before.filter(|session| caller.session() != Some(*session));
        let adds =
            place.is_none() || replaced.is_some_and(|session| !self.sessions.is_gone(session));
        let spare = usize::from(Bug::LimitOffByOne.is_planted());
        let kept = self.queues.waiters().saturating_add(self.sessions.outcomes);
        let (waiters, blocked) = (self.limits.waiters, self.limits.blocked);
        let full = adds && kept >= waiters.saturating_add(spare)
            || place.is_none() && in_line >= self.limits.waiters_per_key.saturating_add(spare);
        let blocks =
            caller.session().is_none() && !place.is_some_and(|id| self.queues.is_blocked(id));
        if full || blocks && self.blocked_in_all() >= blocked.saturating_add(spare) {
            return WaitReply::QueueFull(Full::Server);
        }
        let account = self.account_of(caller);
        let count = |kept| account.map_or(0, |account| account.count(kept));
        let by_user = adds && count(Kept::Waits) >= self.limits.of_user(waiters)
            || blocks && count(Kept::Blocked) >= self.limits.of_user(blocked);
        if by_user { WaitReply::QueueFull(Full::User) } else { WaitReply::Block }
    }

    /// Number of clients that are blocked: waiters, and readers of sessions.
    #[must_use]
    pub fn blocked_in_all(&self) -> usize {
        self.accounts.count(Kept::Blocked).max(self.queues.blocked())
    }

    /// The account of a user, which counts what is kept for it.
    pub fn account(&mut self, user: &[u8]) -> Account {
        self.accounts.of(user)
    }

    /// The account of a session's user.
    #[must_use]
    pub fn account_of_session(&self, session: SessionId) -> Option<Account> {
        self.sessions.get(session).map(|session| session.account.clone())
    }

    /// Estimated memory of all that is kept for clients, in bytes.
    #[must_use]
    pub fn bytes_kept(&self) -> usize {
        self.accounts.bytes().saturating_add(self.queues.name_bytes())
    }

    fn account_of<'t>(&'t self, caller: &'t Caller) -> Option<&'t Account> {
        match caller {
            Caller::Session(session) => self.sessions.get(*session).map(|session| &session.account),
            Caller::Client(account) => Some(account),
        }
    }

    /// The charge of a wait through a session.
    fn charge_wait(&self, session: Option<SessionId>, owner: &[u8]) -> Option<Charge> {
        let session = self.sessions.get(session?)?;
        Some(session.account.charge(Kept::Waits, wait_bytes(owner)))
    }

    /// Puts a client or a session in line, after [`Self::wait`] said [`WaitReply::Block`]. If its
    /// owner has a place in this queue, it takes that over: a client before it is given back, a
    /// session is told, and for the same session it is still one place.
    pub fn enqueue(
        &mut self,
        at: &impl WaitedFor,
        join: &Join<'_>,
        via: impl Into<Via<P>>,
    ) -> (WaiterId, Option<P>) {
        let (key, now, until) = at.moment();
        self.enqueue_at(key, now, until, join, via.into())
    }

    /// The same for a key that goes away by itself at `until`.
    pub(crate) fn enqueue_at(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        until: Option<UnixMillis>,
        join: &Join<'_>,
        via: Via<P>,
    ) -> (WaiterId, Option<P>) {
        let end = join.timeout.map(|timeout| now.mono.plus(timeout));
        let place = self.place_of(key, join.owner).filter(|_| !Bug::SecondPlace.is_planted());
        if let Some(id) = place.filter(|id| self.is_left_behind(*id)) {
            drop(self.withdraw(id));
        } else if let Some(id) = place {
            return (id, self.take_over(id, key, end, join, via));
        }
        let (owner, want, lease, since) = (join.owner, join.want, join.lease, now.mono);
        let session = via.session();
        let charge = self.charge_wait(session, owner);
        let id = self.queues.push(key, Newcomer { owner, want, lease, since, end, via, charge });
        self.agenda.add_wait(session, end, id);
        self.counters.waiters_peak = self.counters.waiters_peak.max(self.queues.waiters());
        if let Some(session) = session {
            self.sessions.join(session, id);
            self.settle_one(id);
        }
        if let Some((due, cause)) = self.next_look_at(until, now) {
            self.look_no_later_than(key, due, cause);
        }
        (id, None)
    }

    /// Somebody else waits at a place from now on.
    fn take_over(
        &mut self,
        id: WaiterId,
        key: KeyRef<'_>,
        end: Option<MonoMillis>,
        join: &Join<'_>,
        via: Via<P>,
    ) -> Option<P> {
        let session = via.session();
        let charge = self.charge_wait(session, join.owner);
        let before = self.queues.replace_via(id, via)?;
        let waiter = self.queues.waiter_mut(id)?;
        waiter.charge = charge;
        let old_end = std::mem::replace(&mut waiter.end, end);
        let other = std::mem::replace(&mut waiter.want, join.want) != join.want;
        waiter.lease = join.lease;
        waiter.bound = false;
        let (queue, owner) = (waiter.queue, Rc::clone(&waiter.owner));
        self.agenda.drop_wait(before.session(), old_end, id);
        self.agenda.add_wait(session, end, id);
        if other {
            // If it stands in front, what it wants now may be there to be had.
            self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
        }
        let old_session = before.session().filter(|old| session != Some(*old));
        if let Some(old) = old_session {
            self.sessions.leave(old, id);
            self.sessions.post(old, Outcome { key: key.keep(), owner, ending: Ending::Replaced });
        }
        if let Some(session) = session {
            self.sessions.join(session, id);
        }
        self.settle_one(id);
        before.client()
    }

    /// Withdraws an owner's waiter; gives it back if it is a client to answer.
    pub fn cancel(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<Option<P>> {
        let queue = self.queues.find(key)?;
        let id = self.queues.place(queue, owner)?;
        let leaver = self.withdraw(id)?;
        count(&mut self.counters.cancelled);
        Some(self.tell(leaver, Ending::Cancelled))
    }

    /// Takes out a waiter whose client is gone.
    pub fn disconnected(&mut self, id: WaiterId) -> Option<P> {
        if Bug::GhostWaiter.is_planted() {
            return None;
        }
        let leaver = self.withdraw(id)?;
        count(&mut self.counters.disconnects);
        leaver.waiter.via.client()
    }

    /// Takes out all blocked clients, in order of arrival.
    pub fn dismiss_all(&mut self) -> Vec<P> {
        let first = |table: &mut Self| {
            let id = table.queues.first_blocked()?;
            table.take_out(id)?.waiter.via.client()
        };
        std::iter::from_fn(|| first(self)).collect()
    }

    /// Takes out the first waiter of one lock, and gives it back if it is a client to answer: for
    /// when all of them must go. Who is away hears of it when it is back.
    pub fn dismiss_one_of(&mut self, key: KeyRef<'_>, why: Dismissal) -> Option<Option<P>> {
        let queue = self.queues.find(key)?;
        let (head, _) = self.queues.head(queue)?;
        let leaver = self.take_out(head)?;
        Some(self.tell(leaver, Ending::Dismissed(why)))
    }

    /// Takes out one waiter whose time is over, and gives it back if it is a client to answer. Sessions
    /// and the blocked clients take turns; of each the one that is longest over is first. A waiter
    /// whose latch has opened before is not timed out: it is answered as released.
    pub fn time_out_one(&mut self, now: Now) -> Option<Option<P>> {
        let id = self.agenda.waits.next(now.mono)?;
        let waiter = self.queues.waiter(id)?;
        let is_released = self.queues.queue(waiter.queue).is_some_and(|queue| queue.is_released);
        if is_released || Bug::TimeoutStays.is_planted() {
            let (session, end) = (waiter.via.session(), waiter.end);
            self.queues.waiter_mut(id)?.end = None;
            self.agenda.drop_wait(session, end, id);
            return is_released.then_some(None);
        }
        let leaver = self.withdraw(id)?;
        count(&mut self.counters.timeouts);
        Some(self.tell(leaver, Ending::TimedOut))
    }

    /// A lock that is due to be looked at, and what will have freed it if it is free. Show it to
    /// [`Self::look`] next. Of looks that only check there is one when no other is due.
    pub fn next_look(&mut self, now: Now) -> Option<(LockKey, Cause)> {
        self.agenda.asked = now.unix();
        self.sweep_on(now);
        self.next_due_look(now).or_else(|| self.next_check(now))
    }

    /// The same, without looks that only check.
    pub(crate) fn next_due_look(&mut self, now: Now) -> Option<(LockKey, Cause)> {
        let id = self.agenda.looks.next(now.unix())?;
        self.take_look(id)
    }

    /// The same, only of looks that check.
    pub(crate) fn next_check(&mut self, now: Now) -> Option<(LockKey, Cause)> {
        let id = self.agenda.checks.next(now.unix())?;
        self.take_look(id)
    }

    fn take_look(&mut self, id: QueueId) -> Option<(LockKey, Cause)> {
        let queue = self.queues.queue(id)?;
        let due = (queue.key.clone(), queue.cause);
        self.plan_look(id, None, Cause::Expiry);
        Some(due)
    }

    /// Looks at a lock: grants it to the first waiter if it can be had, else plans the next look.
    pub fn look(&mut self, at: &Situation<'_>, cause: Cause) -> Change<P> {
        let Some(id) = self.queues.find(at.key) else {
            return Change::None;
        };
        self.pass_over(at.key);
        if matches!(at.seen, Observed::Free { .. }) {
            self.begin_next_moment(at, cause);
        }
        let served = match &at.seen {
            Observed::Free { stored } => self.hand_to_head(at, *stored, cause),
            Observed::Shared(sharing) if self.head_wants(at) == Some(Want::Shared) => {
                self.let_more_in(at, sharing, cause)
            }
            Observed::Shared(_) | Observed::Held(_) | Observed::NotALock { .. } => None,
        };
        if let Some(change) = served {
            return change;
        }
        self.plan_next_look(id, at.seen.until(), at.now);
        Change::None
    }

    /// Plans the next look at a key that expires at `until`.
    pub(crate) fn plan_next_look(&mut self, id: QueueId, until: Option<UnixMillis>, now: Now) {
        if self.front_is_away(id) {
            return self.plan_look(id, Some(AT_ONCE), Cause::Outside);
        }
        match self.next_look_at(until, now) {
            Some((due, cause)) => self.plan_look(id, Some(due), cause),
            None => self.plan_look(id, None, Cause::Expiry),
        }
    }

    /// When a lock whose key expires at `until` should be looked at next, and what will have freed
    /// it if it is free then.
    pub(crate) fn next_look_at(
        &self,
        until: Option<UnixMillis>,
        now: Now,
    ) -> Option<(UnixMillis, Cause)> {
        // The server may see a key for a moment longer than its deadline: look again then.
        let end = until.map(|until| after(until.max(now.unix())));
        let end = end.filter(|_| !Bug::LookForgotten.is_planted());
        let regular = self.look_every.map(|every| now.unix().plus(self.stretched(every)));
        match (end, regular) {
            (Some(end), Some(regular)) if regular < end => Some((regular, Cause::Check)),
            (Some(end), _) => Some((end, Cause::Expiry)),
            (None, regular) => regular.map(|regular| (regular, Cause::Check)),
        }
    }

    /// What will have freed this lock, if it is free although somebody waits for it.
    #[must_use]
    pub fn cause_of_freedom(&self, key: KeyRef<'_>) -> Cause {
        let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
        queue.map_or(Cause::Outside, |queue| queue.cause)
    }

    /// Returns whether a key of this name is waited for or observed.
    #[must_use]
    pub fn is_waited_for(&self, db: i32, name: &[u8]) -> bool {
        self.queues.of_name(db, name).next().is_some()
    }

    /// Plans a look right now at a key that is waited for or observed, because of what happened to it.
    pub fn look_soon_at_all_of(&mut self, db: i32, name: &[u8], cause: Cause, now: Now) {
        self.use_moment(KeyRef::lock(db, name));
        for kind in Kind::ALL {
            self.look_soon(KeyRef { db, name, kind }, cause, now);
        }
    }

    /// Plans a look at a lock right now, if somebody waits for it, because of what befell its key.
    pub fn look_soon(&mut self, key: KeyRef<'_>, cause: Cause, now: Now) {
        if let Some(id) = self.queues.find(key) {
            self.plan_look(id, Some(now.unix()), cause);
        }
    }

    /// How long it is until something is due; none if nothing ever is.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Millis> {
        let goes_on = self.sessions_have_work() || self.is_sweeping() || self.has_readers_to_tell();
        let left = !self.untold.is_empty()
            || !self.discarded.is_empty()
            || !self.sessions.closed.is_empty()
            || self.has_groups_to_look_at();
        if goes_on || left || self.has_released() {
            return Some(Millis(0));
        }
        let first = sooner(self.agenda.next_due(now), self.quarantine_due(now));
        sooner(first, sooner(self.moment_due(now), self.bound_due(now)))
    }

    pub(crate) fn plan_look(&mut self, id: QueueId, due: Option<UnixMillis>, cause: Cause) {
        let head = due.and_then(|_| self.queues.head(id));
        let head = head.and_then(|(head, _)| self.queues.waiter(head));
        let account = head.and_then(|waiter| waiter.via.session());
        let look = due.map(|due| Look {
            due: if due == AT_ONCE { self.agenda.asked } else { due },
            account,
            checks: cause == Cause::Check,
        });
        if let Some(queue) = self.queues.queue_mut(id) {
            let before = std::mem::replace(&mut queue.look, look);
            queue.cause = cause;
            self.agenda.move_look(id, before, look);
        }
    }

    /// A waiter leaves without having got the lock. If it stood in front, what the next one wants
    /// may be there to be had.
    pub(crate) fn withdraw(&mut self, id: WaiterId) -> Option<Leaver<P>> {
        let leaver = self.take_out(id)?;
        let queue = leaver.waiter.queue;
        if let Some((_, want)) = self.queues.head(queue)
            && leaver.stood_in_front
            && want != leaver.waiter.want
        {
            self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
        }
        Some(leaver)
    }

    pub(crate) fn take_out(&mut self, id: WaiterId) -> Option<Leaver<P>> {
        let leaver = self.queues.remove(id)?;
        self.watches.left(&leaver, self.queues.queue(leaver.waiter.queue).is_none());
        if let Via::Session(session) = leaver.waiter.via {
            self.sessions.leave(session, id);
        }
        self.agenda.drop_wait(leaver.waiter.via.session(), leaver.waiter.end, id);
        self.agenda.move_look(leaver.waiter.queue, leaver.planned, None);
        Some(leaver)
    }
}

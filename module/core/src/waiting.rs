//! Operations of the table on waiters: how they join and leave, and how the first one is granted
//! its lock.

use std::rc::Rc;

use crate::account::{Account, Charge, Quota};
use crate::agenda::{AT_ONCE, Look};
use crate::change::Change;
use crate::ids::{QueueId, SessionId, WaiterId};
use crate::key::{KeyRef, Kind, LockKey};
use crate::lock::{Acquire, AcquireReply};
use crate::mode::Want;
use crate::observed::Observed;
use crate::outbox::{Dismissal, Ending, Outcome};
use crate::outcome::{Cause, Full, WaitReply, count};
use crate::situation::{Situation, WaitedFor};
use crate::table::Table;
use crate::types::{Millis, MonoMillis, Now, UnixMillis, after, sooner};
use crate::waiter::{Caller, Join, Leaver, Newcomer, Via, wait_bytes};

/// Least time between two checks of a key that is of another kind than its waiters wait for.
const OTHER_KIND_CHECK: Millis = Millis(1000);

impl<P> Table<P> {
    /// Takes the lock if possible. Otherwise decides whether the caller may wait, as a blocked
    /// client or through a session.
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
        let room = self.room_for(at.key, request.owner, &caller);
        let place = self.place_of(at.key, request.owner).filter(|id| !self.is_left_behind(*id));
        if place.is_some_and(|id| !self.queues.is_of_set(id)) {
            return (room, Change::None);
        }
        let wanted = [(at.key, request.want)];
        (self.unless_in_circle(room, &wanted, request.owner, at.results), Change::None)
    }

    /// Returns whether the owner has a place for a single lock in this queue that is out of the
    /// line. If the owner waits again, it takes its place back and gets no second one.
    pub(crate) fn has_place_aside(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        self.place_aside(key, owner).is_some()
    }

    fn place_aside(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<WaiterId> {
        let place = self.place_of(key, owner);
        place.filter(|id| !self.queues.is_of_set(*id) && self.is_aside(*id))
    }

    /// Returns whether a place is out of the line, because the session of its wait is away.
    pub(crate) fn is_aside(&self, id: WaiterId) -> bool {
        !self.queues.is_in_line(id) && !self.is_left_behind(id)
    }

    /// Returns the id of the place that an owner has in the queue of a key.
    pub(crate) fn place_of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<WaiterId> {
        self.queues.find(key).and_then(|queue| self.queues.place(queue, owner))
    }

    /// Returns whether a waiter belongs to a session that has ended, so that it will be removed.
    pub(crate) fn is_left_behind(&self, id: WaiterId) -> bool {
        let session = self.queues.session_of(id);
        session.is_some_and(|session| self.sessions.is_gone(session))
    }

    /// Removes the owner's wait for this lock alone that is out of the line, because the owner was
    /// granted the lock or permits by another request. The session of the wait gets the outcome
    /// `replaced`.
    pub(crate) fn leave_place_aside(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.sessions.waits > 0
            && let Some(id) = self.place_aside(key, owner)
        {
            drop(self.replace(id));
        }
    }

    /// Decides whether a caller may wait on behalf of an owner. The limit of waiters counts places
    /// and outcomes that are kept. Taking over an existing place counts only if it produces an
    /// outcome for the session that had the place. A client that would be blocked also counts
    /// against the limit of blocked clients, unless it replaces a blocked client.
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
        let before = place.and_then(|id| self.queues.session_of(id));
        let replaced = before.filter(|session| caller.session() != Some(*session));
        let adds =
            place.is_none() || replaced.is_some_and(|session| !self.sessions.is_gone(session));
        let kept = self.queues.waiters().saturating_add(self.sessions.outcomes);
        let (waiters, blocked) = (self.limits.waiters, self.limits.blocked);
        let full =
            adds && kept >= waiters || place.is_none() && in_line >= self.limits.waiters_per_key;
        let blocks =
            caller.session().is_none() && !place.is_some_and(|id| self.queues.is_blocked(id));
        if full || blocks && self.blocked_in_all() >= blocked {
            return WaitReply::QueueFull(Full::Server);
        }
        let account = self.account_of(caller);
        let count = |kept| account.map_or(0, |account| account.count(kept));
        let by_user = adds && count(Quota::Waits) >= self.limits.of_user(waiters)
            || blocks && count(Quota::Blocked) >= self.limits.of_user(blocked);
        if by_user { WaitReply::QueueFull(Full::User) } else { WaitReply::Block }
    }

    /// Number of blocked clients: waiters, and readers of sessions.
    #[must_use]
    pub fn blocked_in_all(&self) -> usize {
        self.accounts.count(Quota::Blocked).max(self.queues.blocked())
    }

    /// Returns the account of a user.
    pub fn account(&mut self, user: &[u8]) -> Account {
        self.accounts.of(user)
    }

    /// The account of a session's user.
    #[must_use]
    pub fn account_of_session(&self, session: SessionId) -> Option<Account> {
        self.sessions.get(session).map(|session| session.account.clone())
    }

    /// Estimated memory of everything kept for clients, in bytes.
    #[must_use]
    pub fn bytes_kept(&self) -> usize {
        self.accounts.bytes().saturating_add(self.queues.name_bytes())
    }

    pub(crate) fn account_of<'t>(&'t self, caller: &'t Caller) -> Option<&'t Account> {
        match caller {
            Caller::Session(session) => self.sessions.get(*session).map(|session| &session.account),
            Caller::Client(account) => Some(account),
        }
    }

    /// Charges a wait to the session's user.
    pub(crate) fn charge_wait(&self, session: Option<SessionId>, owner: &[u8]) -> Option<Charge> {
        let session = self.sessions.get(session?)?;
        Some(session.account.charge(Quota::Waits, wait_bytes(owner)))
    }

    /// Queues a client or a session after [`Self::wait`] returned [`WaitReply::Block`]. If the
    /// owner already waits in this queue for only this lock, the new caller takes over its place. A
    /// wait for a set of locks, or through a session that has ended, is removed instead. Then the
    /// caller gets a new place at the end.
    ///
    /// If the earlier place belonged to a blocked client, returns that client. If it belonged to
    /// another session that has not ended, that session gets the outcome `replaced`. The session of
    /// a removed wait for a set gets this outcome even if it is the new caller.
    pub fn enqueue(
        &mut self,
        at: &impl WaitedFor,
        join: &Join<'_>,
        via: impl Into<Via<P>>,
    ) -> (WaiterId, Option<P>) {
        let (key, now, until) = at.moment();
        self.enqueue_at(key, now, until, join, via.into())
    }

    /// Queues a client or a session, like [`Self::enqueue`], for a key that expires at `until`.
    pub(crate) fn enqueue_at(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        until: Option<UnixMillis>,
        join: &Join<'_>,
        via: Via<P>,
    ) -> (WaiterId, Option<P>) {
        let end = join.timeout.map(|timeout| now.mono.plus(timeout));
        let place = self.place_of(key, join.owner);
        let mut replaced = None;
        if let Some(id) = place.filter(|id| self.is_left_behind(*id)) {
            drop(self.withdraw(id));
        } else if let Some(id) = place.filter(|id| self.queues.is_of_set(*id)) {
            replaced = self.replace(id);
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
        if place.is_some() {
            // The owner's earlier place may have been the only reason why the owner was not granted
            // the lock.
            self.look_soon(key, Cause::Outside, now);
        } else if let Some((due, cause)) = self.next_look_at(until, now) {
            self.look_no_later_than(key, due, cause);
        }
        (id, replaced)
    }

    /// Removes a waiter because another wait of its owner replaces it. Returns the client to answer.
    pub(crate) fn replace(&mut self, id: WaiterId) -> Option<P> {
        let leaver = self.withdraw(id)?;
        self.deliver(leaver, Ending::Replaced)
    }

    /// Gives an existing place to the caller of a new wait. Returns the client that was blocked there,
    /// if there was one.
    pub(crate) fn take_over(
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
            // If this waiter is first in line, its new request may be grantable at once.
            self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
        }
        let old_session = before.session().filter(|old| session != Some(*old));
        if let Some(old) = old_session {
            self.sessions.leave(old, id);
            self.sessions
                .post(old, Outcome { key: key.to_lock_key(), owner, ending: Ending::Replaced });
        }
        if let Some(session) = session {
            self.sessions.join(session, id);
        }
        self.settle_one(id);
        before.client()
    }

    /// Withdraws the waiter of an owner. Returns `None` if there is none, otherwise the client to
    /// answer, if any.
    pub fn cancel(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<Option<P>> {
        let queue = self.queues.find(key)?;
        let id = self.queues.place(queue, owner)?;
        let leaver = self.withdraw(id)?;
        count(&mut self.counters.cancelled);
        Some(self.deliver(leaver, Ending::Cancelled))
    }

    /// Removes a waiter whose client has disconnected.
    pub fn disconnected(&mut self, id: WaiterId) -> Option<P> {
        let leaver = self.withdraw(id)?;
        count(&mut self.counters.disconnects);
        leaver.waiter.via.client()
    }

    /// Removes all waiters that are blocked clients, and returns their clients in order of arrival.
    /// Blocked readers of sessions stay.
    pub fn dismiss_all(&mut self) -> Vec<P> {
        let first = |table: &mut Self| {
            let id = table.queues.first_blocked()?;
            table.take_out(id)?.waiter.via.client()
        };
        std::iter::from_fn(|| first(self)).collect()
    }

    /// Removes the first waiter in the line of a key, or beside it. Returns `None` if there is none,
    /// otherwise the client to answer, if any. The caller repeats the call to remove all of them.
    /// Waiters that were taken out of the line because their sessions are away stay.
    pub fn dismiss_one_of(&mut self, key: KeyRef<'_>, why: Dismissal) -> Option<Option<P>> {
        let queue = self.queues.find(key)?;
        let first = self.queues.with_beside(queue).next()?;
        let leaver = self.take_out(self.queues.main_of(first))?;
        Some(self.deliver(leaver, Ending::Dismissed(why)))
    }

    /// Removes one waiter whose timeout has passed. Returns `None` if there is none, otherwise the
    /// client to answer, if any. Sessions and blocked clients take turns, each in the order of
    /// their timeouts. A waiter whose latch has opened does not time out: it gets that
    /// outcome instead.
    pub fn time_out_one(&mut self, now: Now) -> Option<Option<P>> {
        let id = self.agenda.waits.next(now.mono)?;
        let waiter = self.queues.waiter(id)?;
        let is_opened = self.queues.queue(waiter.queue).is_some_and(|queue| queue.is_opened);
        if is_opened {
            let (session, end) = (waiter.via.session(), waiter.end);
            self.queues.waiter_mut(id)?.end = None;
            self.agenda.drop_wait(session, end, id);
            return Some(None);
        }
        let leaver = self.withdraw(id)?;
        count(&mut self.counters.timeouts);
        Some(self.deliver(leaver, Ending::TimedOut))
    }

    /// Takes a key that is due for a look, with the cause to report if the lock is free. The caller
    /// then calls the function that looks at its kind, for a lock [`Self::look`]. Looks that only
    /// check for unnoticed changes come when no other look is due.
    pub fn next_look(&mut self, now: Now) -> Option<(LockKey, Cause)> {
        self.agenda.asked = now.unix();
        self.sweep_on(now);
        self.next_due_look(now).or_else(|| self.next_check(now))
    }

    /// Takes a key that is due for a look, except for looks that only check: see [`Self::next_look`].
    pub(crate) fn next_due_look(&mut self, now: Now) -> Option<(LockKey, Cause)> {
        let id = self.agenda.looks.next(now.unix())?;
        self.take_look(id)
    }

    /// Takes a key that is due for a check: see [`Self::next_look`].
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

    /// Looks at a lock: grants it to the first waiter if possible, otherwise plans the next look.
    pub fn look(&mut self, at: &Situation<'_>, cause: Cause) -> Change<P> {
        let Some(id) = self.queues.find(at.key) else {
            return Change::None;
        };
        // The planned look is done.
        self.plan_look(id, None, Cause::Expiry);
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
        match at.seen {
            Observed::Free { .. } | Observed::Shared(_) => self.queues.note_sets(id),
            // The owner of the first set may hold the lock itself.
            Observed::Held(_) => self.queues.note_head(id),
            Observed::NotALock { .. } => self.check_other_kind(at.key, at.now),
        }
        if let Some((due, cause)) = self.next_look_at(at.seen.until(), at.now) {
            self.look_no_later_than(at.key, due, cause);
        }
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

    /// Plans a check of a key that is of another kind than its waiters wait for. A command for that kind may delete
    /// the key, and no event reports the changes that commands of this module make.
    pub(crate) fn check_other_kind(&mut self, key: KeyRef<'_>, now: Now) {
        let due = now.unix().plus(self.stretched(OTHER_KIND_CHECK));
        self.look_no_later_than(key, due, Cause::Check);
    }

    /// Returns the time of the next look at a lock whose key expires at `until`. Also returns the
    /// cause to report if the lock is free then.
    pub(crate) fn next_look_at(
        &self,
        until: Option<UnixMillis>,
        now: Now,
    ) -> Option<(UnixMillis, Cause)> {
        // The server may keep a key for a short time after its deadline: look again then.
        let end = until.map(|until| after(until.max(now.unix())));
        let regular = self.look_every.map(|every| now.unix().plus(self.stretched(every)));
        match (end, regular) {
            (Some(end), Some(regular)) if regular < end => Some((regular, Cause::Check)),
            (Some(end), _) => Some((end, Cause::Expiry)),
            (None, regular) => regular.map(|regular| (regular, Cause::Check)),
        }
    }

    /// The cause to report if this lock is found free although it has waiters.
    #[must_use]
    pub fn cause_of_freedom(&self, key: KeyRef<'_>) -> Cause {
        let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
        queue.map_or(Cause::Outside, |queue| queue.cause)
    }

    /// Returns whether a key has waiters or observers.
    #[must_use]
    pub fn is_waited_for(&self, db: i32, name: &[u8]) -> bool {
        self.queues.of_name(db, name).next().is_some()
    }

    /// Plans an immediate look at a key that was changed, if it has waiters or observers.
    pub fn look_soon_at_all_of(&mut self, db: i32, name: &[u8], cause: Cause, now: Now) {
        self.use_moment(KeyRef::lock(db, name));
        for kind in Kind::ALL {
            self.look_soon(KeyRef { db, name, kind }, cause, now);
        }
    }

    /// Plans an immediate look at a key, if it has waiters.
    pub fn look_soon(&mut self, key: KeyRef<'_>, cause: Cause, now: Now) {
        if let Some(id) = self.queues.find(key) {
            self.plan_look(id, Some(now.unix()), cause);
        }
    }

    /// Time until the next work is due; `None` if no work is planned.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Millis> {
        let goes_on = self.sessions_have_work() || self.is_sweeping() || self.has_readers_to_tell();
        let left = !self.unsent.is_empty()
            || !self.discarded.is_empty()
            || !self.sessions.closed.is_empty()
            || !self.sessions.bells.is_empty()
            || self.has_groups_to_look_at();
        if goes_on || left || self.has_opened() || self.has_sets_to_look_at() {
            return Some(Millis(0));
        }
        let first = sooner(self.agenda.next_due(now), self.quarantine_due(now));
        sooner(first, sooner(self.moment_due(now), self.bound_due(now)))
    }

    pub(crate) fn plan_look(&mut self, id: QueueId, due: Option<UnixMillis>, cause: Cause) {
        let head = due.and_then(|_| self.queues.head(id));
        let flow = head.and_then(|(head, _)| self.queues.session_of(head));
        let look = due.map(|due| Look {
            due: if due == AT_ONCE { self.agenda.asked } else { due },
            flow,
            checks: cause == Cause::Check,
        });
        if let Some(queue) = self.queues.queue_mut(id) {
            let before = std::mem::replace(&mut queue.look, look);
            queue.cause = cause;
            self.agenda.move_look(id, before, look);
        }
    }

    /// Removes a waiter that is not granted the lock. If it was first in line and the next waiter
    /// may be served now, plans a look.
    pub(crate) fn withdraw(&mut self, id: WaiterId) -> Option<Leaver<P>> {
        let leaver = self.take_out(self.queues.main_of(id))?;
        let queue = leaver.waiter.queue;
        let head = self.queues.head(queue).filter(|_| leaver.stood_in_front);
        let wants_other = head.is_some_and(|(_, want)| !want.is_served_like(leaver.waiter.want));
        if wants_other || leaver.stood_in_front && self.queues.has_beside(queue) {
            self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
        }
        Some(leaver)
    }

    pub(crate) fn take_out(&mut self, id: WaiterId) -> Option<Leaver<P>> {
        let is_of_set = self.queues.is_of_set(id);
        let leaver = self.queues.remove(id)?;
        self.watches.left(&leaver, self.queues.queue(leaver.waiter.queue).is_none());
        if let Via::Session(session) = leaver.waiter.via {
            self.sessions.leave(session, id);
        }
        self.agenda.drop_wait(leaver.waiter.via.session(), leaver.waiter.end, id);
        self.agenda.move_look(leaver.waiter.queue, leaver.planned, None);
        if is_of_set {
            self.leave_further_places(id, leaver.waiter.queue);
        }
        Some(leaver)
    }
}

//! The lock table: those who wait. How they join, how each of the ways out works, and how the
//! lock is looked at for the first of them.

use crate::agenda::Agenda;
use crate::grant::after;
use crate::key::{KeyRef, Kind, LockKey};
use crate::lock::{Acquire, AcquireReply};
use crate::mode::Want;
use crate::observed::Observed;
use crate::outcome::{Cause, Change, WaitReply, count};
use crate::planted::Bug;
use crate::queue::{Newcomer, QueueId, Waiter, WaiterId};
use crate::table::{Situation, Table};
use crate::types::{Millis, Now, UnixMillis};

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

/// A moment that is always over: as soon as it is the turn of what was due before.
const AT_ONCE: UnixMillis = UnixMillis(0);

impl<P> Table<P> {
    /// Takes the lock if it can be had, else says whether the client may wait for it.
    pub fn wait(&mut self, at: &Situation<'_>, request: &Acquire<'_>) -> (WaitReply, Change<P>) {
        let (reply, change) = self.try_acquire(at, request);
        if reply != AcquireReply::Refused {
            return (WaitReply::Now(reply), change);
        }
        (self.room_for(at.key, request.owner), Change::None)
    }

    /// Says whether a client may block for an owner.
    pub(crate) fn room_for(&self, key: KeyRef<'_>, owner: &[u8]) -> WaitReply {
        let queue = self.queues.find(key);
        let has_place = queue.is_some_and(|id| self.queues.place(id, owner).is_some());
        let in_line = queue.and_then(|id| self.queues.queue(id)).map_or(0, |queue| queue.len);
        let spare = usize::from(Bug::LimitOffByOne.is_planted());
        let full = self.queues.waiters() >= self.limits.waiters.saturating_add(spare)
            || in_line >= self.limits.waiters_per_key.saturating_add(spare);
        if self.limits.draining {
            WaitReply::Draining
        } else if full && !has_place {
            WaitReply::QueueFull
        } else {
            WaitReply::Block
        }
    }

    /// Puts a client in line, after [`Self::wait`] said [`WaitReply::Block`]. If its owner has a
    /// place in this queue, the client takes it over and the one before is given back.
    pub fn enqueue(
        &mut self,
        at: &Situation<'_>,
        join: &Join<'_>,
        client: P,
    ) -> (WaiterId, Option<P>) {
        self.enqueue_at(at.key, at.now, at.seen.until(), join, client)
    }

    /// The same for any key, which goes away by itself at `until`.
    pub(crate) fn enqueue_at(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        until: Option<UnixMillis>,
        join: &Join<'_>,
        client: P,
    ) -> (WaiterId, Option<P>) {
        let end = join.timeout.map(|timeout| now.mono.plus(timeout));
        let place = self
            .queues
            .find(key)
            .and_then(|id| self.queues.place(id, join.owner))
            .filter(|_| !Bug::SecondPlace.is_planted());
        if let Some((id, waiter)) =
            place.and_then(|id| self.queues.waiter_mut(id).map(|waiter| (id, waiter)))
        {
            let old = std::mem::replace(&mut waiter.client, client);
            let old_end = std::mem::replace(&mut waiter.end, end);
            let other = std::mem::replace(&mut waiter.want, join.want) != join.want;
            waiter.lease = join.lease;
            let queue = waiter.queue;
            self.agenda.drop_wait(old_end, id);
            self.agenda.add_wait(end, id);
            if other {
                // If it stands in front, what it wants now may be there to be had.
                self.plan_look(queue, Some(AT_ONCE), Cause::Outside);
            }
            return (id, Some(old));
        }
        let (owner, want, lease, since) = (join.owner, join.want, join.lease, now.mono);
        let newcomer = Newcomer { owner, want, lease, since, end, client };
        let id = self.queues.push(key, newcomer);
        self.agenda.add_wait(end, id);
        self.counters.waiters_peak = self.counters.waiters_peak.max(self.queues.waiters());
        if let Some((due, cause)) = self.next_look_at(until, now) {
            self.look_no_later_than(key, due, cause);
        }
        (id, None)
    }

    /// Withdraws an owner's waiter.
    pub fn cancel(&mut self, key: KeyRef<'_>, owner: &[u8]) -> Option<P> {
        let queue = self.queues.find(key)?;
        let id = self.queues.place(queue, owner)?;
        let waiter = self.withdraw(id)?;
        count(&mut self.counters.cancelled);
        Some(waiter.client)
    }

    /// Takes out a waiter whose client is gone.
    pub fn disconnected(&mut self, id: WaiterId) -> Option<P> {
        if Bug::GhostWaiter.is_planted() {
            return None;
        }
        let waiter = self.withdraw(id)?;
        count(&mut self.counters.disconnects);
        Some(waiter.client)
    }

    /// Takes out all waiters, in order of arrival.
    pub fn dismiss_all(&mut self) -> Vec<P> {
        self.agenda = Agenda::default();
        self.queues.drain()
    }

    /// Takes out the first waiter of one lock: for when all of them must go.
    pub fn dismiss_one_of(&mut self, key: KeyRef<'_>) -> Option<P> {
        let queue = self.queues.find(key)?;
        let head = self.queues.queue(queue)?.head;
        self.take_out(head).map(|waiter| waiter.client)
    }

    /// Takes out one waiter whose time is over, the one that is longest over first. None if
    /// waiters of a latch are to be answered first: their time is over too late.
    pub fn time_out_one(&mut self, now: Now) -> Option<P> {
        let id = self.agenda.first_wait_over(now).filter(|_| !self.has_released())?;
        if Bug::TimeoutStays.is_planted() {
            let end = self.queues.waiter_mut(id).and_then(|waiter| waiter.end.take());
            self.agenda.drop_wait(end, id);
            return None;
        }
        let waiter = self.withdraw(id)?;
        count(&mut self.counters.timeouts);
        Some(waiter.client)
    }

    /// A lock that is due to be looked at, and what will have freed it if it is free. Show it to
    /// [`Self::look`] next.
    pub fn next_look(&mut self, now: Now) -> Option<(LockKey, Cause)> {
        self.agenda.asked = now.unix();
        let id = self.agenda.first_look_due(now)?;
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
        let regular = self.look_every.map(|every| now.unix().plus(every));
        match (end, regular) {
            (Some(end), Some(regular)) if regular < end => Some((regular, Cause::Outside)),
            (Some(end), _) => Some((end, Cause::Expiry)),
            (None, regular) => regular.map(|regular| (regular, Cause::Outside)),
        }
    }

    /// What will have freed this lock, if it is free although somebody waits for it.
    #[must_use]
    pub fn cause_of_freedom(&self, key: KeyRef<'_>) -> Cause {
        let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
        queue.map_or(Cause::Outside, |queue| queue.cause)
    }

    /// Plans a look right now at a key of which something is waited for, because of what befell it.
    pub fn look_soon_at_all_of(&mut self, db: i32, name: &[u8], cause: Cause, now: Now) {
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

    /// Plans a look right now at every lock of a database (of all of them if `None`) that is
    /// waited for.
    pub fn look_at_all_soon(&mut self, db: Option<i32>, now: Now) {
        if Bug::FlushIgnored.is_planted() {
            return;
        }
        self.agenda.asked = now.unix();
        let of_db = self.queues.all().filter(|(_, queue)| db.is_none_or(|db| db == queue.key.db));
        let ids: Vec<_> = of_db.map(|(id, _)| id).collect();
        for id in ids {
            self.plan_look(id, Some(now.unix()), Cause::Outside);
        }
    }

    /// How long it is until something is due; none if nothing ever is.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Millis> {
        let planned = self.agenda.next_due(now);
        [planned, self.quarantine_due(now)].into_iter().flatten().min()
    }

    pub(crate) fn plan_look(&mut self, id: QueueId, due: Option<UnixMillis>, cause: Cause) {
        let due = due.map(|due| if due == AT_ONCE { self.agenda.asked } else { due });
        if let Some(queue) = self.queues.queue_mut(id) {
            let before = std::mem::replace(&mut queue.look, due);
            queue.cause = cause;
            self.agenda.move_look(id, before, due);
        }
    }

    /// A waiter leaves without having got the lock. If it stood in front, what the next one wants
    /// may be there to be had.
    pub(crate) fn withdraw(&mut self, id: WaiterId) -> Option<Waiter<P>> {
        let waiter = self.take_out(id)?;
        if let Some((head, want)) = self.queues.head(waiter.queue)
            && head > id
            && want != waiter.want
        {
            self.plan_look(waiter.queue, Some(AT_ONCE), Cause::Outside);
        }
        Some(waiter)
    }

    pub(crate) fn take_out(&mut self, id: WaiterId) -> Option<Waiter<P>> {
        let (waiter, planned) = self.queues.remove(id)?;
        self.agenda.drop_wait(waiter.end, id);
        self.agenda.move_look(waiter.queue, planned, None);
        Some(waiter)
    }
}

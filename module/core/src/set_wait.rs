//! Waits for sets of locks, and grants of whole sets. `places.rs` describes the places of a waiter
//! for a set.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::account::{Account, Quota};
use crate::change::{Change, HandOff};
use crate::ids::{SessionId, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::lock::{Acquire, AcquireReply};
use crate::mode::Want;
use crate::outbox::{Dismissal, Ending, Granted};
use crate::outcome::{Full, WaitReply, count};
use crate::set::{Member, parts};
use crate::situation::{Situation, WaitedFor as _};
use crate::table::Table;
use crate::waiter::{Caller, Join, Newcomer, Via, wait_bytes};

/// A set that was granted to its waiter.
#[derive(Debug)]
pub struct GrantedSet<P> {
    /// Changes of the keys, in the order of the members. In these changes, the caller is the owner
    /// of the set.
    pub changes: Vec<Change<P>>,
    /// The grant, and the client to answer.
    pub hand_off: HandOff<P>,
    /// Number of holds of the first lock after the grant.
    pub holds: u64,
}

/// Result of an attempt to serve a waiter for a set.
#[derive(Debug)]
pub enum ServedSet<P> {
    /// The waiter keeps waiting, or got the outcome `ready`.
    HeldUp,
    /// The waiter was granted its set.
    Granted(GrantedSet<P>),
    /// The waiter was dismissed. Contains the client to answer, if any, and the reason.
    Dismissed(Option<P>, Dismissal),
}

/// Result of a check whether a waiter for a set can be granted all locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Fits,
    HeldUp,
    /// The request does not match the owner's holds: see [`is_misfit`]. Contains the reply.
    Misfits(AcquireReply),
}

/// Returns whether a refusal means that a request does not match what its owner holds. Waiting does
/// not help such a request.
fn is_misfit(refusal: AcquireReply) -> bool {
    match refusal {
        AcquireReply::Mismatch | AcquireReply::TooManyHolds | AcquireReply::Upgrade => true,
        AcquireReply::Granted { .. }
        | AcquireReply::Refused
        | AcquireReply::NotALock
        | AcquireReply::TryAgain => false,
    }
}

impl<P> Table<P> {
    /// Takes all locks of a set if possible, bound to the session `bound` if given. Otherwise decides
    /// whether the caller may wait for them.
    pub fn wait_set(
        &mut self,
        members: &[Member<'_>],
        request: &Acquire<'_>,
        caller: &Caller,
        bound: Option<SessionId>,
    ) -> (WaitReply<AcquireReply>, Vec<Change<P>>) {
        // If the owner already waits for this set, only that wait may be granted. A grant beside its
        // place would grant the set twice.
        let same = self.same_set(members, request.owner, request.want);
        let in_line = same.is_some_and(|id| !self.is_left_behind(id));
        let through_session = caller.session().is_some();
        match self.fits_now(members, request, through_session) {
            Ok(parts) if !in_line => {
                let (reply, _, changes) = self.take_all(members, &parts, bound);
                (WaitReply::Now(reply), changes)
            }
            Ok(_) | Err(AcquireReply::Refused) => {
                let room = self.room_for_set(members, request, caller);
                if in_line {
                    return (room, Vec::new());
                }
                (self.unless_set_in_circle(room, members, request), Vec::new())
            }
            Err(error) => (WaitReply::Now(error), Vec::new()),
        }
    }

    fn unless_set_in_circle<R>(
        &mut self,
        room: WaitReply<R>,
        members: &[Member<'_>],
        request: &Acquire<'_>,
    ) -> WaitReply<R> {
        let Some(first) = members.first() else { return room };
        let want = |member: &Member<'_>| if member.under { Want::Shared } else { request.want };
        let wanted: Vec<_> = members.iter().map(|it| (it.at.key, want(it))).collect();
        self.unless_in_circle(room, &wanted, request.owner, first.at.results)
    }

    /// Returns the waiter for exactly this set, if its owner has one.
    fn same_set(&self, members: &[Member<'_>], owner: &[u8], want: Want) -> Option<WaiterId> {
        let main = self.place_of(members.first()?.at.key, owner)?;
        let waiter = self.queues.waiter(main)?;
        // Only the first place of a wait for a set leads to more than one key.
        let places = self.set_of(main);
        let is_same = waiter.want == want
            && places.len() == members.len()
            && members.iter().all(|member| {
                let is_it = |place: &crate::set_places::SetKey| {
                    place.key.borrow() == member.at.key && place.under == member.under
                };
                places.iter().any(is_it)
            });
        is_same.then_some(main)
    }

    /// Removes the owner's wait for exactly this set if it is out of the line, because the owner is
    /// granted the set by another request. The session of the wait gets the outcome `replaced`.
    pub(crate) fn leave_set_aside(&mut self, members: &[Member<'_>], parts: &[Acquire<'_>]) {
        if self.sessions.waits > 0
            && let Some(first) = parts.first()
            && let Some(id) = self.same_set(members, first.owner, first.want)
            && self.is_aside(id)
        {
            drop(self.replace(id));
        }
    }

    /// Decides whether a caller may wait for a set. Each key counts as a place.
    fn room_for_set<R>(
        &self,
        members: &[Member<'_>],
        request: &Acquire<'_>,
        caller: &Caller,
    ) -> WaitReply<R> {
        if self.limits.draining {
            return WaitReply::Draining;
        }
        let same = self.same_set(members, request.owner, request.want);
        let (goes, outcomes, blocked_go) = self.replaced_by(members, request.owner, same, caller);
        let adds = members.len().saturating_add(outcomes).saturating_sub(goes);
        let in_line = |key: KeyRef<'_>| {
            let queue = self.queues.find(key).and_then(|id| self.queues.queue(id));
            let own = usize::from(self.place_of(key, request.owner).is_some());
            queue.map_or(0, |queue| queue.len.saturating_sub(own))
        };
        let full_key = members.iter().any(|it| in_line(it.at.key) >= self.limits.waiters_per_key);
        let kept = self.queues.waiters().saturating_add(self.sessions.outcomes);
        let (waiters, blocked) = (self.limits.waiters, self.limits.blocked);
        let full = adds > 0 && kept.saturating_add(adds) > waiters;
        let blocks = caller.session().is_none() && !blocked_go;
        if full || full_key && same.is_none() || blocks && self.blocked_in_all() >= blocked {
            return WaitReply::QueueFull(Full::Server);
        }
        let account = self.account_of(caller);
        let count = |kept| account.map_or(0, |account| account.count(kept));
        let by_user = adds > 0
            && count(Quota::Waits).saturating_add(adds) > self.limits.of_user(waiters)
            || blocks && count(Quota::Blocked) >= self.limits.of_user(blocked);
        if by_user { WaitReply::QueueFull(Full::User) } else { WaitReply::Block }
    }

    /// Returns what a wait for a set would replace: the number of places that become free, the
    /// number of outcomes for sessions, and whether one of the replaced waits has a blocked client.
    fn replaced_by(
        &self,
        members: &[Member<'_>],
        owner: &[u8],
        same: Option<WaiterId>,
        caller: &Caller,
    ) -> (usize, usize, bool) {
        let places = members.iter().filter_map(|member| self.place_of(member.at.key, owner));
        let waits: BTreeSet<_> = places.map(|place| self.queues.main_of(place)).collect();
        let (mut goes, mut outcomes, mut blocked) = (0_usize, 0_usize, false);
        for wait in waits {
            goes = goes.saturating_add(self.queues.places_of(wait).len());
            blocked |= self.queues.is_blocked(wait);
            let session = self.queues.session_of(wait).filter(|id| !self.sessions.is_gone(*id));
            // A session that takes over its own place gets no outcome.
            let is_told = session.is_some() && (same.is_none() || session != caller.session());
            outcomes = outcomes.saturating_add(usize::from(is_told));
        }
        (goes, outcomes, blocked)
    }

    /// Puts a caller in line for all locks of a set, after [`Self::wait_set`] returned
    /// [`WaitReply::Block`]. If the owner already waits for the same set, the caller takes over
    /// that place: see [`Self::enqueue`]. Other waiters of the owner in these queues are replaced.
    /// Returns the waiter, and the blocked clients whose waits were replaced.
    pub fn enqueue_set(
        &mut self,
        members: &[Member<'_>],
        join: &Join<'_>,
        holds: Option<u64>,
        via: impl Into<Via<P>>,
        caller: &Caller,
    ) -> Option<(WaiterId, Vec<P>)> {
        let (first, via) = (members.first()?, via.into());
        let (key, now, _) = first.at.moment();
        let end = join.timeout.map(|timeout| now.mono.plus(timeout));
        let same = self.same_set(members, join.owner, join.want);
        if let Some(id) = same.filter(|id| !self.is_left_behind(*id)) {
            let client = self.take_over(id, key, end, join, via);
            self.queues.set_holds_of_set(id, holds);
            self.charge_further_places(id, join.owner, caller);
            self.queues.note_set(id);
            return Some((id, client.into_iter().collect()));
        }
        let mut replaced = Vec::new();
        for member in members {
            if let Some(id) = self.place_of(member.at.key, join.owner) {
                replaced.extend(self.replace(id));
            }
        }
        let session = via.session();
        let (owner, lease, since) = (join.owner, join.lease, now.mono);
        let (mut via, mut main) = (Some(via), None);
        let mut places = Vec::new();
        for member in members {
            let via = match (via.take(), main) {
                (Some(via), _) => via,
                (None, Some(main)) => Via::Place(main),
                (None, None) => return None,
            };
            let want = if member.under { Want::Shared } else { join.want };
            let charge = main.is_none().then(|| self.charge_wait(session, owner)).flatten();
            let end = end.filter(|_| main.is_none());
            let newcomer = Newcomer { owner, want, lease, since, end, via, charge };
            let id = self.queues.push(member.at.key, newcomer);
            if main.is_some() {
                places.push((id, member.under));
            } else {
                main = Some(id);
            }
        }
        let main = main?;
        self.queues.make_set(main, places, holds);
        self.charge_further_places(main, owner, caller);
        // The owner's own places may have been the only reason why the set was held up.
        if !self.set_is_held_up(main, members) {
            self.queues.note_set(main);
        }
        self.agenda.add_wait(session, end, main);
        self.counters.waiters_peak = self.counters.waiters_peak.max(self.queues.waiters());
        if let Some(session) = session {
            self.sessions.join(session, main);
            self.settle_one(main);
        }
        for member in members {
            if let Some((due, cause)) = self.next_look_at(member.at.seen.until(), now) {
                self.look_no_later_than(member.at.key, due, cause);
            }
        }
        Some((main, replaced))
    }

    /// Charges the further places of a set to its caller.
    fn charge_further_places(&mut self, main: WaiterId, owner: &[u8], caller: &Caller) {
        let account = self.account_of(caller).cloned();
        for (place, _) in self.queues.places_of(main).into_iter().skip(1) {
            if let Some(waiter) = self.queues.waiter_mut(place) {
                let charge = |account: &Account| account.charge(Quota::Waits, wait_bytes(owner));
                waiter.charge = account.as_ref().map(charge);
            }
        }
    }

    /// Returns the owner of a waiter for a set.
    #[must_use]
    pub fn owner_of_set(&self, waiter: WaiterId) -> Option<Rc<[u8]>> {
        Some(Rc::clone(&self.queues.waiter(waiter)?.owner))
    }

    /// Removes a waiter for a set without a grant. Returns the client to answer, if any.
    pub fn dismiss_set(&mut self, waiter: WaiterId, why: Dismissal) -> Option<P> {
        let leaver = self.take_out(waiter)?;
        self.deliver(leaver, Ending::Dismissed(why))
    }

    /// Returns whether a waiter for a set must keep waiting: its session is away, or one of its locks
    /// cannot be granted now. Records the place of that lock. `members` are the locks of
    /// [`Self::set_of`].
    #[must_use]
    pub fn set_is_held_up(&mut self, waiter: WaiterId, members: &[Member<'_>]) -> bool {
        self.fit(waiter, members) == Fit::HeldUp
    }

    fn fit(&mut self, waiter: WaiterId, members: &[Member<'_>]) -> Fit {
        let places = self.queues.places_of(waiter);
        if places.len() != members.len() || self.is_passed_over(waiter) {
            return Fit::HeldUp;
        }
        match self.first_refused(waiter, &places, members) {
            None => Fit::Fits,
            Some((_, _, misfit)) if is_misfit(misfit) => Fit::Misfits(misfit),
            Some((place, at, refusal)) => {
                self.queues.hold_up(waiter, place);
                if refusal == AcquireReply::NotALock {
                    self.check_other_kind(at.key, at.now);
                }
                Fit::HeldUp
            }
        }
    }

    /// Returns the waiter's first place at which the lock cannot be granted now, the lock, and the reply
    /// with the reason.
    fn first_refused<'m>(
        &self,
        waiter: WaiterId,
        places: &[(WaiterId, bool)],
        members: &'m [Member<'m>],
    ) -> Option<(WaiterId, &'m Situation<'m>, AcquireReply)> {
        let found = self.queues.waiter(waiter)?;
        let (owner, want, lease) = (&*found.owner, found.want, found.lease);
        let request = Acquire { owner, want, lease, holds: self.queues.holds_of_set(waiter) };
        let parts = parts(members, &request, found.via.session().is_some());
        let mut all = places.iter().zip(members).zip(parts);
        all.find_map(|(((place, _), member), part)| {
            Some((*place, &member.at, self.refusal(&member.at, &part, Some(*place))?))
        })
    }

    /// Returns the lock at which the last attempt to grant the set was held up. `None` if there is
    /// none, or if the set is about to be tried again.
    #[must_use]
    pub fn set_is_held_up_at(&self, waiter: WaiterId) -> Option<&LockKey> {
        let place = self.queues.held_up_at(waiter).filter(|_| !self.queues.is_noted(waiter));
        Some(&self.queues.queue(place?.0)?.key)
    }

    /// Grants all locks of a set to its waiter, if each can be granted and it is the waiter's turn
    /// in each queue. If its ready-key exists, the waiter gets `ready` instead. If the owner's
    /// holds have changed, so that the request does not match them, the waiter is dismissed.
    /// `members` are the locks of [`Self::set_of`], as the owner sees them.
    pub fn serve_set(&mut self, waiter: WaiterId, members: &[Member<'_>]) -> ServedSet<P> {
        match self.fit(waiter, members) {
            Fit::HeldUp => ServedSet::HeldUp,
            Fit::Misfits(reply) => {
                let why = Dismissal::Misfit(reply);
                ServedSet::Dismissed(self.dismiss_set(waiter, why.clone()), why)
            }
            Fit::Fits => {
                let granted = self.grant_set(waiter, members);
                granted.map_or(ServedSet::HeldUp, ServedSet::Granted)
            }
        }
    }

    fn grant_set(&mut self, waiter: WaiterId, members: &[Member<'_>]) -> Option<GrantedSet<P>> {
        let first = members.first()?;
        self.answer_if_ready(waiter, &first.at);
        let holds = self.queues.holds_of_set(waiter);
        let leaver = self.take_out(waiter)?;
        let (owner, now) = (Rc::clone(&leaver.waiter.owner), first.at.now);
        let (want, lease) = (leaver.waiter.want, leaver.waiter.lease);
        let request = Acquire { owner: &owner, want, lease, holds };
        let session = leaver.waiter.via.session();
        let bound = session.filter(|_| leaver.waiter.bound);
        let parts: Vec<_> = parts(members, &request, session.is_some()).collect();
        let (reply, replies, changes) = self.take_all(members, &parts, bound);
        let AcquireReply::Granted { token, holds } = reply else { return None };
        self.last_grant = self.last_grant.wrapping_add(1);
        let id = crate::ids::GrantId(self.last_grant);
        let mut in_flight = Vec::with_capacity(members.len());
        for ((member, part), reply) in members.iter().zip(&parts).zip(&replies) {
            self.turns.end(member.at.key);
            // If the grant is not delivered, locks that the owner already held are not taken back.
            let again = member.at.holds_of(&owner, part.want).is_some();
            if let AcquireReply::Granted { token, .. } = reply
                && !again
            {
                in_flight.push((member.at.key.to_lock_key(), *token));
            }
            let until = now.unix().plus(lease);
            if let Some((due, cause)) = self.next_look_at(Some(until), now) {
                self.look_no_later_than(member.at.key, due, cause);
            }
        }
        self.in_flight.insert_set(in_flight, Rc::clone(&owner), id);
        count(&mut self.counters.handed_off);
        let waited = now.mono.since(leaver.waiter.since);
        self.wait_times.record(waited.0.saturating_mul(1000), 1);
        self.profile.handed_off(leaver.key.borrow(), waited);
        let value = leaver.value.clone();
        let granted = Granted { id, token, holds, permits: 0, at: now.mono };
        let client = self.deliver(leaver, Ending::Granted(granted));
        let until = now.unix().plus(lease);
        let hand_off = HandOff { id, owner, token, until, value, client };
        Some(GrantedSet { changes, hand_off, holds })
    }
}

//! Hand-offs: grants to waiters. Also takes back grants that were never sent to their clients.

use std::rc::Rc;

use crate::change::{Change, HandOff, Sharers};
use crate::flight::Flight;
use crate::ids::GrantId;
use crate::key::KeyRef;
use crate::mode::{Share, Sharing, Want};
use crate::observed::Observed;
use crate::outbox::{Ending, Granted, UnsentGrant};
use crate::outcome::{Cause, count};
use crate::situation::Situation;
use crate::table::Table;
use crate::token::Token;
use crate::types::{Now, UnixMillis};
use crate::waiter::Leaver;

/// Largest number of waiters that are answered in one batch, for example when they join a shared
/// lock. The others follow in batches, in the next turns of the event loop. Each waiter takes about
/// 15 µs of the server's time, most of it for the reply, so a batch takes about half a millisecond.
pub const RUN_MAX: usize = 32;

/// Holds of the owner after a grant of a lock, and permits that the grant adds.
const ONE_HOLD: (u64, u64) = (1, 0);

impl<P> Table<P> {
    /// Returns the request of the first waiter in line for this lock, unless its session is away or
    /// an earlier wait for a set of locks holds it up.
    #[must_use]
    pub fn head_wants(&self, at: &Situation<'_>) -> Option<Want> {
        let queue = self.queues.find(at.key)?;
        self.front(queue).map(|(_, want)| want)
    }

    /// Returns whether the caller must search for a live sharer before a look at this lock, because
    /// the first waiter wants it exclusively.
    #[must_use]
    pub fn must_find_live_sharers(&self, at: &Situation<'_>) -> bool {
        matches!(at.seen, Observed::Shared(_)) && self.head_wants(at) == Some(Want::Exclusive)
    }

    /// Takes the lock from its holder or sharers. The lock is granted to the first waiter, or to
    /// several that share it, or becomes free. If the lock was released and it is the turn of
    /// Redisson's clients, returns [`Change::GiveWay`] instead.
    pub(crate) fn pass_on(
        &mut self,
        at: &Situation<'_>,
        stored: Option<Token>,
        cause: Cause,
    ) -> Change<P> {
        self.record_loss(at.key, cause);
        self.pass_over(at.key);
        if cause == Cause::Release
            && !at.lacks_token_bound(self.believe(stored))
            && self.is_redissons_turn(at)
        {
            return Change::GiveWay;
        }
        self.hand_to_head(at, stored, cause).unwrap_or(Change::Free)
    }

    /// Grants a free lock to the first waiter, if that is possible now. If that waiter wants to share
    /// it, the waiters directly behind that also want to share it are granted it too, up to one
    /// batch. The caller must have called [`Self::pass_over`]. `stored` is the token in the hash.
    pub(crate) fn hand_to_head(
        &mut self,
        at: &Situation<'_>,
        stored: Option<Token>,
        cause: Cause,
    ) -> Option<Change<P>> {
        let stored = self.believe(stored);
        if at.lacks_token_bound(stored)
            || self.quarantine.is_on(at.now)
            || self.gives_way(at.key, at.now)
        {
            return None;
        }
        let queue = self.queues.find(at.key)?;
        self.look_at_groups(queue);
        if !self.answer_ready_at_head(at, queue) {
            return None;
        }
        let front = self.front(queue).filter(|(front, _)| !self.queues.is_of_set(*front));
        let Some((head, want)) = front else {
            self.queues.note_sets(queue);
            return None;
        };
        self.turns.end(at.key);
        if want == Want::Shared {
            return Some(self.begin_sharing(at, stored, cause, None));
        }
        let waiter = self.take_out(head)?;
        let token = self.tokens.issue(stored, at.floor, at.now.unix_us);
        let hand_off = self.hand_off(at.now, waiter, token, cause, ONE_HOLD);
        if let Some((due, cause)) = self.next_look_at(Some(hand_off.until), at.now) {
            self.look_no_later_than(at.key, due, cause);
        }
        Some(Change::HandOff(hand_off))
    }

    /// Begins a shared period for the waiters at the head that want to share, and for the former
    /// holder if it keeps the share `own`.
    pub(crate) fn begin_sharing(
        &mut self,
        at: &Situation<'_>,
        stored: Option<Token>,
        cause: Cause,
        own: Option<(Share, Option<UnixMillis>)>,
    ) -> Change<P> {
        let token = self.tokens.issue(stored, at.floor, at.now.unix_us);
        let joined = self.grant_shared_batch(at, token, cause);
        let longest = joined.iter().map(|hand_off| hand_off.until).max();
        let until = match own {
            Some((_, None)) => None,
            Some((_, until)) => until.max(longest),
            None => longest,
        };
        let own = own.map(|(share, _)| share);
        Change::Share(Sharers { begins: true, token: Some(token), own, joined, until })
    }

    /// Grants a lock that is already shared to the waiters at the head that want to share it, up to
    /// one batch.
    pub(crate) fn let_more_in(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        cause: Cause,
    ) -> Option<Change<P>> {
        if self.quarantine.is_on(at.now) {
            return None;
        }
        let (token, given) = self.token_of(at, sharing.token).ok()?;
        let joined = self.grant_shared_batch(at, token, cause);
        let longest = joined.iter().map(|hand_off| hand_off.until).max()?;
        let until = sharing.extended_to(longest);
        Some(Change::Share(Sharers { begins: false, token: given, own: None, joined, until }))
    }

    /// Grants the lock to the waiters at the head that want to share it, up to one batch, and plans
    /// the next look.
    fn grant_shared_batch(
        &mut self,
        at: &Situation<'_>,
        token: Token,
        cause: Cause,
    ) -> Vec<HandOff<P>> {
        let mut joined = Vec::new();
        if self.quarantine.is_on(at.now) {
            return joined;
        }
        loop {
            self.pass_over(at.key);
            let Some(queue) = self.queues.find(at.key) else { break };
            if !self.answer_ready_at_head(at, queue) {
                break;
            }
            let Some((head, Want::Shared)) = self.front(queue) else { break };
            if joined.len() == RUN_MAX {
                self.look_no_later_than(at.key, at.now.unix(), cause);
                return joined;
            }
            let Some(waiter) = self.take_out(head) else { break };
            joined.push(self.hand_off(at.now, waiter, token, cause, ONE_HOLD));
            count(&mut self.counters.granted_shared);
        }
        if let Some(queue) = self.queues.find(at.key) {
            self.queues.note_sets(queue);
        }
        // Without a release, the lock stays shared at least until the last of these leases ends.
        let longest = joined.iter().map(|hand_off| hand_off.until).max();
        if let Some((due, cause)) = self.next_look_at(longest, at.now) {
            self.look_no_later_than(at.key, due, cause);
        }
        joined
    }

    /// Grants the lock or permits to a waiter that has left its queue. `holds` is the total that the
    /// owner has after the grant, `permits` the number of permits that the grant adds.
    pub(crate) fn hand_off(
        &mut self,
        now: Now,
        leaver: Leaver<P>,
        token: Token,
        cause: Cause,
        (holds, permits): (u64, u64),
    ) -> HandOff<P> {
        let (key, owner) = (leaver.key.clone(), Rc::clone(&leaver.waiter.owner));
        let lease = leaver.waiter.lease;
        if holds <= permits.max(1) {
            self.unbind(key.borrow(), &owner);
        } else {
            // The owner has other permits too. None of all these ends with a session that is gone.
            self.drop_orphan_binding(key.borrow(), &owner);
        }
        if let (true, Some(session)) = (leaver.waiter.bound, leaver.waiter.via.session()) {
            self.bind((key.borrow(), &owner), (token, lease), session, now);
        }
        self.last_grant = self.last_grant.wrapping_add(1);
        let id = GrantId(self.last_grant);
        self.in_flight.insert(key, token, Rc::clone(&owner), id);
        count(&mut self.counters.granted);
        count(&mut self.counters.handed_off);
        let waited = now.mono.since(leaver.waiter.since);
        self.wait_times.record(waited.0.saturating_mul(1000), 1);
        self.profile.handed_off(leaver.key.borrow(), waited);
        if cause == Cause::Expiry {
            count(&mut self.counters.handed_off_by_expiry);
        }
        let granted = Granted { id, token, holds, permits, at: now.mono };
        let value = leaver.value.clone();
        let client = self.deliver(leaver, Ending::Granted(granted));
        HandOff { id, owner, token, until: now.unix().plus(lease), value, client }
    }

    /// Records that a hand-off was sent to its client. From then on, the grant cannot be taken
    /// back.
    pub fn delivered(&mut self, key: KeyRef<'_>, id: GrantId, owner: &[u8], token: Token) {
        if !self.in_flight.remove_set(id, owner) {
            self.settle(key, Some(id), owner, token);
        }
    }

    /// Removes one lock of a grant from the grants in flight, without taking it back.
    pub fn stays_granted(&mut self, grant: &UnsentGrant) {
        let (key, token, owner) = (grant.key.borrow(), grant.token, &*grant.owner);
        let flight = Flight { key, token, owner };
        if self.in_flight.find(flight) == Some(grant.id) {
            self.in_flight.remove_one(flight);
        }
    }

    /// Removes a hand-off from the grants in flight. With an `id`, only that grant; without, any
    /// grant of this key to this owner with this token. Returns whether it was in flight.
    pub(crate) fn settle(
        &mut self,
        key: KeyRef<'_>,
        id: Option<GrantId>,
        owner: &[u8],
        token: Token,
    ) -> bool {
        let flight = Flight { key, token, owner };
        if id.is_some() && self.in_flight.find(flight) != id {
            return false;
        }
        self.in_flight.remove(flight)
    }

    /// Records that the owner has used a grant, which shows that the owner has received it.
    pub(crate) fn record_use(&mut self, key: KeyRef<'_>, owner: &[u8], token: Option<Token>) {
        self.drop_orphan_binding(key, owner);
        self.record_release(key, owner, token);
    }

    /// Records that the owner has released a hold, which shows that it has received the grant. If the
    /// grant is bound to a session that has ended, its other holds are still released.
    pub(crate) fn record_release(&mut self, key: KeyRef<'_>, owner: &[u8], token: Option<Token>) {
        self.note_own_set(key, owner);
        if let Some(token) = token {
            self.settle(key, None, owner, token);
        }
    }

    /// Marks an owner's wait for a set, so that it is tried again, because the owner has acquired or
    /// used a lock of the set. The owner's holds may have changed, and its request may match them
    /// now or no longer match them.
    pub(crate) fn note_own_set(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(queue) = self.queues.find(key) {
            self.queues.note_set_of(queue, owner);
        }
    }

    /// Takes back a hand-off of a lock that was never sent to its client: ends the owner's hold or
    /// share. The lock does not change if the owner has used the grant since, or if the lock no
    /// longer has this grant's token.
    pub fn take_back(
        &mut self,
        at: &Situation<'_>,
        id: GrantId,
        owner: &[u8],
        token: Token,
    ) -> Change<P> {
        // The locks of a set are taken back one by one.
        let flight = Flight { key: at.key, token, owner };
        let untouched =
            self.in_flight.find(flight) == Some(id) && self.in_flight.remove_one(flight);
        if untouched {
            self.unbind_grant(at.key, owner, token);
        }
        match &at.seen {
            Observed::Held(holding)
                if untouched && holding.owner == owner && holding.token == Some(token) =>
            {
                count(&mut self.counters.grants_taken_back);
                self.pass_on(at, Some(token), Cause::TakenBack)
            }
            Observed::Shared(sharing)
                if untouched
                    && sharing.token == Some(token)
                    && sharing.share_of(owner, at.now.unix()).is_some() =>
            {
                count(&mut self.counters.grants_taken_back);
                self.stop_sharing(at, sharing, Cause::TakenBack)
            }
            Observed::Held(_)
            | Observed::Shared(_)
            | Observed::Free { .. }
            | Observed::NotALock { .. } => Change::None,
        }
    }

    /// Plans a look at this lock at `due`, if it has waiters and no earlier look is planned.
    pub(crate) fn look_no_later_than(&mut self, key: KeyRef<'_>, due: UnixMillis, cause: Cause) {
        if let Some(id) = self.queues.find(key) {
            let planned = self.queues.queue(id).and_then(|queue| queue.look);
            if planned.is_none_or(|planned| due < planned.due) {
                self.plan_look(id, Some(due), cause);
            }
        }
    }
}

//! Locks and permits that are bound to sessions: they are released when the session ends, even if their
//! lease lasts longer.
//!
//! ```text
//! ACQUIRE … SESSION id BOUND ─► binding ──released, or bound again──► dropped
//!                                  │ its session ends
//!                                  ▼
//!                               orphan ──the key still holds that grant──► released, handed on
//!                                  └─────its owner has used it since─────► its lease counts
//! ```
//!
//! A binding is kept in memory. It records a grant: the key, the owner and the token. The holder is
//! read from the key before a release. A binding may outlive its grant if another client changes
//! the key, or if the lease ends. So a binding is checked when the lease should end, and at least once a
//! minute, and dropped if the grant no longer exists.

use std::hash::BuildHasher as _;
use std::rc::Rc;

use crate::account::Quota;
use crate::bindings::{Binding, Place};
use crate::change::Change;
use crate::ids::{SessionId, SessionName, WaiterId};
use crate::key::{KeyRef, LockKey};
use crate::lock::{Acquire, AcquireReply};
use crate::mode::Want;
use crate::observed::Observed;
use crate::outcome::{Cause, Full, count};
use crate::permits::without;
use crate::semaphore::{Permits, PermitsChange, Semaphore, SemaphoreAt, TakeReply};
use crate::situation::Situation;
use crate::table::Table;
use crate::token::Token;
use crate::types::{Millis, Now, UnixMillis, sooner};

/// Shortest time until a regular check of a binding. The check only frees memory, so it is not
/// urgent.
const LOOKED_AT_AFTER: Millis = Millis(1_000);

/// Longest time until a regular check of a binding. A grant can end long before its lease: by a shorter
/// renewal, a forced release, or a deleted key. Until the check its binding counts for the limit.
const LOOKED_AT_WITHIN: Millis = Millis(60_000);

/// Time for which no binding is released or checked, if the server refuses all writes.
const REFUSED: Millis = Millis(100);

/// Pause before the release of one binding is tried again, if the server refuses writes to its
/// slot. In a cluster that is down, this may concern every binding.
const SLOT_REFUSED: Millis = Millis(1_000);

/// Estimated memory of a binding in bytes, without its names.
const BYTES: usize = 400;

/// A binding that needs work.
#[derive(Debug, PartialEq, Eq)]
pub struct DueBinding {
    place: Place,
    /// The bound lock or semaphore.
    pub key: LockKey,
    /// The owner that the lock or the permits were granted to.
    pub owner: Rc<[u8]>,
    token: Token,
    /// `true` if the session has ended, so that the grant must be released. Otherwise the caller
    /// only checks whether the grant still exists.
    pub is_orphan: bool,
}

impl<P> Table<P> {
    /// Checks that one more grant may be bound to this session. A grant that is already bound
    /// always may.
    ///
    /// # Errors
    ///
    /// The limit that is reached.
    pub fn room_to_bind(
        &self,
        key: KeyRef<'_>,
        owner: &[u8],
        session: SessionId,
    ) -> Result<(), Full> {
        self.room_to_bind_all(std::iter::once(key), owner, session)
    }

    /// Checks that all keys of a set of locks may be bound to this session: see
    /// [`Self::room_to_bind`].
    ///
    /// # Errors
    ///
    /// The limit that is reached.
    pub fn room_to_bind_all<'k>(
        &self,
        keys: impl Iterator<Item = KeyRef<'k>>,
        owner: &[u8],
        session: SessionId,
    ) -> Result<(), Full> {
        let more = keys.filter(|key| self.bindings.find(*key, owner).is_none()).count();
        let account = self.sessions.get(session).map(|session| &session.account);
        let by_user = account.map_or(0, |account| account.count(Quota::Bound));
        if more == 0 {
            Ok(())
        } else if self.bindings.len().saturating_add(more) > self.limits.bound {
            Err(Full::Server)
        } else if by_user.saturating_add(more) > self.limits.of_user(self.limits.bound) {
            Err(Full::User)
        } else {
            Ok(())
        }
    }

    /// Binds the owner's grant of a key to a session, in place of any earlier binding.
    pub fn bind(
        &mut self,
        (key, owner): (KeyRef<'_>, &[u8]),
        (token, lease): (Token, Millis),
        session: SessionId,
        now: Now,
    ) {
        self.unbind(key, owner);
        let bindings = &mut self.bindings;
        bindings.last_number = bindings.last_number.saturating_add(1);
        let place = (bindings.hashes.hash_one((key, owner)), bindings.last_number);
        let Some(open) = self.sessions.get_mut(session) else { return };
        open.bound.insert(place);
        let look = now.mono.plus(lease.clamp(LOOKED_AT_AFTER, LOOKED_AT_WITHIN));
        let names = key.name.len().saturating_add(owner.len());
        let _charge = open.account.charge(Quota::Bound, BYTES.saturating_add(names));
        let (key, owner) = (key.to_lock_key(), owner.into());
        bindings.all.insert(place, Binding { key, owner, token, session, look, _charge });
        bindings.looks.insert((look, place));
    }

    /// Binds the grant of an acquire, or of a wait that was granted at once.
    pub fn bind_granted(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
        reply: AcquireReply,
        session: impl Into<Option<SessionId>>,
    ) {
        if let (AcquireReply::Granted { token, .. }, Some(session)) = (reply, session.into()) {
            self.bind((at.key, request.owner), (token, request.lease), session, at.now);
        }
    }

    /// Binds permits that were granted at once.
    pub fn bind_taken(
        &mut self,
        at: &SemaphoreAt<'_>,
        request: &Acquire<'_>,
        reply: TakeReply,
        session: impl Into<Option<SessionId>>,
    ) {
        if let (TakeReply::Holds(_), Some(session)) = (reply, session.into()) {
            self.bind((at.key, request.owner), (Token::NONE, request.lease), session, at.now);
        }
    }

    /// Acquires again a lock that the owner already holds, and adds no hold. Refused if the owner
    /// does not hold the lock in the requested mode. The lease may become longer, but never
    /// shorter.
    pub fn acquire_held(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        let holds = match &at.seen {
            Observed::NotALock { .. } => return (AcquireReply::NotALock, Change::None),
            Observed::Free { .. } => None,
            Observed::Held(holding) if holding.owner != request.owner => None,
            Observed::Held(holding) if request.want == Want::Shared => Some(holding.shared),
            Observed::Held(holding) => Some(holding.holds),
            Observed::Shared(sharing) if request.want == Want::Shared => {
                sharing.share_of(request.owner, at.now.unix()).map(|share| share.holds)
            }
            Observed::Shared(_) => None,
        };
        match holds.filter(|holds| *holds > 0) {
            None => {
                count(&mut self.counters.refused);
                (AcquireReply::Refused, Change::None)
            }
            Some(holds) if request.holds.is_some_and(|wanted| wanted != holds) => {
                (AcquireReply::Mismatch, Change::None)
            }
            holds => self.try_acquire(at, &Acquire { holds, ..*request }),
        }
    }

    /// Acquires again the permits that the owner already has: see [`Self::acquire_held`].
    pub fn take_held_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        request: &Acquire<'_>,
    ) -> (TakeReply, PermitsChange) {
        let holds = match &at.seen {
            Semaphore::Set(Permits { own: Some(own), .. }) => own.holds,
            Semaphore::Set(Permits { own: None, .. }) => {
                count(&mut self.counters.refused);
                return (TakeReply::Refused, PermitsChange::None);
            }
            Semaphore::Unset | Semaphore::NotASemaphore { .. } => {
                return self.take_permits(at, 1, request);
            }
        };
        if request.holds.is_some_and(|wanted| wanted != holds) {
            return (TakeReply::Mismatch, PermitsChange::None);
        }
        self.take_permits(at, holds, &Acquire { holds: Some(holds), ..*request })
    }

    /// Marks a waiter, so that its grant is bound to the session through which it waits.
    pub fn bind_when_granted(&mut self, waiter: WaiterId) {
        if let Some(waiter) = self.queues.waiter_mut(waiter) {
            waiter.bound = waiter.via.session().is_some();
        }
    }

    /// Drops the owner's binding at this key.
    pub(crate) fn unbind(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(place) = self.bindings.find(key, owner) {
            self.drop_binding(place);
        }
    }

    /// Drops the owner's binding at this key if it is for the grant with this token. A later grant
    /// keeps its binding.
    pub(crate) fn unbind_grant(&mut self, key: KeyRef<'_>, owner: &[u8], token: Token) {
        let has_it = |place: &Place| {
            self.bindings.all.get(place).is_some_and(|binding| binding.token == token)
        };
        if let Some(place) = self.bindings.find(key, owner).filter(has_it) {
            self.drop_binding(place);
        }
    }

    fn drop_binding(&mut self, place: Place) {
        if let Some(binding) = self.bindings.remove(place)
            && let Some(session) = self.sessions.get_mut(binding.session)
        {
            session.bound.remove(&place);
        }
    }

    /// Called when the owner uses its grant. If the grant is bound to a session that has ended,
    /// drops the binding: the grant then lasts as long as its lease.
    pub(crate) fn drop_orphan_binding(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if self.bindings.orphans.is_empty() && self.bindings.refused.is_empty() {
            return;
        }
        let place = self.bindings.find(key, owner).filter(|place| self.is_orphan(*place));
        if let Some(place) = place {
            self.bindings.remove(place);
        }
    }

    fn is_orphan(&self, place: Place) -> bool {
        let session = self.bindings.all.get(&place).map(|binding| binding.session);
        session.is_some_and(|session| self.sessions.get(session).is_none())
    }

    /// Sets the token of the owner's binding at this key.
    pub(crate) fn set_binding_token(&mut self, key: KeyRef<'_>, owner: &[u8], token: Token) {
        let place = self.bindings.find(key, owner);
        if let Some(binding) = place.and_then(|place| self.bindings.all.get_mut(&place)) {
            binding.token = token;
        }
    }

    /// Returns the session to which the grant with this token is bound.
    #[must_use]
    pub fn bound_to(
        &self,
        key: KeyRef<'_>,
        owner: &[u8],
        token: Option<Token>,
    ) -> Option<&SessionName> {
        let binding = self.bindings.all.get(&self.bindings.find(key, owner)?)?;
        let binding = Some(binding).filter(|binding| Some(binding.token) == token)?;
        self.sessions.get(binding.session).map(|session| &session.name)
    }

    /// Number of bindings, including bindings of ended sessions that were not released yet.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.bindings.len()
    }

    /// Drops the bindings of this session: the grants last as long as their leases.
    pub fn forget_bound(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(session) {
            self.bindings.forget(std::mem::take(&mut session.bound));
        }
    }

    /// Forgets up to `most` bindings of sessions passed to [`Self::forget_bound`].
    pub(crate) fn forget_some(&mut self, most: usize) {
        for _ in 0..most {
            let Some(places) = self.bindings.forgotten.front_mut() else { return };
            match places.pop_first() {
                Some(place) => drop(self.bindings.remove(place)),
                None => drop(self.bindings.forgotten.pop_front()),
            }
        }
    }

    pub(crate) fn has_forgotten(&self) -> bool {
        !self.bindings.forgotten.is_empty()
    }

    /// Returns a binding to release now because its session has ended or its release was refused
    /// before, or to check because its lease may have ended. Report the result with
    /// [`Self::release_bound`], [`Self::release_bound_permits`], [`Self::stays_bound`],
    /// [`Self::not_bound`] or [`Self::refused_to_release`].
    pub fn next_bound(&mut self, now: Now) -> Option<DueBinding> {
        self.next_orphan(now).or_else(|| self.next_binding(now))
    }

    fn is_refused(&self, now: Now) -> bool {
        self.bindings.refused_until.is_some_and(|until| now.mono < until)
    }

    /// Returns a binding whose session has ended. Sessions take turns.
    pub(crate) fn next_orphan(&mut self, now: Now) -> Option<DueBinding> {
        if self.bindings.orphans.is_empty() || self.is_refused(now) {
            return None;
        }
        self.bindings.refused_until = None;
        while let Some(mut places) = self.bindings.orphans.pop_front() {
            let place = places.pop_first();
            if !places.is_empty() {
                self.bindings.orphans.push_back(places);
            }
            if let Some(place) = place.filter(|place| self.bindings.all.contains_key(place)) {
                return self.bound_at(place, true);
            }
        }
        None
    }

    /// Returns a binding whose lease may have ended, or whose release was refused.
    pub(crate) fn next_binding(&mut self, now: Now) -> Option<DueBinding> {
        let (due, place) = *self.bindings.looks.first()?;
        if due > now.mono || self.is_refused(now) {
            return None;
        }
        self.bindings.refused_until = None;
        // If the caller does not report a result, the binding is checked again later.
        self.bindings.look_at(place, now.mono.plus(LOOKED_AT_AFTER));
        self.bound_at(place, self.bindings.refused.contains(&place))
    }

    fn bound_at(&self, place: Place, is_orphan: bool) -> Option<DueBinding> {
        let Binding { key, owner, token, .. } = self.bindings.all.get(&place)?;
        Some(DueBinding {
            place,
            key: key.clone(),
            owner: Rc::clone(owner),
            token: *token,
            is_orphan,
        })
    }

    /// Returns the end of the bound grant's lease. `None` if the owner no longer has that grant.
    #[must_use]
    pub fn bound_until(&self, at: &Situation<'_>, bound: &DueBinding) -> Option<UnixMillis> {
        let is_it = |token: Option<Token>| token == Some(bound.token);
        match &at.seen {
            Observed::Held(holding) if *holding.owner == *bound.owner && is_it(holding.token) => {
                Some(holding.until.unwrap_or(UnixMillis(u64::MAX)))
            }
            Observed::Shared(sharing) if is_it(sharing.token) => {
                sharing.share_of(&bound.owner, at.now.unix()).map(|share| share.until)
            }
            Observed::Held(_)
            | Observed::Shared(_)
            | Observed::Free { .. }
            | Observed::NotALock { .. } => None,
        }
    }

    /// Records that the bound grant still exists and ends at `until`.
    pub fn stays_bound(&mut self, bound: &DueBinding, until: UnixMillis, now: Now) {
        let lease = until.since(now.unix()).clamp(LOOKED_AT_AFTER, LOOKED_AT_WITHIN);
        self.bindings.look_at(bound.place, now.mono.plus(lease));
    }

    /// Drops a binding that has nothing left to release on this server.
    pub fn not_bound(&mut self, bound: &DueBinding) {
        self.drop_binding(bound.place);
    }

    /// Records that a release could not be written, and plans another attempt. If `all` is set, the
    /// server refuses every write, so no binding is released or checked until that attempt.
    pub fn refused_to_release(&mut self, bound: &DueBinding, all: bool, now: Now) {
        let later = now.mono.plus(if all { REFUSED } else { SLOT_REFUSED });
        self.bindings.refused.insert(bound.place);
        self.bindings.look_at(bound.place, later);
        self.bindings.refused_until = all.then_some(later);
    }

    /// Releases all of the owner's holds of the bound lock, if the bound grant still exists. If no
    /// other sharer is left, the lock goes to the first waiter or becomes free.
    pub fn release_bound(&mut self, at: &Situation<'_>, bound: &DueBinding) -> Change<P> {
        self.drop_binding(bound.place);
        if self.bound_until(at, bound).is_none() {
            return Change::None;
        }
        self.settle(at.key, None, &bound.owner, bound.token);
        count(&mut self.counters.bound_released);
        let change = match &at.seen {
            Observed::Held(holding) => self.pass_on(at, holding.token, Cause::Release),
            Observed::Shared(sharing) => self.stop_sharing(at, sharing, Cause::Release),
            Observed::Free { .. } | Observed::NotALock { .. } => Change::None,
        };
        self.record_loss(at.key, Cause::SessionGone);
        change
    }

    /// Releases all permits of the owner.
    pub fn release_bound_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        bound: &DueBinding,
    ) -> PermitsChange {
        self.drop_binding(bound.place);
        let Semaphore::Set(seen @ Permits { own: Some(own), .. }) = at.seen else {
            return PermitsChange::None;
        };
        self.settle(at.key, None, &bound.owner, bound.token);
        count(&mut self.counters.bound_released);
        without(&seen, own, own.holds)
    }

    /// Returns the time until a binding needs work.
    pub(crate) fn bound_due(&self, now: Now) -> Option<Millis> {
        let bindings = &self.bindings;
        let orphans = (!bindings.orphans.is_empty()).then_some(Millis(0));
        let look = bindings.looks.first().map(|(due, _)| due.since(now.mono));
        let first = sooner(orphans, look)?;
        let refused = bindings.refused_until.map_or(Millis(0), |until| until.since(now.mono));
        Some(first.max(refused))
    }

    pub(crate) fn check_bound(&self) -> Result<(), String> {
        let bindings = &self.bindings;
        let mut listed = 0_usize;
        for (place, binding) in &bindings.all {
            let key = String::from_utf8_lossy(&binding.key.name);
            if !bindings.looks.contains(&(binding.look, *place)) {
                return Err(format!("I19: nobody looks at what is bound at {key}"));
            }
            let gone = || bindings.orphans.iter().chain(&bindings.forgotten);
            let session = self.sessions.get(binding.session);
            let is_listed = session.is_some_and(|session| session.bound.contains(place));
            listed = listed.saturating_add(usize::from(is_listed));
            let is_left = gone().any(|places| places.contains(place));
            if !is_listed && !is_left && !bindings.refused.contains(place) {
                return Err(format!("I19: {key} stays bound to a session that is gone"));
            }
            if bindings.find(binding.key.borrow(), &binding.owner) != Some(*place) {
                return Err(format!("I19: {key} is bound twice for one owner"));
            }
        }
        let of_sessions = self.sessions.iter().map(|(_, session)| session.bound.len());
        if of_sessions.fold(0, usize::saturating_add) != listed {
            return Err(format!("I19: {listed} are bound, and sessions have more"));
        }
        if bindings.looks.len() != bindings.len() {
            return Err(format!("I19: {} looks at {}", bindings.looks.len(), bindings.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

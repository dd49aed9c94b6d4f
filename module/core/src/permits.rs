//! Operations on the permits of a semaphore, and grants of permits to waiters.

use crate::ids::GrantId;
use crate::key::KeyRef;
use crate::lock::{Acquire, AcquireReply, Release, ReleaseReply, RenewReply};
use crate::mode::{Share, Want};
use crate::outbox::{Dismissal, Ending};
use crate::outcome::{Cause, WaitReply, count};
use crate::semaphore::{Permits, PermitsChange, Semaphore, SemaphoreAt, Served, TakeReply};
use crate::table::Table;
use crate::token::Token;
use crate::types::{Millis, Now, after};
use crate::waiter::Caller;

impl<P> Table<P> {
    /// Returns whether fewer than `permits` are free. Then a search for expired holders may free
    /// more.
    #[must_use]
    pub fn lacks_permits(&self, at: &SemaphoreAt<'_>, permits: u64) -> bool {
        matches!(at.seen, Semaphore::Set(seen) if seen.free() < permits)
    }

    /// Returns the owner of the first waiter, and the number of permits it wants.
    #[must_use]
    pub fn first_for_permits(&self, key: KeyRef<'_>) -> Option<(&[u8], u64)> {
        let queue = self.queues.find(key)?;
        let (first, _) = self.front(queue)?;
        let waiter = self.queues.waiter(first)?;
        let Want::Permits { more, .. } = waiter.want else { return None };
        Some((&waiter.owner, more))
    }

    /// Sets the number of permits; with `only_new`, only if the semaphore does not exist. The reply is
    /// `None` if the key is not a semaphore, and `Some(false)` if `only_new` prevents it.
    pub fn set_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        limit: u64,
        only_new: bool,
    ) -> (Option<bool>, PermitsChange) {
        match at.seen {
            Semaphore::NotASemaphore { .. } => (None, PermitsChange::None),
            Semaphore::Set(_) if only_new => (Some(false), PermitsChange::None),
            Semaphore::Set(seen) if seen.limit == limit => (Some(true), PermitsChange::None),
            Semaphore::Set(_) | Semaphore::Unset => (Some(true), PermitsChange::Limit(limit)),
        }
    }

    /// Grants permits if enough are free, no waiter is in line and no quarantine is on. If the owner
    /// already holds the number in `HOLDS`, the command is a repetition and may extend the lease.
    pub fn take_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        permits: u64,
        request: &Acquire<'_>,
    ) -> (TakeReply, PermitsChange) {
        let outcome = self.try_take(at, permits, request);
        if outcome.0 == TakeReply::Refused {
            count(&mut self.counters.refused);
        }
        outcome
    }

    /// Grants all free permits, if there are any, no waiter is in line and no quarantine is on.
    /// `HOLDS n` matches an owner that holds n − 1. If the owner holds n or more, the command is a
    /// repetition.
    pub fn drain_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        request: &Acquire<'_>,
    ) -> (TakeReply, PermitsChange) {
        let Semaphore::Set(seen) = at.seen else { return self.take_permits(at, 1, request) };
        let (held, free) = (seen.held(), seen.free());
        match request.holds {
            Some(n) if n <= held => {
                let again = Acquire { holds: Some(held), ..*request };
                return self.take_permits(at, 0, &again);
            }
            Some(n) if n > held.saturating_add(1) => {
                return (TakeReply::Mismatch, PermitsChange::None);
            }
            Some(_) | None => {}
        }
        if free == 0 {
            count(&mut self.counters.refused);
            return (TakeReply::Refused, PermitsChange::None);
        }
        self.take_permits(at, free, &Acquire { holds: None, ..*request })
    }

    fn try_take(
        &mut self,
        at: &SemaphoreAt<'_>,
        permits: u64,
        request: &Acquire<'_>,
    ) -> (TakeReply, PermitsChange) {
        let seen = match fitting(&at.seen, permits, request.holds) {
            Ok(seen) => seen,
            Err(misfit) => return (misfit, PermitsChange::None),
        };
        let (held, end) = (seen.held(), at.now.unix().plus(request.lease));
        let until = seen.own.map_or(end, |own| own.until.max(end));
        if request.holds == Some(held) {
            count(&mut self.counters.repeated);
            self.record_use(at.key, request.owner, Some(Token::NONE));
            let share = Share { holds: held, until };
            let change = PermitsChange::Own { share: Some(share), used: seen.used };
            let same = seen.own == Some(share);
            return (TakeReply::Holds(held), if same { PermitsChange::None } else { change });
        }
        let more = held.saturating_add(permits);
        let in_line = self.is_in_line(at.key);
        let refused = in_line || self.quarantine.is_on(at.now);
        if refused || seen.free() < permits {
            return (TakeReply::Refused, PermitsChange::None);
        }
        count(&mut self.counters.granted);
        self.record_use(at.key, request.owner, Some(Token::NONE));
        self.leave_place_aside(at.key, request.owner);
        if held == 0 {
            self.unbind(at.key, request.owner);
        }
        let share = Share { holds: more, until };
        self.look_no_later_than(at.key, after(until), Cause::Expiry);
        let used = seen.used.saturating_add(permits);
        (TakeReply::Holds(more), PermitsChange::Own { share: Some(share), used })
    }

    /// Takes permits if possible. Otherwise decides whether the caller may wait for them.
    pub fn wait_for_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        permits: u64,
        request: &Acquire<'_>,
        caller: impl Into<Caller>,
    ) -> (WaitReply<TakeReply>, PermitsChange) {
        let caller = caller.into();
        let held = match at.seen {
            Semaphore::Set(Permits { own: Some(own), .. }) => Some(own.holds),
            Semaphore::Set(_) | Semaphore::Unset | Semaphore::NotASemaphore { .. } => None,
        };
        if held.is_none() && self.has_place_aside(at.key, request.owner) {
            let reply = match fitting(&at.seen, permits, request.holds) {
                Ok(_) => self.room_for(at.key, request.owner, &caller),
                Err(misfit) => WaitReply::Now(misfit),
            };
            return (reply, PermitsChange::None);
        }
        let request = request.through(caller.session(), held);
        let (reply, change) = self.try_take(at, permits, &request);
        if reply != TakeReply::Refused {
            return (WaitReply::Now(reply), change);
        }
        (self.room_for(at.key, request.owner, &caller), PermitsChange::None)
    }

    /// Releases permits.
    pub fn release_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        owner: &[u8],
        release: Release,
    ) -> (ReleaseReply, PermitsChange) {
        let (seen, own) = match at.seen {
            Semaphore::NotASemaphore { .. } => {
                return (ReleaseReply::NotALock, PermitsChange::None);
            }
            Semaphore::Set(seen @ Permits { own: Some(own), .. }) => (seen, own),
            Semaphore::Set(_) | Semaphore::Unset => {
                return (ReleaseReply::NotHeld, PermitsChange::None);
            }
        };
        let left = match release {
            Release::One => own.holds.saturating_sub(1),
            Release::All => 0,
            Release::DownTo(n) if n <= own.holds => n,
            Release::DownTo(_) => return (ReleaseReply::Mismatch, PermitsChange::None),
        };
        self.record_release(at.key, owner, Some(Token::NONE));
        if left == own.holds {
            count(&mut self.counters.repeated);
            return (ReleaseReply::Left(left), PermitsChange::None);
        }
        if left == 0 {
            count(&mut self.counters.released);
            self.unbind(at.key, owner);
        }
        (ReleaseReply::Left(left), without(&seen, own, own.holds.saturating_sub(left)))
    }

    /// Restarts the lease of an owner's permits.
    pub fn renew_permits(
        &mut self,
        at: &SemaphoreAt<'_>,
        owner: &[u8],
        lease: Millis,
    ) -> (RenewReply, PermitsChange) {
        let (seen, own) = match at.seen {
            Semaphore::NotASemaphore { .. } => return (RenewReply::NotALock, PermitsChange::None),
            Semaphore::Set(seen @ Permits { own: Some(own), .. }) => (seen, own),
            Semaphore::Set(_) | Semaphore::Unset => {
                return (RenewReply::NotHeld, PermitsChange::None);
            }
        };
        let until = at.now.unix().plus(lease);
        self.record_use(at.key, owner, Some(Token::NONE));
        self.look_no_later_than(at.key, after(until), Cause::Expiry);
        let share = Some(Share { until, ..own });
        (RenewReply::Lease(lease), PermitsChange::Own { share, used: seen.used })
    }

    /// Grants the first waiter its permits, or dismisses it if its request no longer fits. If it has
    /// to wait, plans the next look. `at` contains the permits of that waiter's owner.
    pub fn serve_permits(&mut self, at: &SemaphoreAt<'_>, cause: Cause) -> Served<P> {
        let Some(id) = self.queues.find(at.key) else { return Served::NotYet };
        let (Some((head, Want::Permits { more: permits, holds })), Semaphore::Set(seen)) =
            (self.front(id), at.seen)
        else {
            if let Semaphore::NotASemaphore { until } = at.seen {
                self.plan_next_look(id, until, at.now);
                self.check_other_kind(at.key, at.now);
            } else {
                self.plan_next_look(id, None, at.now);
            }
            return Served::NotYet;
        };
        let misfit = match fitting(&at.seen, permits, holds) {
            Ok(seen) if holds != Some(seen.held()) => None,
            Err(TakeReply::TooMany) => Some(Dismissal::TooMany),
            Ok(_) | Err(_) => Some(Dismissal::Misfit(AcquireReply::Mismatch)),
        };
        if let Some(why) = misfit {
            let Some(leaver) = self.take_out(head) else { return Served::NotYet };
            return Served::Dismissed(self.deliver(leaver, Ending::Dismissed(why.clone())), why);
        }
        let more = seen.held().saturating_add(permits);
        if self.quarantine.is_on(at.now) {
            self.plan_next_look(id, None, at.now);
            return Served::NotYet;
        }
        if seen.free() < permits {
            let earliest = seen.earliest.unwrap_or_else(|| at.now.unix());
            self.plan_next_look(id, Some(earliest), at.now);
            return Served::NotYet;
        }
        let Some(waiter) = self.take_out(head) else { return Served::NotYet };
        let hand_off = self.hand_off(at.now, waiter, Token::NONE, cause, (more, permits));
        let until = seen.own.map_or(hand_off.until, |own| own.until.max(hand_off.until));
        Served::Granted(hand_off, Share { holds: more, until }, seen.used.saturating_add(permits))
    }

    /// Plans a look as soon as possible in a later turn of the event loop, for waiters that could
    /// not be served in this turn.
    pub fn serve_soon(&mut self, key: KeyRef<'_>, cause: Cause, now: Now) {
        self.look_no_later_than(key, now.unix(), cause);
    }

    /// Takes back permits whose grant did not reach its client, unless the owner has used its
    /// permits since.
    pub fn take_permits_back(
        &mut self,
        at: &SemaphoreAt<'_>,
        id: GrantId,
        owner: &[u8],
        permits: u64,
    ) -> PermitsChange {
        let untouched = self.settle(at.key, Some(id), owner, Token::NONE);
        match at.seen {
            Semaphore::Set(seen @ Permits { own: Some(own), .. }) if untouched => {
                count(&mut self.counters.grants_taken_back);
                without(&seen, own, permits.min(own.holds))
            }
            Semaphore::Set(_) | Semaphore::Unset | Semaphore::NotASemaphore { .. } => {
                PermitsChange::None
            }
        }
    }
}

/// Returns the state of a semaphore if the owner may take `permits` more as soon as they are
/// free, otherwise the reply. If the owner already holds the number in `HOLDS`, the command is a
/// repetition and needs no more.
fn fitting(seen: &Semaphore, permits: u64, holds: Option<u64>) -> Result<Permits, TakeReply> {
    let seen = match seen {
        Semaphore::Set(seen) => *seen,
        Semaphore::Unset => return Err(TakeReply::Unset),
        Semaphore::NotASemaphore { .. } => return Err(TakeReply::NotASemaphore),
    };
    let more = seen.held().saturating_add(permits);
    match holds {
        Some(n) if n == seen.held() => Ok(seen),
        Some(n) if n != more => Err(TakeReply::Mismatch),
        Some(_) | None if more > seen.limit => Err(TakeReply::TooMany),
        Some(_) | None => Ok(seen),
    }
}

/// Returns the change that takes `permits` from the owner.
pub(crate) fn without(seen: &Permits, own: Share, permits: u64) -> PermitsChange {
    let left = own.holds.saturating_sub(permits);
    let share = (left > 0).then_some(Share { holds: left, ..own });
    PermitsChange::Own { share, used: seen.used.saturating_sub(permits) }
}

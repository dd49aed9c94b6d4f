//! Operations on shared locks and shared holds, and grants of free locks.

use crate::change::{Change, Sharers};
use crate::lock::{Acquire, AcquireReply, Release, ReleaseReply, RenewReply, left_after};
use crate::mode::{Share, Sharing, Want};
use crate::observed::Holding;
use crate::outcome::{Cause, count};
use crate::situation::Situation;
use crate::table::Table;
use crate::token::Token;
use crate::types::{Millis, after};

impl<P> Table<P> {
    /// Decides on a request, exclusive or shared, for a lock that is shared.
    pub(crate) fn ask_for_shared(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        let own = sharing.share_of(request.owner, at.now.unix());
        let must_hold_more = request.holds.is_some_and(|n| n > 1);
        let in_line = self.is_in_line(at.key);
        let alone = request.want != Want::Shared;
        let joins = match (own, alone) {
            (Some(_), true) => Err(AcquireReply::Upgrade),
            (Some(share), false) => self.reenter_share(at, sharing, share, request),
            (None, _) if must_hold_more => Err(AcquireReply::Mismatch),
            (None, _) if self.quarantine.is_on(at.now) => Err(AcquireReply::Refused),
            (None, false) if !in_line => self.join(at, sharing, request),
            (None, _) => Err(AcquireReply::Refused),
        };
        joins.unwrap_or_else(|refusal| (refusal, Change::None))
    }

    pub(crate) fn join(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        request: &Acquire<'_>,
    ) -> Result<(AcquireReply, Change<P>), AcquireReply> {
        let (token, given) = self.token_of(at, sharing.token)?;
        count(&mut self.counters.granted);
        count(&mut self.counters.granted_shared);
        self.unbind(at.key, request.owner);
        self.leave_place_aside(at.key, request.owner);
        self.note_own_set(at.key, request.owner);
        let share = Share { holds: 1, until: at.now.unix().plus(request.lease) };
        let change = shares_on(sharing, share, given);
        Ok((AcquireReply::Granted { token, holds: 1 }, change))
    }

    fn reenter_share(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        share: Share,
        request: &Acquire<'_>,
    ) -> Result<(AcquireReply, Change<P>), AcquireReply> {
        let (holds, until) = share.as_holding().reenter(request, at.now.unix())?;
        let (token, given) = self.token_of(at, sharing.token)?;
        self.count_reentry(holds > share.holds);
        self.record_use(at.key, request.owner, sharing.token);
        let now = Share { holds, until: until.unwrap_or(share.until) };
        let same = now == share && given.is_none();
        let change = if same { Change::None } else { shares_on(sharing, now, given) };
        Ok((AcquireReply::Granted { token, holds }, change))
    }

    /// Handles a request of the exclusive holder of a lock to share it too.
    pub(crate) fn share_beside(
        &mut self,
        at: &Situation<'_>,
        holding: &Holding<'_>,
        request: &Acquire<'_>,
    ) -> Result<(AcquireReply, Change<P>), AcquireReply> {
        let beside = Holding { holds: holding.shared, ..*holding };
        let (holds, until) = beside.reenter(request, at.now.unix())?;
        let (token, given) = self.token_of(at, holding.token)?;
        self.count_reentry(holds > holding.shared);
        self.record_use(at.key, request.owner, holding.token);
        let same = holds == holding.shared && until.is_none() && given.is_none();
        let change =
            if same { Change::None } else { Change::Beside { holds, token: given, until } };
        Ok((AcquireReply::Granted { token, holds }, change))
    }

    pub(crate) fn count_reentry(&mut self, more: bool) {
        if more {
            count(&mut self.counters.reentered);
        } else {
            count(&mut self.counters.repeated);
        }
    }

    /// Begins a shared period with the caller as the only sharer. `token` was issued for it.
    pub(crate) fn share_alone(
        &mut self,
        at: &Situation<'_>,
        token: Token,
        lease: Millis,
    ) -> Change<P> {
        count(&mut self.counters.granted_shared);
        let until = at.now.unix().plus(lease);
        let own = Some(Share { holds: 1, until });
        let (token, until) = (Some(token), Some(until));
        Change::Share(Sharers { begins: true, token, own, joined: Vec::new(), until })
    }

    /// Releases shared holds of a shared lock.
    pub(crate) fn release_share(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        owner: &[u8],
        release: Release,
    ) -> (ReleaseReply, Change<P>) {
        let Some(share) = sharing.share_of(owner, at.now.unix()) else {
            return (ReleaseReply::NotHeld, Change::None);
        };
        let Some(left) = left_after(release, share.holds) else {
            return (ReleaseReply::Mismatch, Change::None);
        };
        self.record_release(at.key, owner, sharing.token);
        let change = if left == share.holds {
            count(&mut self.counters.repeated);
            Change::None
        } else if left > 0 {
            shares_on(sharing, Share { holds: left, ..share }, None)
        } else {
            count(&mut self.counters.released);
            self.unbind(at.key, owner);
            self.stop_sharing(at, sharing, Cause::Release)
        };
        (ReleaseReply::Left(left), change)
    }

    /// Releases shared holds of the exclusive holder of a lock.
    pub(crate) fn release_beside(
        &mut self,
        at: &Situation<'_>,
        holding: &Holding<'_>,
        release: Release,
    ) -> (ReleaseReply, Change<P>) {
        if holding.shared == 0 {
            return (ReleaseReply::NotHeld, Change::None);
        }
        let Some(left) = left_after(release, holding.shared) else {
            return (ReleaseReply::Mismatch, Change::None);
        };
        self.record_release(at.key, holding.owner, holding.token);
        if left == holding.shared {
            count(&mut self.counters.repeated);
            return (ReleaseReply::Left(left), Change::None);
        }
        (ReleaseReply::Left(left), Change::Beside { holds: left, token: None, until: None })
    }

    /// Removes one sharer. Other sharers that are left in the hash may all have expired: only a look
    /// at the key can tell whether the lock is free.
    pub(crate) fn stop_sharing(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        cause: Cause,
    ) -> Change<P> {
        self.record_loss(at.key, cause);
        if sharing.holders > 1 { Change::Leave } else { self.pass_on(at, sharing.token, cause) }
    }

    /// Ends the exclusive holds of an owner that also has shared holds, and keeps the shared ones. A
    /// new shared period begins, with a new token if one can be issued. With the new token,
    /// a resource can tell late writes under the exclusive holds from uses under the shared holds.
    pub(crate) fn downgrade(&mut self, at: &Situation<'_>, holding: &Holding<'_>) -> Change<P> {
        count(&mut self.counters.downgraded);
        self.record_loss(at.key, Cause::Release);
        let until = holding.until.unwrap_or(Share::ENDLESS);
        let own = Share { holds: holding.shared, until };
        let stored = self.believe(holding.token);
        if at.lacks_token_bound(stored) {
            let (own, until) = (Some(own), holding.until);
            let joined = Vec::new();
            return Change::Share(Sharers { begins: true, token: None, own, joined, until });
        }
        let change = self.begin_sharing(at, stored, Cause::Release, Some((own, holding.until)));
        if let Some(token) = change.issued() {
            self.set_binding_token(at.key, holding.owner, token);
        }
        change
    }

    /// Restarts the lease of one sharer.
    pub(crate) fn renew_share(
        &mut self,
        at: &Situation<'_>,
        sharing: &Sharing<'_>,
        owner: &[u8],
        lease: Millis,
    ) -> (RenewReply, Change<P>) {
        let Some(share) = sharing.share_of(owner, at.now.unix()) else {
            return (RenewReply::NotHeld, Change::None);
        };
        self.record_use(at.key, owner, sharing.token);
        let until = at.now.unix().plus(lease);
        // The renewed lease may end before the planned look.
        self.look_no_later_than(at.key, after(until), Cause::Expiry);
        (RenewReply::Lease(lease), shares_on(sharing, Share { until, ..share }, None))
    }

    /// Grants a free lock.
    pub(crate) fn take(
        &mut self,
        at: &Situation<'_>,
        stored: Option<Token>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        let token = self.tokens.issue(stored, at.floor, at.now.unix_us);
        self.take_as(at, token, request)
    }

    /// Grants a free lock with a token that was issued for it.
    pub(crate) fn take_as(
        &mut self,
        at: &Situation<'_>,
        token: Token,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        count(&mut self.counters.granted);
        self.unbind(at.key, request.owner);
        self.leave_place_aside(at.key, request.owner);
        self.note_own_set(at.key, request.owner);
        let change = if request.want == Want::Shared {
            self.share_alone(at, token, request.lease)
        } else {
            Change::Take { token, until: at.now.unix().plus(request.lease), value: None }
        };
        (AcquireReply::Granted { token, holds: 1 }, change)
    }
}

/// Returns the change for a lock that stays shared, with the new share of the caller.
fn shares_on<P>(sharing: &Sharing<'_>, share: Share, token: Option<Token>) -> Change<P> {
    let until = sharing.extended_to(share.until);
    let (own, joined) = (Some(share), Vec::new());
    Change::Share(Sharers { begins: false, token, own, joined, until })
}

impl Share {
    /// Returns the share as an exclusive holding, to use the rules for reentries of [`Holding`].
    pub(crate) fn as_holding(self) -> Holding<'static> {
        Holding { owner: b"", holds: self.holds, shared: 0, token: None, until: Some(self.until) }
    }
}

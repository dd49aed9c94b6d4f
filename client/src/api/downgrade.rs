//! Turning an exclusive hold into a shared one, without a release in between.

use crate::api::guard::Guard;
use crate::engine::acquire::Acquisition;
use crate::engine::acquire::claim::Claim;
use crate::engine::limit::Limit;
use crate::engine::owner::OwnerSlot;
use crate::wire::error::Error;
use crate::wire::request::Mode;

impl Guard {
    /// Turns an exclusive hold into a [shared](crate::Lock::shared) one in one step. Readers at the front
    /// of the queue are granted the lock too, and no writer holds it in between.
    ///
    /// The token is a new, larger one: a resource that has seen it refuses late writes of the exclusive
    /// period. A guard of a shared lock is returned unchanged.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock was lost; [`Invalid`](Error::Invalid) if the same owner has other
    /// guards of the lock; network errors. After an error the guard is gone, and its hold is released in
    /// the background.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let writer = client.lock("catalogue").acquire().await?;
    /// // … write, and then check what was written, together with other readers:
    /// let reader = writer.downgrade().await?;
    /// reader.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Self, Error> {
        let held_lock = self.lease().held_lock.clone();
        if held_lock.mode == Mode::Shared {
            return Ok(self);
        }
        // While this task has the gate and the turn, the owner gets and releases no other guard of this lock.
        let slot = self.slot();
        let _gate = match &slot {
            Some(slot) => Some(slot.gate().await),
            None => None,
        };
        let turn = self.lease().turn_after_releases(self.share).await;
        if self.holds() > 1 {
            return Err(Error::Invalid("further guards of this owner hold the lock".to_owned()));
        }
        let Some(term) = self.term() else { return Err(self.lease().lost_error()) };
        let (bound, observed) = (self.lease().was_bound(), self.is_observed());
        let inner = self.inner().clone();
        let (mode, key, limit) = (Mode::Shared, &held_lock.key, Limit::Now);
        let sharing = Acquisition {
            inner: &inner,
            mode,
            key,
            further: held_lock.further.as_ref(),
            term,
            limit,
            slot: None,
            value: None,
            unless: None,
            bound,
        };
        let mut claim = Claim::of(&inner, mode, key, &held_lock.owner);
        claim.further = held_lock.further.clone();
        sharing.regain(&mut claim).await?;
        claim.inherit(self.lease().late());
        self.release_exclusive(turn).await?;
        // The shared period begins with the release of the exclusive hold. Asks again, to get the
        // token of that period.
        let granted = sharing.regain(&mut claim).await?;
        let (lease, share) = sharing.keep(claim, granted).await?;
        let again = slot.as_ref().map(OwnerSlot::again);
        let reader = Self::new(inner.clone(), lease, share, again).and(bound, observed).await?;
        // Only now may other acquires of this owner use the new lease. If the old lease was bound,
        // the server still has the binding, so the new record must have it first.
        if let Some(slot) = &slot {
            slot.holds(reader.lease());
        }
        Ok(reader)
    }
}

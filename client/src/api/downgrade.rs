//! From holding a lock alone to sharing it, without letting go in between.

use crate::api::guard::Guard;
use crate::engine::acquire::Acquisition;
use crate::engine::acquire::claim::Claim;
use crate::engine::limit::Limit;
use crate::wire::error::Error;
use crate::wire::request::Mode;

impl Guard {
    /// Turns an exclusive hold into a [shared](crate::Lock::shared) one in one step: waiting readers at the front are
    /// granted the lock, and no writer holds it in between.
    ///
    /// The token is a new, larger one: a resource that has seen it refuses late writes of the exclusive period. A
    /// guard that already shares the lock is returned unchanged.
    ///
    /// # Errors
    ///
    /// After each of them the lock is released: [`Lost`](Error::Lost) if it was lost;
    /// [`Invalid`](Error::Invalid) if there are further guards of the same owner and network
    /// errors.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lock is released in the background.
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
        // From here on no other guard of this owner comes or goes.
        let turn = self.lease().turn().await;
        if self.holds() > 1 {
            return Err(Error::Invalid("further guards of this owner hold the lock".to_owned()));
        }
        let Some(term) = self.term() else { return Err(self.lease().lost_error()) };
        let (bound, observed) = (self.lease().was_bound(), self.is_observed());
        let (inner, slot) = (self.inner().clone(), self.slot_in(Mode::Shared));
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
        self.release_in_turn(turn).await?;
        // Only now the time of sharing begins, and with it the new token.
        let granted = sharing.regain(&mut claim).await?;
        let (lease, share) = sharing.keep(claim, granted).await?;
        let reader = Self::new(inner.clone(), lease, share, slot).and(bound, observed).await?;
        // Not earlier: for the server the lock is still bound, which the new record has to know.
        if let Some(slot) = reader.slot_in(Mode::Shared) {
            slot.holds(reader.lease());
        }
        Ok(reader)
    }
}

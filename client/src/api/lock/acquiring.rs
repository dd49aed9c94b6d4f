//! Acquiring a lock, and taking over one that was detached.

use super::Lock;
use crate::api::guard::Guard;
use crate::engine::acquire::Acquisition;
use crate::engine::acquire::claim::Claim;
use crate::engine::lease::Lease;
use crate::engine::limit::{Limit, Trouble};
use crate::engine::owner::{Owner, OwnerSlot};
use crate::engine::reenter;
use crate::engine::settings::{FIRST_LEASE, check_lease};
use crate::engine::telemetry;
use crate::wire::error::Error;
use crate::wire::reply::Token;
use crate::wire::request::{self, Mode};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

impl Lock {
    /// Acquires the lock. Waits in the queue behind earlier waiters, without a time limit.
    ///
    /// All tasks and processes are served in the order in which their waits arrive at the server. For tasks
    /// of one client, this is nearly always the order of their calls. With an [`owner`](Self::owner) that
    /// holds the lock, this re-enters at once.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the name or lease is out of range, or if the owner belongs to another
    /// client; [`Lost`](Error::Lost) on re-entry into a lost lock; [`Upgrade`](Error::Upgrade);
    /// [`NotALock`](Error::NotALock); [`QueueFull`](Error::QueueFull); errors of the server or the network.
    /// Temporary errors are retried for the [`patience`](crate::Builder::patience) of the client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. When the future is dropped at any point, the place in the queue is given up. A lock that
    /// was granted at that moment is released. The cleanup runs in the background. A later call waits at the
    /// end of the queue.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("orders:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        match self.acquire_by(Limit::Never).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Timeout),
        }
    }

    /// Acquires the lock if that is possible without waiting. Otherwise returns `None`, for example
    /// if another owner holds the lock, if other clients wait for it, or if the server is in
    /// quarantine.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), but temporary errors are not retried, except once over a new
    /// connection if the old one was closed.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire): nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// match client.lock("orders:42").try_acquire().await? {
    ///     Some(guard) => guard.release().await?,
    ///     None => println!("another client has it"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire_by(Limit::Now).await
    }

    /// Acquires the lock. Waits in the queue for up to `timeout`, then returns `None`. With a `timeout` of
    /// zero it does not wait, like [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire). If `timeout` elapses while a failed request is retried,
    /// returns the last error.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire): nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let lock = client.lock("orders:42");
    /// let Some(guard) = lock.acquire_within(Duration::from_secs(1)).await? else {
    ///     println!("not within a second");
    ///     return Ok(());
    /// };
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>, Error> {
        self.acquire_by(Limit::within(timeout)).await
    }

    /// Acquires the lock, runs the work while the lock is held, and releases the lock.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire), before the work has begun; [`Lost`](Error::Lost) if the
    /// lock was lost before the work was done, or is found lost at its release. Without an error, the lock
    /// was held from the start of the work to its end, unless the connection broke during the release and
    /// the server has lost its data. Another error of the release is only logged, since
    /// the work was done, and the release is repeated in the background.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work; the lock, or the place in the queue, is given up in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # struct Store;
    /// # impl Store { async fn write(&self, _: kvlock::Token) -> u64 { 0 } }
    /// # async fn example(client: kvlock::Client, store: Store) -> Result<(), kvlock::Error> {
    /// let rows = client.lock("orders:42").with(async |guard| store.write(guard.token()).await).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let done = guard.run_until_lost(work(&guard)).await?;
        let held_lock = guard.lease().held_lock.clone();
        match guard.release().await {
            Err(lost @ Error::Lost(_)) => return Err(lost),
            Err(trouble) => telemetry::not_released(&held_lock, &trouble),
            Ok(()) => {}
        }
        Ok(done)
    }

    /// Takes over a lock that another process, or this one, has [detached](crate::Guard::detach). The
    /// returned guard renews and releases it. Only one process may take over a lock: if several do, each of
    /// them believes that it holds the lock.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if `owner` no longer holds the lock with `token`; the errors of
    /// [`try_acquire`](Self::try_acquire). After an error the lock is as it was, perhaps with a longer lease,
    /// and the call can be repeated. With [`bound`](Self::bound), the lock may already be bound to this client.
    /// Then it ends with this client's session, also if another process adopts it without `bound`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock stays as it was, perhaps with a longer lease, and perhaps bound, as
    /// after an error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client, owner: String, token: kvlock::Token) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("orders:42").adopt(&owner, token).await?;
    /// # Ok(()) }
    /// ```
    pub async fn adopt(&self, owner: &str, token: Token) -> Result<Guard, Error> {
        self.check()?;
        check_lease(self.term.length)?;
        let inner = &self.inner;
        // The claim sends no command that can be granted, so there is nothing to undo.
        let mut claim = Claim::of(inner, self.mode, &self.key, &owner.into());
        claim.further = self.further.clone();
        let acquisition = self.acquisition(Limit::Now, None);
        let (lease, share) = acquisition.adopt(claim, token).await?;
        Guard::adopted(inner.clone(), lease, share, self.bound, self.observed).await
    }

    /// Acquires the lock. `None` if the limit has passed, or if the result exists that makes the lock
    /// unnecessary.
    pub(crate) async fn acquire_by(&self, limit: Limit) -> Result<Option<Guard>, Error> {
        self.check()?;
        check_lease(self.term.length)?;
        let span = telemetry::acquire_span(&self.key);
        let acquire = pin!(async {
            let guard = match &self.owner {
                None => self.acquire_first(limit, None).await?,
                Some(owner) => self.acquire_for(owner, limit).await?,
            };
            match guard {
                Some(guard) => Ok(Some(guard.and(self.bound, self.observed).await?)),
                None => Ok(None),
            }
        });
        let acquired = pin!(limit.hold(self.reply_timeout(), acquire));
        let guard = telemetry::inside(&span, acquired).await?;
        if let Some(guard) = &guard {
            telemetry::granted(&span, guard.token());
        }
        Ok(guard)
    }

    async fn acquire_first(
        &self,
        limit: Limit,
        slot: Option<OwnerSlot>,
    ) -> Result<Option<Guard>, Error> {
        let acquisition = self.acquisition(limit, slot.as_ref());
        let Some((lease, share)) = acquisition.run().await? else { return Ok(None) };
        Ok(Some(Guard::new(self.inner.clone(), lease, share, slot)))
    }

    fn acquisition<'a>(&'a self, limit: Limit, slot: Option<&'a OwnerSlot>) -> Acquisition<'a> {
        let Self { inner, key, further, mode, term, value, unless, bound, .. } = self;
        let (mode, term, bound) = (*mode, *term, *bound);
        let (further, value, unless) = (further.as_ref(), value.as_ref(), unless.as_ref());
        Acquisition { inner, mode, key, further, term, limit, slot, value, unless, bound }
    }

    async fn acquire_for(&self, owner: &Owner, limit: Limit) -> Result<Option<Guard>, Error> {
        if !owner.is_of(self.inner.name) {
            return Err(Error::Invalid("the owner is of another client".to_owned()));
        }
        let slot = owner.slot(&self.key);
        let gate = match limit {
            // The acquire that has the gate frees it soon, unless that acquire waits in the queue.
            // Then this call returns without waiting.
            Limit::Now => tokio::select! {
                biased;
                gate = slot.gate() => Some(gate),
                () = slot.until_waiting() => None,
            },
            Limit::Until(_) | Limit::Never => limit.wait_for(slot.gate()).await,
        };
        let Some(_gate) = gate else {
            return Ok(None);
        };
        self.check_beside(owner)?;
        let mut trouble = Trouble::new(limit);
        // An owner that holds the lock exclusively re-enters that hold, in either mode.
        while let Some(lease) = slot.lease() {
            if self.mode == Mode::Alone && lease.held_lock.mode == Mode::Shared {
                return Err(Error::Upgrade);
            }
            match self.acquire_again(owner, &lease).await {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) => break,
                Err(error) => self.inner.wait_to_retry(&mut trouble, error).await?,
            }
        }
        let guard = self.acquire_first(limit, Some(slot.again())).await?;
        if let Some(guard) = &guard {
            slot.holds(guard.lease());
        }
        Ok(guard)
    }

    /// Returns an error if this acquisition would wait for another one of the same owner, which holds one of
    /// these locks together with other locks.
    fn check_beside(&self, owner: &Owner) -> Result<(), Error> {
        let wanted: Vec<_> =
            request::modes(self.mode, &self.key, self.further.as_deref()).collect();
        for lease in owner.leases() {
            let held_lock = &lease.held_lock;
            if held_lock.key == self.key || lease.is_lost() {
                continue;
            }
            for (held, mode) in held_lock.modes() {
                match wanted.iter().find(|(name, _)| *name == held) {
                    None | Some((_, Mode::Shared)) if mode == Mode::Shared => {}
                    None => {}
                    Some(_) if mode == Mode::Shared => return Err(Error::Upgrade),
                    Some(_) => {
                        let name = held.escape_ascii();
                        let said = format!("another acquisition of this owner holds {name}");
                        return Err(Error::Invalid(said));
                    }
                }
            }
        }
        Ok(())
    }

    async fn acquire_again(
        &self,
        owner: &Owner,
        lease: &Arc<Lease>,
    ) -> Result<Option<Guard>, Error> {
        let inner = &self.inner;
        if lease.held_lock.further != self.further {
            return Err(Error::Invalid("the owner holds this lock under other locks".to_owned()));
        }
        let Some(share) = reenter::reenter(inner, lease, self.term).await? else {
            return Ok(None);
        };
        let mut guard =
            Guard::new(inner.clone(), lease.clone(), share, Some(owner.slot(&self.key)));
        if self.term.length > FIRST_LEASE {
            guard.extend(self.term.length).await?;
        }
        Ok(Some(guard))
    }
}
